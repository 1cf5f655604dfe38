"""The record of registrations, from which an app can be registered once more."""

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from leadsman import App, Device
from leadsman.errors import InvalidValue


async def read(): ...


async def write(): ...


NAMES = st.sampled_from(["a", "b", ["c", "d"], {"e": Device(interval=5)}])
REGISTRATIONS = st.lists(
    st.tuples(
        st.sampled_from(["telemetry", "periodic"]), NAMES, st.sampled_from([read, write]), st.sampled_from([60, 61])
    ),
    max_size=6,
)


def registered(setup):
    """What is registered, in order."""
    return [(type(each), each.name, each.handler, each.interval) for each in setup.registry.everything]


def test_the_registrations_of_a_loop_are_kept_as_one():
    app = App("app")
    for number in range(1000):
        app.add_telemetry(f"d{number}", read, interval=60)

    assert [each.names for each in app.setup._record] == [[f"d{number}" for number in range(1000)]]
    assert list(app.setup.unloaded().registry.telemetries) == list(app.telemetries)


@given(REGISTRATIONS)
def test_whatever_is_recorded_registers_the_same_devices_in_the_same_order(registrations):
    app = App("app")
    for kind, names, handler, interval in registrations:
        with contextlib.suppress(InvalidValue):  # the name is taken
            getattr(app, f"add_{kind}")(names, handler, interval=interval)

    assert registered(app.setup.unloaded()) == registered(app.setup)


def test_a_list_of_names_that_an_app_keeps_is_never_written_to():
    names = ["a", "b"]
    app = App("app")
    app.add_telemetry(names, read, interval=60)
    app.add_telemetry("c", read, interval=60)

    assert names == ["a", "b"]
    assert list(app.setup.unloaded().registry.telemetries) == ["a", "b", "c"]
