"""What a broker keeps of a client between two connections: which message comes again, and which is a new one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman import Received
from leadsman.core.mqtt.broker_session import COMES_AGAIN, Arrival, BrokerSession
from leadsman.core.mqtt.connection import RECEIVE_MAXIMUM


def message(content, packet_id=1, *, again=False):
    return Received("house/door/set", b"%d" % content, False, packet_id=packet_id, redelivered=again)


@pytest.fixture
def session():
    """One that this process has begun."""
    begun = BrokerSession()
    begun.connected(present=False)
    return begun


def test_the_same_identifier_and_content_with_dup_is_the_same_message(session):
    assert session.arrived(message(1), 0.0) is Arrival.NEW
    session.connected(present=True)
    assert session.arrived(message(1, again=True), 0.0) is Arrival.AGAIN


@pytest.mark.parametrize(
    ("what", "second"),
    [
        ("an identifier that the broker uses again", message(1)),
        ("another content at the same identifier", message(2, again=True)),
        ("a message that was lost on the way", message(1, 2, again=True)),
        ("a message of quality 0", message(1, None)),
    ],
)
def test_all_else_is_a_new_message(session, what, second):
    session.arrived(message(1), 0.0)
    session.connected(present=True)

    assert session.arrived(second, 0.0) is Arrival.NEW, what


def test_the_same_command_that_comes_with_dup_long_after_is_another_one_with_its_identifier(session):
    """Some brokers give each message the lowest identifier that is free."""
    session.arrived(message(1), 0.0)
    assert session.arrived(message(1, again=True), COMES_AGAIN) is Arrival.AGAIN
    assert session.arrived(message(1, again=True), 2 * COMES_AGAIN + 1) is Arrival.NEW


def test_a_session_that_the_broker_has_dropped_has_nothing_to_send_again(session):
    session.arrived(message(1), 0.0)
    session.connected(present=False)

    assert session.arrived(message(1, again=True), 0.0) is Arrival.NEW


def test_what_an_earlier_process_was_sent_is_unsure_once_and_known_from_then_on():
    session = BrokerSession(["a"])
    assert session.arrived(message(1, again=True), 0.0) is Arrival.UNSURE  # it may come with CONNACK, in one read
    session.connected(present=True)
    assert session.arrived(message(2, 2, again=True), 0.0) is Arrival.UNSURE
    assert session.arrived(message(2, 3), 0.0) is Arrival.NEW
    session.connected(present=True)
    assert [session.arrived(message(2, packet_id, again=True), 0.0) for packet_id in (2, 3)] == [Arrival.AGAIN] * 2


def test_after_a_connection_that_held_nothing_of_an_earlier_process_is_left():
    session = BrokerSession(["a"])
    session.connected(present=True)
    session.settled()
    session.connected(present=True)

    assert session.arrived(message(1, again=True), 0.0) is Arrival.NEW


def test_a_session_that_nodes_share_is_always_that_of_another_process_too():
    session = BrokerSession(shared=True)
    assert session.filters == set()
    session.connected(present=False)
    session.settled()

    assert session.arrived(message(1, again=True), 0.0) is Arrival.UNSURE


def test_no_more_is_remembered_than_the_broker_may_send_again(session):
    for number in range(2 * RECEIVE_MAXIMUM):
        session.arrived(message(number, 1 + number), 0.0)

    assert session.arrived(message(RECEIVE_MAXIMUM, 1 + RECEIVE_MAXIMUM, again=True), 0.0) is Arrival.AGAIN
    assert session.arrived(message(0, 1, again=True), 0.0) is Arrival.NEW


class Broker:
    """Sends numbered messages with the identifiers that are free: the lowest, or one after the other."""

    def __init__(self, *, lowest):
        self.lowest, self.last, self.unacknowledged, self.sent = lowest, 0, {}, set()

    def publish(self, content):
        free = [each for each in range(1, 9) if each not in self.unacknowledged]
        later = [each for each in free if each > self.last]
        self.last = free[0] if self.lowest or not later else later[0]
        self.unacknowledged[self.last] = content

    def deliveries(self):
        """All that is unacknowledged, in order, with DUP if it was sent before."""
        found = [message(content, each, again=each in self.sent) for each, content in self.unacknowledged.items()]
        self.sent |= self.unacknowledged.keys()
        return found

    def acknowledged(self, packet_id):
        self.unacknowledged.pop(packet_id, None)
        self.sent.discard(packet_id)


CONNECTIONS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 8), st.integers(0, 8)), max_size=20)
"""Of each connection: messages that are published, those that arrive, and those whose acknowledgement does."""


@given(lowest=st.booleans(), connections=CONNECTIONS)
def test_each_message_is_new_once_whatever_gets_lost_and_whichever_identifiers_the_broker_uses(lowest, connections):
    broker, session, handled, count = Broker(lowest=lowest), BrokerSession(), [], 0
    session.connected(present=False)
    for published, arriving, acknowledged in [*connections, (0, 8, 8)]:
        for _ in range(min(published, 8 - len(broker.unacknowledged))):
            count += 1
            broker.publish(count)
        for number, each in enumerate(broker.deliveries()[:arriving]):
            if session.arrived(each, 0.0) is Arrival.NEW:
                handled.append(int(each.payload))
            if number < acknowledged:
                broker.acknowledged(each.packet_id)
        session.connected(present=True)

    assert sorted(handled) == list(range(1, count + 1))
