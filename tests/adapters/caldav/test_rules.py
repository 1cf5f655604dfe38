"""Recurrence rules that would cost seconds."""

from datetime import date

import icalendar
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.adapters.caldav.rules import check_rule, check_zone
from leadsman.errors import GarbledData

START, END, DAYS = date(2026, 10, 1), date(2026, 11, 6), 14


def most(rule, start=START):
    return check_rule(icalendar.vRecur.from_ical(rule), "it", start, END, DAYS)


@pytest.mark.parametrize(
    ("rule", "times"),
    [
        ("FREQ=DAILY", 15),
        ("FREQ=HOURLY;INTERVAL=6", 60),
        ("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1", 15),
        ("FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO;BYHOUR=8,20", 30),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29", 15),
        ("FREQ=DAILY;BYHOUR=8,12,20;BYSETPOS=-1,3", 45),
    ],
)
def test_a_rule_is_counted_by_the_most_that_it_may_come(rule, times):
    assert most(rule) == times


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("FREQ=SECONDLY", "would take place 1296000 times in 14 days; 5,000 are allowed"),
        ("FREQ=DAILY;COUNT=2000000000", "COUNT=2000000000 is out of range"),
        ("FREQ=DAILY;INTERVAL=0", "INTERVAL=0 is out of range"),
        ("FREQ=DAILY;BYSETPOS=366", "BYSETPOS=366 names a moment that FREQ=DAILY does not have"),
        ("FREQ=HOURLY;BYYEARDAY=366", "BYYEARDAY does not go with FREQ=HOURLY"),
        ("FREQ=WEEKLY;BYWEEKNO=53", "BYWEEKNO does not go with FREQ=WEEKLY"),
        ("FREQ=MONTHLY;BYMONTH=2,4;BYMONTHDAY=31", "names a day that none of its months has"),
        ("COUNT=3", "is not a frequency"),
    ],
)
def test_a_rule_that_costs_seconds_is_refused_with_its_reason(rule, why):
    with pytest.raises(GarbledData, match=why):
        most(rule)


def test_a_rule_that_began_long_ago_is_refused_by_its_steps():
    with pytest.raises(GarbledData, match="began so long ago"):
        most("FREQ=DAILY", date(1700, 1, 1))
    assert most("FREQ=DAILY", None) == 15


@given(st.text(max_size=60))
def test_the_rule_of_a_zone_is_taken_or_refused_by_a_named_error(text):
    try:
        check_zone(text)
    except (GarbledData, ValueError):
        return
    assert "YEARLY" in text.upper()
