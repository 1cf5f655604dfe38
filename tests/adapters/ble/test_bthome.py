"""BTHome 2: each bit of the first byte and each kind of object is read, or a named error (https://bthome.io/format).
What the decoder without packages reads is compared with the parser of Home Assistant."""

import pytest
from bthome_ble.const import MEAS_TYPES
from hypothesis import given
from hypothesis import strategies as st

from leadsman.adapters.ble import Advertisement, Decoders, bthome
from leadsman.errors import GarbledData, PermanentError

OF_SENSOR = "11:09:10:02:5A:01"
WARM = bytes.fromhex("02ca09")
BESIDE = bytes(range(6))
"""An address in the packet that reads as a battery of 1 % and more, if it is taken for measurements."""


def decoded(data):
    """What `Decoders` makes of it."""
    found = Decoders().decode(Advertisement(OF_SENSOR, "sensor", -60, (), {}, {bthome.SERVICE: data}), 1.0)
    return None if found is None else dict(found.values)


@pytest.mark.parametrize("first", range(256))
def test_each_first_byte_is_read_or_refused(first):
    version, reserved, encrypted, addressed = first >> 5, first & 0b11000, first & 1, first & 2
    data = bytes((first,)) + (BESIDE if addressed else b"") + WARM
    if version != 2:
        error, message = GarbledData, "not BTHome version 2"
    elif reserved:
        error, message = GarbledData, "flags that are not known"
    elif encrypted:
        error, message = PermanentError, "read it with Decoders and its key"
    else:
        assert bthome.decode(data) == decoded(data) == {"temperature": 25.06}
        return
    with pytest.raises(error, match=message):
        bthome.decode(data)
    assert decoded(data) is None


@pytest.mark.parametrize(
    ("data", "found"),
    [
        ("42 015a02100911 015d 02ca09 03bf13", {"battery": 93, "temperature": 25.06, "humidity": 50.55}),
        ("46 015a02100911 02ca09", {"temperature": 25.06}),
        ("40 01ff 03ffff 02ca09 2e64 2fff", {"temperature": 25.06, "humidity_2": 100}),
        ("42 015a02100911", {}),
        ("44 0005 3a01", {"packet_id": 5, "button": 1}),
        ("44 3a00 3a02", {"button": 0, "button_2": 2}),
        ("40 3c0103", {"dimmer": -3}),
        ("40 3c02ff", {"dimmer": 255}),
        ("40 3c0000", {"dimmer": 0}),
        ("40 3b01ff05 3c0201", {"command": "ff05", "dimmer": 1}),
        ("40 3b2007", {"command": "07"}),
        ("40 5300 5401ff", {"text": "", "raw": "ff"}),
        (
            "40 612c01 6240420f00 63c0bdf0ff 6407 6503",
            {"rotational_speed": 300, "speed": 1, "acceleration": -1, "light_level": 7, "settings_revision": 3},
        ),
        ("40 f00100 f100010204 f2000106", {"device_type": 1, "firmware": "4.2.1.0", "firmware_2": "6.1.0"}),
        ("40 02ca09 66aabbcc", {"temperature": 25.06}),
    ],
)
def test_packets_have_the_right_values(data, found):
    assert bthome.decode(bytes.fromhex(data)) == found


@pytest.mark.parametrize(
    "data",
    [
        "42",
        "42 015a0210",
        "42 015a021009",
        "40 3b",
        "40 3b01",
        "40 3b1f00",
        "40 53",
        "40 540400",
        "40 3c01",
        "40 3c0301",
        "42 015a02100911 02ca",
        "40 500102",
    ],
)
def test_what_is_incomplete_or_has_no_meaning_is_a_named_error(data):
    with pytest.raises(GarbledData, match=r"BTHome data"):
        bthome.decode(bytes.fromhex(data))


SHARES = (0x01, 0x03, 0x14, 0x2E, 0x2F)
"""Kinds in per cent, of which no value is far above 100."""


@pytest.mark.parametrize("kind", MEAS_TYPES)
def test_each_kind_of_the_parser_of_home_assistant_has_its_size_its_sign_and_its_factor_here(kind):
    known = MEAS_TYPES[kind]
    if known.data_format in ("raw", "string", "command"):
        data, size = b"\x03abcdef", 3 + (known.data_format == "command")
    else:
        data = b"\x01\x05" if kind == 0x3C else b"\x05\x10" if kind in SHARES else b"\xfe\xff\xff\xff\xff\xff"
        data, size = data[: known.data_length], None
    found = bthome.decode(b"\x40" + bytes((kind,)) + (data if size is None else data[: 1 + size]))

    assert len(found) == 1
    (value,) = found.values()
    if size is None and isinstance(value, int | float) and not isinstance(value, bool) and kind != 0x3C:
        raw = int.from_bytes(data, "little", signed=known.data_format == "signed_integer")
        assert value == pytest.approx(raw * known.factor)


def test_no_kind_is_read_that_the_parser_of_home_assistant_does_not_know():
    for kind in set(range(256)) - set(MEAS_TYPES):
        assert bthome.decode(b"\x40\x02\xca\x09" + bytes((kind, 1, 1, 1, 1))) == {"temperature": 25.06}


NUMBERS = [kind for kind, known in MEAS_TYPES.items() if known.data_format in ("unsigned_integer", "signed_integer")]
ONE_UNIT = set(NUMBERS) - {0x00, 0x3A, 0x3C, 0x07, 0x40, 0x48, 0x58}
"""Without the number of the packet, events, what the parser gives in two units under one key, and a temperature in
steps of 0.35 °C that it rounds to a tenth."""


@given(st.sets(st.sampled_from(sorted(ONE_UNIT)), max_size=5), st.randoms(), st.booleans())
def test_both_decoders_read_the_same_numbers(kinds, dice, addressed):
    data = bytearray(b"\x42" + BESIDE if addressed else b"\x40")
    for kind in sorted(kinds):
        data += bytes((kind, *dice.randbytes(MEAS_TYPES[kind].data_length)))

    ours, theirs = bthome.decode(bytes(data)), decoded(bytes(data)) or {}

    assert sorted(map(float, ours.values())) == pytest.approx(sorted(map(float, theirs.values())), abs=1e-9)


@pytest.mark.parametrize(
    ("first", "second", "values", "units"),
    [
        ("40e803", "410a00", {"distance": 1000, "distance_m": 1}, {"distance": "mm", "distance_m": "m"}),
        ("066400", "076400", {"mass": 1, "mass_lb": 1}, {"mass": "kg", "mass_lb": "lb"}),
        ("470a00", "480a00", {"volume": 1, "volume_ml": 10}, {"volume": "L", "volume_ml": "mL"}),
        ("480a00", "4e0a000000", {"volume": 10, "volume_l": 0.01}, {"volume": "mL", "volume_l": "L"}),
    ],
)
def test_a_sensor_that_changes_its_unit_has_another_field(first, second, values, units):
    heard_by = Decoders()
    for at, data in enumerate((first, second, first)):
        packet = {bthome.SERVICE: b"\x40" + bytes.fromhex(data)}
        found = heard_by.decode(Advertisement(OF_SENSOR, "sensor", -60, (), {}, packet), float(at))

    assert found.recent == values
    assert {name: kind.__metadata__[0].unit for name, kind in found.fields.items()} == units


@given(st.binary(max_size=60))
def test_whatever_is_advertised_is_a_reading_or_a_named_error(data):
    try:
        found = bthome.decode(data)
    except (GarbledData, PermanentError):
        return
    assert data[0] in (0x40, 0x42, 0x44, 0x46)
    assert all(isinstance(each, float | str) or each == int(each) for each in found.values())
