"""The names of an app with their registrations."""

import pytest

from leadsman import App
from leadsman.core.introspection.document import Registered
from leadsman.core.introspection.registrations import OPTIONS, describe_registration
from leadsman.core.introspection.registry import declared
from leadsman.core.registration.declaration import declared as options_of
from leadsman.core.registration.event import EventOptions


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


UNDESCRIBED = {"discoverable", "fixed", "field", "expiry"}
"""Options that the description of a registration leaves out, or has in its ``delivery``."""


@pytest.mark.parametrize("options", [*OPTIONS.values(), EventOptions], ids=lambda options: options.__name__)
def test_each_option_is_described_or_known_to_be_left_out(options):
    assert options_of(options).keys() - UNDESCRIBED <= Registered.__annotations__.keys()


@pytest.mark.parametrize("name", ["meter", "sweep", "radio", "valve"])
def test_an_option_that_is_described_as_it_is_needs_no_more_than_its_declaration(devices, name):
    (each,) = devices[name].registrations[:1]
    job = getattr(each, "job", False)
    options = {
        option: declaration
        for option, declaration in options_of(OPTIONS[type(each)]).items()
        if declaration.as_it_is and option in each._fields
    }

    found = describe_registration(each)

    assert len(options) > 2
    for option, declaration in options.items():
        assert (option in found) is not (job and declaration.of_topics), option
        assert option not in found or found[option] == getattr(each, option)
