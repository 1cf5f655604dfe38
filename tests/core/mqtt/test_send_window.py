import asyncio

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leadsman.core.event_bus import EventBus
from leadsman.core.events import LinkLimited, MessageDropped, MessageRefused
from leadsman.core.loop.clock import Clock
from leadsman.core.mqtt.connection import ConnAck
from leadsman.core.mqtt.connection_state import SESSION_TAKEN_OVER
from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.outbox import Outbox
from leadsman.core.mqtt.send_window import (
    BATCH,
    BEHIND,
    LIMITED,
    MAX_BYTES_IN_FLIGHT,
    MAX_IN_FLIGHT,
    MAX_IN_FLIGHT_V311,
    PUBACK_TIMEOUT,
    SLOWEST,
    SendWindow,
)
from leadsman.core.mqtt.suspects import BURST_SECONDS, MAX_TESTED
from leadsman.errors import BrokerError
from leadsman.testing import VirtualLoop

NOT_AUTHORIZED, TOPIC_INVALID = 0x87, 0x90


class Connection:
    """A connection that remembers what was published."""

    urgent = False

    def __init__(self, connack=ConnAck(), error=None):
        self.connack, self.error, self.published, self.answered = connack, error, [], []

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

    def connect(self, connection=None, **options):
        self.connection = self.window.connection = connection or Connection()
        self.window.start(self.connection, **options)
        return self.connection

    def answer(self, seconds, each=0.01):
        """Acknowledge one message after the other for so many seconds."""
        end, done = self.loop.time() + seconds, len(self.connection.answered)
        while self.loop.time() < end:
            self.turn(each)
            if done < len(self.sent):
                done += 1
                self.connection.answered.append(done)
                self.window.acknowledged(done, 0)

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


def test_another_broker_gets_the_newest_retained_reading_at_once_if_what_waited_has_expired(here):
    here.connect()
    here.window.put(Message("t", b"1", retain=True, taken_at=1.0))
    here.turn()
    here.acknowledge()
    here.window.stop()
    here.window.put(Message("t", b"2", retain=True, taken_at=2.0, expires=here.loop.time() + 60.0))
    here.turn(61.0)

    assert [(each.payload, each.retain) for each in here.connect().published] == [(b"1", True)]
    assert [each.reason for each in here.events if isinstance(each, MessageDropped)] == ["expired"]


def test_what_the_next_broker_does_not_take_of_what_the_last_one_has_is_not_dropped(here):
    here.connect()
    here.put("t", retain=True)
    here.acknowledge()
    here.window.stop()
    here.connect()
    here.acknowledge(TOPIC_INVALID)
    here.window.stop()
    here.connect(Connection(ConnAck(maximum_packet_size=10)))

    assert here.sent == []
    assert not [each for each in here.events if isinstance(each, MessageDropped)]
    assert here.outbox.dropped == 0


def test_nothing_is_sent_before_the_subscriptions_if_they_come_first(here):
    here.must_wait = True
    here.put("a")
    here.connect()
    assert here.sent == []

    here.must_wait = False
    here.window.pump()

    assert here.sent == ["a"]


@pytest.mark.parametrize(
    ("allowed", "v5", "most"),
    [(65_535, True, MAX_IN_FLIGHT), (65_535, False, MAX_IN_FLIGHT_V311), (20, True, 20), (3, False, 3)],
)
def test_no_more_is_in_flight_than_the_window_holds_and_the_broker_takes(here, allowed, v5, most):
    topics = [f"t{number}" for number in range(MAX_IN_FLIGHT + 5)]
    here.put(*topics)
    here.connect(Connection(ConnAck(receive_maximum=allowed)), v5=v5)
    for _ in range(10):
        here.turn()

    assert (len(here.sent), here.window.size) == (most, most)
    here.window.acknowledged(1, 0)
    here.window.acknowledged(99_999, 0)  # of another life
    here.turn()
    assert here.sent == topics[: most + 1]


class TestBytes:
    def large(self, here, *sizes):
        for number, size in enumerate(sizes):
            here.window.put(Message(f"t{number}", b"x" * size))
        here.turn()

    def test_no_more_bytes_are_in_flight_than_a_narrow_uplink_carries_in_a_while(self, here):
        here.connect()
        self.large(here, *[MAX_BYTES_IN_FLIGHT // 4 - 100] * 9)
        assert len(here.sent) == 4
        here.window.acknowledged(1, 0)
        here.turn()

        assert len(here.sent) == 5

    def test_one_message_always_goes_and_alone_if_it_has_more(self, here):
        here.connect()
        self.large(here, 2 * MAX_BYTES_IN_FLIGHT, 10)
        assert here.sent == ["t0"]
        here.window.acknowledged(1, 0)
        here.turn()

        assert here.sent == ["t0", "t1"]

    def test_a_large_message_that_waits_for_room_keeps_its_turn(self, here):
        here.connect()
        self.large(here, 10, MAX_BYTES_IN_FLIGHT, 20, 30)
        assert here.sent == ["t0"]
        here.window.acknowledged(1, 0)
        here.turn()

        assert here.sent == ["t0", "t1"]


class TestSilence:
    def test_an_uplink_that_carries_one_message_after_the_other_is_not_cut(self, here):
        here.connect()
        here.put(*[f"t{number}" for number in range(20)])

        here.answer(20 * (PUBACK_TIMEOUT - 1), each=PUBACK_TIMEOUT - 1)

        assert (here.lost, here.outbox.messages) == ([], 0)

    def test_a_lost_acknowledgement_is_noticed_although_later_ones_come(self, here):
        here.connect()
        here.put("a")
        for packet_id in range(2, 8):
            here.put("b")
            here.turn(PUBACK_TIMEOUT / 5)
            here.window.acknowledged(packet_id, 0)

        assert here.lost == ["no acknowledgement within 10 s"]

    def test_a_large_message_may_take_as_long_as_a_narrow_uplink_needs(self, here):
        here.connect()
        here.window.put(Message("a", b"x" * 10 * SLOWEST))

        here.turn(PUBACK_TIMEOUT + 9.9)
        assert here.lost == []
        here.turn(0.5)
        assert here.lost == ["no acknowledgement within 10 s"]


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
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert here.window.pauses.fault == "the broker refused a message of 'a' (0x87)"


@pytest.mark.parametrize("code", [NOT_AUTHORIZED, TOPIC_INVALID])
def test_an_answer_that_the_broker_refuses_is_dropped_as_others_choose_its_topic(here, code):
    here.connect()
    here.window.put(Message("answers/me", b"1", expires=10.0))
    here.turn()
    here.acknowledge(code)

    assert here.events == [
        MessageDropped("answers/me", f"the broker refused an answer (0x{code:02x})", 1, is_answer=True)
    ]
    assert (here.outbox.messages, here.outbox.paused, here.window.pauses.fault) == (0, {}, None)


def test_after_a_pause_the_refused_message_and_all_later_ones_are_sent_again_though_the_broker_took_them(here):
    here.connect()
    here.put("a", "a")
    here.window.acknowledged(1, NOT_AUTHORIZED)
    here.window.acknowledged(2, 0)
    here.turn(1.1)
    assert here.sent == ["a"] * 3, "one at a time"
    here.window.acknowledged(3, 0)
    here.turn()

    assert here.sent == ["a"] * 4
    here.window.acknowledged(4, 0)
    assert here.outbox.messages == 0


def test_what_the_broker_has_not_answered_counts_as_in_flight_although_it_is_sent_again(here):
    here.connect(Connection(ConnAck(receive_maximum=3)))
    here.put("a", "a", "a", "b", "c")
    here.window.acknowledged(1, NOT_AUTHORIZED)
    here.turn()
    assert here.sent == ["a", "a", "a", "b"]
    here.window.acknowledged(2, 0)
    here.turn()

    assert here.sent == ["a", "a", "a", "b", "c"]


def test_a_message_larger_than_the_broker_takes_costs_no_other_one(here):
    here.connect(Connection(ConnAck(maximum_packet_size=100)))
    here.window.put(Message("large", b"x" * 200))
    here.put("a")

    assert here.sent == ["a"]
    assert [each.topic for each in here.events] == ["large"]


def test_one_of_several_brokers_that_does_not_take_a_message_is_named(here):
    connection = here.connect(Connection(ConnAck(maximum_packet_size=100)), broker="mqtt://spare.lan:1883")
    here.window.put(Message("large", b"x" * 200))
    here.put("a")
    here.window.acknowledged(len(connection.published), TOPIC_INVALID)

    assert [each.reason for each in here.events] == [
        "larger than the limit of mqtt://spare.lan:1883: 100 bytes",
        "mqtt://spare.lan:1883 refused it for good (0x90)",
    ]


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
    here.turn(BURST_SECONDS)

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
    assert "does not accept messages of 'poison'" in broken.fault
    assert "poison" in here.outbox.paused


@pytest.mark.parametrize("moved", [False, True])
def test_a_topic_that_a_broker_refused_is_sent_at_once_to_another_one(here, moved):
    here.connect()
    here.put("a")
    for _ in range(3):
        here.window.acknowledged(len(here.sent), NOT_AUTHORIZED)
        here.turn(here.events[-1].retry_in + 0.1)
    here.window.acknowledged(len(here.sent), NOT_AUTHORIZED)
    here.window.stop()
    here.connect(moved=moved)

    assert here.sent == ["a"] * moved, "at the same broker it pauses for eight seconds"
    assert (here.window.pauses.fault is None) == moved


def test_a_topic_that_the_next_broker_refuses_too_pauses_from_the_beginning(here):
    here.connect()
    here.put("a")
    here.window.acknowledged(1, NOT_AUTHORIZED)
    here.turn(1.1)
    here.window.acknowledged(2, NOT_AUTHORIZED)
    here.window.stop()
    here.connect(moved=True)
    here.window.acknowledged(1, NOT_AUTHORIZED)

    assert [each.retry_in for each in here.events] == [1, 2, 1]
    here.turn(1.1)
    here.window.acknowledged(2, 0)
    assert here.outbox.messages == 0


def test_a_topic_that_broke_connections_is_sent_alone_and_at_once_to_another_broker(here):
    for _ in range(3):
        here.connect()
        here.put("poison")
        here.window.stop()
    here.put("a")
    here.connect(moved=True)
    assert here.sent == ["a"]
    here.window.acknowledged(1, 0)
    here.turn()
    assert here.sent == ["a", "poison"], "without its pause, and nothing else is in flight"
    for number in range(2, 5):
        here.window.acknowledged(number, 0)
        here.turn(BURST_SECONDS + 0.01)

    assert here.sent == ["a", "poison", "poison", "poison"]
    assert here.outbox.messages == 0
    assert here.window.pauses.fault is None


def test_no_topic_is_to_blame_if_another_client_took_the_session_over(here):
    for _ in range(5):
        here.connect()
        here.put("a")
        broken = here.window.stop(SESSION_TAKEN_OVER)

    assert (broken.in_flight, broken.topic) == (True, None)
    assert here.window.pauses.fault is None


def test_flushing_ends_when_the_broker_has_everything(here):
    here.connect()
    here.put("a")
    here.loop.call_later(2, here.window.acknowledged, 1, 0)

    assert here.loop.run_until_complete(here.window.flush(10)) is True
    assert here.loop.time() == pytest.approx(2, abs=0.1)


def test_flushing_waits_for_three_round_trips_as_long_as_acknowledgements_come(here):
    here.connect()
    here.put("a")
    here.loop.call_later(0.5, here.window.acknowledged, 1, 0)
    here.loop.run_until_complete(here.window.flush(10))
    for topic in ("a", "b"):
        here.put(topic)
    here.loop.call_later(1.4, here.window.acknowledged, 2, 0)
    before = here.loop.time()

    assert here.loop.run_until_complete(here.window.flush(10)) is False
    assert here.loop.time() - before == pytest.approx(1.5 + 1.5, abs=0.1)


def test_flushing_waits_no_longer_than_it_may_and_not_for_topics_that_pause(here):
    here.connect()
    here.put("a")
    assert here.loop.run_until_complete(here.window.flush(3)) is False

    here.acknowledge(NOT_AUTHORIZED)
    before = here.loop.time()

    assert here.loop.run_until_complete(here.window.flush(3)) is False
    assert here.loop.time() == before


class TestManyMessages:
    def readings(self, here, count, topics=1):
        for number in range(count):
            here.window.put(Message(f"t{number % topics}", b"%d" % number, taken_at=float(number), retain=True))

    def numbers(self, here):
        return [int(message.payload) for message in here.connection.published]

    def test_a_turn_of_the_loop_sends_a_batch_and_the_next_turn_goes_on(self, here):
        here.connect(Connection(ConnAck(receive_maximum=MAX_IN_FLIGHT)))
        self.readings(here, 3 * BATCH)
        first = len(here.sent)
        for _ in range(5):
            here.turn()

        assert first == BATCH
        assert self.numbers(here) == list(range(3 * BATCH))

    def test_acknowledgements_are_urgent_while_messages_wait_for_them(self, here):
        here.connect(Connection(ConnAck(receive_maximum=20)))
        assert not here.connection.urgent
        self.readings(here, 21)
        here.turn()
        assert here.connection.urgent

        here.answer(0.5)

        assert self.numbers(here) == list(range(21))
        assert not here.connection.urgent

    def test_an_outage_that_is_made_up_for_within_a_second_is_sent_in_order(self, here):
        self.readings(here, 80)
        here.connect(Connection(ConnAck(receive_maximum=20)))

        here.answer(BEHIND - 0.1)

        assert self.numbers(here) == list(range(80))
        assert here.window.limited_by is None
        assert here.events == []

    def test_what_waited_while_the_broker_was_frozen_is_sent_in_order(self, here):
        here.connect(Connection(ConnAck(receive_maximum=20)))
        self.readings(here, 5)
        here.answer(0.2)
        for number in range(5, 105):
            here.window.put(Message("t0", b"%d" % number, taken_at=float(number), retain=True))
            here.turn(0.04)

        here.answer(BEHIND)

        assert self.numbers(here) == list(range(105))

    def test_a_burst_after_a_quiet_time_is_sent_in_order(self, here):
        here.connect(Connection(ConnAck(receive_maximum=20)))
        here.turn(60)

        self.readings(here, 30)
        assert here.window.limited_by is None
        here.answer(0.5)

        assert self.numbers(here) == list(range(30))

    def test_readings_that_come_while_others_wait_follow_them(self, here):
        self.readings(here, 500, topics=2)
        here.connect(Connection(ConnAck(receive_maximum=20)))
        here.answer(BEHIND + 0.1)
        here.window.put(Message("t0", b"500", taken_at=500.0, retain=True))

        assert here.window.limited_by == "receive_maximum"
        here.answer(5)
        assert self.numbers(here) == list(range(501))
        assert here.events == []

    def test_a_receive_maximum_that_limits_for_ten_seconds_is_reported_once(self, here):
        here.connect(Connection(ConnAck(receive_maximum=20)))
        self.readings(here, 3000)
        here.answer(LIMITED - 1)
        assert here.events == []

        here.answer(3)

        assert [event.allowed for event in here.events if isinstance(event, LinkLimited)] == [20]

    def test_in_the_end_everything_has_been_sent_and_the_broker_keeps_the_newest(self, here):
        self.readings(here, 300, topics=2)
        here.connect(Connection(ConnAck(receive_maximum=20)))

        here.answer(5)

        assert set(self.numbers(here)) == set(range(300))
        retained = {message.topic: int(message.payload) for message in here.connection.published if message.retain}
        assert retained == {"t0": 298, "t1": 299}
        assert here.window.limited_by is None
        assert here.outbox.messages == 0

    def test_after_a_break_all_is_in_order_again(self, here):
        self.readings(here, 500)
        here.connect(Connection(ConnAck(receive_maximum=20)))
        here.answer(BEHIND + 0.1)
        here.window.stop(SESSION_TAKEN_OVER)
        arrived = {self.numbers(here)[number - 1] for number in here.connection.answered}

        here.connect(Connection(ConnAck(receive_maximum=20)))

        assert here.window.limited_by is None
        assert self.numbers(here) == [number for number in range(500) if number not in arrived][:20]

    def test_the_search_for_a_message_that_breaks_the_connection_is_no_lack_of_room(self, here):
        self.readings(here, 500)
        here.connect(Connection(ConnAck(receive_maximum=20)))
        here.window.stop()
        here.connect(Connection(ConnAck(receive_maximum=20)))

        here.turn(2 * BEHIND)

        assert here.outbox.in_flight == MAX_TESTED
        assert here.window.limited_by is None


class TestRetained:
    """Readings that waited for the broker, with their retain flags."""

    @pytest.fixture
    def waiting(self, here):
        for number in range(3):
            self.put(here, number)
        return here

    def put(self, here, number, latest=False):
        here.window.put(Message("t", b"%d" % number, retain=True, taken_at=here.loop.time(), latest=latest))

    def flags(self, here):
        return [(int(message.payload), message.retain) for message in here.connection.published]

    def test_only_the_newest_has_the_retain_flag(self, waiting):
        waiting.connect()

        assert self.flags(waiting) == [(0, False), (1, False), (2, True)]

    def test_a_reading_is_sent_again_with_the_flag_when_the_newer_ones_are_refused_for_good(self, waiting):
        waiting.connect()
        for packet_id, code in ((1, 0), (2, TOPIC_INVALID), (3, TOPIC_INVALID)):
            waiting.window.acknowledged(packet_id, code)
        waiting.turn()

        assert self.flags(waiting)[3:] == [(0, True)]

    def test_that_is_so_too_when_the_acknowledgement_of_the_older_one_comes_last(self, waiting):
        waiting.connect()
        for packet_id, code in ((3, TOPIC_INVALID), (2, TOPIC_INVALID), (1, 0)):
            waiting.window.acknowledged(packet_id, code)
        waiting.turn()

        assert self.flags(waiting)[3:] == [(0, True)]

    def test_it_is_not_sent_again_when_the_newest_arrived(self, waiting):
        waiting.connect()
        waiting.acknowledge()
        waiting.turn(1.0)

        assert len(waiting.sent) == 3

    def test_the_newest_alone_is_sent_where_only_that_counts_and_again_on_the_next_connection(self, here):
        for number in range(3):
            self.put(here, number, latest=True)
        here.connect()
        assert self.flags(here) == [(2, True)]
        here.acknowledge()
        self.put(here, 3, latest=True)
        here.turn()
        here.window.acknowledged(2, 0)
        here.window.stop()
        here.connect()

        assert self.flags(here) == [(3, True)]


class Receipt:
    """What became of one message."""

    def __init__(self):
        self.published = self.replayed = self.drops = self.replacements = 0

    def dropped(self, at):
        self.drops += 1

    def replaced(self):
        self.replacements += 1

    @property
    def settled(self):
        lost = ["dropped"] * self.drops + ["replaced"] * self.replacements
        return ["delivered"] * self.published + ["late"] * self.replayed + lost


class Broker(Connection):
    """A connection of which messages are acknowledged in any order, and once; with its own packet identifiers."""

    first = 0

    def __init__(self, connack=ConnAck()):
        super().__init__(connack)
        self.unanswered = {}

    def publish(self, message):
        Broker.first += 1
        self.unanswered[Broker.first] = message
        self.published.append(message)
        return Broker.first


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "answer", "answer", "refuse", "poison", "break", "move", "wait", "turn"]),
        st.sampled_from("abcn"),
        st.integers(0, 9),
    ),
    max_size=60,
)


class History:
    """A window with a broker that breaks connections and refuses messages."""

    def __init__(self, loop):
        self.here, self.receipts = Apparatus(loop), []
        self.connect()

    def connect(self):
        self.here.connect(Broker(ConnAck(receive_maximum=7)))

    def step(self, action, topic, number):
        here, window = self.here, self.here.window
        unanswered = here.connection.unanswered
        match action:
            case "put":
                receipt, now = Receipt(), here.loop.time()
                self.receipts.append(receipt)
                expires = now + 5.0 if number == 9 else None
                times = {"taken_at": now, "clock_offset": 0.0, "expires": expires, "receipt": receipt}
                times["latest"] = topic == "n"
                payload = b"%d" % len(self.receipts)
                window.put(Message(topic, payload, qos=int(number != 8), retain=topic in "an", **times))
            case "answer" | "refuse" | "poison" if unanswered:
                packet_id = sorted(unanswered)[number % len(unanswered)]
                del unanswered[packet_id]
                code = {"answer": 0, "refuse": NOT_AUTHORIZED, "poison": TOPIC_INVALID}[action]
                window.acknowledged(packet_id, code)
            case "break" | "move":
                window.stop(SESSION_TAKEN_OVER if action == "move" else 0)
                here.turn(float(number))
                self.connect()
            case "wait":
                here.turn(float(number))
            case "turn":
                here.turn()

    def drain(self):
        """The broker takes everything from now on."""
        here = self.here
        for _ in range(1000):
            for packet_id in sorted(here.connection.unanswered):
                del here.connection.unanswered[packet_id]
                here.window.acknowledged(packet_id, 0)
            here.turn(0.5)
            if not here.outbox.messages:
                return


@given(STEPS)
@example([("put", "a", 0), ("put", "n", 0), ("put", "n", 0), ("refuse", "a", 1)])
def test_whatever_the_broker_does_each_receipt_is_settled_once_and_nothing_stays(steps):
    loop = VirtualLoop()
    try:
        history = History(loop)
        for step in steps:
            history.step(*step)
            assert all(len(receipt.settled) <= 1 for receipt in history.receipts)
            assert len(history.here.connection.unanswered) <= 7
        history.drain()

        assert [len(receipt.settled) for receipt in history.receipts] == [1] * len(history.receipts)
        assert (history.here.outbox.messages, history.here.outbox.bytes, history.here.outbox.in_flight) == (0, 0, 0)
    finally:
        history.here.window.close()
        loop.close()


@given(STEPS)
def test_readings_of_a_topic_are_sent_in_order_on_each_connection_where_nothing_is_refused(steps):
    loop = VirtualLoop()
    try:
        history = History(loop)
        for action, topic, number in steps:
            if action in ("refuse", "poison"):
                continue
            before = history.here.connection
            history.step(action, topic, number)
            for connection in {before, history.here.connection}:
                for each in "abcn":
                    sent = [int(message.payload) for message in connection.published if message.topic == each]
                    assert sent == sorted(set(sent))
    finally:
        history.here.window.close()
        loop.close()


@pytest.mark.parametrize("code", [0x87, 0x90])
def test_a_message_that_is_sent_once_is_given_up_when_it_is_refused_and_is_no_fault(here, code):
    here.connect()
    here.window.put(Message("a", b"", retain=True, once=True))
    here.turn()
    here.acknowledge(code)

    assert (here.outbox.messages, here.outbox.paused, here.window.pauses.fault, here.events) == (0, {}, None, [])


def test_a_message_that_is_sent_once_breaks_two_connections_at_most(here):
    here.window.put(Message("a", b"", retain=True, once=True))
    for _ in range(2):
        here.connect()
        here.turn()
        assert here.sent == ["a"]
        here.window.stop()

    here.connect()
    here.turn(1.0)

    assert (here.sent, here.outbox.messages, here.window.pauses.fault) == ([], 0, None)
