"""The outbox of a node in a cluster."""

from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.outbox import Dropped
from leadsman.extensions.nodes.cluster.cluster import LOST, FencedOutbox


class Tokens:
    """A node with one device, and the token that it has for it."""

    def __init__(self, now=1):
        self.now = now

    def token(self, topic):
        return self.now if topic == "house/boiler/state" else None


class Receipt:
    """Counts as the ledger does."""

    def __init__(self):
        self.published = self.replayed = self.lost = 0

    def dropped(self, at, messages=1):
        self.lost += messages

    def replaced(self):
        raise AssertionError("every reading counts")


def reading(receipt=None):
    return Message("house/boiler/state", b"{}", taken_at=1.0, clock_offset=0.0, receipt=receipt)


def test_a_message_of_a_device_has_the_token_of_its_node():
    outbox = FencedOutbox(Tokens(7).token)
    outbox.put(reading())
    outbox.put(Message("house/nodes/one/status", b"{}"))
    assert [outbox.pop(0.0)[0].message.fence for _ in range(2)] == [7, None]
    assert outbox.hand_over(reading()).message.fence == 7


def test_what_waits_for_a_device_that_another_node_has_is_dropped_and_counted():
    tokens, receipt = Tokens(), Receipt()
    outbox = FencedOutbox(tokens.token)
    outbox.put(reading(receipt))
    tokens.now = 0
    assert outbox.hand_over(reading()) is None
    outbox.put(reading(receipt))
    assert outbox.pop(0.0) == (None, [Dropped("house/boiler/state", 1, LOST, "fenced")] * 2)
    assert (outbox.drops["fenced"], receipt.lost, outbox.messages) == (2, 2, 0)


def test_what_came_back_from_a_connection_is_asked_again():
    tokens = Tokens()
    outbox = FencedOutbox(tokens.token)
    outbox.hand_over(reading())
    tokens.now = 2
    outbox.lost()
    assert outbox.pop(0.0)[0] is None


STEPS = st.lists(st.sampled_from(["put", "hand over", "take", "accept", "lost", "fenced", "again"]), max_size=60)


@given(STEPS)
def test_nothing_is_handed_out_under_another_token_and_every_reading_is_counted_once(steps):
    tokens, receipt, newest, put, flying = Tokens(), Receipt(), 1, 0, []
    outbox = FencedOutbox(tokens.token)
    for step in steps:
        item = None
        if step == "put":
            outbox.put(reading(receipt))
            put += 1
        elif step == "hand over":
            item = outbox.hand_over(reading(receipt))
            put += item is not None
        elif step == "take":
            item, _ = outbox.pop(0.0)
        elif step == "accept" and flying:
            outbox.accept(flying.pop(0))
        elif step == "lost":
            outbox.lost()
            flying.clear()
        elif step == "fenced":
            tokens.now = 0
        elif step == "again":
            newest += 1
            tokens.now = newest
        if item is not None:
            assert item.message.fence == tokens.now > 0
            flying.append(item)
    assert outbox.messages + receipt.published + receipt.lost == put
