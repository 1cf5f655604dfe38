"""Expands the events of a calendar: iCalendar text (RFC 5545) becomes the occurrences within a window.

Recurrence rules, exceptions, overrides and time zones are handled by icalendar and recurring-ical-events. This module
adds three things: a rule that would make thousands of occurrences, and an object of thousands of events or dates, is
refused before it costs anything, an event that cannot be read only loses itself, and whole days are kept apart from
points in time.

Parsing costs time for each character, and anybody who may write into a calendar chooses the characters: attachments,
alarms and properties of other programs are left out before it.
"""

import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any, NamedTuple

from leadsman.errors import GarbledData, missing
from leadsman.text import clean, describe, log_fields

if TYPE_CHECKING:
    import icalendar

MOST_TOGETHER = 20_000
"""Occurrences of all events within the window, which take a second to expand."""
LONGEST = 10.0
"""Seconds for all events together."""
_BEGIN = re.compile(r"^BEGIN:VEVENT", re.IGNORECASE | re.MULTILINE)
_SEVERAL = re.compile(r"^(?:RRULE|RDATE|RECURRENCE-ID|DURATION)", re.IGNORECASE | re.MULTILINE)
"""Properties of an event whose times are known only after its object is parsed."""
_LIMIT = re.compile(r"^DT(?:START|END)\b", re.IGNORECASE | re.MULTILINE)
_DAY = re.compile(r"^DT(?:START|END)\b[^\r\n]*:(\d{8})(?:T\d{6}Z?)?[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)
_MARGIN = 2
"""Days by which a date in an object may differ from that in another time zone, and more."""
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

Rule = Mapping[str, Any]
"""The parts of a rule, each a list: ``{"FREQ": ["DAILY"], "COUNT": [3]}``, as icalendar reads it."""
MOST = 5000
"""Occurrences of one event within the window; a rule for more is a mistake or an attack."""
MOST_STEPS = 100_000
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
"""Periods of a day through which a rule of this frequency is stepped, at the most."""
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
_LONGEST_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_FINER = {
    "SECONDLY": (),
    "MINUTELY": ("BYSECOND",),
    "HOURLY": ("BYMINUTE", "BYSECOND"),
}
"""Parts that make more of it; for days and longer: BYHOUR, BYMINUTE and BYSECOND."""
_ONLY_WITH = {
    "BYWEEKNO": frozenset({"YEARLY"}),
    "BYYEARDAY": frozenset({"YEARLY"}),
    "BYSETPOS": frozenset({"WEEKLY", "MONTHLY", "YEARLY"}),
}
"""Parts that other frequencies must not have, or that make no sense there (RFC 5545 §3.3.10). With them, a rule may
name days that never come, and each day until the year 9999 is looked at."""
_ZONE_PARTS = frozenset({"FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYMONTH", "BYMONTHDAY", "BYDAY"})
"""Of a rule by which clocks change."""

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
    broken, total, deadline = 0, 0, time.monotonic() + LONGEST
    for text in texts:
        if time.monotonic() > deadline:
            raise GarbledData(f"the events take longer than {LONGEST:.0f} s to expand; check the rule of event {total}")
        total += 1
        if not _may_take_place(text, start, end):
            continue
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
        if len(found) > MOST_TOGETHER:
            raise GarbledData(f"more than {MOST_TOGETHER:,} events take place in the window; ask for fewer days")
    if broken and broken == total:
        raise GarbledData(f"none of {total} events can be read")
    return sorted(found, key=lambda event: (_moment(event.start, zone), event.summary))


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


def _of_text(text: str, start: date, end: date, zone: tzinfo) -> Iterator[CalendarEvent]:
    import icalendar
    import recurring_ical_events

    calendar = icalendar.Calendar.from_ical(sift(text))
    days, most = (end - start).days, 0.0
    for component in calendar.walk("VEVENT"):
        name, begin = clean(str(component.get("SUMMARY", "")))[:60], component.get("DTSTART")
        first = None if begin is None else begin.dt.date() if isinstance(begin.dt, datetime) else begin.dt
        most += sum(check_rule(rule, name, first, end, days) for rule in _rules(component))
    if most > MOST_TOGETHER:
        raise GarbledData(f"its events would take place {most:.0f} times in {days} days; {MOST_TOGETHER:,} are allowed")
    window = _midnight(start, zone), _midnight(end, zone)
    return (
        event for each in recurring_ical_events.of(calendar).between(*window) if (event := _event(each)) is not None
    )


def _rules(component: "icalendar.Component") -> Iterator[Rule]:
    for name in ("RRULE", "EXRULE"):
        rules = component.get(name)
        yield from rules if isinstance(rules, list) else [] if rules is None else [rules]


def _event(component: "icalendar.Component") -> CalendarEvent | None:
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


def unfold(text: str) -> str:
    """Join the lines that go on in the next one; that may be inside a name."""
    return _FOLD.sub("", text)


def sift(text: str) -> str:
    """Return the needed lines of an object.

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


def check_rule(rule: Rule, name: str, start: date | None, end: date, days: int) -> float:
    """Check the rule of the event `name` that begins on `start`, for a window of `days` that ends on `end`.

    Returns:
        The most often that the event can take place in the window.

    Raises:
        GarbledData: it would cost too much, or makes no sense.
        ValueError: a number in it is none.
    """
    frequency = _check_parts(rule)
    if (most := _density(rule, frequency) * (days + 1)) > MOST:
        raise GarbledData(f"{name!r} would take place {most:.0f} times in {days} days; {MOST:,} are allowed")
    steps = 0.0 if start is None else max(0, (end - start).days) * _STEPS[frequency]
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
    months, days = rule.get("BYMONTH") or (), rule.get("BYMONTHDAY") or ()
    if months and days and not any(abs(int(d)) <= _LONGEST_MONTH[int(month) - 1] for month in months for d in days):
        raise GarbledData("the rule names a day that none of its months has")
    return frequency


def _density(rule: Rule, frequency: str) -> float:
    """The most often that a rule can come on one day."""
    often = max(1.0, _STEPS[frequency])
    if frequency in _FINER:
        often /= max(1, int((rule.get("INTERVAL") or [1])[0]))
    for part in _FINER.get(frequency, ("BYHOUR", "BYMINUTE", "BYSECOND")):
        often *= max(1, len(rule.get(part) or ()))
    return often
