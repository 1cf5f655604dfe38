"""What is read of SwitchBot sensors. The bytes of all but the plug are advertisements that people have recorded for
PySwitchbot (https://github.com/sblibs/pySwitchbot); those of the plug are made by hand from its format."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leadsman.adapters.ble import Advertisement, Decoders, Recognised, decoders, recognise

SERVICE = "0000fd3d-0000-1000-8000-00805f9b34fb"
OLD_SERVICE = "00000d00-0000-1000-8000-00805f9b34fb"
ADDRESS = "D7:C1:7D:5D:EB:43"
METER = "d7c17d5deb43de03069835", "5400e4069835"
CLIMATE = {"temperature": 24.6, "humidity": 53, "battery": 100}


def heard(manufacturer, service="", uuid=SERVICE, company=2409):
    service_data = {uuid: bytes.fromhex(service)} if service else {}
    of_company = {company: bytes.fromhex(manufacturer)} if manufacturer else {}
    return Advertisement(ADDRESS, None, -60, (), of_company, service_data)


def described(measurement):
    found = {name: kind.__metadata__[0] for name, kind in measurement.fields.items()}
    return {name: (each.unit, each.device_class) for name, each in found.items()}


@pytest.mark.parametrize(
    ("advertisement", "model", "values"),
    [
        (heard(*METER), "Meter", CLIMATE),
        (heard("", METER[1]), "Meter", CLIMATE),
        (heard("", METER[1], OLD_SERVICE), "Meter", CLIMATE),
        (heard("aabbccddeeffe00f06983500", "7700e4"), "Indoor/Outdoor Thermo-Hygrometer", CLIMATE),
        (
            heard("b0e9fe543215b7e4079ba4003702d500", "350064"),
            "Meter Pro CO2",
            {"temperature": 27.7, "humidity": 36, "battery": 100, "carbon_dioxide": 725},
        ),
        (
            heard("aabbccddeeff00ff66541af182079a3200", "7600"),
            "Hub 2",
            {"temperature": 26.7, "humidity": 50, "illuminance": 10},
        ),
        (
            heard("cb39cdc43d46849c0017005144", "6440da020017005144"),
            "Contact Sensor",
            {"opening": True, "motion": True, "light": False, "battery": 90},
        ),
        (
            heard("cb39cdc43d46898c002b001984", "6440da00002b001984"),
            "Contact Sensor",
            {"opening": False, "motion": True, "light": False, "battery": 90},
        ),
        (
            heard("c0219ae8bc49766c002c", "7340e2002c02"),
            "Motion Sensor",
            {"motion": True, "light": True, "battery": 98},
        ),
        (
            heard("c43430374c7a4764f96761c4083c0500000000", "260064"),
            "Leak Detector",
            {"moisture": True, "tamper": False, "battery": 100},
        ),
        (heard("6055f928e5960080103c007b", "6700"), "Plug Mini (US)", {"on": True, "power": 12.3}),
    ],
)
def test_a_sensor_is_known_and_has_its_values(advertisement, model, values):
    found = Decoders().decode(advertisement, 1.0)

    assert recognise(advertisement) == Recognised("switchbot", model)
    assert (found.decoder, found.model, found.title) == ("switchbot", model, f"SwitchBot {model} EB43")
    assert found.values == values
    assert found.fields.keys() == values.keys()


def test_values_have_units_and_classes():
    meter = Decoders().decode(heard("b0e9fe543215b7e4079ba4003702d500", "350064"), 1.0)
    contact = Decoders().decode(heard("cb39cdc43d46849c0017005144", "6440da020017005144"), 1.0)
    plug = Decoders().decode(heard("6055f928e5960080103c007b", "6700"), 1.0)

    assert described(meter) == {
        "temperature": ("°C", "temperature"),
        "humidity": ("%", "humidity"),
        "battery": ("%", "battery"),
        "carbon_dioxide": ("ppm", "carbon_dioxide"),
    }
    assert described(contact)["opening"] == (None, "opening")
    assert described(plug) == {"power": ("W", "power"), "on": (None, "power")}


def test_a_sensor_that_wants_a_password_for_commands_is_read():
    assert Decoders().decode(heard(METER[0], "d400e4069835"), 1.0).values == CLIMATE


def test_a_sensor_that_is_known_needs_no_further_answer_to_a_scan():
    heard_by = Decoders()

    assert heard_by.decode(heard(METER[0]), 1.0) is None, "its model is not known yet"
    assert heard_by.decode(heard(*METER), 2.0).values == CLIMATE
    third = heard_by.decode(heard("d7c17d5deb43de03079835"), 3.0)
    assert third.values == {"temperature": 24.7, "humidity": 53}, "its battery is in the answer"
    assert third.recent == CLIMATE | {"temperature": 24.7}


def test_a_model_that_is_not_known_is_not_read_as_the_one_before():
    heard_by = Decoders()
    assert heard_by.decode(heard(*METER), 1.0).values == CLIMATE

    assert heard_by.decode(heard(METER[0], "4b00e4069835"), 2.0) is None
    assert heard_by.decode(heard(*METER), 3.0).values == CLIMATE


@pytest.mark.parametrize(
    "other",
    [
        heard("e7ab46ac8f927c0f001104", "63c058001104"),  # a curtain
        heard("84f703b4cb7a03e4210000", "750064"),  # a bulb
        heard("f1099f451a5d07830020", "6f8064"),  # a lock
        heard("aabbccddeeff", "622056", OLD_SERVICE, 89),  # a remote
        heard("", "540000000000"),  # a meter that has not measured yet
        heard("aabbccddeeff00000000"),
    ],
)
def test_what_is_no_sensor_of_values_is_left_out(other):
    assert recognise(other) is None
    assert Decoders().decode(other, 1.0) is None


DATA = st.binary(max_size=24)
KIND = st.sampled_from([ord(each) for each in "TtiIwW45dDsS&vVgGjJ%\x14\x15\x06\x05"] + [0])


@given(
    st.lists(
        st.builds(
            lambda kind, service, mine, uuid, company: Advertisement(
                ADDRESS, None, -60, (), {company: mine}, {uuid: bytes([kind]) + service}
            ),
            KIND,
            DATA | DATA.map(lambda data: data + b"\x00\x10\xcc\xc8"),
            DATA,
            st.sampled_from([SERVICE, OLD_SERVICE]),
            st.sampled_from([2409, 741, 89]),
        ),
        max_size=6,
    )
)
@example([heard("aabbccddeeff01ff01010101", "000010ccc8")])
@example([Advertisement(ADDRESS, None, -60, (), {2409: b""}, {SERVICE: b""})])
def test_garbage_costs_no_sensor_its_next_value(advertisements):
    heard_by = Decoders()
    for at, each in enumerate(advertisements):
        found = heard_by.decode(each, float(at))
        assert found is None or (found.fields.keys() >= found.values.keys() and None not in found.values.values())

    assert heard_by.decode(heard(*METER)._replace(address="AA:AA:AA:AA:AA:AA"), 100.0).values == CLIMATE


def test_the_package_writes_nothing_into_the_log(caplog):
    heard_by = Decoders()
    for size in range(10):
        heard_by.decode(heard("00" * size, "3c"), 1.0)  # of a relay that is cut short, the package logs a traceback

    assert [each for each in caplog.records if each.name != "leadsman"] == []


def test_a_machine_without_the_package_does_without(monkeypatch):
    found = decoders.find_spec
    monkeypatch.setattr(decoders, "find_spec", lambda name: None if name == "switchbot" else found(name))

    there = decoders.load.__wrapped__()

    assert "switchbot" not in there
    assert "bthome" in there
