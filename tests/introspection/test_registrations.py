"""The names of an app with their registrations."""

import pytest

from leadsman import App
from leadsman.introspection.registry import declared


async def read():
    return {"t": 1}


async def stream():
    yield {"t": 1}


async def command(value: int):
    return None


@pytest.fixture
def devices():
    app = App("house")
    app.add_telemetry(["lamp", "meter"], read, interval=60)
    app.periodic("sweep", interval=60)(read)
    app.source(["radio"])(stream)
    app.command(["lamp", "radio", "valve"])(command)
    return declared(app.telemetries, app.sources, app.commands)


def test_each_name_comes_once_whatever_is_registered_for_it(devices):
    assert list(devices) == ["lamp", "meter", "sweep", "radio", "valve"]


def test_a_device_has_all_its_registrations_the_one_that_reads_it_first(devices):
    found = {name: [type(each).__name__ for each in device.registrations] for name, device in devices.items()}

    assert found["lamp"] == ["Telemetry", "Command"]
    assert found["radio"] == ["Source", "Command"]
    assert found["valve"] == ["Command"]


def test_side_jobs_are_known_as_such(devices):
    assert [name for name, device in devices.items() if device.job] == ["sweep"]
