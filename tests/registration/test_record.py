"""The record of registrations, from which an app can be registered once more."""

from hypothesis import given
from hypothesis import strategies as st

from leadsman.registration.router import Device, Registration, devices_of
from leadsman.registration.setup import Record


async def read(): ...


async def write(): ...


def recorded(*registrations):
    record = Record()
    for registration in registrations:
        record.add(registration)
    return list(record)


NAMES = st.sampled_from(["a", "b", ["c", "d"], {"e": Device(interval=5)}])
REGISTRATIONS = st.lists(
    st.builds(
        Registration,
        kind=st.sampled_from(["telemetry", "command"]),
        names=NAMES,
        handler=st.sampled_from([read, write]),
        options=st.sampled_from([{"interval": 60}, {"interval": 61}]).map(dict),
    )
)


def devices(registrations):
    return [
        (each.kind, name, each.handler, each.options, device.options)
        for each in registrations
        for name, device in devices_of(each.names)
    ]


def test_the_registrations_of_a_loop_are_kept_as_one():
    loop = [Registration("telemetry", f"d{number}", read, {"interval": 60}) for number in range(1000)]

    assert [each.names for each in recorded(*loop)] == [[f"d{number}" for number in range(1000)]]


@given(REGISTRATIONS)
def test_whatever_is_recorded_registers_the_same_devices_in_the_same_order(registrations):
    assert devices(recorded(*registrations)) == devices(registrations)


def test_a_list_of_names_that_an_app_keeps_is_never_written_to():
    names = ["a", "b"]
    recorded(
        Registration("telemetry", names, read, {"interval": 60}), Registration("telemetry", "c", read, {"interval": 60})
    )

    assert names == ["a", "b"]
