"""Expands the events of a calendar: iCalendar text (RFC 5545) becomes the occurrences within a window.

Recurrence rules, exceptions, overrides and time zones are handled by icalendar and recurring-ical-events. This module
adds three things: a rule that would make thousands of occurrences, and an object of thousands of events or dates, is
refused before it costs anything (`rules`, `sieve`), an event that cannot be read only loses itself, and whole days are
kept apart from points in time.
"""

import logging
import re
import time
from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, NamedTuple

from leadsman.adapters.caldav.rules import MAX_OCCURRENCES, Rule, check_rule
from leadsman.adapters.caldav.sieve import sift, unfold
from leadsman.core.text import clean, describe, log_fields, without_secret_lines
from leadsman.errors import GarbledData, missing

if TYPE_CHECKING:
    import icalendar

MAX_OCCURRENCES_IN_WINDOW = 20_000
"""Occurrences of all events within the window, which take a second to expand."""
MAX_EXPANSION_SECONDS = 10.0
"""Seconds for all events together."""
_BEGIN = re.compile(r"^BEGIN:VEVENT", re.IGNORECASE | re.MULTILINE)
_SEVERAL = re.compile(r"^(?:RRULE|RDATE|RECURRENCE-ID|DURATION)", re.IGNORECASE | re.MULTILINE)
"""Properties of an event whose times are known only after its object is parsed."""
_LIMIT = re.compile(r"^DT(?:START|END)\b", re.IGNORECASE | re.MULTILINE)
_DAY = re.compile(r"^DT(?:START|END)\b[^\r\n]*:(\d{8})(?:T\d{6}Z?)?[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)
_MARGIN = 2
"""Days by which a date in an object may differ from that in another time zone, and more."""
logger = logging.getLogger("leadsman")


class CalendarEvent(NamedTuple):
    """One occurrence of an event."""

    summary: str
    """Its title; empty if it has none."""
    start: date | datetime
    """A `date` for what takes whole days; a `datetime` with its zone for a moment; one without for a time that is the
    same everywhere, "floating"."""
    end: date | datetime | None
    """Of whole days, the day after the last one (RFC 5545, 3.6.1)."""
    all_day: bool
    """Whether it takes whole days, so that `start` and `end` are dates."""
    uid: str
    """The same for all occurrences of a recurring event (RFC 5545, 3.8.4.7)."""
    location: str | None
    """Where it takes place; None if the calendar does not have it."""
    description: str | None
    """Its text; None if it has none."""


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
    broken, total, deadline = 0, 0, time.monotonic() + MAX_EXPANSION_SECONDS
    for text in texts:
        if time.monotonic() > deadline:
            raise GarbledData(
                f"the events take longer than {MAX_EXPANSION_SECONDS:.0f} s to expand; check the rule of event {total}"
            )
        total += 1
        if not _may_take_place(text, start, end):
            continue
        passed_over: list[str] = []
        try:
            found += _of_text(text, start, end, zone, passed_over)
        except Exception as error:  # of whatever kind these libraries raise for what anybody may put into a calendar
            broken += 1
            if not _was_told(text, reported):
                logger.warning(
                    "An event is skipped, because it cannot be read: %s: %s",
                    type(error).__name__,
                    describe(error),
                    extra=log_fields("event skipped", error_type=type(error).__name__),
                )
        else:
            if passed_over and not _was_told(text, reported):
                logger.warning("In a calendar, %s", "; ".join(passed_over[:3]), extra=log_fields("event repaired"))
        if len(found) > MAX_OCCURRENCES_IN_WINDOW:
            raise GarbledData(
                f"more than {MAX_OCCURRENCES_IN_WINDOW:,} events take place in the window; ask for fewer days"
            )
    if broken and broken == total:
        raise GarbledData(f"none of {total} events can be read")
    return sorted(found, key=lambda event: (_moment(event.start, zone), event.summary))


def _was_told(text: str, reported: set[int] | None) -> bool:
    """Whether a text was logged before; else remember it."""
    if reported is None:
        return False
    if hash(text) in reported:
        return True
    if len(reported) < MAX_OCCURRENCES:
        reported.add(hash(text))
    return False


def _may_take_place(text: str, start: date, end: date) -> bool:
    """Whether an object has to be parsed, which takes a millisecond or more. A whole calendar has many events that take
    place once and are long over."""
    text = unfold(text)
    begin = _BEGIN.search(text)
    if begin is None or _SEVERAL.search(text, begin.end()):
        return True
    days: list[str] = _DAY.findall(text, begin.end())
    if not days or len(days) != len(_LIMIT.findall(text, begin.end())):
        return True
    return min(days) <= _digits(end, _MARGIN) and _digits(start, -_MARGIN) <= max(days)


def _digits(day: date, later: int) -> str:
    """A day as an object has it, some days later."""
    moved = date.fromordinal(min(max(day.toordinal() + later, 1), date.max.toordinal()))
    return moved.isoformat().replace("-", "")


def load() -> None:
    """Import the libraries that expand events, which takes long on a small machine.

    Raises:
        NotInstalled: one of them is missing.
    """
    try:
        import icalendar
        import recurring_ical_events
    except ImportError as error:
        raise missing("calendars", "caldav", "caldav", error) from error
    del icalendar, recurring_ical_events


def _of_text(text: str, start: date, end: date, zone: tzinfo, passed_over: list[str]) -> Iterator[CalendarEvent]:
    import icalendar
    import recurring_ical_events

    calendar = icalendar.Calendar.from_ical(sift(text, passed_over))
    days, most = (end - start).days, 0.0
    for component in calendar.walk("VEVENT"):
        if "RECURRENCE-ID" in component:
            continue  # it takes place once, whatever it repeats of its series
        name, begin = clean(str(component.get("SUMMARY", "")))[:60], component.get("DTSTART").dt
        first = begin.date() if isinstance(begin, datetime) else begin
        most += sum(check_rule(rule, name, first, end, days) for rule in _rules(component))
    if most > MAX_OCCURRENCES_IN_WINDOW:
        raise GarbledData(
            f"its events would take place {most:.0f} times in {days} days; {MAX_OCCURRENCES_IN_WINDOW:,} are allowed"
        )
    window = _midnight(start, zone), _midnight(end, zone)
    return (
        event for each in recurring_ical_events.of(calendar).between(*window) if (event := _event(each)) is not None
    )


def _rules(component: "icalendar.Component") -> Iterator[Rule]:
    for name in ("RRULE", "EXRULE"):
        rules = component.get(name)
        yield from rules if isinstance(rules, list) else [] if rules is None else [rules]


def _event(component: "icalendar.Component") -> CalendarEvent | None:
    if str(component.get("STATUS", "")).upper() == "CANCELLED":
        return None
    begin = component.get("DTSTART").dt
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
    if value is None:
        return None
    return "\n".join(clean(line) for line in without_secret_lines(str(value)).splitlines())


def _midnight(day: date, zone: tzinfo) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=zone)


def _moment(when: date | datetime, zone: tzinfo) -> datetime:
    if not isinstance(when, datetime):
        return _midnight(when, zone)
    return when if when.tzinfo is not None else when.replace(tzinfo=zone)
