"""A telegram becomes a payload. Pure. Codes and formats are those of DSMR 5.0.2 P1, section 6.12, of DSMR 2.2 and 3.0,
and of e-MUCS P1 1.7.1 (Belgium).

No number is given whose unit has not been read, and none of a meter on the M-Bus, as gas and water are, whose kind has
not: the code is the same for all of them.

A value that makes no sense is left out if the checksum says that the meter sent it; else the telegram is refused, since
a bit of it may be wrong.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import NamedTuple

from pydantic import ValidationError

from leadsman.errors import GarbledData
from p1meter2mqtt.payloads import Meter

Units = Mapping[str, str]
"""How many of the unit that is published each unit is."""
ENERGY: Units = {"Wh": "0.001", "kWh": "1", "MWh": "1000"}
POWER: Units = {"W": "0.001", "kW": "1", "MW": "1000"}
VOLTS: Units = {"V": "1"}
AMPERES: Units = {"A": "1", "mA": "0.001"}
VOLUME: Units = {"m3": "1", "m³": "1", "dm3": "0.001", "l": "0.001"}
HEAT: Units = {"GJ": "1", "MJ": "0.001", "kJ": "0.000001", "Wh": "0.0000036", "kWh": "0.0036", "MWh": "3.6"}
TOTALS = (ENERGY, VOLUME, HEAT)
"""The units of what only grows."""

FIELDS: Mapping[str, tuple[str, Units]] = {
    "1-0:1.8.0": ("energy_used", ENERGY),
    "1-0:1.8.1": ("energy_used_tariff_1", ENERGY),
    "1-0:1.8.2": ("energy_used_tariff_2", ENERGY),
    "1-0:2.8.0": ("energy_delivered", ENERGY),
    "1-0:2.8.1": ("energy_delivered_tariff_1", ENERGY),
    "1-0:2.8.2": ("energy_delivered_tariff_2", ENERGY),
    "1-0:1.7.0": ("power_used", POWER),
    "1-0:2.7.0": ("power_delivered", POWER),
    "1-0:32.7.0": ("volts_l1", VOLTS),
    "1-0:52.7.0": ("volts_l2", VOLTS),
    "1-0:72.7.0": ("volts_l3", VOLTS),
    "1-0:31.7.0": ("amperes_l1", AMPERES),
    "1-0:51.7.0": ("amperes_l2", AMPERES),
    "1-0:71.7.0": ("amperes_l3", AMPERES),
}
"""Fields of the payload by their OBIS codes."""
TARIFF = "0-0:96.14.0"
KINDS: Mapping[int, tuple[str, Units]] = {
    3: ("gas", VOLUME),
    4: ("heat", HEAT),
    6: ("hot_water", VOLUME),
    7: ("water", VOLUME),
    10: ("cold", HEAT),
    11: ("cold", HEAT),
    12: ("heat", HEAT),
    21: ("hot_water", VOLUME),
    22: ("water", VOLUME),
}
"""Fields by the kind of a meter on the M-Bus (EN 13757-3, table of device types; here in decimal digits)."""
KIND = "24.1.0"
NOW = ("24.2.1", "24.2.3")
"""The last value, with its time; the second is the volume of gas that is not corrected by its temperature, in
Belgium."""
HOURLY = "24.3.0"
"""The last value in DSMR 2 and 3: time, …, code, unit, value."""
LINE = re.compile(r"(\d+-\d+:\d+\.\d+\.\d+)(?:\*255)?((?:\([^()]*\))+)")
"""A code, and values in brackets. Behind ``*``, anything but 255 is a value of an earlier month (IEC 62056-61)."""
NUMBER = re.compile(r"-?\d{1,15}(\.\d{1,15})?")
EARLIEST = 2005
"""No smart meter with a P1 port is older. A clock that was never set says 2000, 1999 or 1970."""
EXCHANGED = timedelta(days=1)
"""A meter that has said nothing for so much longer than another one of its kind was exchanged for it."""
SUMMER_TIME, WINTER_TIME = timezone(timedelta(hours=2)), timezone(timedelta(hours=1))
"""Of the countries with P1 ports, from Belgium to Hungary."""


class Sample(NamedTuple):
    """What a meter on the M-Bus measured."""

    value: float
    at: datetime | None
    """None if the telegram does not say whether it is summer time."""


def decode(telegram: bytes) -> Meter:
    """Read a telegram.

    Raises:
        GarbledData: it has no known value; or one that makes no sense, and no checksum.
    """
    lines = list(lines_of(telegram))
    checked = bool(telegram.rpartition(b"!")[2].strip())
    found: dict[str, object] = {}
    for code, values in lines:
        try:
            if code == TARIFF:
                found["tariff"] = tariff_of(values[0])
            elif code in FIELDS:
                field, units = FIELDS[code]
                if (number := number_of(code, values[0], units)) is not None:
                    found[field] = number
        except GarbledData:
            if not checked:
                raise
    found |= metered(lines, checked=checked)
    if not found:
        raise GarbledData("a telegram without a value that is known")
    try:
        return Meter.model_validate(found)
    except ValidationError as error:
        fault = error.errors()[0]
        raise GarbledData(f"a telegram makes no sense: {fault['loc'][0]} is {fault['input']!r}") from error


def lines_of(telegram: bytes) -> Iterator[tuple[str, list[str]]]:
    """The codes with their values. A line that begins with a bracket goes on with the one before."""
    text = re.sub(r"\s*\n\s*\(", "(", telegram.decode("utf-8", "replace"))
    for line in text.splitlines():
        if found := LINE.fullmatch(line.strip()):
            yield found[1], found[2][1:-1].split(")(")


def metered(lines: list[tuple[str, list[str]]], *, checked: bool) -> dict[str, object]:
    """The fields of meters on the M-Bus: gas, water, heat. Of two of one kind, the one that was not exchanged for the
    other; none if that cannot be told."""
    kinds: dict[str, int] = {}
    for code, values in lines:
        channel, _, what = code.partition(":")
        if what == KIND and values[0].isdecimal():
            kinds[channel] = int(values[0])
    samples: dict[str, dict[str, Sample]] = {}
    for code, values in lines:
        channel, _, what = code.partition(":")
        field, units = KINDS.get(kinds.get(channel, 0), ("", {}))
        if not field or what not in (*NOW, HOURLY):
            continue
        try:
            sample = hourly(code, values, units) if what == HOURLY else last(code, values, units)
        except GarbledData:
            if not checked:
                raise
            continue
        if sample is not None:
            samples.setdefault(field, {}).setdefault(channel, sample)
    found: dict[str, object] = {}
    for field, by_channel in samples.items():
        if (current := current_of(list(by_channel.values()))) is not None:
            found[field], found[f"{field}_at"] = current
    return found


def last(code: str, values: list[str], units: Units) -> Sample | None:
    """``(time)(value*unit)``."""
    return sample_of(code, values[0], values[1], units) if len(values) == 2 else None


def hourly(code: str, values: list[str], units: Units) -> Sample | None:
    """``(time)…(code)(unit)(value)``; the value may have the unit as well."""
    if len(values) < 4:
        return None
    unit, text = values[-2:]
    return sample_of(code, values[0], text if "*" in text else f"{text}*{unit}", units)


def sample_of(code: str, time: str, text: str, units: Units) -> Sample | None:
    """None if the meter says that it has no value: its time is invalid, or its clock and its counter were never set."""
    number, at = number_of(code, text, units), time_of(time)
    if number is None or at is None or (number == 0 and at.year < EARLIEST):
        return None
    return Sample(number, at if at.tzinfo is not None else None)


def current_of(samples: list[Sample]) -> Sample | None:
    """The one that still measures."""
    if len(samples) == 1:
        return samples[0]
    timed = [(sample.at, sample) for sample in samples if sample.at is not None]
    if len(timed) < len(samples):
        return None
    newest = max(at for at, _ in timed)
    current = [sample for at, sample in timed if newest - at < EXCHANGED]
    return current[0] if len(current) == 1 else None


def tariff_of(text: str) -> int:
    """The number of a tariff. Raises `GarbledData` if it is not one."""
    if not re.fullmatch(r"[0-9]{1,4}", text):
        raise GarbledData(f"{TARIFF} is {text!r}, and no number of a tariff")
    return int(text)


def number_of(code: str, text: str, units: Units) -> float | None:
    """A number in the unit that is published; None if the meter says another unit, or none.

    Raises:
        GarbledData: it is no number, or a total below zero.
    """
    digits, _, unit = text.partition("*")
    if unit not in units:
        return None
    if not NUMBER.fullmatch(digits):
        raise GarbledData(f"{code} is {text!r}, and no number")
    if digits.startswith("-") and units in TOTALS:
        raise GarbledData(f"{code} is {text!r}, and a total is never below zero")
    return float(Decimal(digits) * Decimal(units[unit]))


def time_of(text: str) -> datetime | None:
    """``YYMMDDhhmmssX``, where X is S in summer and W in winter. In UTC; without a zone if X is missing, as in DSMR 2
    and 3; None if it is no time, as the ``632525252525W`` of a meter that has no value."""
    digits, flag = text[:12], text[12:]
    zones: dict[str, timezone | None] = {"S": SUMMER_TIME, "W": WINTER_TIME, "": None}
    if not re.fullmatch(r"[0-9]{12}", digits) or flag not in zones:
        return None
    try:
        local = datetime.strptime(digits, "%y%m%d%H%M%S")
    except ValueError:
        return None
    zone = zones[flag]
    return local if zone is None else local.replace(tzinfo=zone).astimezone(UTC)
