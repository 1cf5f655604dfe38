"""Expands the events of a calendar: iCalendar text (RFC 5545) becomes the occurrences within a window.

Recurrence rules, exceptions, overrides and time zones are handled by icalendar and recurring-ical-events. This module
adds three things: a rule that would make thousands of occurrences, and an object of thousands of events or dates, is
refused before it costs anything, an event that cannot be read only loses itself, and whole days are kept apart from
points in time.
"""

import contextlib
import logging
import re
import time
from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta, tzinfo
from typing import NamedTuple

import icalendar
import recurring_ical_events

from leadsman.errors import GarbledData
from leadsman.text import clean, describe, log_fields

MOST = 5000
"""Occurrences of one event within the window; a rule for more is a mistake or an attack."""
MOST_STEPS = 100_000
"""Periods from an event's beginning to the window's end: its rule is stepped through from there. Days since 1753."""
MOST_LINES = 20_000
"""Lines of one calendar object, which take a second to parse: an object has one event, and the occurrences of it that
were moved (RFC 4791 §4.1)."""
LONGEST = 10.0
"""Seconds for all events together."""
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
_FOLD = re.compile(r"\r?\n[ \t]")
"""A line goes on in the next one (RFC 5545, 3.1)."""
_DATES = re.compile(r"^(?:RDATE|EXDATE)[;:].*", re.IGNORECASE | re.MULTILINE)

logger = logging.getLogger("leadsman")


class CalendarEvent(NamedTuple):
    """One occurrence of an event."""

    summary: str
    start: date | datetime
    """A `date` for what takes whole days; a `datetime` with its zone for a moment; one without for a time that is the
    same everywhere, "floating"."""
    end: date | datetime | None
    """Of whole days, the day after the last one (RFC 5545, 3.6.1)."""
    all_day: bool
    uid: str
    location: str | None
    description: str | None


def occurrences(
    texts: Iterable[str], start: date, end: date, zone: tzinfo, reported: set[int] | None = None
) -> list[CalendarEvent]:
    """Return all events from `start` up to, but not on, `end`, in order.

    Args:
        texts: iCalendar objects.
        start, end: days in `zone`.
        zone: where floating times and whole days are put, to be sorted among the moments.
        reported: hashes of invalid texts that were logged; those are not logged again, and new ones are added.

    Raises:
        GarbledData: none of the texts makes sense.
    """
    found: list[CalendarEvent] = []
    broken, total, deadline = 0, 0, time.monotonic() + LONGEST
    for text in texts:
        if time.monotonic() > deadline:
            raise GarbledData(f"the events take longer than {LONGEST:.0f} s to expand; check the rule of event {total}")
        total += 1
        try:
            found += _of_text(text, start, end, zone)
        except Exception as error:  # of whatever kind these libraries raise for what anybody may put into a calendar
            broken += 1
            if reported is not None and hash(text) in reported:
                continue
            if reported is not None and len(reported) < MOST:
                reported.add(hash(text))
            logger.warning(
                "An event is skipped, because it cannot be read: %s: %s",
                type(error).__name__,
                describe(error),
                extra=log_fields("event skipped", error_type=type(error).__name__),
            )
    if broken and broken == total:
        raise GarbledData(f"none of {total} events can be read")
    return sorted(found, key=lambda event: (_moment(event.start, zone), event.summary))


def _of_text(text: str, start: date, end: date, zone: tzinfo) -> Iterator[CalendarEvent]:
    _check_size(text)
    calendar = icalendar.Calendar.from_ical(text)
    days = (end - start).days
    for component in calendar.walk("VEVENT"):
        name = clean(str(component.get("SUMMARY", "")))[:60]
        for rule in _rules(component):
            _check_ranges(rule)
            if (most := _density(rule) * (days + 1)) > MOST:
                raise GarbledData(f"{name!r} would take place {most:.0f} times in {days} days")
            if (steps := _steps(rule, component, end)) > MOST_STEPS:
                raise GarbledData(f"{name!r} began so long ago that its rule takes {steps:.0f} steps")
            if _never(rule):
                raise GarbledData(f"{name!r} takes place on a day that no month has")
    window = _midnight(start, zone), _midnight(end, zone)
    return (
        event for each in recurring_ical_events.of(calendar).between(*window) if (event := _event(each)) is not None
    )


def _check_size(text: str) -> None:
    """Refuse an object that would take seconds to parse, before it is parsed."""
    unfolded = _FOLD.sub("", text)
    if (lines := unfolded.count("\n")) > MOST_LINES:
        raise GarbledData(f"it has {lines:,} lines; {MOST_LINES:,} are allowed")
    if (dates := sum(found[0].count(",") + 1 for found in _DATES.finditer(unfolded))) > MOST:
        raise GarbledData(f"it has {dates:,} dates in RDATE and EXDATE; {MOST:,} are allowed")


def _rules(component: icalendar.Component) -> Iterator[icalendar.vRecur]:
    rules = component.get("RRULE")
    yield from rules if isinstance(rules, list) else [] if rules is None else [rules]


def _check_ranges(rule: icalendar.vRecur) -> None:
    """Check that numbers are in range (RFC 5545, 3.3.10); with an interval of 0 the search for the next day would never
    end."""
    for part, (low, high) in _RANGES.items():
        for value in rule.get(part) or ():
            if not low <= abs(int(value)) <= high:
                raise GarbledData(f"{part}={clean(str(value))[:20]} is out of range; it must be {low} to {high}")


def _density(rule: icalendar.vRecur) -> float:
    """The most often that a rule can come on one day."""
    frequency = str((rule.get("FREQ") or ["?"])[0]).upper()
    if frequency not in _PER_DAY:
        raise GarbledData(f"FREQ={clean(frequency)[:20]} is not a frequency")
    often = _PER_DAY[frequency] if frequency in _FINER else 1.0
    if frequency in _FINER:
        with contextlib.suppress(TypeError, ValueError, IndexError):
            often /= max(1, int((rule.get("INTERVAL") or [1])[0]))
    for part in _FINER.get(frequency, ("BYHOUR", "BYMINUTE", "BYSECOND")):
        often *= max(1, len(rule.get(part) or ()))
    return often


def _steps(rule: icalendar.vRecur, component: icalendar.Component, end: date) -> float:
    """How many periods lie between the beginning and the end of the window."""
    begin = component.get("DTSTART")
    if begin is None:
        return 0.0
    first = begin.dt.date() if isinstance(begin.dt, datetime) else begin.dt
    often = _PER_DAY[str(rule["FREQ"][0]).upper()]
    return max(0, (end - first).days) * (often if often >= 1 and str(rule["FREQ"][0]).upper() in _DAILY else 1 / 7)


def _never(rule: icalendar.vRecur) -> bool:
    """Whether it names days that none of its months has: it would be searched for until the year 9999."""
    months, days = rule.get("BYMONTH") or (), rule.get("BYMONTHDAY") or ()
    return bool(months and days) and not any(
        abs(int(day)) <= _LONGEST_MONTH[int(month) - 1] for month in months for day in days
    )


def _event(component: icalendar.Component) -> CalendarEvent | None:
    start = component.get("DTSTART")
    if start is None or str(component.get("STATUS", "")).upper() == "CANCELLED":
        return None
    begin = start.dt
    end = component.get("DTEND")
    finish = None if end is None else end.dt
    all_day = not isinstance(begin, datetime)
    if finish is None and all_day:
        finish = begin + timedelta(days=1)
    return CalendarEvent(
        clean(str(component.get("SUMMARY", ""))).strip(),
        begin,
        finish,
        all_day,
        clean(str(component.get("UID", ""))),
        _text(component.get("LOCATION")),
        _text(component.get("DESCRIPTION")),
    )


def _text(value: object) -> str | None:
    return None if value is None else "\n".join(clean(line) for line in str(value).splitlines())


def _midnight(day: date, zone: tzinfo) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=zone)


def _moment(when: date | datetime, zone: tzinfo) -> datetime:
    if not isinstance(when, datetime):
        return _midnight(when, zone)
    return when if when.tzinfo is not None else when.replace(tzinfo=zone)
