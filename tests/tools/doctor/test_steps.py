"""Steps of the examination of a broker, without a broker: what happens if time runs out."""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

from leadsman import Broker, Received
from leadsman.core.loop.clock import system_clock
from leadsman.core.mqtt.connection_state import V5
from leadsman.core.mqtt.topics import Topics
from leadsman.errors import BrokerError, SubscriptionRefused
from leadsman.testing import VirtualLoop
from leadsman.tools.doctor import broker
from leadsman.tools.doctor.broker import MAX_BYTES, MAX_MESSAGES, Visit, Visitor
from leadsman.tools.doctor.facts import Answered, BrokerFacts, ProbeFacts, RetainedFacts
from leadsman.tools.doctor.subject import Subject

SUBJECT = Subject("house", Broker(), "house", Topics("house"), (), {})


@pytest.fixture
def visits(monkeypatch):
    """The names of the visits. Their connections accept everything."""
    made = []

    @contextlib.asynccontextmanager
    async def visit_of(visitor, step):
        made.append(step)
        yield SimpleNamespace(publish=accepted, subscribe=accepted, echo=echoed, broken=None)

    async def accepted(*arguments):
        return 0

    async def echoed(*arguments):
        return 0, True

    monkeypatch.setattr(broker, "visit_of", visit_of)
    return made


def run(step, subject=SUBJECT, facts=BrokerFacts()):
    loop = VirtualLoop()
    try:
        visitor = Visitor(Broker(), "house-doctor-1", V5, system_clock(loop))
        return loop.run_until_complete(step(visitor, subject, facts))
    finally:
        loop.close()


@pytest.mark.parametrize(
    ("exact", "wildcard", "expected"),
    [
        (True, True, RetainedFacts(0, kept=True, wildcards=True)),
        (True, False, RetainedFacts(0, kept=True, wildcards=False)),
        (False, False, RetainedFacts(0, kept=False, wildcards=False)),
        (None, None, RetainedFacts(0, kept=None)),
    ],
)
def test_a_retained_message_is_looked_for_at_its_topic_and_by_a_wildcard(
    visits, monkeypatch, exact, wildcard, expected
):
    async def keeps(visitor, topic, payload, topic_filter=None):
        return exact if topic_filter is None else wildcard

    monkeypatch.setattr(broker, "_keeps", keeps)

    assert run(broker.retained)["retained"] == expected


def test_the_session_of_a_will_is_ended_although_its_connection_was_not_made_yet(visits, monkeypatch):
    async def hangs(*arguments):
        await asyncio.Event().wait()

    monkeypatch.setattr("leadsman.core.mqtt.client.connect", hangs)

    async def cancelled(*arguments):
        async with asyncio.timeout(1):
            await broker.will(*arguments)

    with pytest.raises(TimeoutError):
        run(cancelled)
    assert visits == ["heir", "will"]


def listening(monkeypatch, **faults):
    """Subscribe to two filters. A visit raises the fault of its filter, if there is one."""

    async def listened(visitor, subject, topic_filter, topic):
        if topic_filter in faults:
            raise faults[topic_filter]
        return Answered(None, 0, True), None

    monkeypatch.setattr(broker, "_listen", listened)
    return run(broker.subscriptions, SUBJECT._replace(filters={"set": "doctor/set", "get": "doctor/get"}))["filters"]


@pytest.mark.parametrize("fault", [broker.NoAnswer("no answer"), BrokerError("lost")])
def test_a_filter_that_cannot_be_examined_leaves_the_answers_of_the_others(monkeypatch, fault):
    found = listening(monkeypatch, set=fault)

    assert found == {"set": Answered(fault=str(fault)), "get": Answered(None, 0, True)}


def test_at_topics_of_others_the_doctor_subscribes_and_publishes_nothing(monkeypatch):
    class Quiet:
        async def subscribe(self, topic_filter):
            if topic_filter == "price":
                raise SubscriptionRefused("not authorized")

    @contextlib.asynccontextmanager
    async def visiting(visitor, step):
        yield Quiet()

    monkeypatch.setattr(broker, "visit_of", visiting)
    found = run(broker.subscriptions, SUBJECT._replace(elsewhere=("zigbee2mqtt/#", "price")))["filters"]

    assert found == {"zigbee2mqtt/#": Answered(), "price": Answered("not authorized")}


def test_if_no_filter_can_be_examined_the_step_has_failed(monkeypatch):
    with pytest.raises(broker.NoAnswer, match="first"):
        listening(monkeypatch, set=broker.NoAnswer("first"), get=BrokerError("second"))


def test_a_fault_of_the_doctor_itself_is_not_taken_for_one_of_the_broker(monkeypatch):
    with pytest.raises(ZeroDivisionError):
        listening(monkeypatch, set=ZeroDivisionError())


class Flooded(Visit):
    """A visit at a broker with more retained messages than anybody can read. Its answers wait behind them."""

    def __init__(self, kept):
        super().__init__()
        self._flood = kept

    async def subscribe(self, topic_filter, qos=1):
        if topic_filter == "house/status":
            self.received(Received("house/status", b'{"state":"online"}', True))
        elif topic_filter == "house/#":
            for number in range(self._flood):
                self.received(Received(f"house/d{number}/state", b"1", True))

    async def echo(self, topic, qos=1):
        raise broker.NoAnswer("no answer to a message")


@pytest.mark.parametrize("facts", [BrokerFacts(), BrokerFacts(probe=ProbeFacts(0, True, False))])
def test_of_a_flood_of_retained_messages_so_many_are_kept_and_the_status_is_among_them(monkeypatch, facts):
    @contextlib.asynccontextmanager
    async def visit_of(visitor, step):
        yield Flooded(MAX_MESSAGES + 50)

    monkeypatch.setattr(broker, "visit_of", visit_of)

    found = run(broker.landscape, facts=facts)

    assert found["crowded"]
    assert len(found["kept"]) == MAX_MESSAGES
    assert found["kept"]["house/status"] == b'{"state":"online"}'


def test_a_broker_that_does_not_answer_without_a_flood_is_no_flood(monkeypatch):
    @contextlib.asynccontextmanager
    async def visit_of(visitor, step):
        yield Flooded(3)

    monkeypatch.setattr(broker, "visit_of", visit_of)

    with pytest.raises(broker.NoAnswer):
        run(broker.landscape, facts=BrokerFacts(probe=ProbeFacts(0, True, False)))


def test_few_messages_that_are_large_are_a_flood_too():
    visit = Visit()
    visit.received(Received("a", bytes(MAX_BYTES - 2), True))
    assert not visit.crowded

    visit.received(Received("b", b"12", True))

    assert visit.crowded
    assert [each.topic for each in visit.messages] == ["a"]
