"""The examination as a whole: it ends in time, and a collector that fails does not end the others."""

import asyncio
import contextlib
from pathlib import Path

from leadsman import Broker
from leadsman.adapters.i2c import I2c
from leadsman.adapters.onewire import OneWire
from leadsman.core.adapters.resource import CalendarSearch, Resource
from leadsman.core.mqtt.topics import Topics
from leadsman.errors import ConnectionRefused, PermanentError
from leadsman.tools.doctor import examination
from leadsman.tools.doctor.examination import Examination
from leadsman.tools.doctor.facts import ConnectFailure
from leadsman.tools.doctor.subject import Subject


def subject(log_in=None):
    """An app whose broker does not run, with a calendar if there is something to log in with."""
    resources = () if log_in is None else (Resource("calendars", "https://cloud.example", log_in),)
    return Subject("house", Broker("127.0.0.1", 1), "house", Topics("house"), (), {}, resources=resources)


def examined(subject):
    return asyncio.run(Examination(subject, lambda text: None).run())


def test_what_is_examined_is_told():
    told = []

    asyncio.run(Examination(subject(), told.append).run())

    assert told[0] == "machine"
    assert all(each.startswith("broker: ") for each in told[1:])


def test_a_collector_that_fails_does_not_end_the_others():
    async def log_in():
        raise PermanentError("the server refuses")

    facts = examined(subject(log_in)._replace(state=Path("/\0")))

    assert [*facts.unfinished] == ["machine"]
    assert facts.unfinished["machine"].startswith("ValueError: ")  # each Python has words of its own for it
    assert [each.fault for each in facts.servers] == ["the server refuses"]
    assert facts.broker.failure.kind == "address"


def test_a_password_that_an_old_broker_refuses_is_the_fault_and_not_its_version(monkeypatch):
    async def connect(broker, clock, packet, listener):
        raise ConnectionRefused(0x84 if packet.protocol == "5.0" else 0x86, f"refused, as {packet.protocol}")

    monkeypatch.setattr("leadsman.core.mqtt.client.connect", connect)

    assert examined(subject()).broker.failure == ConnectFailure("refused", "refused, as 3.1.1", 0x86)


def test_what_hangs_is_left_at_the_deadline_and_may_clean_up(monkeypatch):
    cleaned = []

    async def log_in():
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    monkeypatch.setattr(examination, "DEADLINE", 0.5)

    facts = examined(subject(log_in))

    assert "calendars" in facts.unfinished  # on a busy machine the broker, too
    assert cleaned == [True]
    assert facts.machine is not None


def test_what_ignores_its_cancellation_is_left_behind(monkeypatch):
    async def examined():
        over = asyncio.Event()

        async def log_in():
            while not over.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await over.wait()

        found = Examination(subject(log_in), lambda text: None)
        facts = await found.run()
        over.set()
        return facts, found.left_behind

    monkeypatch.setattr(examination, "DEADLINE", 0.3)
    monkeypatch.setattr(examination, "CLEARING", 0.1)

    facts, left_behind = asyncio.run(examined())

    assert "calendars" in facts.unfinished  # on a busy machine the broker, too
    assert left_behind


def test_a_server_that_never_answers_is_a_finding(monkeypatch):
    async def log_in():
        await asyncio.Event().wait()

    monkeypatch.setattr(examination, "LOGIN_TIMEOUT", 0.05)

    (found,) = examined(subject(log_in)).servers

    assert found.fault == "https://cloud.example did not answer within 0.05 s"


def test_calendars_that_were_compared_before_the_server_failed_or_hung_count(monkeypatch):
    search = CalendarSearch("Waste", "by time")

    async def log_in():
        pass

    async def fails():
        yield search
        raise PermanentError("the server refuses")

    async def hangs():
        yield search
        await asyncio.Event().wait()

    monkeypatch.setattr(examination, "COMPARING", 0.05)
    resources = tuple(Resource("calendars", "https://cloud.example", log_in, each) for each in (fails, hangs))

    found = examined(subject()._replace(resources=resources)).servers

    assert [(each.fault, each.searches) for each in found] == [(None, (search,))] * 2
    assert [each.stopped for each in found] == ["the server refuses", "comparing took longer than 0.05 s"]


def test_buses_are_opened_and_thermometers_looked_for(tmp_path):
    (tmp_path / "28-000005e2fdc3").mkdir()
    adapters = (OneWire(tmp_path), OneWire(tmp_path / "none"), I2c(tmp_path / "i2c-1"))

    found = examined(subject()._replace(resources=tuple(each.resource for each in adapters))).servers

    faults = {each.resource.name: each.fault for each in found}
    assert faults[str(tmp_path)] is None
    assert faults[f"{tmp_path}/none"].startswith(f"{tmp_path}/none does not exist; turn one-wire on")
    assert faults[f"{tmp_path}/i2c-1"].startswith(f"{tmp_path}/i2c-1 does not exist; turn I²C on")
