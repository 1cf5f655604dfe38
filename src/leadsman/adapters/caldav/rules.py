"""Refuses the rules of calendars that would cost seconds to expand (RFC 5545 §3.3.10)."""

from collections.abc import Mapping
from datetime import date
from typing import Any

from leadsman.core.text import clean
from leadsman.errors import GarbledData

Rule = Mapping[str, Any]
"""The parts of a rule, each a list: ``{"FREQ": ["DAILY"], "COUNT": [3]}``, as icalendar reads it."""
MAX_OCCURRENCES = 5000
"""Occurrences of one event within the window; a rule for more is a mistake or an attack."""
MAX_PERIODS = 100_000
"""Periods from an event's beginning to the window's end: its rule is stepped through from there. Days since 1753."""
_STEPS = {
    "SECONDLY": 86400.0,
    "MINUTELY": 1440.0,
    "HOURLY": 24.0,
    "DAILY": 1.0,
    "WEEKLY": 1 / 7,
    "MONTHLY": 1 / 7,
    "YEARLY": 1 / 7,
}
"""Periods of a day through which a rule of this frequency is stepped, at most."""
MAX_INTERVAL_PERIODS = 100_000
"""Periods from one occurrence to the next: of days, 273 years."""
MAX_RULE_COUNT = 1_000_000
"""Occurrences of a rule; more are as good as no end."""
_RANGES = {
    "INTERVAL": (1, MAX_INTERVAL_PERIODS),
    "COUNT": (1, MAX_RULE_COUNT),
    "BYSECOND": (0, 60),
    "BYMINUTE": (0, 59),
    "BYHOUR": (0, 23),
    "BYMONTHDAY": (1, 31),
    "BYYEARDAY": (1, 366),
    "BYWEEKNO": (1, 53),
    "BYMONTH": (1, 12),
    "BYSETPOS": (1, 366),
}
_MAX_MONTH_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_FINER = {
    "SECONDLY": (),
    "MINUTELY": ("BYSECOND",),
    "HOURLY": ("BYMINUTE", "BYSECOND"),
}
"""Parts that make more of it; for days and longer: BYHOUR, BYMINUTE and BYSECOND."""
_ONLY_WITH = {
    "BYWEEKNO": frozenset({"YEARLY"}),
    "BYYEARDAY": frozenset({"YEARLY"}),
}
"""Parts that other frequencies must not have, or that make no sense there (RFC 5545 §3.3.10). With them, a rule may
name days that never come, and each day until the year 9999 is looked at."""
_ZONE_PARTS = frozenset({"FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYMONTH", "BYMONTHDAY", "BYDAY"})
"""Of a rule by which clocks change."""


def check_rule(rule: Rule, name: str, start: date | None, end: date, days: int) -> float:
    """Check the rule of the event `name` that begins on `start`, for a window of `days` that ends on `end`.

    Returns:
        The most often that the event can take place in the window.

    Raises:
        GarbledData: it would cost too much, or makes no sense.
        ValueError: a number in it is not a number.
    """
    frequency = _check_parts(rule)
    if (most := _density(rule, frequency) * (days + 1)) > MAX_OCCURRENCES:
        raise GarbledData(f"{name!r} would take place {most:.0f} times in {days} days; {MAX_OCCURRENCES:,} are allowed")
    steps = 0.0 if start is None else max(0, (end - start).days) * _STEPS[frequency]
    if steps > MAX_PERIODS:
        raise GarbledData(f"{name!r} began so long ago that its rule takes {steps:.0f} steps")
    return most


def check_zone(text: str) -> None:
    """Check the text of a rule by which the clocks of a time zone change, such as ``FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU``:
    it is expanded from its beginning, perhaps in 1601, to 2038, whatever the window.

    Raises:
        GarbledData: it is not a rule for once a year.
        ValueError: a number in it is not a number.
    """
    parts = dict(part.upper().partition("=")[::2] for part in text.strip().split(";"))
    if parts.get("FREQ") != "YEARLY" or not parts.keys() <= _ZONE_PARTS or "," in parts.get("BYMONTH", ""):
        raise GarbledData("the clocks of a time zone change by a rule that is not for once a year")
    _check_parts({name: value.split(",") for name, value in parts.items() if name in _RANGES or name == "FREQ"})


def _check_parts(rule: Rule) -> str:
    """Check the parts of a rule, and return its frequency."""
    frequency = str((rule.get("FREQ") or ["?"])[0]).upper()
    if frequency not in _STEPS:
        raise GarbledData(f"FREQ={clean(frequency)[:20]} is not a frequency")
    for part, (low, high) in _RANGES.items():  # with an interval of 0 the search for the next day would never end
        for value in rule.get(part) or ():
            if not low <= abs(int(value)) <= high:
                raise GarbledData(f"{part}={clean(str(value))[:20]} is out of range; it must be {low} to {high}")
    for part, frequencies in _ONLY_WITH.items():
        if rule.get(part) and frequency not in frequencies:
            raise GarbledData(f"{part} does not go with FREQ={frequency}")
    positions = [abs(int(each)) for each in rule.get("BYSETPOS") or ()]
    if positions and frequency not in ("WEEKLY", "MONTHLY", "YEARLY") and max(positions) > _often(rule, frequency):
        raise GarbledData(f"BYSETPOS={max(positions)} names a moment that FREQ={frequency} does not have")
    months, days = rule.get("BYMONTH") or (), rule.get("BYMONTHDAY") or ()
    if months and days and not any(abs(int(d)) <= _MAX_MONTH_DAYS[int(month) - 1] for month in months for d in days):
        raise GarbledData("the rule names a day that none of its months has")
    return frequency


def _density(rule: Rule, frequency: str) -> float:
    """The most often that a rule can come on one day."""
    often = max(1.0, _STEPS[frequency])
    if frequency in _FINER:
        often /= max(1, int((rule.get("INTERVAL") or [1])[0]))
    return often * _often(rule, frequency)


def _often(rule: Rule, frequency: str) -> int:
    """The most often that a rule can come at one of its moments, or on one of its days."""
    often = 1
    for part in _FINER.get(frequency, ("BYHOUR", "BYMINUTE", "BYSECOND")):
        often *= max(1, len(set(rule.get(part) or ())))
    return often
