"""A telegram becomes a payload. Pure. Codes and formats are those of DSMR 5.0.2 P1, section 6.12."""

import re
from datetime import UTC, datetime, timedelta, timezone

from pydantic import ValidationError

from leadsman.errors import GarbledData
from p1meter2mqtt.payloads import Meter

FIELDS = {
    "1-0:1.8.1": "energy_used_tariff_1",
    "1-0:1.8.2": "energy_used_tariff_2",
    "1-0:2.8.1": "energy_delivered_tariff_1",
    "1-0:2.8.2": "energy_delivered_tariff_2",
    "1-0:1.7.0": "power_used",
    "1-0:2.7.0": "power_delivered",
    "0-0:96.14.0": "tariff",
    "1-0:32.7.0": "volts_l1",
    "1-0:52.7.0": "volts_l2",
    "1-0:72.7.0": "volts_l3",
    "1-0:31.7.0": "amperes_l1",
    "1-0:51.7.0": "amperes_l2",
    "1-0:71.7.0": "amperes_l3",
}
"""Fields of the payload by their OBIS codes."""
GAS = re.compile(r"0-\d:24\.2\.1")
LINE = re.compile(r"(\d+-\d+:\d+\.\d+\.\d+)\(([^)]*)\)(?:\(([^)]*)\))?")
"""A code, and one value or two in brackets."""
SUMMER_TIME, WINTER_TIME = timezone(timedelta(hours=2)), timezone(timedelta(hours=1))
"""Of the Netherlands and Belgium."""


def decode(telegram: bytes) -> Meter:
    """Read a telegram.

    Raises:
        GarbledData: it has no known value, or one that makes no sense.
    """
    found: dict[str, object] = {}
    for code, first, second in LINE.findall(telegram.decode("ascii", "replace")):
        if code in FIELDS:
            found[FIELDS[code]] = number(code, first)
        elif GAS.fullmatch(code) and second:
            found["gas_at"], found["gas"] = time_of(first), number(code, second)
    if not found:
        raise GarbledData("a telegram without a value that is known")
    try:
        return Meter.model_validate(found)
    except ValidationError as error:
        fault = error.errors()[0]
        raise GarbledData(f"a telegram makes no sense: {fault['loc'][0]} is {fault['input']!r}") from error


def number(code: str, text: str) -> float:
    """The value of a line, without its unit."""
    try:
        return float(text.partition("*")[0])
    except ValueError as error:
        raise GarbledData(f"{code} is {text!r}, and no number") from error


def time_of(text: str) -> datetime | None:
    """``YYMMDDhhmmssX``, where X is S in summer and W in winter; None where the meter does not know it."""
    zone = SUMMER_TIME if text.endswith("S") else WINTER_TIME
    try:
        return datetime.strptime(text[:12], "%y%m%d%H%M%S").replace(tzinfo=zone).astimezone(UTC)
    except ValueError:
        return None
