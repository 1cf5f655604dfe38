"""Expanding calendars, without a server."""

from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadsman.adapters.caldav import recurrence as module
from leadsman.adapters.caldav.recurrence import occurrences
from leadsman.errors import GarbledData
from leadsman_rigs.dav import event
from leadsman_rigs.examples import examples

BERLIN = ZoneInfo("Europe/Berlin")
FIRST, LAST = date(2026, 10, 23), date(2026, 11, 6)


def expanded(*lines, zone=BERLIN):
    return occurrences([event("e", *lines)], FIRST, LAST, zone)


DAYS = st.dates(date(2026, 10, 1), date(2026, 11, 30))
TIMES = st.sampled_from(["", "T000000", "T233000Z", "T010000", "T010000\r\n Z"])


@given(
    DAYS,
    TIMES,
    st.sampled_from(
        [
            "dtstart:",
            "DTSTART;VALUE=DATE-TIME:",
            "DTSTART;TZID=Pacific/Kiritimati:",
            'DTSTART;X="a:b":',
        ]
    ),
    st.booleans(),
    st.sampled_from([0, 1, 9, 40, None]),
    st.sampled_from(
        [
            "SUMMARY:x",
            "RRULE:FREQ=WEEKLY",
            "rdate;value=date:20261101",
            "DURATION:P30D",
            "X:DTSTART",
        ]
    ),
)
def test_no_event_is_passed_over_that_takes_place_in_the_window(day, time, name, folded, length, more):
    if not time and "VALUE" not in name:
        name = name.replace(":", ";VALUE=DATE:", 1) if '"' not in name else "DTSTART;VALUE=DATE:"
    lines = [f"{name}{day:%Y%m%d}{time}", more]
    if length is not None and not more.startswith("DURATION"):
        lines.append(f"DTEND{name[7:]}{day + timedelta(days=length):%Y%m%d}{time}")
    if folded:  # RFC 5545 §3.1: a line may go on in the next one after any character
        lines = [f"{line[:4]}\r\n {line[4:]}" for line in lines]
    text = event("e", *lines)

    found = outcome(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_may_take_place", lambda *args: True)
        assert found == outcome(text)


def outcome(text):
    try:
        return occurrences([text], FIRST, LAST, BERLIN)
    except GarbledData:
        return None


def test_an_event_that_takes_place_once_long_ago_is_not_even_parsed(monkeypatch):
    parsed = []
    monkeypatch.setattr(module, "sift", lambda text, passed_over: parsed.append(text) or text)
    over = [
        event("e", "SUMMARY:Over", "DTSTART;VALUE=DATE:20200105"),
        event(
            "e",
            "SUMMARY:Over",
            "DTSTART;TZID=Europe/Berlin:20200105T100000",
            "DTEND;TZID=Europe/Berlin:20200105T110000",
        ),
    ]
    now = event("e", "SUMMARY:Now", "DTSTART;VALUE=DATE:20261101")

    assert [each.summary for each in occurrences([*over, now], FIRST, LAST, BERLIN)] == ["Now"]
    assert parsed == [now]


def test_an_override_moves_one_occurrence():
    lines = ("UID:e", "RECURRENCE-ID:20261025T080000Z", "SUMMARY:Later", "DTSTART:20261025T200000Z")
    moved = "\r\n".join(("BEGIN:VEVENT", *lines, "END:VEVENT", ""))
    text = event("e", "SUMMARY:Daily", "DTSTART:20261024T080000Z", "RRULE:FREQ=DAILY;COUNT=3")
    text = text.replace("END:VCALENDAR", f"{moved}END:VCALENDAR")

    found = occurrences([text], FIRST, LAST, BERLIN)

    assert [(each.summary, each.start.hour) for each in found] == [("Daily", 8), ("Later", 20), ("Daily", 8)]


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago", "Europe/Berlin", "UTC"])
def test_a_whole_day_is_that_day_in_every_zone(zone):
    found = expanded("SUMMARY:Bins", "DTSTART;VALUE=DATE:20261023", "RRULE:FREQ=DAILY", zone=ZoneInfo(zone))

    assert [each.start for each in found] == [FIRST + timedelta(days=n) for n in range(14)]


def test_a_time_of_day_stays_the_same_across_the_change_of_the_clocks():
    found = expanded("SUMMARY:Heating", "DTSTART;TZID=Europe/Berlin:20261001T063000", "RRULE:FREQ=DAILY")

    assert {each.start.strftime("%H:%M") for each in found} == {"06:30"}
    assert {each.start.utcoffset().total_seconds() for each in found} == {3600, 7200}


def test_an_event_of_several_days_has_begun_before_the_window():
    found = expanded("SUMMARY:Holidays", "DTSTART;VALUE=DATE:20261020", "DTEND;VALUE=DATE:20261025")

    assert [(each.start, each.end) for each in found] == [(date(2026, 10, 20), date(2026, 10, 25))]


def test_what_people_write_into_calendars_is_made_harmless():
    (found,) = expanded("SUMMARY:Bins\x1b[2J", "DTSTART;VALUE=DATE:20261024", "DESCRIPTION:one\\ntwo")

    assert "\x1b" not in found.summary
    assert found.description == "one\ntwo"


def test_an_event_that_makes_no_sense_is_told_once(caplog):
    texts = [event("odd", "DTSTART:soon"), event("good", "SUMMARY:Good", "DTSTART;VALUE=DATE:20261024")]
    told = set()

    for _ in range(3):
        assert len(occurrences(texts, FIRST, LAST, BERLIN, told)) == 1

    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["X-A:1"] * 20_001, "20,010 lines"),
        (["RDATE:" + ",".join(["20261024T000000Z"] * 5001)], "5,001 dates"),
        (["EXDATE;VALUE=DATE:20261024", "RDATE:" + ",\r\n ".join(["20261024T000000Z"] * 5000)], "5,001 dates"),
    ],
    ids=["lines", "dates", "dates in folded lines"],
)
def test_an_object_that_takes_seconds_to_read_is_refused_before_that(lines, why, caplog):
    good = event("good", "SUMMARY:Good", "DTSTART;VALUE=DATE:20261024")
    large = event("large", "DTSTART:20261024T000000Z", *lines)

    assert [each.summary for each in occurrences([large, good], FIRST, LAST, BERLIN)] == ["Good"]
    assert why in caplog.text


def test_an_attachment_of_a_megabyte_is_no_reason_to_refuse_an_event():
    picture = "ATTACH;ENCODING=BASE64;VALUE=BINARY:" + "\r\n ".join(["A" * 74] * 15_000)

    assert len(expanded("SUMMARY:x", "DTSTART;VALUE=DATE:20261024", *["X-A:1"] * 10_000, picture)) == 1


def test_events_that_take_for_ever_are_a_named_error(monkeypatch):
    monkeypatch.setattr(module, "MAX_EXPANSION_SECONDS", -1.0)

    with pytest.raises(GarbledData, match="take longer"):
        expanded("SUMMARY:x", "DTSTART;VALUE=DATE:20261024")


FREQUENCIES = st.sampled_from(["SECONDLY", "MINUTELY", "HOURLY", "DAILY", "WEEKLY", "MONTHLY", "YEARLY", "NEVER", ""])
PARTS = st.lists(
    st.sampled_from(
        [
            "INTERVAL=2",
            "INTERVAL=0",
            "COUNT=3",
            "COUNT=-1",
            "BYHOUR=1,2",
            "BYMINUTE=0,30",
            "BYDAY=MO,FR",
            "BYDAY=-1SU",
            "BYMONTH=2",
            "BYMONTHDAY=29",
            "BYMONTHDAY=31",
            "BYSETPOS=1",
            "UNTIL=20270101T000000Z",
            "UNTIL=x",
            "BYDAY=XX",
        ]
    ),
    max_size=4,
    unique_by=lambda part: part.split("=")[0],
)
STARTS = st.sampled_from(
    [
        "DTSTART:20261024T120000",
        "DTSTART:20261024T120000Z",
        "DTSTART;VALUE=DATE:20261024",
        "DTSTART;TZID=Europe/Berlin:20260601T120000",
        "DTSTART;TZID=Mars/Olympus:20260601T120000",
        "DTSTART:2026",
        "DTSTART:19991231T235959Z",
    ]
)


@settings(max_examples=examples(60))
@given(STARTS, FREQUENCIES, PARTS)
def test_whatever_a_rule_says_it_is_expanded_or_costs_only_itself(start, frequency, parts):
    good = event("good", "SUMMARY:Good", "DTSTART;VALUE=DATE:20261025")
    odd = event("odd", "SUMMARY:Odd", start, "RRULE:" + ";".join([f"FREQ={frequency}", *parts]))

    found = occurrences([odd, good], FIRST, LAST, BERLIN)

    assert "Good" in [each.summary for each in found]
    moments = [each.start if isinstance(each.start, datetime) else None for each in found]
    assert len(moments) <= module.MAX_OCCURRENCES + 1
