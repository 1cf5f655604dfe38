import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.adapters.ble import bthome
from leadsman.adapters.ble.gatt import STANDARD, float32, scaled, sfloat, unpack, uuid_of
from leadsman.errors import GarbledData, InvalidType, InvalidValue, PermanentError


@pytest.mark.parametrize(
    ("uuid", "data", "value"),
    [
        ("2a6e", "6608", 21.5),
        ("2a6e", "9cff", -1.0),
        ("2a6e", "0080", None),
        ("2a6f", "9411", 45.0),
        ("2a6f", "ffff", None),
        ("2a6d", "cd760f00", 101345.3),
        ("2a19", "63", 99),
        ("2a1c", "006e0100ff", 36.6),
        ("2a1c", "01da0300ff", 37.0),
        ("2a7b", "f6", -10),
        ("2afb", "a08601", 1000.0),
        ("2b8c", "9001", 400),
        ("2bd6", "19a0", 25e-6),
    ],
)
def test_standard_characteristics_are_decoded(uuid, data, value):
    assert STANDARD[uuid].decode(bytes.fromhex(data)) == (value if value is None else pytest.approx(value))


@pytest.mark.parametrize("uuid", STANDARD)
@given(data=st.binary(max_size=30))
def test_whatever_a_device_sends_is_a_number_none_or_a_named_error(uuid, data):
    try:
        value = STANDARD[uuid].decode(data)
    except GarbledData:
        return
    assert value is None or isinstance(value, int | float)


def test_ieee_11073_numbers_have_their_special_values():
    assert sfloat(b"\xff\x07") is sfloat(b"\x00\x08") is sfloat(b"\x01\x08") is None
    assert (sfloat(b"\xfe\x07"), sfloat(b"\x02\x08")) == (math.inf, -math.inf)
    assert (sfloat(b"\x72\x00"), sfloat(b"\x16\xf1")) == (114.0, pytest.approx(27.8))
    assert sfloat(b"\xff\x1f") == -10.0
    assert float32(b"\xff\xff\x7f\x00") is float32(b"\x00\x00\x80\x00") is None
    assert (float32(b"\xfe\xff\x7f\x00"), float32(b"\x02\x00\x80\x00")) == (math.inf, -math.inf)
    assert float32(b"\x9c\xff\xff\x02") == -10_000.0


def test_a_value_of_another_length_is_a_named_error():
    with pytest.raises(GarbledData, match="must have 2 bytes; 3 arrived: 01 02 03"):
        STANDARD["2a6e"].decode(b"\x01\x02\x03")
    with pytest.raises(GarbledData, match="the counter has 4 bytes; 1 arrived"):
        unpack("<I", b"\x01", "the counter")
    assert unpack("<hB", struct.pack("<hB", -5, 7)) == (-5, 7)


def test_a_battery_has_at_most_a_hundred_percent():
    assert [STANDARD["2a19"].decode(bytes((value,))) for value in (0, 100, 101, 255)] == [0, 100, None, None]


def test_a_decoder_of_ones_own_is_a_line():
    assert scaled(2, 1, signed=True, unknown=0x7FFF)(b"\xe7\xff") == -2.5


def test_a_uuid_may_be_short():
    assert uuid_of("2A6E") == uuid_of(0x2A6E) == "00002a6e-0000-1000-8000-00805f9b34fb"
    assert uuid_of("B42E01AA-ADE7-11E4-89D3-123B93F75CBA") == "b42e01aa-ade7-11e4-89d3-123b93f75cba"
    for wrong, error in (("2a6", InvalidValue), (True, InvalidType), (-1, InvalidType), (None, InvalidType)):
        with pytest.raises(error):
            uuid_of(wrong)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        ("4002ca0903bf13", {"temperature": 25.06, "humidity": 50.55}),
        ("40013404138a1405530000", {"battery": 52, "pressure": 13460.67, "illuminance": 0.83}),
        ("4000090161", {"packet_id": 9, "battery": 97}),
        ("400a138a14 0b021b00", {"energy": 1346.067, "power": 69.14}),
        ("4012e204 13330121011f00", {"co2": 1250, "tvoc": 307, "motion": True, "lock": False}),
        ("4002ca0902cb09", {"temperature": 25.06, "temperature_2": 25.07}),
        ("40450b01 57ea", {"temperature": 26.7, "temperature_2": -22}),
        ("4053026869", {"text": "hi"}),
        ("405401ff", {"raw": "ff"}),
        ("40016402ca09ee1234", {"battery": 100, "temperature": 25.06}),
        ("40", {}),
    ],
)
def test_bthome_sensors_are_decoded(data, found):
    assert bthome.decode(bytes.fromhex(data)) == found


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ("", GarbledData),
        ("2001", GarbledData),
        ("4002ca", GarbledData),
        ("405309ab", GarbledData),
        ("41aabb", PermanentError),
    ],
)
def test_bthome_data_that_makes_no_sense_is_a_named_error(data, error):
    with pytest.raises(error):
        bthome.decode(bytes.fromhex(data))


@given(st.binary(max_size=60))
def test_whatever_is_advertised_is_a_reading_or_a_named_error(data):
    try:
        assert isinstance(bthome.decode(b"\x40" + data), dict)
    except GarbledData:
        return
