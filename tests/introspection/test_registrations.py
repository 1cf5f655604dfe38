"""The names of an app with their registrations."""

import pytest

from leadsman import App
from leadsman.introspection.registrations import Registrations


async def read():
    return {"t": 1}


async def stream():
    yield {"t": 1}


async def command(value: int):
    return None


@pytest.fixture
def registrations():
    app = App("house")
    app.add_telemetry(["lamp", "meter"], read, interval=60)
    app.periodic("sweep", interval=60)(read)
    app.source(["radio"])(stream)
    app.command(["lamp", "radio", "valve"])(command)
    return Registrations(app.telemetries, app.sources, app.commands)


def test_each_name_comes_once_whatever_is_registered_for_it(registrations):
    assert list(registrations) == ["lamp", "meter", "sweep", "radio", "valve"]
    assert len(registrations) == 5
    assert all(name in registrations for name in registrations)
    assert "lam" not in registrations


def test_a_device_has_all_its_registrations_the_one_that_reads_it_first(registrations):
    assert [type(each).__name__ for each in registrations.of("lamp")] == ["Telemetry", "Command"]
    assert [type(each).__name__ for each in registrations.of("radio")] == ["Source", "Command"]
    assert [type(each).__name__ for each in registrations.of("valve")] == ["Command"]
    assert registrations.of("nothing") == []


def test_side_jobs_are_known_as_such(registrations):
    assert registrations.jobs == {"sweep"}
