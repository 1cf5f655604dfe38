"""The examination as a whole: it ends in time, and a collector that fails does not end the others."""

import asyncio
import contextlib

import pytest

from leadsman.adapters.adapter import Resource
from leadsman.doctor import calendars, examination, machine
from leadsman.doctor.broker import BrokerExamination
from leadsman.doctor.examination import Examination
from leadsman.doctor.subject import Subject
from leadsman.errors import PermanentError
from leadsman.mqtt.broker import Broker
from leadsman.mqtt.topics import Topics


@pytest.fixture
def subject(monkeypatch):
    """An app whose broker is not looked at."""

    async def nothing(self):
        return None

    monkeypatch.setattr(BrokerExamination, "run", nothing)
    return Subject("house", Broker(), "house", Topics("house"), (), {})


def test_what_is_examined_is_told(subject):
    told = []

    asyncio.run(Examination(subject, told.append).run())

    assert told == ["machine"]


def test_a_collector_that_fails_does_not_end_the_others(subject, monkeypatch):
    def broken(state):
        raise RuntimeError("oh")

    async def log_in():
        raise PermanentError("the server refuses")

    monkeypatch.setattr(machine, "look", broken)
    subject = subject._replace(resources=(Resource("calendars", "https://cloud.example", log_in),))

    facts = asyncio.run(Examination(subject, lambda text: None).run())

    assert facts.unfinished == {"machine": "RuntimeError: oh"}
    assert [each.fault for each in facts.calendars] == ["the server refuses"]


def test_what_hangs_is_left_at_the_deadline_and_may_clean_up(subject, monkeypatch):
    cleaned = []

    async def hangs(self):
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    monkeypatch.setattr(examination, "DEADLINE", 0.2)
    monkeypatch.setattr(BrokerExamination, "run", hangs)

    facts = asyncio.run(Examination(subject, lambda text: None).run())

    assert set(facts.unfinished) == {"broker"}
    assert cleaned == [True]
    assert facts.machine is not None


def test_what_ignores_its_cancellation_is_left_behind(subject, monkeypatch):
    over = asyncio.Event()

    async def stubborn(self):
        while not over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await over.wait()

    async def examined():
        found = Examination(subject, lambda text: None)
        facts = await found.run()
        over.set()
        return facts, found.left_behind

    monkeypatch.setattr(examination, "DEADLINE", 0.1)
    monkeypatch.setattr(examination, "CLEARING", 0.1)
    monkeypatch.setattr(BrokerExamination, "run", stubborn)

    facts, left_behind = asyncio.run(examined())

    assert set(facts.unfinished) == {"broker"}
    assert left_behind


def test_a_server_that_never_answers_is_a_finding(subject, monkeypatch):
    async def log_in():
        await asyncio.Event().wait()

    monkeypatch.setattr(calendars, "PATIENCE", 0.05)

    found = asyncio.run(calendars.look(Resource("calendars", "https://cloud.example", log_in)))

    assert found.fault == "https://cloud.example did not answer within 0.05 s"
