"""The link of a simulated app: nothing depends on the way that it saves."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadsman import App, Broker, Brokers
from leadsman.core.event_bus import EventBus
from leadsman.core.events import MessageDropped
from leadsman.core.loop.clock import system_clock
from leadsman.core.mqtt.link import Access, ClientIdentity, Link
from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.outbox import Outbox
from leadsman.core.settings.sources import Where
from leadsman.testing import VirtualLoop
from leadsman.testing.broker import ForgetfulBroker
from leadsman.tools.simulation import simulator
from leadsman.tools.simulation.scenario import DAY, FLAKY, OutageRange
from leadsman.tools.simulation.simulator import SHORT_BYTES, ShortLink, Simulation, simulate, stage_of
from leadsman.tools.simulation.variant import AS_WRITTEN
from leadsman_rigs.examples import examples

LENGTH = 4 * 3600.0


class Receipt:
    def __init__(self):
        self.published = self.replayed = self.lost = 0

    def dropped(self, at, messages=1):
        self.lost += messages

    def replaced(self):
        raise AssertionError("no message replaces another one here")


class Life:
    """A link with its broker, in a loop of their own. The outbox has room for ten messages."""

    def __init__(self):
        self.broker, self.loop, self.events, self.receipt = ForgetfulBroker(), VirtualLoop(), [], Receipt()
        self.link = self.loop.run_until_complete(self.made())
        self.task = self.loop.create_task(self.link.run())

    async def made(self):
        clock = system_clock(self.loop)
        bus = EventBus(clock)
        bus.subscribe(self.events.append)
        access = Access(Brokers(Broker()), lambda _: self.broker.connect)
        return ShortLink(ClientIdentity("me", "house/status", lambda _: b""), access, Outbox(10), clock, bus)

    def put(self, size=1):
        now = self.loop.time()
        self.link.put(Message("house/d/state", b"x" * size, taken_at=now, clock_offset=0.0, receipt=self.receipt))

    def run(self, seconds):
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def end(self):
        self.task.cancel()
        self.run(0)
        self.loop.run_until_complete(self.link.close())
        self.loop.close()


@pytest.fixture
def life():
    one = Life()
    yield one
    one.end()


def test_a_message_arrives_when_it_is_put_while_there_is_a_connection(life):
    life.run(1)

    life.put()

    assert (life.receipt.published, life.link.outbox.delivered, life.link.outbox.messages) == (1, 1, 0)


def test_messages_wait_in_the_outbox_without_a_connection_and_so_do_those_behind_them(life):
    life.put()
    waited = life.link.outbox.messages
    life.run(1)
    life.broker.stop()
    life.run(1)
    for _ in range(12):
        life.put()
    life.broker.start()
    life.run(60)

    assert waited == 1
    assert sum(event.messages for event in life.events if isinstance(event, MessageDropped)) == 2
    assert (life.receipt.published, life.receipt.replayed, life.receipt.lost) == (1, 10, 2)


def test_the_outbox_judges_a_large_message(life):
    life.run(1)

    life.put(SHORT_BYTES)
    life.put(2**21)

    assert (life.link.outbox.drops["too_large"], life.receipt.lost) == (1, 1)


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.sampled_from(["put", "pass", "stop", "start"]), max_size=40))
def test_each_message_is_delivered_or_dropped_or_waits(steps):
    life = Life()
    for step in steps:
        match step:
            case "put":
                life.put()
            case "pass":
                life.run(30)
            case "stop":
                life.broker.stop()
                life.run(0.001)
            case "start":
                life.broker.start()
    outbox, receipt = life.link.outbox, life.receipt
    arrived = receipt.published + receipt.replayed

    assert arrived == outbox.delivered
    assert receipt.lost == outbox.dropped
    assert arrived + receipt.lost + outbox.messages == steps.count("put")
    life.end()


def outcome_of(link, monkeypatch, scenario, size, **options):
    async def read() -> dict[str, object]:
        return {"text": "x" * size, "number": 1.0}

    monkeypatch.setattr(simulator, "ShortLink", link)
    app = App("house", mqtt="mqtt://nowhere.invalid", twins=lambda settings: ())  # so that handlers are called
    app.add_telemetry(["a", "b", "c"], read, interval=60, retry=2, **options)
    simulation = Simulation(app, Where.nowhere({}), scenario, LENGTH, 1)
    return simulate(simulation, stage_of(simulation), AS_WRITTEN, lambda part: None)


@pytest.mark.slow
@pytest.mark.parametrize("size", [60_000, 100_000])
def test_the_day_is_the_same_as_with_the_link_of_every_app_also_where_the_outbox_overflows(size, monkeypatch):
    once = round(DAY / LENGTH)
    scenario = FLAKY._replace(broker=OutageRange(once, once, 5400, 7200))

    short, usual = (outcome_of(link, monkeypatch, scenario, size) for link in (ShortLink, Link))

    assert short == usual
    assert short.figures.dropped > 0
    assert short.figures.failed > 0
