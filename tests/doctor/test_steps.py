"""Steps of the examination of a broker, without a broker: what happens if time runs out."""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

from leadsman.doctor import steps
from leadsman.doctor.facts import Answered, BrokerFacts, Retained
from leadsman.doctor.subject import Subject
from leadsman.doctor.visit import NoAnswer, Visitor
from leadsman.errors import BrokerError
from leadsman.mqtt.broker import Broker
from leadsman.mqtt.connection_state import V5
from leadsman.mqtt.topics import Topics
from leadsman.testing.loop import VirtualLoop
from leadsman.timing.clock import system_clock

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

    monkeypatch.setattr(steps, "visit_of", visit_of)
    return made


def run(step, subject=SUBJECT):
    loop = VirtualLoop()
    try:
        visitor = Visitor(Broker(), "house-doctor-1", V5, system_clock(loop))
        return loop.run_until_complete(step(visitor, subject, BrokerFacts()))
    finally:
        loop.close()


@pytest.mark.parametrize(
    ("takes", "looks", "expected"),
    [
        (0.1, [True, False], Retained(0, kept=True, expired=True)),
        (0.1, [False, False], Retained(0, kept=False)),
        (1.5, [False, True, False], Retained(0, kept=True, expired=True)),
        (0.1, [None], Retained(0, kept=None)),
        (1.5, [None], Retained(0, kept=None)),
        (5.5, [False, False, False], None),
    ],
)
def test_a_message_that_may_have_expired_before_the_look_proves_nothing(visits, monkeypatch, takes, looks, expected):
    left = iter(looks)

    async def keeps(*arguments):
        await asyncio.sleep(takes)
        return next(left)

    monkeypatch.setattr(steps, "_keeps", keeps)

    assert run(steps.retained).get("retained") == expected
    assert list(left) == []


def test_the_session_of_a_will_is_ended_although_its_connection_was_not_made_yet(visits, monkeypatch):
    async def hangs(*arguments):
        await asyncio.Event().wait()

    monkeypatch.setattr(steps, "open_visit", hangs)

    async def cancelled(*arguments):
        async with asyncio.timeout(1):
            await steps.will(*arguments)

    with pytest.raises(TimeoutError):
        run(cancelled)
    assert visits == ["heir", "will"]


def listening(monkeypatch, **faults):
    """Subscribe to two filters. A visit raises the fault of its filter, if there is one."""

    async def listened(visitor, subject, topic_filter, topic):
        if topic_filter in faults:
            raise faults[topic_filter]
        return Answered(None, 0, True), None

    monkeypatch.setattr(steps, "_listened", listened)
    return run(steps.subscriptions, SUBJECT._replace(filters={"set": "doctor/set", "get": "doctor/get"}))["filters"]


@pytest.mark.parametrize("fault", [NoAnswer("no answer"), BrokerError("lost")])
def test_a_filter_that_cannot_be_examined_leaves_the_answers_of_the_others(monkeypatch, fault):
    found = listening(monkeypatch, set=fault)

    assert found == {"set": Answered(fault=str(fault)), "get": Answered(None, 0, True)}


def test_if_no_filter_can_be_examined_the_step_has_failed(monkeypatch):
    with pytest.raises(NoAnswer, match="first"):
        listening(monkeypatch, set=NoAnswer("first"), get=BrokerError("second"))


def test_a_fault_of_the_doctor_itself_is_not_taken_for_one_of_the_broker(monkeypatch):
    with pytest.raises(ZeroDivisionError):
        listening(monkeypatch, set=ZeroDivisionError())
