"""The link over a broker in memory: what it sends, when it connects again, and what it reports."""

import asyncio
from itertools import pairwise

import pytest

from leadsman import Broker, Brokers
from leadsman.core.event_bus import EventBus
from leadsman.core.events import (
    AppFault,
    LinkDown,
    LinkUp,
    MessageDropped,
    MessageRefused,
    PrefixShared,
    SubscriptionFailed,
)
from leadsman.core.loop.clock import system_clock
from leadsman.core.mqtt.connection import ConnAck
from leadsman.core.mqtt.connection_state import DAY, PATIENT, V5, V311
from leadsman.core.mqtt.link import DOUBTED, GOODBYE_TO_FROZEN, Access, ClientIdentity, Link
from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.outbox import Outbox
from leadsman.core.mqtt.send_window import BATCH, FLUSH_SILENCE, MAX_IN_FLIGHT, PUBACK_TIMEOUT
from leadsman.errors import BrokerError, ConfigurationError, ConnackMissing, NotListening
from leadsman.testing import MemoryBroker, VirtualLoop

STATUS = "house/status"
IDENTITY = ClientIdentity("me", STATUS, lambda session: b"session %d" % session)


class Running:
    """A link with its broker, in a loop of their own."""

    def __init__(self, connack=None, most_messages=1000):
        self.broker, self.loop, self.events = MemoryBroker(connack or ConnAck()), VirtualLoop(), []
        self.link = self.loop.run_until_complete(self.made(Outbox(most_messages)))
        self.task = None

    async def made(self, outbox):
        clock = system_clock(self.loop)
        bus = EventBus(clock)
        bus.subscribe(self.events.append)
        return Link(IDENTITY, Access(Brokers(Broker()), lambda _: self.broker.connect), outbox, clock, bus)

    def start(self):
        self.task = self.loop.create_task(self.link.run())
        self.run(1)

    def run(self, seconds):
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def put(self, *numbers, topic="house/d/state", **options):
        for number in numbers:
            self.link.put(Message(topic, b"%d" % number, **options))

    def arrived(self, topic="house/d/state"):
        return [int(message.payload) for message in self.broker.messages(topic)]

    def flush(self, timeout):
        return self.loop.run_until_complete(self.link.flush(timeout))

    def all(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    def end(self):
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.run(0)
        self.loop.run_until_complete(self.link.close())
        self.loop.close()


@pytest.fixture
def running():
    started = []

    def start(**options):
        started.append(Running(**options))
        return started[-1]

    yield start
    for each in started:
        each.end()


@pytest.fixture
def up(running):
    """A link that is connected."""
    life = running()
    life.start()
    return life


class TestSending:
    def test_what_was_put_before_the_first_connection_arrives_in_order(self, running):
        life = running()
        life.put(1, 2, 3)

        life.start()

        assert life.arrived() == [1, 2, 3]
        assert life.link.outbox.messages == 0

    def test_no_more_messages_are_on_their_way_than_the_window_is_wide(self, up):
        up.broker.freeze()
        for number in range(2 * MAX_IN_FLIGHT):
            up.put(number, topic=f"house/{number}")
        up.run(1)

        assert up.link.outbox.in_flight == MAX_IN_FLIGHT

    def test_messages_pile_up_only_on_a_connection_that_works(self, up, running):
        away = running()
        up.broker.freeze()
        for life in (away, up):
            for number in range(MAX_IN_FLIGHT + BATCH + 1):
                life.put(number, topic=f"house/{number}")
            life.run(0)

        assert not away.link.piled_up()
        assert up.link.piled_up()
        up.broker.thaw()
        up.run(1)
        assert not up.link.piled_up()

    def test_a_broker_that_wants_fewer_at_a_time_gets_fewer(self, running):
        life = running(connack=ConnAck(receive_maximum=3))
        life.start()
        life.broker.freeze()
        for number in range(10):
            life.put(number, topic=f"house/{number}")
        life.run(1)

        assert life.link.outbox.in_flight == 3

    def test_several_messages_of_a_topic_are_on_their_way_and_arrive_in_order(self, up):
        up.broker.freeze()
        up.put(1, 2, 3)
        up.run(1)
        in_flight = up.link.outbox.in_flight
        up.broker.thaw()
        up.run(1)

        assert in_flight == 3
        assert up.arrived() == [1, 2, 3]

    def test_what_was_on_its_way_when_the_connection_broke_is_sent_again_in_order(self, up):
        up.broker.lose_acknowledgements = True
        up.put(*range(5))
        up.run(1)
        up.broker.lose_acknowledgements = False
        up.broker.cut()
        up.put(5)
        up.run(2)

        assert up.arrived() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5]

    def test_messages_of_a_topic_that_are_refused_together_pause_it_once_and_arrive_in_order_later(self, up):
        up.broker.refusals["house/d/state"] = 0x97
        up.put(*range(5))
        up.run(0.5)
        up.broker.refusals.clear()
        up.run(2)

        assert [event.retry_in for event in up.all(MessageRefused)] == [1.0]
        assert up.arrived() == [0, 1, 2, 3, 4]

    def test_a_message_that_is_larger_than_the_broker_takes_is_dropped_and_reported_and_others_pass(self, running):
        life = running(connack=ConnAck(maximum_packet_size=200))
        life.link.put(Message("house/large", b"x" * 500))
        life.put(1)
        life.start()

        (dropped,) = life.all(MessageDropped)
        assert (dropped.topic, dropped.messages) == ("house/large", 1)
        assert dropped.reason == "larger than the limit of the broker: 200 bytes"
        assert life.arrived() == [1]

    def test_what_makes_room_in_a_full_outbox_is_reported(self, running):
        life = running(most_messages=100)
        life.put(*range(150))

        assert sum(event.messages for event in life.all(MessageDropped)) == 150 - life.link.outbox.messages
        assert life.link.outbox.messages <= 100


class TestConnecting:
    def test_after_a_break_it_connects_again_and_what_was_put_meanwhile_arrives(self, up):
        up.broker.stop()
        up.run(1)
        up.put(1, 2)
        assert not up.link.up
        up.broker.start()
        up.run(2)

        assert up.arrived() == [1, 2]
        assert up.link.connects == 2
        assert [type(event) for event in (up.events[0], up.events[-1])] == [LinkUp, LinkUp]
        assert up.all(LinkDown)[0].reason == "connection lost"

    def test_while_nothing_listens_it_tries_again_and_again_and_says_so_once(self, up):
        up.broker.stop()
        up.run(600)

        assert len(up.broker.connects) > 600 / 0.5
        assert [event.reason for event in up.all(LinkDown)] == ["connection lost", "cannot connect: connection refused"]

        up.broker.start()
        up.run(1)
        up.broker.stop()
        up.run(10)
        assert len(up.all(LinkDown)) == 4

    def test_each_connection_has_a_higher_number_which_its_will_carries(self, up):
        for _ in range(3):
            up.broker.cut()
            up.run(3)

        numbers = [int(connect.will_payload.split()[1]) for _, connect in up.broker.connects]
        assert numbers == [event.session for event in up.all(LinkUp)]
        assert all(before < after for before, after in pairwise(numbers))

    def test_a_broker_that_no_longer_acknowledges_is_left_and_nothing_is_lost(self, up):
        up.broker.freeze()
        up.put(1)
        up.run(PUBACK_TIMEOUT + 1)
        left = not up.link.up
        up.broker.thaw()
        up.run(60)

        assert left
        assert up.all(LinkDown)[0].reason == "no acknowledgement within 10 s"
        assert set(up.arrived()) == {1}

    def test_a_connection_on_which_nothing_is_on_its_way_is_not_left_for_its_silence(self, up):
        up.put(1)
        up.run(10 * PUBACK_TIMEOUT)

        assert up.link.connects == 1

    def test_the_reason_for_which_the_broker_refuses_is_known_until_it_accepts(self, running):
        life = running()
        life.broker.refuse_connect = 0x87
        life.start()
        life.run(1)
        refused = life.link.refusal, life.link.not_listening
        life.broker.refuse_connect = NotListening("refused", "pi:1884")
        life.run(60)
        away = life.link.refusal, life.link.not_listening
        life.broker.refuse_connect = None
        life.run(60)

        assert (refused, away) == ((0x87, None), (None, "pi:1884"))
        assert life.link.up
        assert (life.link.refusal, life.link.not_listening) == (None, None)

    def test_a_wrong_password_is_tried_again_ever_more_rarely(self, running):
        life = running()
        life.broker.refuse_connect = 0x86
        life.start()
        life.run(300)

        times = [at for at, _ in life.broker.connects]
        gaps = [after - before for before, after in pairwise(times)]
        assert 4 <= gaps[0] <= 5
        assert all(48 <= gap <= 60 for gap in gaps[3:])
        assert not life.link.up

    def test_the_last_error_is_forgotten_with_the_next_connection(self, up):
        up.broker.refuse_connect = BrokerError("the door is shut")
        up.broker.cut()
        up.run(2)
        shut = up.link.last_error
        up.broker.refuse_connect = None
        up.run(40)

        assert shut == "the door is shut"
        assert up.link.last_error is None

    def test_retained_messages_are_sent_again_since_a_restarted_broker_may_have_lost_them(self, up):
        up.put(7, topic="house/kept", retain=True)
        up.run(1)
        up.broker.stop(forget=True)
        up.run(1)
        up.broker.start()
        up.run(5)

        assert up.broker.retained["house/kept"].payload == b"7"

    def test_a_fault_of_ours_ends_it_with_no_connection_left(self, up):
        def broken():
            raise ZeroDivisionError

        up.link.subscriptions.broke = broken
        up.broker.cut()
        up.run(1)

        assert isinstance(up.task.exception(), ZeroDivisionError)
        assert not up.link.up


class TestReceiving:
    def test_a_message_reaches_the_listener_of_its_filter_on_each_connection(self, running):
        life, heard = running(), []
        life.link.listen("house/+/set", heard.append)
        life.start()
        life.broker.send("house/lamp/set", b"on")
        life.run(1)
        life.broker.cut()
        life.run(5)
        life.broker.send("house/lamp/set", b"off")
        life.broker.send("house/lamp/state", b"off")
        life.run(1)

        assert [message.payload for message in heard] == [b"on", b"off"]

    def test_a_refused_subscription_is_reported_and_leaves_the_others_alone(self, running):
        life, heard = running(), []
        life.broker.refuse_subscriptions = {"secret/#"}
        life.link.listen("secret/#", heard.append)
        life.link.listen("house/#", heard.append)
        life.start()
        life.broker.send("house/lamp/set", b"on")
        life.run(1)

        assert [event.topic_filter for event in life.all(SubscriptionFailed)] == ["secret/#"]
        assert "secret/#" in life.link.last_error
        assert len(heard) == 1
        assert life.link.connects == 1

    def test_a_listener_that_raises_is_a_fault_of_the_app_and_costs_no_connection(self, running):
        def listener(message):
            raise ValueError("odd")

        life = running()
        life.link.listen("house/#", listener)
        life.start()
        life.broker.send("house/lamp/set", b"on")
        life.run(1)

        (fault,) = life.all(AppFault)
        assert (fault.where, str(fault.error)) == ("receiving house/lamp/set", "odd")
        assert life.link.up


class TestEnding:
    def test_a_flush_ends_as_soon_as_the_broker_has_everything(self, up):
        up.put(1, 2, 3)
        before = up.loop.time()

        assert up.flush(5) is True
        assert up.loop.time() - before < 0.1
        assert up.arrived() == [1, 2, 3]

    def test_a_flush_soon_gives_up_a_broker_that_acknowledged_before_and_is_frozen_now(self, up):
        up.put(1)
        up.run(1)
        up.broker.freeze()
        up.put(2)
        before = up.loop.time()

        assert up.flush(2) is False
        assert up.loop.time() - before == pytest.approx(FLUSH_SILENCE)

    @pytest.mark.parametrize(("frozen", "took"), [(False, 0.1), (True, FLUSH_SILENCE + GOODBYE_TO_FROZEN)])
    def test_the_end_waits_until_the_broker_closes_but_hardly_for_one_that_is_frozen(
        self, up, monkeypatch, frozen, took
    ):
        async def until_the_broker_closes():
            await asyncio.sleep(0.1)

        (connection,) = up.broker._clients.values()
        monkeypatch.setattr(connection, "close", until_the_broker_closes)
        up.put(1)
        up.run(1)
        if frozen:
            up.broker.freeze()
        up.put(2)
        before = up.loop.time()
        assert up.flush(2) is not frozen
        up.loop.run_until_complete(up.link.close())

        assert up.loop.time() - before == pytest.approx(took, abs=0.01)
        assert up.broker.connected is not frozen

    def test_a_flush_without_a_connection_does_not_wait(self, running):
        life = running()
        assert life.flush(5) is True
        life.put(1)
        assert life.flush(5) is False
        assert life.loop.time() == 0

    @pytest.mark.parametrize("goodbye", [True, False])
    def test_only_who_leaves_without_a_goodbye_leaves_a_will(self, up, goodbye):
        up.task.cancel()
        up.run(0)
        if goodbye:
            up.loop.run_until_complete(up.link.close())
        else:
            up.broker.cut()
        up.run(60)

        assert (STATUS in up.broker.retained) is not goodbye

    @pytest.mark.parametrize("acknowledged", [True, False])
    def test_the_will_speaks_where_the_last_status_has_not_arrived(self, up, acknowledged):
        up.put(1, topic=STATUS, retain=True)
        if not acknowledged:
            up.broker.freeze()
            up.put(2, topic=STATUS, retain=True)
        up.run(1)
        up.task.cancel()
        up.run(0)
        up.loop.run_until_complete(up.link.close())
        up.broker.thaw()
        up.run(60)

        status = up.broker.retained[STATUS].payload
        assert status == b"1" if acknowledged else status.startswith(b"session")


def test_nothing_is_sent_before_everybody_has_released_it(running):
    here = running()
    here.link.hold("the list")
    here.link.hold("the names")
    here.put(1)
    here.start()
    here.run(1)
    here.link.release("the list")
    here.run(1)
    assert here.arrived() == []
    here.link.release("the names")
    here.run(1)

    assert here.arrived() == [1]


def test_two_parts_that_remember_the_subscriptions_are_an_error_that_names_both(running):
    class Record:
        def __init__(self):
            self.known = {}

    here = running()
    here.link.remember(Record())
    with pytest.raises(
        ConfigurationError, match=f"{__name__} and {__name__} both remember the subscriptions; leave one"
    ):
        here.link.remember(Record())


def test_two_parts_that_write_readings_are_an_error_that_names_both(running):
    here = running()
    here.link.store(0.1, print)
    with pytest.raises(ConfigurationError, match=f"^builtins and {__name__} both write the readings that wait; leave"):
        here.link.store(0.1, lambda number: None)


def test_several_conflicts_are_shown_one_after_the_other_and_each_change_is_an_event(running):
    here = running()
    for kind, reason in (("app", "an app"), ("node", "a node"), ("app", "an app"), ("app", None), ("app", None)):
        here.link.report_conflict(kind, reason)
    assert here.link.last_error == "a node"
    here.link.report_conflict("node", None)

    assert here.link.last_error is None
    assert [each.reason for each in here.all(PrefixShared)] == ["an app", "a node", "a node", None]


class Commanding(MemoryBroker):
    """Another client sends commands to three devices as soon as it receives a message of the app."""

    def receive(self, connection, packet_id, message):
        super().receive(connection, packet_id, message)
        for device in ("attic", "cellar", "hall"):
            self.send(f"house/{device}/set", b"1")


def test_a_command_arrives_that_is_sent_as_soon_as_the_first_message_of_a_connection_is_received(running):
    here, commands = running(), []
    here.broker = Commanding()
    for device in ("attic", "cellar", "hall"):
        here.link.listen(f"house/{device}/set", lambda received: commands.append(received.topic))
    here.put(1)

    here.start()

    assert here.arrived() == [1]
    assert commands == ["house/attic/set", "house/cellar/set", "house/hall/set"]


@pytest.mark.parametrize("breaks", ["mute", "reset"])
def test_no_size_is_learned_from_a_network_that_takes_nothing(running, breaks):
    here = running()
    here.start()
    here.put(1, 2, taken_at=1e9)
    here.run(1)
    take = here.broker.take

    def lose(connection, packet_id, message):
        if breaks == "reset":
            here.loop.call_later(0.3, lambda: connection.end("connection reset", will=False))

    here.broker.take = lose
    here.put(1000, taken_at=1e9)
    here.run(45 if breaks == "mute" else 8)
    here.broker.take = take
    here.run(60)
    here.put(5000, taken_at=1e9)
    here.run(60)

    assert here.arrived() == [1, 2, 1000, 5000]
    assert not here.all(MessageDropped)


@pytest.mark.parametrize("silence", [5, 60, 240])
def test_behind_a_proxy_that_is_silent_at_the_start_5_is_spoken_within_16_minutes(running, silence):
    here = running()
    here.broker.refuse_connect = ConnackMissing("closed before CONNACK")
    here.start()
    here.put(1)
    here.run(silence)
    here.broker.refuse_connect = None
    here.run(PATIENT)
    assert here.arrived() == [1]

    here.run(16 * 60 - PATIENT)
    here.put(2)
    here.run(1)

    assert (here.arrived(), here.link.session.protocol) == ([1, 2], V5)
    here.run(DAY)
    assert len(here.all(LinkUp)) <= 2


def test_where_mqtt_5_has_worked_a_silent_broker_is_asked_in_no_other_version(up):
    up.broker.refuse_connect, asked = ConnackMissing("closed before CONNACK"), set()

    async def connect(packet, listener, connect=up.broker.connect):
        asked.add(packet.protocol)
        return await connect(packet, listener)

    up.broker.connect = connect
    up.broker.cut()
    up.run(3600)
    up.broker.refuse_connect = None
    up.run(PATIENT)

    assert asked == {V5}
    assert up.link.up


def test_an_old_broker_that_only_hangs_up_is_asked_for_5_once_after_a_quarter_of_an_hour(running):
    here = running()
    here.broker.only_v311 = "close"
    here.start()
    here.put(1)
    here.run(DAY / 2)

    assert [packet.protocol for _, packet in here.broker.connects] == [V5, V5, V311, V5, V311]
    assert here.arrived() == [1]
    assert [event.reason for event in here.all(LinkDown)].count(DOUBTED) == 1


def test_an_app_that_needs_mqtt_5_waits_while_the_broker_is_silent(running):
    here = running()
    here.link.require_newer()
    here.broker.only_v311 = "close"
    here.start()
    here.put(1)
    here.run(3600)

    assert {packet.protocol for _, packet in here.broker.connects} == {V5}
    here.broker.only_v311 = None
    here.run(PATIENT)
    assert here.arrived() == [1]
