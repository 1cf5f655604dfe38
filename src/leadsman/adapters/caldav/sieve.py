"""Leaves of a calendar object (RFC 5545) only what `leadsman.adapters.caldav.recurrence` needs, before it is parsed,
and refuses an object that would take seconds to parse. Pure.

Parsing costs time for each character, and anybody who may write into a calendar chooses the characters: attachments,
alarms and properties of other programs are left out.
"""

import re

from leadsman.adapters.caldav.rules import MOST, check_zone
from leadsman.errors import GarbledData

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


def sifted(text: str) -> str:
    """Return what is needed of an object.

    Raises:
        GarbledData: it is too large, or has a time zone that would take seconds to expand.
    """
    unfolded = _FOLD.sub("", text)
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
