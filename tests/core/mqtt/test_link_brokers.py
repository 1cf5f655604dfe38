"""The link with several brokers in memory: which one it uses, what it says of it, and what arrives there."""

import asyncio
import itertools
import json
import random

import pytest

from leadsman import Broker, Brokers
from leadsman.core.event_bus import EventBus
from leadsman.core.events import LinkDown, LinkUp, MessageDropped
from leadsman.core.loop.clock import system_clock
from leadsman.core.mqtt import broker_choice
from leadsman.core.mqtt.broker_choice import RETURN
from leadsman.core.mqtt.connection import ConnAck
from leadsman.core.mqtt.link import BACK, Access, ClientIdentity, Link
from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.outbox import Outbox
from leadsman.testing import MemoryBroker, VirtualLoop

STATUS, STATE = "house/status", "house/d/state"
IDENTITY = ClientIdentity("me", STATUS, lambda session: json.dumps({"state": "offline"}).encode())
BAD_PASSWORD, NOT_AUTHORIZED = 0x86, 0x87
LONG = 2 * RETURN


class Running:
    """A link with its brokers, in a loop of their own."""

    def __init__(self, *names):
        self.brokers = {name: MemoryBroker() for name in ("a", "b", "c")}
        self.loop, self.events = VirtualLoop(), []
        self.unreachable, self.reached = set(), []
        given = Brokers(*map(Broker, names or ("a", "b")))
        self.link = self.loop.run_until_complete(self.made(given))
        self.task = self.loop.create_task(self.link.run())

    async def made(self, given):
        clock = system_clock(self.loop)
        bus = EventBus(clock)
        bus.subscribe(self.events.append)
        return Link(IDENTITY, Access(given, self.connector_of, self.reach), Outbox(), clock, bus)

    def connector_of(self, broker):
        return self.brokers[broker.host].connect

    async def reach(self, broker):
        self.reached.append((self.loop.time(), broker.host))
        if broker.host in self.unreachable:
            raise TimeoutError

    def stop(self, name):
        self.brokers[name].stop()
        self.unreachable.add(name)

    def restart(self, name):
        self.brokers[name].start()
        self.unreachable.discard(name)

    def run(self, seconds):
        self.loop.run_until_complete(asyncio.sleep(seconds))
        return self

    def put(self, *numbers):
        for number in numbers:
            self.link.put(Message(STATE, b"%d" % number, retain=True, taken_at=1e9 + number))
        return self.run(0.1)

    def at(self, name):
        return [int(message.payload) for message in self.brokers[name].messages(STATE)]

    @property
    def where(self):
        return self.link.broker.host if self.link.up else None

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

    def start(*names, **options):
        started.append(Running(*names, **options))
        return started[-1]

    yield start
    for each in started:
        each.end()


def test_what_waits_goes_to_the_replacement_and_the_retained_state_with_it(running):
    life = running().run(10).put(1, 2)
    life.stop("a")
    life.put(3)
    life.run(5)
    life.put(4)

    assert life.where == "b"
    assert life.at("a") == [1, 2]
    assert sorted({*life.at("b")} - {2}) == [3, 4]
    assert life.brokers["b"].retained[STATE].payload == b"4"


def test_the_reason_of_a_dead_letter_names_the_replacement_that_does_not_take_it(running):
    life = running()
    life.brokers["b"].connack = ConnAck(maximum_packet_size=200)
    life.run(10)
    life.link.put(Message("house/large", b"x" * 500))
    life.run(1)
    assert life.all(MessageDropped) == []

    life.stop("a")
    life.run(5)
    life.link.put(Message("house/large", b"x" * 500, taken_at=1e9))
    life.run(1)

    assert [event.reason for event in life.all(MessageDropped)] == ["larger than the limit of mqtt://b:1883: 200 bytes"]


def test_a_state_that_arrived_at_the_primary_is_retained_at_the_replacement_too(running):
    life = running().run(10).put(1)
    life.stop("a")
    life.run(5)

    assert life.brokers["b"].retained[STATE].payload == b"1"


def test_a_topic_that_the_primary_refuses_arrives_at_the_replacement_without_its_pause(running):
    life = running().run(10)
    life.brokers["a"].refusals[STATE] = NOT_AUTHORIZED
    life.put(1).run(40)
    assert "refused" in life.link.last_error
    life.stop("a")
    life.run(3)

    assert life.where == "b"
    assert life.at("b") == [1]
    assert life.link.last_error is None


def test_a_connection_that_is_cut_is_made_again_at_the_same_broker(running):
    life = running().run(10)
    for _ in range(5):
        life.brokers["a"].cut()
        life.run(10)

    assert life.where == "a"
    assert life.brokers["b"].connects == []


def test_a_frozen_primary_is_left_as_soon_as_an_acknowledgement_is_overdue(running):
    life = running().run(10)
    life.brokers["a"].freeze()
    life.put(1).run(11.5)

    assert life.where == "b"
    assert life.at("b") == [1]


def test_a_wrong_password_at_the_primary_costs_less_than_a_second(running):
    life = running()
    life.brokers["a"].refuse_connect = BAD_PASSWORD
    life.run(1)

    assert life.where == "b"


def test_the_events_name_the_broker_only_if_there_are_several(running):
    one, two = running("a"), running("a", "b")
    for life in (one, two):
        life.run(10)
        life.stop("a")
        life.run(5)

    assert [event.broker for event in two.all(LinkUp)] == ["mqtt://a:1883", "mqtt://b:1883"]
    assert [event.broker for event in two.all(LinkDown)][-1] == "mqtt://b:1883"
    assert {event.broker for event in (*one.all(LinkUp), *one.all(LinkDown))} == {None}


def test_a_break_is_counted_once(running):
    life = running().run(10)
    life.stop("a")
    life.run(5)

    assert (life.link.connects, life.link.breaks) == (2, 1)


def test_a_session_that_an_earlier_connection_left_at_another_broker_is_not_resumed(running):
    life = running()
    for broker in life.brokers.values():
        broker.connack = ConnAck(session_present=True)
    life.run(10)
    life.brokers["a"].cut()
    life.run(10)
    assert (life.where, life.link.resumed) == ("a", True)
    life.stop("a")
    life.run(5)
    assert (life.where, life.link.resumed) == ("b", False)
    life.restart("a")
    life.run(LONG)

    assert (life.where, life.link.resumed) == ("a", False)


class TestReturn:
    def test_the_app_goes_back_to_the_primary_when_it_accepts_connections_again(self, running):
        life = running().run(10)
        life.stop("a")
        life.run(10)
        life.restart("a")
        life.put(1).run(LONG)
        life.put(2)

        assert life.where == "a"
        assert life.brokers["a"].retained[STATE].payload == b"2"
        assert life.all(LinkDown)[-1].reason == BACK

    def test_the_replacement_is_used_until_then_and_says_offline_afterwards(self, running):
        life = running().run(10)
        life.stop("a")
        life.run(LONG)
        assert life.where == "b"
        life.restart("a")
        life.run(LONG)

        assert json.loads(life.brokers["b"].retained[STATUS].payload)["state"] == "offline"

    def test_the_primary_is_tried_every_ten_minutes_without_mqtt(self, running):
        life = running().run(10)
        life.stop("a")
        life.run(3600)

        gaps = [later - earlier for (earlier, _), (later, _) in itertools.pairwise(life.reached)]
        assert {host for _, host in life.reached} == {"a"}
        assert all(0.9 * RETURN <= gap <= 1.1 * RETURN for gap in gaps)
        assert len(life.brokers["b"].connects) == 1

    @pytest.mark.parametrize("seed", range(20))
    def test_every_app_is_back_at_a_primary_that_restarts_within_twelve_minutes(self, running, seed):
        dice = random.Random(seed)
        random.seed(seed)
        life = running("a", "b", "c").run(dice.uniform(1, 100))
        life.stop("a")
        life.run(20)
        life.restart("a")
        life.run(12 * 60)

        assert life.where == "a"

    def test_what_is_in_flight_then_is_sent_to_the_primary_and_not_blamed(self, running, monkeypatch):
        monkeypatch.setattr(broker_choice, "return_wait", lambda choice, draw: 20.0)
        life = running().run(10)
        life.stop("a")
        life.run(15)
        for broker in life.brokers.values():
            broker.lose_acknowledgements = True
        life.put(1, 2)
        life.restart("a")
        assert life.link.outbox.in_flight == 2
        life.run(8)

        assert (life.where, life.at("a")) == ("a", [1, 2])
        assert not life.link._window._suspects.searching

    def test_a_primary_that_refuses_the_app_is_tried_ever_less_often_and_costs_seconds(self, running):
        life = running()
        life.brokers["a"].refuse_connect = BAD_PASSWORD
        life.run(86_400)

        assert life.where == "b"
        assert 24 <= len(life.brokers["b"].connects) <= 32


def test_a_client_id_in_use_is_reported_and_not_avoided_at_another_broker(running):
    life = running().run(10)
    for _ in range(2):
        life.brokers["a"].cut("taken over", code=0x8E)
        life.run(1)

    assert life.all(LinkDown)[-1].clash
    assert life.brokers["b"].connects == []


def test_a_node_of_a_cluster_whose_client_id_is_in_use_is_told_to_take_another_name(running, monkeypatch):
    monkeypatch.setitem(globals(), "IDENTITY", IDENTITY._replace(node="attic"))
    life = running().run(10)
    for _ in range(2):
        life.brokers["a"].cut("taken over", code=0x8E)
        life.run(1)

    assert "give this node another name than 'attic'" in life.all(LinkDown)[-1].reason
