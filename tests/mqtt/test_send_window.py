import asyncio

import pytest

from leadsman.errors import BrokerError
from leadsman.event_bus import EventBus
from leadsman.events import MessageDropped, MessageRefused
from leadsman.mqtt.connection import ConnAck
from leadsman.mqtt.connection_state import SESSION_TAKEN_OVER
from leadsman.mqtt.message import Message
from leadsman.mqtt.outbox import Outbox
from leadsman.mqtt.send_window import PAUSE, PUBACK_TIMEOUT, WINDOW, SendWindow
from leadsman.mqtt.suspects import QUIET
from leadsman.testing import VirtualLoop
from leadsman.timing.clock import Clock

NOT_AUTHORIZED, TOPIC_INVALID = 0x87, 0x90


class Connection:
    """A connection that remembers what was published."""

    def __init__(self, connack=ConnAck(), error=None):
        self.connack, self.error, self.published = connack, error, []

    def publish(self, message):
        if self.error is not None:
            raise self.error
        self.published.append(message)
        return len(self.published)


class Apparatus:
    def __init__(self, loop):
        self.loop, self.events, self.lost, self.must_wait = loop, [], [], False
        clock = Clock(loop.time, lambda: 0.0, loop.time)
        bus = EventBus(clock)
        bus.subscribe(self.events.append)
        self.outbox = Outbox()

        async def make():
            return SendWindow(self.outbox, clock, bus, self.lost.append, lambda: self.must_wait)

        self.window = loop.run_until_complete(make())

    def connect(self, connection=None):
        self.connection = self.window.connection = connection or Connection()
        self.window.start()
        return self.connection

    def put(self, *topics, retain=False):
        for topic in topics:
            self.window.put(Message(topic, b"1", retain=retain))
        self.turn()

    def acknowledge(self, code=0):
        """Acknowledge everything that was published on the connection."""
        for number in range(1, len(self.connection.published) + 1):
            self.window.acknowledged(number, code)
        self.turn()

    def turn(self, seconds=0.0):
        """Let the loop do what is due."""

        async def wait():
            await asyncio.sleep(seconds)
            await asyncio.sleep(0)

        self.loop.run_until_complete(wait())

    @property
    def sent(self):
        return [message.topic for message in self.connection.published]


@pytest.fixture
def here():
    loop = VirtualLoop()
    yield Apparatus(loop)
    loop.close()


def test_messages_wait_for_a_connection_and_are_sent_in_order(here):
    here.put("a", "b")

    here.connect()

    assert here.sent == ["a", "b"]


def test_nothing_is_sent_before_the_subscriptions_if_they_come_first(here):
    here.must_wait = True
    here.put("a")
    here.connect()
    assert here.sent == []

    here.must_wait = False
    here.window.pump()

    assert here.sent == ["a"]


def test_no_more_is_in_flight_than_the_window_holds_and_the_broker_takes(here):
    topics = [f"t{number}" for number in range(WINDOW + 5)]
    here.put(*topics)

    assert len(here.connect().published) == WINDOW
    here.acknowledge()
    assert here.sent == topics

    here.window.stop()
    here.put(*topics)
    here.window.acknowledged(99, 0)  # of another life
    assert len(here.connect(Connection(ConnAck(receive_maximum=3))).published) == 3


def test_a_message_that_the_broker_never_takes_is_dropped_and_reported(here):
    here.connect()
    here.put("a")

    here.acknowledge(TOPIC_INVALID)

    assert [(type(each), each.topic) for each in here.events] == [(MessageDropped, "a")]
    assert here.outbox.messages == 0


def test_a_message_that_the_broker_may_take_later_pauses_its_topic_for_longer_each_time(here):
    here.connect()
    here.put("a")
    pauses = []

    for _ in range(8):
        here.window.acknowledged(len(here.sent), NOT_AUTHORIZED)
        pauses.append(here.events[-1].retry_in)
        here.turn(pauses[-1] + 0.1)

    assert all(isinstance(each, MessageRefused) for each in here.events)
    assert pauses == [1, 2, 4, 8, 16, 32, PAUSE[1], PAUSE[1]]
    assert here.window.fault == "the broker refused a message of 'a' (0x87)"


def test_a_message_larger_than_the_broker_takes_costs_no_other_one(here):
    here.connect(Connection(ConnAck(maximum_packet_size=100)))
    here.window.put(Message("large", b"x" * 200))
    here.put("a")

    assert here.sent == ["a"]
    assert [each.topic for each in here.events] == ["large"]


def test_what_was_in_flight_is_sent_again_on_the_next_connection(here):
    here.connect()
    here.put("a", "b")

    assert here.window.stop(SESSION_TAKEN_OVER).in_flight

    here.connect()
    assert here.sent == ["a", "b"]


def test_after_a_break_the_messages_that_may_have_caused_it_go_alone(here):
    here.connect()
    here.put("a", "b")
    here.window.stop()

    here.connect()
    assert here.sent == ["a"]
    here.acknowledge()
    here.turn(QUIET)

    assert here.sent == ["a", "b"]


def test_retained_messages_come_again_for_a_broker_that_lost_them(here):
    here.connect()
    here.put("a", retain=True)
    here.put("b")
    here.acknowledge()
    here.window.stop()

    here.connect()

    assert here.sent == ["a"]


def test_a_connection_without_acknowledgements_is_lost(here):
    here.connect()
    here.put("a")

    here.turn(PUBACK_TIMEOUT - 0.1)
    assert here.lost == []
    here.turn(0.2)

    assert here.lost == ["no acknowledgement within 10 s"]


def test_a_connection_that_cannot_be_written_to_is_lost(here):
    here.connect(Connection(error=BrokerError("broken pipe")))
    here.put("a")

    assert here.lost == ["broken pipe"]
    assert here.outbox.messages == 1


def test_a_topic_that_breaks_the_connection_alone_is_named_and_pauses(here):
    for _ in range(3):
        here.connect()
        here.put("poison")
        broken = here.window.stop()

    assert broken.topic == "poison"
    assert "does not take messages of 'poison'" in broken.fault
    assert here.outbox.is_paused("poison")


def test_no_topic_is_to_blame_if_another_client_took_the_session_over(here):
    for _ in range(5):
        here.connect()
        here.put("a")
        broken = here.window.stop(SESSION_TAKEN_OVER)

    assert (broken.in_flight, broken.topic) == (True, None)
    assert here.window.fault is None


def test_flushing_ends_when_the_broker_has_everything(here):
    here.connect()
    here.put("a")
    here.loop.call_later(2, here.window.acknowledged, 1, 0)

    assert here.loop.run_until_complete(here.window.flush(10)) is True
    assert here.loop.time() == pytest.approx(2, abs=0.1)


def test_flushing_waits_no_longer_than_it_may_and_not_for_topics_that_pause(here):
    here.connect()
    here.put("a")
    assert here.loop.run_until_complete(here.window.flush(3)) is False

    here.acknowledge(NOT_AUTHORIZED)
    before = here.loop.time()

    assert here.loop.run_until_complete(here.window.flush(3)) is False
    assert here.loop.time() == before
