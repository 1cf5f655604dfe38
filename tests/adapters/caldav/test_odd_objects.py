"""Objects that the standard forbids, as programs write them, and the events that calendars show all the same."""

from datetime import date
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadsman.adapters.caldav.recurrence import occurrences
from leadsman_rigs.dav import event
from leadsman_rigs.examples import examples

BERLIN = ZoneInfo("Europe/Berlin")
FIRST, LAST = date(2026, 10, 23), date(2026, 11, 6)
DAY, NEXT = "DTSTART;VALUE=DATE:20261026", "DTEND;VALUE=DATE:20261027"
TEN = "DTSTART;TZID=Europe/Berlin:20261026T100000"
WHOLE = ["2026-10-26"]
AT_TEN = ["2026-10-26T10:00:00+01:00"]
OUTLOOK = "\r\n".join(
    [
        *("BEGIN:VTIMEZONE", "TZID:Customized Time Zone", "BEGIN:STANDARD", "DTSTART:16010101T000000"),
        *("TZOFFSETFROM:+0300", "TZOFFSETTO:+0300", "END:STANDARD", "END:VTIMEZONE"),
    ]
)


def shown(*texts, zone=BERLIN):
    """When the events of objects begin; a moment with its distance from UTC, unless it floats."""
    return [each.start.isoformat() for each in occurrences(texts, FIRST, LAST, zone)]


@pytest.mark.parametrize(
    ("lines", "begins"),
    [
        # whole days
        (["DTSTART;VALUE=DATE;TZID=Europe/Brussels:20261026"], WHOLE),  # sabre-io/vobject#95
        (["DTSTART;TZID=PRC;VALUE=DATE:20261026"], WHOLE),  # franc6/ics_calendar#66
        (["DTSTART;VALUE=DATE:20261026T000000", "DTEND;VALUE=DATE:20261027T000000"], WHOLE),  # lfos/calcurse#517
        (["DTSTART:20261026", "DTEND:20261026"], WHOLE),  # spatie/calendar-links#53
        (["DTSTART;VALUE=DATE-TIME:20261026"], WHOLE),  # nextcloud/calendar#8396
        (["DTSTART;TZID=Europe/Berlin:20261026"], WHOLE),
        (["dtstart;value=date:20261026"], WHOLE),
        (['DTSTART;VALUE="DATE":20261026'], WHOLE),
        (["DTSTART;VALUE=DATE: 20261026 "], WHOLE),
        (["DTSTART::20261026"], WHOLE),  # bitfireAT/ical4android#34
        (["DTSTART;VALUE=DATE:2026-10-26"], WHOLE),
        ([DAY, "DTEND;VALUE=DATE:20261026"], WHOLE),  # iobroker-community-adapters/ioBroker.ical#81
        ([DAY, "DTEND;VALUE=DATE:20260101"], WHOLE),
        ([DAY, "DTEND;TZID=Europe/Berlin:20261026T235959"], WHOLE),
        ([DAY, "DTEND:"], WHOLE),
        ([DAY, "DURATION:P"], WHOLE),  # python-caldav/caldav#29
        ([DAY, "DURATION:PT24H"], WHOLE),
        ([DAY, "DURATION:-P1D"], WHOLE),
        ([DAY, "DURATION:"], WHOLE),
        ([DAY, "DURATION:P1D", NEXT], WHOLE),  # etesync/etesync-dav#120
        ([DAY, "DTSTART;VALUE=DATE:20261028"], WHOLE),
        ([DAY, "SEQUENCE:2302221158"], WHOLE),  # bitfireAT/ical4android#87
        ([DAY, "SEQUENCE:", "SUMMARY", "LOCATION;X=", "STATUS:", "RRULE:", "RDATE:", "EXDATE:", "EXRULE:"], WHOLE),
        (
            [
                *("DTSTART;TZID=Europe/Berlin:20261026T000000", "DTEND;TZID=Europe/Berlin:20261027T000000"),
                "X-MICROSOFT-CDO-ALLDAYEVENT:TRUE",
            ],
            WHOLE,
        ),
        (["DTSTART:20261025T230000Z", "DTEND:20261026T230000Z", "X-MICROSOFT-CDO-ALLDAYEVENT:TRUE"], WHOLE),
        # moments
        (["DTSTART;TZID=tzone://Microsoft/Utc:20261026T090000"], ["2026-10-26T09:00:00+00:00"]),
        (['DTSTART;TZID="tzone://Microsoft/Utc":20261026T090000'], ["2026-10-26T09:00:00+00:00"]),
        (["DTSTART;TZID=UTC:20261026T090000Z"], ["2026-10-26T09:00:00+00:00"]),  # tutao/tutanota#11281
        (["DTSTART;TZID=Europe/Berlin:20261026T090000Z"], ["2026-10-26T09:00:00+00:00"]),
        (["DTSTART;TZID=GMT+05:30:20261026T143000"], ["2026-10-26T09:00:00+00:00"]),  # libical/libical#152
        (["DTSTART:20261026T100000+0100"], ["2026-10-26T09:00:00+00:00"]),
        (["DTSTART:2026-10-26T09:00:00Z"], ["2026-10-26T09:00:00+00:00"]),
        (["DTSTART:2026-10-26T10:00:00.000+01:00"], ["2026-10-26T09:00:00+00:00"]),
        (["DTSTART;TZID=W. Europe Standard Time:20261026T100000"], AT_TEN),  # Etar-Group/Etar-Calendar#453
        (["DTSTART;TZID=/freeassociation.sourceforge.net/Europe/Berlin:20261026T100000"], AT_TEN),
        (['DTSTART;TZID="Europe/Berlin:20261026T100000'], AT_TEN),
        (["DTSTART;TZID='Europe/Berlin':20261026T100000"], AT_TEN),
        (["DTSTART;TZID=Europe/Berlin:20261026T1000"], AT_TEN),
        ([TEN, "DTEND;VALUE=DATE:20261027"], AT_TEN),
        ([TEN, "DTEND;TZID=Europe/Berlin:20261026T090000"], AT_TEN),
        ([TEN, "DURATION:PT"], AT_TEN),
        ([TEN, "DURATION:PT0DT0H10M0S"], AT_TEN),  # pimutils/khal#290
        ([TEN, "X-MICROSOFT-CDO-ALLDAYEVENT:FALSE"], AT_TEN),
        ([TEN, "X-MICROSOFT-CDO-ALLDAYEVENT:TRUE", "DURATION:PT1H"], AT_TEN),
        (["DTSTART;TZID=Mars/Olympus:20261026T100000"], ["2026-10-26T10:00:00"]),
        (["DTSTART;TZID=Europe:20261026T100000"], ["2026-10-26T10:00:00"]),
        (["DTSTART;TZID=../../etc/passwd:20261026T100000"], ["2026-10-26T10:00:00"]),
        (["DTSTART;TZID=:20261026T100000"], ["2026-10-26T10:00:00"]),
        (['DTSTART;TZID="(UTC+01:00) Amsterdam, Berlin":20261026T100000'], ["2026-10-26T10:00:00"]),
        (["DTSTART;TZID=\x15:20261026T100000"], ["2026-10-26T10:00:00"]),  # ical4j/ical4j#194
        # rules
        ([DAY, "RRULE:FREQ=DAILY;INTERVAL=0;COUNT=2"], ["2026-10-26", "2026-10-27"]),  # kewisch/ical.js#73
        ([DAY, "RRULE:FREQ=WEEKLY;INTERVAL=-1;COUNT=2"], ["2026-10-26", "2026-11-02"]),
        ([DAY, "RRULE:FREQ=WEEKLY;INTERVAL=;UNTIL=;COUNT=;BYDAY=;WKST="], ["2026-10-26", "2026-11-02"]),
        ([DAY, "RRULE:FREQ=WEEKLY;COUNT=0"], ["2026-10-26", "2026-11-02"]),  # linagora/twake-calendar-frontend#1277
        ([DAY, "RRULE:FREQ=WEEKLY;COUNT=2147483647"], ["2026-10-26", "2026-11-02"]),
        ([DAY, "RRULE:FREQ=DAILY;INTERVAL=2147483647"], WHOLE),
        ([DAY, "RRULE:FREQ=WEEKLY;COUNT=-1"], ["2026-10-26", "2026-11-02"]),
        ([DAY, "RRULE:freq=weekly; byday=mo ;"], ["2026-10-26", "2026-11-02"]),
        ([DAY, "RRULE;TZID=UTC:FREQ=WEEKLY;BYDAY=MO,,XX"], ["2026-10-26", "2026-11-02"]),  # ical-org/ical.net#512
        ([DAY, "RRULE:FREQ=WEEKLY;X-END=20261231;RSCALE=GREGORIAN;SKIP=OMIT"], ["2026-10-26", "2026-11-02"]),
        ([DAY, "RRULE:FREQ=MONTHLY;BYMONTHDAY=0,26,99"], WHOLE),
        ([DAY, "RRULE:FREQ=DAILY;UNTIL=20261027T225959Z"], ["2026-10-26", "2026-10-27"]),
        ([DAY, "RRULE:FREQ=DAILY;UNTIL=20261026T230000Z"], ["2026-10-26", "2026-10-27"]),  # tutao/tutanota#5318
        ([TEN, "RRULE:FREQ=DAILY;UNTIL=20261027"], [*AT_TEN, "2026-10-27T10:00:00+01:00"]),  # allenporter/ical#176
        ([TEN, "RRULE:FREQ=DAILY;UNTIL=20261027T100000"], [*AT_TEN, "2026-10-27T10:00:00+01:00"]),
        (["DTSTART:20261026T100000", "RRULE:FREQ=DAILY;UNTIL=20261026T235959Z"], ["2026-10-26T10:00:00"]),
        ([DAY, "RRULE:FREQ=DAILY;BYSETPOS=1;COUNT=2"], ["2026-10-26", "2026-10-27"]),
        ([DAY, "RRULE:FREQ=SOMETIMES"], WHOLE),
        ([DAY, "RRULE:INTERVAL=2"], WHOLE),
        ([DAY, "RRULE:RSCALE=CHINESE;FREQ=DAILY"], WHOLE),
        # exceptions and further dates
        (
            [DAY, "RRULE:FREQ=DAILY;COUNT=3", "EXDATE;TZID=Europe/Berlin:"],  # owncloud/calendar#729
            ["2026-10-26", "2026-10-27", "2026-10-28"],
        ),
        ([DAY, "RRULE:FREQ=DAILY;COUNT=3", "EXDATE;VALUE=DATE:,soon,20261027,"], ["2026-10-26", "2026-10-28"]),
        (
            [DAY, "RRULE:FREQ=DAILY;COUNT=3", "EXDATE:20261027T000000"],  # tutao/tutanota#5318
            ["2026-10-26", "2026-10-28"],
        ),
        ([DAY, "RRULE:FREQ=DAILY;COUNT=3", "EXDATE:20261026T230000Z"], ["2026-10-26", "2026-10-28"]),
        (
            [
                DAY,
                "RRULE:FREQ=DAILY;COUNT=3",
                "EXDATE;TZID=Europe/Berlin;VALUE=DATE:20261027",
            ],  # bitfireAT/davx5-ose#2019
            ["2026-10-26", "2026-10-28"],
        ),
        ([TEN, "RRULE:FREQ=DAILY;COUNT=2", "EXDATE;VALUE=DATE:20261027"], AT_TEN),  # bitfireAT/ical4android#147
        ([TEN, "RRULE:FREQ=DAILY;COUNT=2", "EXDATE:20261027"], AT_TEN),  # SimpleMobileTools/Simple-Calendar#1983
        ([TEN, "RRULE:FREQ=DAILY;COUNT=2", "EXDATE:20261027T100000"], AT_TEN),
        ([TEN, "RDATE;VALUE=DATE:20261027"], [*AT_TEN, "2026-10-27T10:00:00+01:00"]),
        ([DAY, "RDATE:20261027T000000"], ["2026-10-26", "2026-10-27"]),
        (
            [TEN, "RDATE;VALUE=PERIOD:20261027T090000Z/PT5H30M,199709T180000Z/PT5H"],  # collective/icalendar#464
            [*AT_TEN, "2026-10-27T09:00:00+00:00"],
        ),
        # what no date of Python can hold
        ([DAY, "DTEND;VALUE=DATE:99991231"], WHOLE),
        ([TEN, "DTEND;TZID=America/Los_Angeles:99991231T235959"], AT_TEN),
        ([TEN, "DTEND:99991231T235959Z", "RRULE:FREQ=YEARLY"], AT_TEN),
        ([TEN, "DURATION:P999999999D"], AT_TEN),
        ([TEN, f"DURATION:P{'9' * 5000}W"], AT_TEN),
        ([TEN, "RDATE;VALUE=PERIOD:20261027T090000Z/P99999999999D"], [*AT_TEN, "2026-10-27T09:00:00+00:00"]),
        ([DAY, "RRULE:FREQ=DAILY;UNTIL=09990101T120000Z"], []),
        ([TEN, "RRULE:FREQ=DAILY;UNTIL=09990101T000000"], []),
        ([TEN, "RRULE:FREQ=DAILY;COUNT=1", "EXDATE;TZID=Europe/Berlin:09990101T000000"], AT_TEN),
        ([f"DTSTART;TZID={'a/' * 3000}:20261026T100000"], ["2026-10-26T10:00:00"]),
        (["DTSTART;TZID=/x.org/y/America/Argentina/Ushuaia:20261026T100000"], ["2026-10-26T10:00:00-03:00"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_an_odd_property_is_taken_as_its_author_meant_it(lines, begins):
    good = event("good", "SUMMARY:Good", "DTSTART;VALUE=DATE:20261105")

    assert shown(event("odd", "SUMMARY:Odd", *lines), good) == [*begins, "2026-11-05"]


def test_a_whole_day_has_its_end_and_its_length():
    texts = [
        event("same", DAY, "DTEND;VALUE=DATE:20261026"),
        event("half", DAY, "DURATION:PT36H"),
        event("moment", DAY, "DTEND:20261028T000000Z"),
    ]

    assert [(each.end.day, each.all_day) for each in occurrences(texts, FIRST, LAST, BERLIN)] == [
        (27, True),
        (28, True),
        (28, True),
    ]


SERIES = [
    *("BEGIN:VEVENT", "UID:e", "SUMMARY:series", TEN, "DTEND;TZID=Europe/Berlin:20261026T110000"),
    *("RRULE:FREQ=DAILY;COUNT=4", "SEQUENCE:1", "END:VEVENT"),
]
MOVED = ["BEGIN:VEVENT", "UID:e", "SUMMARY:moved", "DTSTART;TZID=Europe/Berlin:20261027T200000"]


def calendar(*lines):
    return "\r\n".join(["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//tests//", *lines, "END:VCALENDAR", ""])


@pytest.mark.parametrize(
    ("lines", "titles"),
    [
        (["RECURRENCE-ID;TZID=Europe/Berlin:20261027T100000"], "series moved series series"),
        (["RECURRENCE-ID;VALUE=DATE:20261027"], "series moved series series"),  # py-vobject/vobject#125
        (["RECURRENCE-ID:20261027T100000"], "series moved series series"),  # ical4j/ical4j#85
        (["RECURRENCE-ID:20261027T090000Z", "RRULE:FREQ=DAILY"], "series moved series series"),
        (["RECURRENCE-ID;RANGE=THISANDPRIOR:20261027T090000Z"], "series moved series series"),
        (["RECURRENCE-ID;RANGE=THISANDFUTURE:20261027T090000Z"], "series moved moved moved"),
        (["RECURRENCE-ID:"], "series series moved series series"),
        (["RECURRENCE-ID:soon"], "series series moved series series"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
@pytest.mark.parametrize("uid", ["UID:e", "UID:", "X:"])
@pytest.mark.parametrize("first", [True, False], ids=["moved first", "series first"])
def test_an_occurrence_that_was_moved_leaves_its_series_alone(lines, titles, uid, first):
    moved = [*[uid if line == "UID:e" else line for line in MOVED], *lines, "END:VEVENT"]
    text = calendar(*moved, *SERIES) if first else calendar(*SERIES, *moved)

    assert " ".join(each.summary for each in occurrences([text], FIRST, LAST, BERLIN)) == titles


def test_sixty_moved_occurrences_that_repeat_the_rule_take_place_once_each_in_a_long_window():
    """python-recurring-ical-events#163, bitfireAT/ical4android#135: the rules of moved occurrences are not added up."""
    moved = [
        line
        for n in range(60)
        for line in (
            *("BEGIN:VEVENT", "UID:e", f"RECURRENCE-ID:2026{1 + n // 28:02}{1 + n % 28:02}T080000Z", "SUMMARY:late"),
            *(f"DTSTART:2026{1 + n // 28:02}{1 + n % 28:02}T100000Z", "RRULE:FREQ=DAILY", "END:VEVENT"),
        )
    ]
    series = ["BEGIN:VEVENT", "UID:e", "SUMMARY:pill", "DTSTART:20260101T080000Z", "RRULE:FREQ=DAILY", "END:VEVENT"]

    found = occurrences([calendar(*series, *moved)], date(2026, 1, 1), date(2027, 1, 1), ZoneInfo("UTC"))

    titles = [each.summary for each in found]
    assert (titles.count("pill"), titles.count("late")) == (365 - 60, 60)


@pytest.mark.parametrize(
    "text",
    [
        event("e", DAY).replace("\r\n", "\n"),
        event("e", DAY).replace("\r\n", "\r"),
        event("e", DAY).replace("\r\n", "\r\n\r\n"),
        "\ufeff" + event("e", DAY),
        event("e", DAY).replace("END:VEVENT\r\n", ""),
        event("e", DAY).replace("END:VCALENDAR\r\n", ""),
        event("e", DAY).replace("BEGIN:VCALENDAR\r\n", "").replace("END:VCALENDAR\r\n", ""),
        event("e", DAY).replace("BEGIN:VEVENT", "begin: vevent "),
        event("e", DAY, "BEGIN:VALARM", "TRIGGER:soon"),
        event("e", DAY, "BEGIN:VALARM", "TRIGGER:soon").replace("END:VEVENT\r\n", ""),
        event("e", DAY, "DESCRIPTION:one", "two: three", "", "four", "DTSTART is later", "LOCATION"),
        event("e", DAY).replace("BEGIN:VEVENT", "X-WR-TIMEZONE:\r\nX-WR-TIMEZONE:Mars/Olympus\r\nBEGIN:VEVENT"),
        event("e", DAY).replace("BEGIN:VEVENT", "BEGIN:VTIMEZONE\r\nEND:VTIMEZONE\r\nBEGIN:VEVENT"),
        event("other", "DTSTART;VALUE=DATE:20200101") + event("e", DAY),
    ],
)
def test_an_object_of_odd_lines_still_has_its_event(text):
    assert shown(text) == WHOLE


@pytest.mark.parametrize(
    ("broken", "hour"),
    [
        ("", 7),
        ("TZOFFSETFROM:+0300\r\n", 7),
        ("DTSTART:16010101T000000\r\n", 10),
        ("TZOFFSETTO:+0300\r\n", 10),
        ("TZID:Customized Time Zone\r\n", 10),
        ("END:STANDARD\r\n", 7),
    ],
    ids=["whole", "from", "start", "to", "name", "end"],
)
def test_a_time_zone_that_is_broken_is_passed_over_and_the_event_stays(broken, hour):
    zone = OUTLOOK.replace(broken, "") if broken else OUTLOOK
    text = event("e", "DTSTART;TZID=Customized Time Zone:20261026T100000").replace(
        "BEGIN:VEVENT", zone + "\r\nBEGIN:VEVENT"
    )

    (found,) = occurrences([text], FIRST, LAST, BERLIN)

    begin = found.start if found.start.tzinfo is None else found.start.astimezone(ZoneInfo("UTC"))
    assert begin.hour == hour


def test_two_objects_may_have_time_zones_of_one_name():
    line = "DTSTART;TZID=Customized Time Zone:20261026T100000"
    texts = [
        event(offset, line).replace("BEGIN:VEVENT", OUTLOOK.replace("+0300", offset) + "\r\nBEGIN:VEVENT")
        for offset in ("+0300", "-0500")
    ]

    found = occurrences(texts, FIRST, LAST, BERLIN)

    assert [each.start.utcoffset().total_seconds() / 3600 for each in found] == [3, -5]


def test_what_is_passed_over_is_told_once(caplog):
    text, told = event("e", DAY, "RRULE:FREQ=SOMETIMES"), set()

    for _ in range(3):
        assert len(occurrences([text], FIRST, LAST, BERLIN, told)) == 1

    assert [record.getMessage() for record in caplog.records] == [
        "In a calendar, RRULE 'FREQ=SOMETIMES' is no rule: the event is shown once"
    ]


LINES = [
    *(
        "SEQUENCE:1",
        "SUMMARY:series",
        "LOCATION:here",
        "STATUS:CONFIRMED",
        "DURATION:PT1H",
        "X-WR-TIMEZONE:Europe/Berlin",
    ),
    *("DTEND;TZID=Europe/Berlin:20261026T110000", "EXDATE;TZID=Europe/Berlin:20261028T100000"),
    *("RDATE;TZID=Europe/Berlin:20261102T100000", "RRULE:FREQ=DAILY;COUNT=4", "DTSTAMP:20260101T000000Z", "UID:e"),
    *("EXRULE:FREQ=YEARLY;COUNT=1", "DESCRIPTION:text", "X-MICROSOFT-CDO-ALLDAYEVENT:FALSE", "RECURRENCE-ID:"),
]
MANGLED = st.one_of(
    st.just(""),
    st.sampled_from(["\x00", ";", ":", ",", "=", '"', "20261027", "T100000", "-1", "0", "FREQ", "PT", "P1W", "/", "Z"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=12),
)


@settings(max_examples=examples(150))
@given(st.sampled_from(LINES), st.data(), MANGLED)
def test_one_property_that_is_mangled_loses_at_most_itself(line, data, instead):
    """Whatever stands in a property that is not the beginning, the series stays, and so do the other events."""
    start, end = sorted((data.draw(st.integers(0, len(line))), data.draw(st.integers(0, len(line)))))
    mangled = line[:start] + instead + line[end:]
    others = [
        each
        for each in SERIES[1:-1]
        if each.partition(":")[0].partition(";")[0] != line.partition(":")[0].partition(";")[0]
    ]
    moved = [*MOVED, "RECURRENCE-ID;TZID=Europe/Berlin:20261027T100000", "END:VEVENT"]
    text = calendar("BEGIN:VEVENT", *others, mangled, "END:VEVENT", *moved)
    good = event("good", "SUMMARY:Good", "DTSTART;VALUE=DATE:20261105")

    found = occurrences([text, good], FIRST, LAST, BERLIN)

    starts = [each.start.isoformat() for each in found]
    assert "2026-11-05" in starts
    cancelled = mangled.upper().startswith("STATUS") and "CANCELLED" in mangled.upper()
    excluded = "26T100000" in mangled or mangled.startswith(("EXDATE", "DTSTART", "RECURRENCE", "END", "BEGIN"))
    if not cancelled and not excluded:
        assert AT_TEN[0] in starts
    assert "2026-10-27T20:00:00+01:00" in starts or mangled.startswith(("EXDATE", "UID", "SEQUENCE"))


@settings(max_examples=examples(150))
@given(
    st.integers(0, 40),
    st.sampled_from(["", ":", ";", "X", "\x00", "20261027", ";VALUE=DATE:", '"']),
    st.integers(0, 60),
)
def test_a_mangled_line_of_one_object_leaves_all_others(number, instead, place):
    zone = event("zone", "DTSTART;TZID=Customized Time Zone:20261026T100000").replace(
        "BEGIN:VEVENT", OUTLOOK + "\r\nBEGIN:VEVENT"
    )
    lines = zone.split("\r\n")
    at = number % len(lines)
    lines[at] = lines[at][: place % (len(lines[at]) + 1)] + instead
    good = event("good", "SUMMARY:Good", "DTSTART;VALUE=DATE:20261105")

    assert "2026-11-05" in shown("\r\n".join(lines), good)
