"""What is left of a calendar object before it is parsed: the needed properties, each in the form of RFC 5545.

Programs write objects that the standard forbids, and calendars show them all the same. So what a property plainly means
is kept, a property that means nothing is passed over alone, and what others do with the same property is the measure:
libical, ical.js (Thunderbird), ical4j with ical4android (DAVx5).

Parsing costs time for each character, and anybody who may write into a calendar chooses the characters: attachments,
alarms and properties of other programs are left out, and an object that is too large is refused.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import NamedTuple, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from leadsman.adapters.caldav.rules import MAX_INTERVAL_PERIODS, MAX_RULE_COUNT, check_zone
from leadsman.core.text import clean
from leadsman.errors import GarbledData

MAX_OBJECT_LINES = 20_000
"""Lines of one calendar object, which take a second to parse: an object has one event, and the occurrences of it that
were moved (RFC 4791 §4.1)."""
MAX_OBJECT_CHARS = 512 * 1024
"""Characters of one object that are parsed. An occurrence that was moved has a few hundred."""
MAX_PROPERTY_CHARS = 128 * 1024
"""Characters of one property: `MAX_DATES` have 85,000."""
MAX_RULE_CHARS = 2000
"""Characters of a rule; one that lists each day of a year has 1,500."""
MAX_DATES = 5000
"""Dates in RDATE and EXDATE of one object."""
MAX_ZONE_CHANGES = 100
"""Rules and lists by which the clocks of the time zones of one object change. A zone has about ten since 1900."""
_MAX_NUMBER = 2**31 - 1
"""RFC 5545 §3.3.8."""
_LAST_YEAR = 2999
"""Of times that are later, as the year 9999 of what has no end: the parser subtracts the length of an event from the
window, and Python has no date before the year 1."""
_ZONE_PARTS = 3
"""Parts of the name of a time zone at most, such as America/Argentina/Ushuaia. To look for one with more takes long."""
_WHOLE_DAYS = frozenset({"X-MICROSOFT-CDO-ALLDAYEVENT", "X-MICROSOFT-MSNCALENDAR-ALLDAYEVENT", "X-FUNAMBOL-ALLDAY"})
"""Outlook's way to say that an event from midnight to midnight takes whole days."""
_TEXTS = ("UID", "SUMMARY", "LOCATION", "DESCRIPTION", "STATUS")
_TIMES = ("DTSTART", "DTEND", "RECURRENCE-ID", "EXDATE", "RDATE")
_OF_EVENTS = frozenset({*_TEXTS, *_TIMES, *_WHOLE_DAYS, "DURATION", "SEQUENCE", "RRULE", "EXRULE"})
_OF_ZONES = frozenset({"TZID"})
_OF_CHANGES = frozenset({"DTSTART", "RDATE", "RRULE", "TZOFFSETFROM", "TZOFFSETTO"})
_OF_CALENDARS = frozenset({"X-WR-TIMEZONE"})
_CHANGES = ("STANDARD", "DAYLIGHT")
_KEPT: Mapping[str, frozenset[str]] = {
    "VCALENDAR": _OF_CALENDARS,
    "VEVENT": _OF_EVENTS,
    "VTIMEZONE": _OF_ZONES,
    **dict.fromkeys(_CHANGES, _OF_CHANGES),
}
_FOLD = re.compile(r"(?:\r\n|\n|\r)[ \t]")
"""A line goes on in the next one (RFC 5545 §3.1)."""
_END = re.compile(r"\r\n|\n|\r")
_NAME = re.compile(r"[A-Za-z0-9-]*")
_TEXT = re.compile(r'(?:"[^"]*"|[^":])*:(.*)', re.DOTALL)
"""The value begins behind the first colon that is not in quotes."""
_VALUE = re.compile(r'((?:"[^"]*"|[^"])*?):\s*(?=\d{4}-?\d\d-?\d\d|\s*$)(.*)', re.DOTALL)
"""A time begins behind the first colon that a date follows: parameters have colons without quotes, too, such as
``TZID=tzone://Microsoft/Utc`` (ical4j/ical4j#169)."""
_PARAMETER = r';\s*{}\s*=\s*("[^"]*"|[^;]*)'
_TZID = re.compile(_PARAMETER.format("TZID"), re.IGNORECASE)
_KIND = re.compile(_PARAMETER.format("VALUE"), re.IGNORECASE)
_RANGE = re.compile(_PARAMETER.format("RANGE"), re.IGNORECASE)
_TIME = re.compile(
    r"(\d{4})-?(\d\d)-?(\d\d)(?:[T ]?(\d\d):?(\d\d)(?::?(\d\d)(?:[.,]\d*)?)?\s*(Z|[+-]\d\d:?\d\d)?|T)?", re.IGNORECASE
)
"""With and without the marks of ISO 8601, and without seconds."""
_DURATION = re.compile(r"\+?P(?:(\d+)W)?(?:(\d+)D)?(?:T?(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?", re.IGNORECASE)
_OFFSET = re.compile(r"([+-]?)(\d\d):?(\d\d)(?::?(\d\d))?")
_FIXED = re.compile(r"(?:GMT|UTC)\s*([+-])(\d\d?)(?::?(\d\d))?", re.IGNORECASE)
_WEEKDAY = re.compile(r"([+-]?\d{0,2})(MO|TU|WE|TH|FR|SA|SU)")
_NUMBERS: Mapping[str, tuple[int, bool]] = {
    "BYSECOND": (60, False),
    "BYMINUTE": (59, False),
    "BYHOUR": (23, False),
    "BYMONTHDAY": (31, True),
    "BYYEARDAY": (366, True),
    "BYWEEKNO": (53, True),
    "BYMONTH": (12, False),
    "BYSETPOS": (366, True),
}
"""The largest number of each part, and whether it may be negative. 0 is not allowed, except for times of day."""
_FREQUENCIES = frozenset({"SECONDLY", "MINUTELY", "HOURLY", "DAILY", "WEEKLY", "MONTHLY", "YEARLY"})

Component = dict[str, list[str]]
"""The lines of each property."""
Note = Callable[[str], None]


class _Time(NamedTuple):
    """A day, or a moment in a time zone."""

    digits: str
    """``20261031`` or ``20261031T100000``."""
    zone: str | None = None
    """Its name; None for whole days and for what floats."""
    lasts: str = ""
    """Of a period (RFC 5545 §3.3.9): its duration, or its end."""

    @property
    def whole(self) -> bool:
        return len(self.digits) == 8

    @property
    def utc(self) -> bool:
        return self.zone == "UTC"

    def day(self) -> "_Time":
        """The whole day. A moment in UTC is the midnight of a zone that is not known: the nearest one."""
        if not self.utc or self.whole or self.digits.endswith("T000000"):
            return _Time(self.digits[:8])
        return _Time(_digits_of(_later(self.moment(), timedelta(hours=12)))[:8])

    def at(self, other: "_Time") -> "_Time":
        """This day, at the time of day of another one and in its zone."""
        return _Time(self.digits[:8] + other.digits[8:], other.zone)

    def moment(self) -> datetime:
        """Without its zone."""
        return datetime.strptime(self.digits, "%Y%m%d" if self.whole else "%Y%m%dT%H%M%S")

    def in_utc(self) -> "_Time":
        """The same moment in UTC, unless only the object itself knows its zone."""
        if self.zone is None or self.utc or (zone := _zone(self.zone)) is None:
            return self
        try:
            return _Time(_digits_of(self.moment().replace(tzinfo=zone).astimezone(UTC)), "UTC")
        except OverflowError:
            return self

    @property
    def parameters(self) -> str:
        if self.whole:
            return ";VALUE=DATE"
        return "" if self.zone is None or self.utc else f';TZID="{self.zone}"'

    @property
    def value(self) -> str:
        return f"{self.digits}Z" if self.utc and not self.whole else self.digits


class _Zones:
    """The time zones of an object, and the names that its times have for them."""

    def __init__(self) -> None:
        self._own: dict[str, str] = {}
        self._kept: list[str] = []

    def add(self, zone: Component, changes: Iterable[tuple[str, Component]]) -> None:
        """Keep a time zone that only the object knows."""
        name = _bare(_text(zone, "TZID") or "")
        lines = [line for kind, change in changes for line in _change(kind, change)]
        if not name or not lines or _zone(name) is not None:
            return
        # icalendar keeps each zone by its name for good, and names such as "Customized Time Zone" are not unique
        own = f"{name} {hashlib.sha256(chr(10).join(lines).encode()).hexdigest()[:12]}"
        self._own[name] = own
        self._kept += ["BEGIN:VTIMEZONE", f"TZID:{own}", *lines, "END:VTIMEZONE"]

    def named(self, text: str) -> str | None:
        """The name of a zone as the parser knows it; None if nobody knows it: the time floats, as in Thunderbird."""
        name = _bare(text)
        return self._own.get(name) or _resolve(name)

    @property
    def lines(self) -> list[str]:
        return self._kept


def unfold(text: str) -> str:
    """Join the lines that go on in the next one; that may be inside a name."""
    return _FOLD.sub("", text)


def sift(text: str, passed_over: list[str] | None = None) -> str:
    """Return the needed properties of an object.

    Args:
        text: the object.
        passed_over: takes what is said in the object and makes no sense, so that it is left out.

    Raises:
        GarbledData: it is too large, has a time zone that would take seconds to expand, or no event of it has a
            beginning.
    """
    if (count := text.count("\n")) > MAX_OBJECT_LINES and (count := unfold(text).count("\n")) > MAX_OBJECT_LINES:
        raise GarbledData(f"it has {count:,} lines; {MAX_OBJECT_LINES:,} are allowed")
    note = _ignore if passed_over is None else passed_over.append
    calendar: Component = {}
    events, zones, changes = list[Component](), list[tuple[Component, list[tuple[str, Component]]]](), 0
    for component, properties in _components(unfold(text), calendar):
        if component == "VEVENT":
            events.append(properties)
        elif component == "VTIMEZONE":
            zones.append((properties, []))
        elif zones:
            changes += 1
            zones[-1][1].append((component, properties))
    _check(events, changes)
    known = _Zones()
    for zone, of_zone in zones:
        known.add(zone, of_zone)
    lines = _sifted(events, known, note)
    whole = _bare(_text(calendar, "X-WR-TIMEZONE") or "")
    of_calendar = [f"X-WR-TIMEZONE:{whole}"] if whole and _zone(whole) is not None else []
    needed = "\r\n".join(["BEGIN:VCALENDAR", *of_calendar, *known.lines, *lines, "END:VCALENDAR", ""])
    if len(needed) > MAX_OBJECT_CHARS:
        raise GarbledData(f"it has {len(needed):,} characters; {MAX_OBJECT_CHARS:,} are allowed")
    return needed


def _ignore(_: str) -> None: ...


def _components(text: str, calendar: Component) -> Iterator[tuple[str, Component]]:
    """Each component that is needed, and the lines of its properties. One whose end is missing ends where the next one
    begins."""
    inside, properties, skipped = "VCALENDAR", calendar, list[str]()
    for line in _END.split(text):
        name = _NAME.match(line)[0].upper()  # type: ignore[index]  # it matches any line
        if name in ("BEGIN", "END"):
            component = line[len(name) + 1 :].strip().upper()
            if component not in _KEPT:
                if name == "BEGIN":
                    skipped.append(component)
                elif skipped:
                    skipped.pop()
                continue
            skipped.clear()
            inside, properties = ("VCALENDAR", calendar) if name == "END" else (component, {})
            if name == "BEGIN" and component != "VCALENDAR":
                yield component, properties
            elif name == "BEGIN":
                properties = calendar
        elif not skipped and name in _KEPT[inside] and line[len(name) : len(name) + 1] in (";", ":"):
            _check_length(line, name, MAX_RULE_CHARS if name in ("RRULE", "EXRULE") else MAX_PROPERTY_CHARS)
            properties.setdefault(name, []).append(line[len(name) :])


def _check(events: list[Component], changes: int) -> None:
    dates = sum(line.count(",") + 1 for event in events for name in ("RDATE", "EXDATE") for line in event.get(name, ()))
    if dates > MAX_DATES:
        raise GarbledData(f"it has {dates:,} dates in RDATE and EXDATE; {MAX_DATES:,} are allowed")
    if changes > MAX_ZONE_CHANGES:
        raise GarbledData(f"the clocks of its time zones change in {changes:,} ways; {MAX_ZONE_CHANGES} are allowed")


def _check_length(line: str, name: str, most: int) -> None:
    if len(line) > most:
        raise GarbledData(f"{name} has {len(line):,} characters; {most:,} are allowed")


def _change(kind: str, change: Component) -> list[str]:
    """The lines of a change of clocks; none if it cannot be read.

    Raises:
        GarbledData: it would take seconds to expand.
    """
    first, new = _first(change, "DTSTART"), _offset(_text(change, "TZOFFSETTO"))
    if first is None or new is None:
        return []
    rules = [
        rule for line in change.get("RRULE", ()) if (rule := _rule(line.partition(":")[2], first, "RRULE", _ignore))
    ]
    for rule in rules:
        check_zone(rule)
    old = _offset(_text(change, "TZOFFSETFROM")) or new
    dates = [each for line in change.get("RDATE", ()) for each in _list(line)]
    return [
        f"BEGIN:{kind}",
        f"DTSTART:{first.digits[:8]}{first.digits[8:] or 'T000000'}",
        *(f"RRULE:{rule}" for rule in rules),
        *(f"RDATE:{each.digits}" for each in dates if not each.whole),
        f"TZOFFSETFROM:{old}",
        f"TZOFFSETTO:{new}",
        f"END:{kind}",
    ]


def _offset(text: str | None) -> str | None:
    found = _OFFSET.fullmatch((text or "").strip())
    if found is None or int(found[2]) > 23 or int(found[3]) > 59:
        return None
    return f"{found[1] or '+'}{found[2]}{found[3]}"


class _Event(NamedTuple):
    """An event of an object, and when it begins."""

    properties: Component
    uid: str
    start: _Time
    occurrence: _Time | None
    """Which occurrence of its series it is; None for the series itself, or an event that takes place once."""

    @classmethod
    def of(cls, properties: Component, uid: str, zones: _Zones, note: Note) -> Self | None:
        start = _first(properties, "DTSTART", zones)
        if start is None:
            note("an event has no DTSTART that can be read")
            return None
        if not start.whole and _says_whole_days(properties, start, _first(properties, "DTEND", zones)):
            start = start.day()
        occurrence = _first(properties, "RECURRENCE-ID", zones)
        if occurrence is None and "RECURRENCE-ID" in properties:  # without one it would replace its series
            note("a moved occurrence is shown beside its series: its RECURRENCE-ID cannot be read")
            occurrence = start
        return cls(properties, uid, start, occurrence)


def _sifted(components: list[Component], zones: _Zones, note: Note) -> list[str]:
    if not components:
        return []
    shared = next((uid for each in components if (uid := _text(each, "UID"))), "")
    found = (_Event.of(each, _text(each, "UID") or shared, zones, note) for each in components)
    events = [each for each in found if each is not None]
    if not events:
        raise GarbledData("it has no DTSTART that can be read")
    series = {each.uid: each.start for each in events if each.occurrence is None}
    return [line for each in events for line in _lines(each, series.get(each.uid, each.start), zones, note)]


def _lines(event: _Event, first: _Time, zones: _Zones, note: Note) -> Iterator[str]:
    """The lines of an event of a series that begins at `first`."""
    properties, start = event.properties, event.start
    yield "BEGIN:VEVENT"
    yield f"UID:{event.uid}"
    yield from (f"{name}:{text}" for name in _TEXTS[1:] if (text := _text(properties, name)))
    if re.fullmatch(r"\d{1,18}", sequence := (_text(properties, "SEQUENCE") or "").strip()):
        yield f"SEQUENCE:{min(int(sequence), _MAX_NUMBER)}"
    yield f"DTSTART{start.parameters}:{start.value}"
    yield from _end(properties, start, zones)
    if (which := event.occurrence) is not None:
        which = which.day() if first.whole else which.at(first) if which.whole else which
        onwards = any("THISANDFUTURE" in found[1].upper() for found in _parameters(properties, "RECURRENCE-ID", _RANGE))
        yield f"RECURRENCE-ID{which.parameters}{';RANGE=THISANDFUTURE' if onwards else ''}:{which.value}"
    for name in ("RRULE", "EXRULE"):
        for line in properties.get(name, ()):
            if rule := _rule(line.partition(":")[2], start, name, note):
                yield f"{name}:{rule}"
    for name in ("EXDATE", "RDATE"):
        yield from _dates(properties, name, start, zones)
    yield "END:VEVENT"


def _end(properties: Component, start: _Time, zones: _Zones) -> Iterator[str]:
    """The end of an event. One that comes before its beginning is passed over."""
    end = _first(properties, "DTEND", zones)
    if end is not None:
        if start.whole and not end.whole:
            end = end.day()
        elif end.whole and not start.whole:
            end = _Time(f"{end.digits}T000000", start.zone)
        before, after = (start.in_utc(), end.in_utc()) if not start.whole else (start, end)
        if before.zone != after.zone or before.digits < after.digits or (before == after and not start.whole):
            yield f"DTEND{end.parameters}:{end.value}"
        return
    for line in properties.get("DURATION", ()):
        lasts = _length(line.partition(":")[2].strip(), start)
        if lasts is None:
            continue
        if not start.whole:
            yield f"DURATION:P{lasts.days}DT{lasts.seconds}S"
        elif lasts:
            yield f"DURATION:P{lasts.days + (lasts.seconds > 0)}D"
        return


def _length(text: str, start: _Time) -> timedelta | None:
    """A duration; None if it cannot be read, or if what begins at `start` would never end."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        return None
    try:
        weeks, days, hours, minutes, seconds = (int(each or 0) for each in found.groups())
        lasts = timedelta(days=7 * weeks + days, seconds=3600 * hours + 60 * minutes + seconds)
        return lasts if (start.moment() + lasts).year <= _LAST_YEAR else None
    except (ValueError, OverflowError):  # more digits than Python reads, or than a date has
        return None


def _dates(properties: Component, name: str, start: _Time, zones: _Zones) -> Iterator[str]:
    """The lines of a list of dates; what cannot be read in it is passed over."""
    found: dict[str, list[str]] = {}
    for line in properties.get(name, ()):
        for each in _list(line, zones):
            if start.whole:
                found.setdefault(";VALUE=DATE", []).append(each.day().value)
            elif each.lasts and name == "RDATE":
                found.setdefault(f";VALUE=PERIOD{each.parameters}", []).append(f"{each.value}/{each.lasts}")
            else:
                kept = each.at(start) if each.whole and name == "RDATE" else each
                found.setdefault(kept.parameters, []).append(kept.value)
    return (f"{name}{parameters}:{','.join(values)}" for parameters, values in found.items())


def _says_whole_days(properties: Component, start: _Time, end: _Time | None) -> bool:
    """Whether Outlook says that an event takes whole days, and it does: from a midnight to another, in some zone."""
    if not any(
        "TRUE" in line.upper() or line.strip() == ":1" for name in _WHOLE_DAYS for line in properties.get(name, ())
    ):
        return False
    midnight = start.utc or start.digits.endswith("T000000")
    return midnight and (end is None or end.whole or not (end.moment() - start.moment()).seconds)


def _rule(text: str, start: _Time, name: str, note: Note) -> str | None:
    """A rule with the parts that mean something. None if nothing is left of it: the event takes place once."""
    parts: dict[str, str] = {}
    for part in re.sub(r"\s", "", text).upper().split(";"):
        key, _, value = part.partition("=")
        if value:
            parts.setdefault(key, value)
    if parts.get("FREQ") not in _FREQUENCIES or parts.get("RSCALE", "GREGORIAN") != "GREGORIAN":
        if text.strip():
            note(f"{name} {clean(text.strip())[:60]!r} is no rule: the event is shown once")
        return None
    return ";".join(f"{key}={kept}" for key, value in parts.items() if (kept := _part(key, value, start)))


def _part(key: str, value: str, start: _Time) -> str:
    """What means something of a part of a rule."""
    if key == "FREQ":
        return value
    if key == "INTERVAL":  # libical and ical.js take an interval of 0 for 1
        return str(min(max(1, int(value)), MAX_INTERVAL_PERIODS)) if re.fullmatch(r"[+-]?\d{1,18}", value) else ""
    if key == "COUNT":  # those of -1 and 0 mean no end (niccokunzmann/python-recurring-ical-events#128)
        return value if re.fullmatch(r"\d{1,18}", value) and 0 < int(value) <= MAX_RULE_COUNT else ""
    if key == "UNTIL":
        return _until(value, start)
    if key == "BYDAY":
        days = (_WEEKDAY.fullmatch(each) for each in value.split(","))
        return ",".join(f"{_ordinal(each[1])}{each[2]}" for each in days if each is not None)
    if key == "WKST":
        return value if _WEEKDAY.fullmatch(value) and len(value) == 2 else ""
    if key not in _NUMBERS:
        return ""
    most, negative = _NUMBERS[key]
    least = 0 if most in (60, 59, 23) else 1
    numbers = (int(each) for each in value.split(",") if re.fullmatch(r"[+-]?\d{1,6}", each))
    return ",".join(str(each) for each in numbers if least <= (abs(each) if negative else each) <= most)


def _ordinal(text: str) -> str:
    return text if text.strip("+-") and 1 <= abs(int(text)) <= 53 else ""


def _until(text: str, start: _Time) -> str:
    """The last moment of a rule, of the kind of its beginning. A day takes its time from the beginning, so that the
    event still takes place on it, as in ical4android."""
    until = _time(text)
    if until is None:
        return ""
    if start.whole:  # Exchange writes a midnight in UTC here (tutao/tutanota#5318), others the end of the day
        return until.day().digits if until.digits.endswith("00") else until.digits[:8]
    if until.whole:
        until = until.at(start)
    elif until.zone is None:
        until = until._replace(zone=start.zone)
    if start.zone is None:
        return until.digits
    until = until.in_utc()
    return f"{until.digits}Z" if until.utc else f"{until.digits[:8]}T235959Z"


def _text(properties: Component, name: str) -> str | None:
    """The first value of a property that is not empty."""
    for line in properties.get(name, ()):
        found = _TEXT.match(line)
        if value := (found[1] if found else line.partition(":")[2]).strip():
            return value
    return None


def _first(properties: Component, name: str, zones: _Zones | None = None) -> _Time | None:
    """The first time of a property that can be read."""
    return next((each for line in properties.get(name, ()) for each in _list(line, zones)), None)


def _parameters(properties: Component, name: str, wanted: re.Pattern[str]) -> Iterator[re.Match[str]]:
    return (found for line in properties.get(name, ()) if (found := wanted.search(line)))


def _list(line: str, zones: _Zones | None = None) -> Iterator[_Time]:
    """The times of a line that can be read."""
    found = _VALUE.match(line) or _VALUE.match(line.replace('"', ""))
    parameters, values = (found[1], found[2]) if found else line.rpartition(":")[::2]
    named, kind = _TZID.search(parameters), _KIND.search(parameters)
    zone = zones.named(named[1]) if zones is not None and named else None
    whole = kind is not None and _bare(kind[1]).upper() == "DATE"
    for value in values.split(","):
        begin, _, end = value.partition("/")
        each = _time(begin)
        if each is None:
            continue
        if whole:
            each = _Time(each.digits[:8])
        elif not each.whole and each.zone is None and zone is not None:
            each = _shifted(each, zone)
        yield each._replace(lasts=_lasts(end.strip().upper(), each)) if end else each


def _lasts(text: str, begin: _Time) -> str:
    """The end of a period in the form of its beginning, or its duration; empty if it cannot be read."""
    if text.startswith("P"):
        return text if text[-1].isalpha() and _length(text, begin) is not None else ""
    end = _time(text)
    return "" if end is None or end.whole or begin.whole or end.utc != begin.utc else end.value


def _time(text: str) -> _Time | None:
    found = _TIME.fullmatch(text.strip())
    if found is None:
        return None
    year, month, day, hour, minute, second, offset = found.groups()
    try:
        moment = datetime(min(int(year), _LAST_YEAR), int(month), int(day))
        if hour is None:
            return _Time(_digits_of(moment)[:8])
        moment += timedelta(hours=int(hour), minutes=int(minute), seconds=min(int(second or 0), 59))
    except (ValueError, OverflowError):
        return None
    if int(hour) > 24 or int(minute) > 59:
        return None
    if offset is None or offset in "Zz":
        return _Time(_digits_of(moment), "UTC" if offset else None)
    return _shifted(_Time(_digits_of(moment)), f"UTC{offset}")


def _shifted(time: _Time, zone: str) -> _Time:
    """A time in a zone; one with a fixed distance from UTC is computed."""
    fixed = _FIXED.fullmatch(zone)
    if fixed is None:
        return time._replace(zone=zone)
    ahead = timedelta(hours=int(fixed[2]), minutes=int(fixed[3] or 0))
    return _Time(_digits_of(_later(time.moment(), -ahead if fixed[1] == "+" else ahead)), "UTC")


def _digits_of(moment: datetime) -> str:
    return f"{moment.year:04}{moment:%m%dT%H%M%S}"


def _later(moment: datetime, by: timedelta) -> datetime:
    try:
        return moment + by
    except OverflowError:
        return moment


def _bare(text: str) -> str:
    return text.strip().strip("\"'").replace('"', "").strip()


@lru_cache(maxsize=256)
def _resolve(name: str) -> str | None:
    """The name by which the parser knows a zone that the object does not describe."""
    from icalendar.timezone.windows_to_olson import WINDOWS_TO_OLSON

    name = re.sub(r"^tzone://Microsoft/", "", name, flags=re.IGNORECASE)
    if name.upper() in ("UTC", "Z", "GMT", "ETC/UTC", "COORDINATED UNIVERSAL TIME"):
        return "UTC"
    if _FIXED.fullmatch(name):
        return name
    parts = name.strip("/").replace(" ", "_").split("/")[-_ZONE_PARTS:]
    if name in WINDOWS_TO_OLSON:
        return WINDOWS_TO_OLSON[name]
    # /freeassociation.sourceforge.net/Europe/Berlin, as libical and Evolution write (RFC 5545 §3.2.19)
    return next((each for n in range(len(parts)) if _zone(each := "/".join(parts[n:])) is not None), None)


@lru_cache(maxsize=256)
def _zone(name: str) -> tzinfo | None:
    if name.count("/") >= _ZONE_PARTS:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
