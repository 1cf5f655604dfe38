"""Leaves of a calendar object (RFC 5545) only what `leadsman.adapters.caldav.recurrence` needs, before it is parsed,
and refuses an object that would take seconds to parse. Pure.

Parsing costs time for each character, and anybody who may write into a calendar chooses the characters: attachments,
alarms and properties of other programs are left out.
"""

import contextlib
import re
from collections.abc import Mapping
from datetime import date
from typing import Any

from leadsman.errors import GarbledData
from leadsman.text import clean

# Refuses recurrence rules (RFC 5545 §3.3.10) that would cost seconds: those for thousands of occurrences, those that
# are searched from long ago, and those that never come. Pure.

Rule = Mapping[str, Any]
"""The parts of a rule, each a list: ``{"FREQ": ["DAILY"], "COUNT": [3]}``, as icalendar reads it."""
MOST = 5000
"""Occurrences of one event within the window; a rule for more is a mistake or an attack."""
MOST_STEPS = 100_000
"""Periods from an event's beginning to the window's end: its rule is stepped through from there. Days since 1753."""
_PER_DAY = {
    "SECONDLY": 86400.0,
    "MINUTELY": 1440.0,
    "HOURLY": 24.0,
    "DAILY": 1.0,
    "WEEKLY": 7.0,
    "MONTHLY": 31.0,
    "YEARLY": 366.0,
}
"""The most often that a rule of this frequency can come on a day, before BYHOUR and the like; those without days, per
event day."""
_RANGES = {
    "INTERVAL": (1, 100_000),
    "COUNT": (1, 1_000_000),
    "BYSECOND": (0, 60),
    "BYMINUTE": (0, 59),
    "BYHOUR": (0, 23),
    "BYMONTHDAY": (1, 31),
    "BYYEARDAY": (1, 366),
    "BYWEEKNO": (1, 53),
    "BYMONTH": (1, 12),
    "BYSETPOS": (1, 366),
}
_DAILY = frozenset({"SECONDLY", "MINUTELY", "HOURLY", "DAILY"})
_LONGEST_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_FINER = {
    "SECONDLY": (),
    "MINUTELY": ("BYSECOND",),
    "HOURLY": ("BYMINUTE", "BYSECOND"),
}
"""Parts that make more of it; for days and what is longer: BYHOUR, BYMINUTE and BYSECOND."""


_ONLY_WITH = {
    "BYWEEKNO": frozenset({"YEARLY"}),
    "BYYEARDAY": frozenset({"YEARLY"}),
    "BYSETPOS": frozenset({"WEEKLY", "MONTHLY", "YEARLY"}),
}
"""Parts that other frequencies must not have, or that make no sense there (RFC 5545 §3.3.10). With them, a rule may
name days that never come, and each day until the year 9999 is looked at."""
_ZONE_PARTS = frozenset({"FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYMONTH", "BYMONTHDAY", "BYDAY"})
"""Of a rule by which clocks change."""


def check(rule: Rule, name: str, start: date | None, end: date, days: int) -> float:
    """Check the rule of the event `name` that begins on `start`, for a window of `days` that ends on `end`.

    Returns:
        The most often that the event can take place in the window.

    Raises:
        GarbledData: it would cost too much, or makes no sense.
        ValueError: a number in it is none.
    """
    frequency = _check_rule(rule)
    if (most := _density(rule, frequency) * (days + 1)) > MOST:
        raise GarbledData(f"{name!r} would take place {most:.0f} times in {days} days; {MOST:,} are allowed")
    steps = 0.0 if start is None else max(0, (end - start).days) * _steps_a_day(frequency)
    if steps > MOST_STEPS:
        raise GarbledData(f"{name!r} began so long ago that its rule takes {steps:.0f} steps")
    return most


def check_zone(text: str) -> None:
    """Check the text of a rule by which the clocks of a time zone change, such as ``FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU``:
    it is expanded from its beginning, perhaps in 1601, to 2038, whatever the window.

    Raises:
        GarbledData: it is not a rule for once a year.
        ValueError: a number in it is none.
    """
    parts = dict(part.upper().partition("=")[::2] for part in text.strip().split(";"))
    if parts.get("FREQ") != "YEARLY" or not parts.keys() <= _ZONE_PARTS or "," in parts.get("BYMONTH", ""):
        raise GarbledData("the clocks of a time zone change by a rule that is not for once a year")
    _check_rule({name: value.split(",") for name, value in parts.items() if name in _RANGES or name == "FREQ"})


def _check_rule(rule: Rule) -> str:
    """Check the parts of a rule, and return its frequency."""
    frequency = str((rule.get("FREQ") or ["?"])[0]).upper()
    if frequency not in _PER_DAY:
        raise GarbledData(f"FREQ={clean(frequency)[:20]} is not a frequency")
    for part, (low, high) in _RANGES.items():  # with an interval of 0 the search for the next day would never end
        for value in rule.get(part) or ():
            if not low <= abs(int(value)) <= high:
                raise GarbledData(f"{part}={clean(str(value))[:20]} is out of range; it must be {low} to {high}")
    for part, frequencies in _ONLY_WITH.items():
        if rule.get(part) and frequency not in frequencies:
            raise GarbledData(f"{part} does not go with FREQ={frequency}")
    months, days = rule.get("BYMONTH") or (), rule.get("BYMONTHDAY") or ()
    if months and days and not any(abs(int(d)) <= _LONGEST_MONTH[int(month) - 1] for month in months for d in days):
        raise GarbledData("the rule names a day that none of its months has")
    return frequency


def _density(rule: Rule, frequency: str) -> float:
    """The most often that a rule can come on one day."""
    often = _PER_DAY[frequency] if frequency in _FINER else 1.0
    if frequency in _FINER:
        with contextlib.suppress(TypeError, ValueError, IndexError):
            often /= max(1, int((rule.get("INTERVAL") or [1])[0]))
    for part in _FINER.get(frequency, ("BYHOUR", "BYMINUTE", "BYSECOND")):
        often *= max(1, len(rule.get(part) or ()))
    return often


def _steps_a_day(frequency: str) -> float:
    return _PER_DAY[frequency] if frequency in _DAILY else 1 / 7


MOST_LINES = 20_000
"""Lines of one calendar object, which take a second to parse: an object has one event, and the occurrences of it that
were moved (RFC 4791 §4.1)."""
LARGEST = 512 * 1024
"""Characters of one object that are parsed. An occurrence that was moved has a few hundred."""
LONGEST_LINE = 128 * 1024
"""Characters of one property: `MOST` dates have 85,000."""
LONGEST_RULE = 2000
"""Characters of a rule; one that lists each day of a year has 1,500."""
MOST_CHANGES = 100
"""Rules and lists by which the clocks of the time zones of one object change. A zone has about ten since 1900."""
_COMPONENTS = frozenset({"VCALENDAR", "VEVENT", "VTIMEZONE", "STANDARD", "DAYLIGHT"})
_CHANGES = frozenset({"STANDARD", "DAYLIGHT"})
_PROPERTIES = frozenset(
    {
        *("VERSION", "PRODID", "UID", "SUMMARY", "LOCATION", "DESCRIPTION", "STATUS", "SEQUENCE", "RECURRENCE-ID"),
        *("DTSTART", "DTEND", "DURATION", "RRULE", "EXRULE", "RDATE", "EXDATE"),
        *("TZID", "TZOFFSETFROM", "TZOFFSETTO", "TZNAME", "X-WR-TIMEZONE"),
    }
)
_FOLD = re.compile(r"\r?\n[ \t]")
"""A line goes on in the next one (RFC 5545 §3.1)."""
_NAME = re.compile(r"[A-Za-z0-9-]*")


def unfold(text: str) -> str:
    """Join the lines that go on in the next one; that may be inside a name."""
    return _FOLD.sub("", text)


def sift(text: str) -> str:
    """Return what is needed of an object.

    Raises:
        GarbledData: it is too large, or has a time zone that would take seconds to expand.
    """
    unfolded = unfold(text)
    if (count := unfolded.count("\n")) > MOST_LINES:
        raise GarbledData(f"it has {count:,} lines; {MOST_LINES:,} are allowed")
    kept, inside, skipped, dates, changes = list[str](), list[str](), 0, 0, 0
    for line in unfolded.replace("\r\n", "\n").split("\n"):
        name = _NAME.match(line)[0].upper()  # type: ignore[index]  # it matches any line
        component = line[6:].strip().upper() if name == "BEGIN" else ""
        if skipped or (component and component not in _COMPONENTS):  # inside a component that is left out
            skipped += (name == "BEGIN") - (name == "END")
            continue
        if name == "BEGIN":
            inside.append(component)
            changes += component in _CHANGES
        elif name == "END":
            del inside[-1:]
        elif name not in _PROPERTIES:
            continue
        elif name in ("RDATE", "EXDATE"):
            dates += line.count(",") + 1
        elif name in ("RRULE", "EXRULE"):
            _check_length(line, name, LONGEST_RULE)
            if inside and inside[-1] in _CHANGES:
                check_zone(line.partition(":")[2])
        _check_length(line, name, LONGEST_LINE)
        kept.append(line)
    if dates > MOST:
        raise GarbledData(f"it has {dates:,} dates in RDATE and EXDATE; {MOST:,} are allowed")
    if changes > MOST_CHANGES:
        raise GarbledData(f"the clocks of its time zones change in {changes:,} ways; {MOST_CHANGES} are allowed")
    needed = "\r\n".join([*kept, ""])
    if len(needed) > LARGEST:
        raise GarbledData(f"it has {len(needed):,} characters; {LARGEST:,} are allowed")
    return needed


def _check_length(line: str, name: str, most: int) -> None:
    if len(line) > most:
        raise GarbledData(f"{name} has {len(line):,} characters; {most:,} are allowed")
