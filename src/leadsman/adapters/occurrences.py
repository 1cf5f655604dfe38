"""When the events of a calendar take place: iCalendar text (RFC 5545) to occurrences within a window.

Recurrence rules, exceptions, overrides and time zones are icalendar's and recurring-ical-events' business. What is done here:
a rule that would make thousands of occurrences is refused before it is tried, one event that makes no sense costs itself only,
and days are kept apart from moments.
"""

import contextlib
import logging
from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta, tzinfo
from typing import Any, NamedTuple

import icalendar
import recurring_ical_events

from leadsman.errors import GarbledData
from leadsman.wording import clean, told

MOST = 5000
"""Occurrences of one event within the window; a rule for more is a mistake or an attack."""
_PER_DAY = {
    "SECONDLY": 86400.0,
    "MINUTELY": 1440.0,
    "HOURLY": 24.0,
    "DAILY": 1.0,
    "WEEKLY": 7.0,
    "MONTHLY": 31.0,
    "YEARLY": 366.0,
}
"""The most often that a rule of this frequency can come on a day, before BYHOUR and the like; those without days, per event day."""
_FINER = {
    "SECONDLY": (),
    "MINUTELY": ("BYSECOND",),
    "HOURLY": ("BYMINUTE", "BYSECOND"),
}
"""Parts that make more of it; for days and what is longer: BYHOUR, BYMINUTE and BYSECOND."""

logger = logging.getLogger("leadsman")


class Event(NamedTuple):
    """One occurrence of an event."""

    summary: str
    start: date | datetime
    """A `date` for what takes whole days; a `datetime` with its zone for a moment; one without for a time that is the same
    everywhere, "floating"."""
    end: date | datetime | None
    """Of whole days, the day after the last one (RFC 5545, 3.6.1)."""
    all_day: bool
    uid: str
    location: str | None
    description: str | None


def occurrences(texts: Iterable[str], start: date, end: date, zone: tzinfo) -> list[Event]:
    """All that takes place from `start` up to, but not on, `end`, in order.

    Args:
        texts: iCalendar objects.
        start, end: days in `zone`.
        zone: where floating times and whole days are put, to be sorted among the moments.

    Raises:
        GarbledData: none of the texts makes sense.
    """
    found: list[Event] = []
    broken, total = 0, 0
    for text in texts:
        total += 1
        try:
            found += _of_text(text, start, end, zone)
        except Exception as error:  # of whatever kind these libraries raise for what anybody may put into a calendar
            broken += 1
            logger.warning("an event is left out: %s: %s", type(error).__name__, told(error))
    if broken and broken == total:
        raise GarbledData(f"none of {total} events makes sense")
    return sorted(found, key=lambda event: (_moment(event.start, zone), event.summary))


def _of_text(text: str, start: date, end: date, zone: tzinfo) -> Iterator[Event]:
    calendar: Any = icalendar.Calendar.from_ical(text)
    days = (end - start).days
    for component in calendar.walk("VEVENT"):
        for rule in _rules(component):
            if (most := _density(rule) * (days + 1)) > MOST:
                raise GarbledData(
                    f"{clean(str(component.get('SUMMARY', '')))[:60]!r} would take place {most:.0f} times in {days} days"
                )
    window = _midnight(start, zone), _midnight(end, zone)
    return (
        event for each in recurring_ical_events.of(calendar).between(*window) if (event := _event(each)) is not None
    )


def _rules(component: Any) -> Iterator[Any]:
    rules = component.get("RRULE")
    yield from rules if isinstance(rules, list) else [] if rules is None else [rules]


def _density(rule: Any) -> float:
    """The most often that a rule can come on one day."""
    frequency = str((rule.get("FREQ") or ["?"])[0]).upper()
    if frequency not in _PER_DAY:
        raise GarbledData(f"FREQ={clean(frequency)[:20]} is no frequency")
    often = _PER_DAY[frequency] if frequency in _FINER else 1.0
    if frequency in _FINER:
        with contextlib.suppress(TypeError, ValueError, IndexError):
            often /= max(1, int((rule.get("INTERVAL") or [1])[0]))
    for part in _FINER.get(frequency, ("BYHOUR", "BYMINUTE", "BYSECOND")):
        often *= max(1, len(rule.get(part) or ()))
    return often


def _event(component: Any) -> Event | None:
    start = component.get("DTSTART")
    if start is None or str(component.get("STATUS", "")).upper() == "CANCELLED":
        return None
    begin = start.dt
    end = component.get("DTEND")
    finish = None if end is None else end.dt
    all_day = not isinstance(begin, datetime)
    if finish is None and all_day:
        finish = begin + timedelta(days=1)
    return Event(
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
