"""What is left of a calendar object before it is parsed."""

import re
from datetime import date
from zoneinfo import ZoneInfo

import icalendar
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leadsman.adapters.caldav.recurrence import occurrences
from leadsman.adapters.caldav.sieve import MAX_OBJECT_CHARS, MAX_PROPERTY_CHARS, MAX_RULE_CHARS, MAX_ZONE_CHANGES, sift
from leadsman.errors import GarbledData
from leadsman_rigs.dav import event

START = "DTSTART;TZID=Here:20261024T080000"


def zone(*rules):
    """A time zone of one's own, whose clocks change by these rules."""
    changes = [
        line
        for rule in rules
        for line in (
            *("BEGIN:STANDARD", "DTSTART:19701025T030000", rule),
            *("TZOFFSETFROM:+0200", "TZOFFSETTO:+0100", "END:STANDARD"),
        )
    ]
    return "\r\n".join(["BEGIN:VTIMEZONE", "TZID:Here", *changes, "END:VTIMEZONE", ""])


def with_zone(*rules):
    return event("e", START).replace("BEGIN:VEVENT", f"{zone(*rules)}BEGIN:VEVENT")


def test_what_other_programs_need_is_left_out_and_the_event_stays():
    alarm = "BEGIN:VALARM\r\nBEGIN:X-DEEPER\r\nEND:X-DEEPER\r\nACTION:DISPLAY\r\nSUMMARY:wake up\r\nEND:VALARM"
    found = sift(event("e", "summary;LANGUAGE=en:Bins,\r\n and boxes", START, "ATTACH:AAAA", "X-A:1", alarm))

    (component,) = icalendar.Calendar.from_ical(found).walk("VEVENT")
    assert component["SUMMARY"] == "Bins,and boxes"
    assert not {"ATTACH", "X-A", "VALARM", "ACTION", "wake up"} & set(found.replace("\r\n", ":").split(":"))


def test_the_time_zone_that_some_servers_give_a_whole_calendar_is_kept():
    text = event("e", "DTSTART:20261024T080000Z").replace("BEGIN:VEVENT", "X-WR-TIMEZONE:Asia/Tokyo\r\nBEGIN:VEVENT")

    (found,) = occurrences([text], date(2026, 10, 23), date(2026, 11, 6), ZoneInfo("UTC"))

    assert (found.start.hour, str(found.start.tzinfo)) == (17, "Asia/Tokyo")


def test_clocks_change_once_a_year():
    yearly = ("RRULE:FREQ=YEARLY;BYMONTH=10;BYDAY=-1SU", "RRULE:freq=yearly;bymonthday=8,9,10;byday=su;bymonth=3")

    assert sift(with_zone(*yearly)).count("YEARLY") == 2


@pytest.mark.parametrize(
    "rule",
    [
        "FREQ=SECONDLY",
        "FREQ=DAILY;COUNT=2000000000",
        "FREQ=YEARLY;BYHOUR=1,2",
        "FREQ=YEARLY;BYMONTH=1,2",
        "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
    ],
)
def test_clocks_that_change_at_another_pace_are_refused_whatever_the_window(rule):
    with pytest.raises(GarbledData, match=r"once a year|out of range|none of its months"):
        sift(with_zone(f"RRULE:{rule}"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (event("e", START, "DESCRIPTION:" + "x" * MAX_PROPERTY_CHARS), "DESCRIPTION has"),
        (event("e", START, "RRULE:FREQ=DAILY;BYMONTHDAY=" + "1," * MAX_RULE_CHARS), "RRULE has"),
        (event("e", START, "EX\r\n RULE:FREQ=DAILY;BYMONTHDAY=" + "1," * MAX_RULE_CHARS), "EXRULE has"),
        ("".join([event("e", START, "SUMMARY:" + "x" * 60_000)] * (MAX_OBJECT_CHARS // 60_000 + 1)), "characters"),
        (with_zone(*["RRULE:FREQ=YEARLY"] * (MAX_ZONE_CHANGES + 1)), "101 ways"),
    ],
    ids=["line", "rule", "exceptions by rule", "object", "zones"],
)
def test_what_takes_long_to_parse_is_refused(text, why):
    with pytest.raises(GarbledData, match=why):
        sift(text)


LINES = st.lists(
    st.sampled_from(["BEGIN:VEVENT", "END:VEVENT", "BEGIN:VALARM", "END:VALARM", "SUMMARY:x", " folded", "X:1", ""])
    | st.text(st.characters(codec="utf-8"), max_size=3),
    max_size=20,
)


@example(["BEGIN:VEVENT", "UID"], "\n")
@given(LINES, st.sampled_from(["\r\n", "\n", "\r", "\n\n"]))
def test_whatever_comes_in_only_known_properties_come_out(lines, end):
    try:
        lines = sift(end.join([*lines, "BEGIN:VEVENT", START])).split("\r\n")
    except GarbledData:
        return

    assert lines[-1] == ""
    names = {re.match(r"[A-Za-z0-9-]*", line)[0].upper() for line in lines[:-1]}
    assert names <= {"BEGIN", "END", "SUMMARY", "UID", "DTSTART"}
    assert "BEGIN:VALARM" not in lines
