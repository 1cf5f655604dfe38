"""Decoders of GATT characteristics: bytes to numbers, as the GATT Specification Supplement and IEEE 11073-20601 define
them.

``STANDARD["2a6e"].decode(data)`` gives degrees; a value that is not known is None. For formats of a maker's
own, `unpack` is `struct.unpack` with a named error.
"""

import math
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from leadsman.errors import GarbledData, InvalidType, InvalidValue

_BASE = "-0000-1000-8000-00805f9b34fb"
"""The Bluetooth Base UUID behind its first 32 bits (Core Specification, Vol 3, Part B, 2.5.1)."""


def uuid_of(value: object) -> str:
    """Return a complete UUID in lower case, from ``"2a6e"``, from 0x2A6E, or from a complete one.

    Raises:
        InvalidType, InvalidValue: the value is not a UUID.
    """
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 0xFFFFFFFF:
        value = f"{value:08x}" if value > 0xFFFF else f"{value:04x}"
    if not isinstance(value, str):
        raise InvalidType(f"{value!r} is not a UUID; write '2a6e', or all 36 characters")
    text = value.lower()
    if re.fullmatch(r"[0-9a-f]{4}|[0-9a-f]{8}", text):
        return text.rjust(8, "0") + _BASE
    if re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", text):
        return text
    raise InvalidValue(f"{value!r} is not a UUID; write '2a6e', or all 36 characters")


def short_uuid(uuid: str) -> str:
    """The shortest text that `uuid_of` takes for a complete UUID in lower case: ``"2a6e"``, or the UUID as it is."""
    if not uuid.endswith(_BASE):
        return uuid
    return uuid[: -len(_BASE)].removeprefix("0000")


def unpack(form: str, data: bytes, what: str = "the value") -> tuple[Any, ...]:
    """`struct.unpack`. Raises `GarbledData` if there are more or fewer bytes than the format needs."""
    if len(data) != struct.calcsize(form):
        raise GarbledData(f"{what} has {struct.calcsize(form)} bytes; {len(data)} arrived: {data[:32].hex(' ')}")
    return struct.unpack(form, data)


def float32(data: bytes) -> float | None:
    """Decode an IEEE 11073 FLOAT: a mantissa of 24 bits and a decimal exponent of 8. None for NaN, NRes and
    reserved values."""
    (raw,) = unpack("<I", data, "a FLOAT")
    return _decimal(raw & 0xFFFFFF, 24, raw >> 24, 8)


def sfloat(data: bytes) -> float | None:
    """Decode an IEEE 11073 SFLOAT, medfloat16: a mantissa of 12 bits and a decimal exponent of 4. None for NaN,
    NRes and reserved values."""
    (raw,) = unpack("<H", data, "an SFLOAT")
    return _decimal(raw & 0xFFF, 12, raw >> 12, 4)


def _decimal(mantissa: int, bits: int, exponent: int, exponent_bits: int) -> float | None:
    top = 1 << (bits - 1)
    if exponent == 0 and mantissa in (top - 2, top + 2):
        return math.inf if mantissa < top else -math.inf
    if exponent == 0 and top - 1 <= mantissa <= top + 1:
        return None
    mantissa -= (mantissa & top) * 2
    exponent -= (exponent & (1 << (exponent_bits - 1))) * 2
    return float(mantissa * 10**exponent) if exponent >= 0 else mantissa / 10**-exponent


Decoder = Callable[[bytes], float | int | None]


def scaled(size: int, places: int = 0, *, signed: bool = False, unknown: int | None = None) -> Decoder:
    """Make a decoder for integers with a decimal exponent, the usual form of a GATT value.

    Args:
        size: the number of bytes.
        places: the number of decimal places.
        signed: whether the integer is in two's complement.
        unknown: the bits that mean "not known"; the decoder returns None for them.
    """

    def decode(data: bytes) -> float | int | None:
        if len(data) != size:
            raise GarbledData(f"the value must have {size} bytes; {len(data)} arrived: {data[:32].hex(' ')}")
        if int.from_bytes(data, "little") == unknown:
            return None
        raw = int.from_bytes(data, "little", signed=signed)
        return raw / 10**places if places else raw

    return decode


class Characteristic(NamedTuple):
    """A characteristic of the assigned numbers."""

    name: str
    unit: str
    decode: Decoder
    """Decodes the value: None if it is not known. Raises `GarbledData` if the length is wrong."""


def _battery_level(data: bytes) -> float | int | None:
    """0x2A19: percent. Values above 100 are reserved, and mean nothing."""
    value = scaled(1)(data)
    return None if value is not None and value > 100 else value


def _temperature_measurement(data: bytes) -> float | None:
    """0x2A1C: flags, a FLOAT, and maybe a time and a place. In degrees Celsius."""
    if len(data) < 5:
        raise GarbledData(f"a temperature measurement has 5 bytes or more; {len(data)} arrived: {data.hex(' ')}")
    value = float32(data[1:5])
    return value if value is None or not data[0] & 1 else (value - 32) / 1.8


STANDARD: Mapping[str, Characteristic] = {
    "2a19": Characteristic("battery_level", "%", _battery_level),
    "2a1c": Characteristic("temperature_measurement", "°C", _temperature_measurement),
    "2a6c": Characteristic("elevation", "m", scaled(3, 2, signed=True)),
    "2a6d": Characteristic("pressure", "Pa", scaled(4, 1)),
    "2a6e": Characteristic("temperature", "°C", scaled(2, 2, signed=True, unknown=0x8000)),
    "2a6f": Characteristic("humidity", "%", scaled(2, 2, unknown=0xFFFF)),
    "2a70": Characteristic("true_wind_speed", "m/s", scaled(2, 2)),
    "2a71": Characteristic("true_wind_direction", "°", scaled(2, 2)),
    "2a76": Characteristic("uv_index", "", scaled(1)),
    "2a78": Characteristic("rainfall", "mm", scaled(2)),
    "2a7b": Characteristic("dew_point", "°C", scaled(1, signed=True)),
    "2afb": Characteristic("illuminance", "lx", scaled(3, 2, unknown=0xFFFFFF)),
    "2b8c": Characteristic("co2_concentration", "ppm", scaled(2, unknown=0xFFFF)),
    "2bd5": Characteristic("pm1_concentration", "kg/m³", sfloat),
    "2bd6": Characteristic("pm2_5_concentration", "kg/m³", sfloat),
    "2bd7": Characteristic("pm10_concentration", "kg/m³", sfloat),
}
"""By the four digits of their UUID."""
