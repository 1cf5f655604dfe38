import pytest

from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.outbox import Outbox
from leadsman.core.mqtt.send_window import RetainedMessages

LATER = 60.0


class Sender:
    """An outbox, and the retained messages of it, as a window of sends uses them."""

    def __init__(self, **bounds):
        self.outbox, self.sent, self.dropped = Outbox(**bounds), [], []
        self.retained = RetainedMessages(self.outbox)

    def put(self, *payloads, **fields):
        for payload in payloads:
            self.outbox.put(Message("t", payload, retain=True, taken_at=1.0, clock_offset=0.0, **fields))

    def pop(self, now=0.0):
        item, expired = self.outbox.pop(now)
        self.report(expired)
        return item

    def report(self, dropped):
        self.dropped += dropped
        for each in dropped:
            self.retained.settled(each.topic)

    def send(self, now=0.0):
        """Send what waits, and have it acknowledged."""
        while self.outbox.ready:
            item = self.pop(now)
            if item is not None:
                self.sent.append((item.message.payload, self.retained.flagged(item, item.message).retain))
                for each, message in self.outbox.accept(item):
                    self.retained.arrived(each, message)
                    self.retained.settled(message.topic)

    def connect_again(self):
        self.outbox.lost()
        self.retained.repeat(lambda topic: False)


@pytest.fixture
def sender():
    return Sender()


def test_what_is_sent_again_and_has_expired_since_is_no_loss(sender):
    sender.put(b"1", expires=LATER)
    sender.send()
    sender.connect_again()
    sender.send(now=LATER)

    assert (sender.sent, sender.dropped, sender.outbox.dropped) == ([(b"1", True)], [], 0)


def test_what_is_sent_again_and_refused_is_no_loss(sender):
    sender.put(b"1")
    sender.send()
    sender.connect_again()
    sender.report(sender.outbox.drop(sender.pop(), "refused"))

    assert (sender.dropped, sender.outbox.dropped, sender.outbox.messages) == ([], 0, 0)


def test_what_is_sent_again_and_dropped_next_is_no_loss(sender):
    sender.put(b"1")
    sender.send()
    sender.connect_again()

    assert sender.outbox.drop_next("t", "it breaks the connection") == []
    assert (sender.outbox.dropped, sender.outbox.messages) == (0, 0)


def test_what_is_sent_again_makes_room_without_a_loss():
    sender = Sender(most_messages=2)
    sender.put(b"1")
    sender.send()
    sender.connect_again()
    sender.put(b"2")
    sender.report(sender.outbox.put(Message("other", b"3")))

    assert (sender.dropped, sender.outbox.dropped) == ([], 0)
    sender.send()
    assert sender.sent == [(b"1", True), (b"2", True), (b"3", False)]


def test_what_is_sent_again_does_not_count_as_a_reading_that_waits(sender):
    sender.put(b"1")
    sender.send()
    sender.connect_again()

    assert sender.outbox.oldest(0.0) is None
    assert sender.outbox.standing("t").since is None
    assert not sender.outbox.unstored(sender.outbox.number)
    assert sender.pop().message.payload == b"1"
    assert sender.outbox.oldest(0.0) is None


def test_a_reading_behind_what_is_sent_again_waits(sender):
    sender.put(b"1")
    sender.send()
    sender.connect_again()
    sender.put(b"2")

    assert sender.outbox.oldest(0.0) == 1.0
    assert sender.outbox.standing("t").since == 1.0
    assert sender.outbox.unstored(sender.outbox.number)


def test_another_broker_gets_the_reading_that_arrived_if_those_that_wait_expire(sender):
    sender.put(b"1")
    sender.send()
    sender.put(b"2", expires=LATER)
    sender.connect_again()
    sender.send(now=LATER)

    assert sender.sent == [(b"1", True), (b"1", True)]
    assert len(sender.dropped) == 1


def test_another_broker_gets_the_reading_that_arrived_after_older_ones_that_are_not_retained(sender):
    sender.put(b"2")
    sender.send()
    sender.outbox.put(Message("t", b"1", taken_at=0.0))  # from the disk
    sender.connect_again()
    sender.send()

    assert sender.sent == [(b"2", True), (b"1", False), (b"2", True)]


def test_another_broker_does_not_get_what_a_newer_reading_replaces(sender):
    sender.put(b"1")
    sender.send()
    sender.put(b"2", b"3")
    sender.connect_again()
    sender.send()

    assert sender.sent == [(b"1", True), (b"2", False), (b"3", True)]
