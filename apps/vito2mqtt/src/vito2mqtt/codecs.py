"""Decodes and encodes the values of a Vitodens 200-W. All numbers are little-endian. Pure.

The formats come from people who recorded the traffic; where a boiler disagrees, the boiler is right.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

from leadsman.errors import GarbledData, PayloadError

Json = Any
"""A value in a payload."""
UNSET = 0xFF
"""A time of a timer that is not used."""
FAULTS = {
    0x00: "none",
    0x10: "short circuit outdoor sensor",
    0x18: "open circuit outdoor sensor",
    0xD1: "burner fault",
    0xE5: "ionisation electrode",
    0xF4: "no flame signal",
}
"""By their code."""


class Codec(NamedTuple):
    """Decodes the bytes of a value, and encodes the values that may be written."""

    decode: Callable[[bytes], Json]
    encode: Callable[[Json, int], bytes] | None = None
    """Takes a value and the number of bytes. Raises `PayloadError`."""
    kind: Any = str
    """The type of the value, for its schema."""


def integer(divisor: int = 1, *, signed: bool = False, places: int = 1) -> Codec:
    """A number, divided by `divisor` and rounded to decimal `places`."""

    def decode(data: bytes) -> float | int:
        raw = int.from_bytes(data, "little", signed=signed)
        return raw if divisor == 1 else round(raw / divisor, places)

    def encode(value: Json, length: int) -> bytes:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise PayloadError(f"{value!r} is not a number")
        try:
            return round(value * divisor).to_bytes(length, "little", signed=signed)
        except (OverflowError, ValueError):
            raise PayloadError(f"{value!r} does not fit") from None

    return Codec(decode, encode, int if divisor == 1 else float)


def names(known: Mapping[int, str]) -> Codec:
    """A state with a name for each of its codes."""
    codes = {name: code for code, name in known.items()}

    def encode(value: Json, length: int) -> bytes:
        if value not in codes:
            raise PayloadError(f"{value!r} is none of {', '.join(codes)}")
        return codes[value].to_bytes(length, "little")

    return Codec(lambda data: known.get(data[0], f"unknown 0x{data[0]:02x}"), encode)


def byte(index: int, divisor: int = 1) -> Codec:
    """One byte of several, divided by `divisor`."""
    return Codec(lambda data: data[index] if divisor == 1 else data[index] / divisor, kind=float)


def bcd(byte: int) -> int:
    """Decode two decimal digits."""
    if byte >> 4 > 9 or byte & 15 > 9:
        raise GarbledData(f"0x{byte:02x} is not a decimal number")
    return (byte >> 4) * 10 + (byte & 15)


def moment(data: bytes) -> str | None:
    """Decode eight bytes of BCD: year, month, day, weekday, time. None if it was never set."""
    if not any(data):
        return None
    century, year, month, day, _, hour, minute, second = map(bcd, data)
    try:
        return datetime(century * 100 + year, month, day, hour, minute, second).isoformat()
    except ValueError as error:
        raise GarbledData(f"{data.hex(' ')} is not a time") from error


def clock(value: Json, length: int) -> bytes:
    """Encode a time for the boiler's clock, from ISO 8601."""
    try:
        when = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise PayloadError(f"{value!r} is not a time such as 2026-11-21T12:00:00") from None
    parts = (
        when.year // 100,
        when.year % 100,
        when.month,
        when.day,
        when.isoweekday(),
        when.hour,
        when.minute,
        when.second,
    )
    return bytes(part // 10 << 4 | part % 10 for part in parts)


class Fault(BaseModel):
    """An entry of the history of faults."""

    code: str
    fault: str
    at: str | None


def fault(data: bytes) -> Fault:
    """Decode an entry of the history of faults."""
    return Fault(code=f"{data[0]:02X}", fault=FAULTS.get(data[0], "unknown"), at=moment(data[1:9]))


def periods(data: bytes) -> list[list[str]]:
    """Decode a day of a timer: up to four times on and off."""
    times = [None if each == UNSET else f"{each >> 3:02d}:{(each & 7) * 10:02d}" for each in data]
    return [[on, off] for on, off in zip(times[::2], times[1::2], strict=True) if on is not None and off is not None]


def timer(value: Json, length: int) -> bytes:
    """Encode a day of a timer, from ``[["06:00", "22:00"]]``, in steps of ten minutes."""
    found = bytearray()
    try:
        for on, off in value:
            for text in (on, off):
                hour, minute = (int(part) for part in text.split(":"))
                if not (0 <= hour <= 24 and minute in range(0, 60, 10)):
                    raise ValueError(text)
                found.append(hour << 3 | minute // 10)
    except (TypeError, ValueError, AttributeError):
        raise PayloadError(f'{value!r} is not a timer; write [["06:00", "22:00"]], in steps of ten minutes') from None
    if len(found) > length or list(found) != sorted(found):
        raise PayloadError(f"{value!r}: a day has up to four times on and off, one after the other")
    return bytes(found).ljust(length, bytes((UNSET,)))


TENTHS = integer(10, signed=True)
WHOLE = integer()
HOURS = integer(3600, places=2)
"""From seconds."""
PERCENT = byte(1)
HALF_PERCENT = byte(0, 2)
SWITCH = names({0: "off", 1: "on", 3: "unknown", 0xAA: "error"})
ON_OFF = Codec(lambda data: {0: "off", 1: "on"}.get(data[0]), names({0: "off", 1: "on"}).encode, Literal["off", "on"])
"""What may be written, too; None for another code."""
MODE = names(
    {
        0: "off",
        1: "reduced",
        2: "normal",
        3: "heating and hot water",
        4: "heating and hot water (external)",
        5: "shutdown",
    }
)
VALVE = names({0: "undefined", 1: "heating", 2: "middle", 3: "hot water"})
HISTORY = Codec(fault, kind=Fault)
CLOCK = Codec(moment, clock)
TIMER = Codec(periods, timer, list[list[str]])
