from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman import Cron
from leadsman.core.loop.schedule import CLOCK_SET_BACK, Wait, check_clocks, next_on_grid
from leadsman.errors import InvalidType, InvalidValue

BERLIN = ZoneInfo("Europe/Berlin")


def at(*when, zone=BERLIN):
    return datetime(*when, tzinfo=zone).timestamp()


def slots(cron, start, count):
    found = []
    for _ in range(count):
        start = cron.after(start)
        found.append(datetime.fromtimestamp(start, BERLIN).strftime("%m-%d %H:%M %Z"))
    return found


@given(st.floats(0, 1e9), st.floats(0.01, 1e6), st.floats(0, 1e7))
def test_the_next_point_of_the_grid_lies_ahead_by_at_most_one_interval(last, interval, later):
    now = last + later

    due, missed = next_on_grid(last, interval, now)

    assert due > now or due == pytest.approx(now)
    assert due - now <= interval * (1 + 1e-6) + 1e-6
    assert missed >= 0
    assert due == last + (missed + 1) * interval


def test_a_grid_does_not_drift():
    due = 0.0
    for _ in range(10_000):
        due = next_on_grid(due, 60.0, due + 2.5).at

    assert due == 600_000.0


def test_what_the_process_slept_through_is_counted_not_replayed():
    assert next_on_grid(0.0, 60.0, 3601.0) == (3660.0, 60)


def test_a_point_that_is_exactly_now_is_not_given_again():
    assert next_on_grid(60.0, 60.0, 60.0) == (120.0, 0)


def test_a_daily_slot_stays_at_its_hour_through_both_clock_changes():
    cron = Cron("0 6 * * *", zone="Europe/Berlin")

    assert slots(cron, at(2026, 3, 28, 0), 3) == ["03-28 06:00 CET", "03-29 06:00 CEST", "03-30 06:00 CEST"]
    assert slots(cron, at(2026, 10, 24, 0), 3) == ["10-24 06:00 CEST", "10-25 06:00 CET", "10-26 06:00 CET"]


def test_a_slot_in_the_hour_that_spring_skips_runs_right_after_it():
    assert slots(Cron("30 2 * * *", zone="Europe/Berlin"), at(2026, 3, 28, 12), 2) == [
        "03-29 03:00 CEST",
        "03-30 02:30 CEST",
    ]


def test_a_slot_in_the_hour_that_autumn_repeats_runs_once():
    found = slots(Cron("30 2 * * *", zone="Europe/Berlin"), at(2026, 10, 24, 12), 2)

    assert [slot[:11] for slot in found] == ["10-25 02:30", "10-26 02:30"]


def test_a_slot_is_never_given_twice_when_the_clock_slews_back():
    cron = Cron("0 * * * *", zone="UTC")
    slot = at(2026, 1, 1, 6, zone=UTC)

    assert cron.next(slot, slot - 0.5) == slot + 3600
    assert cron.next(slot, slot + 0.5) == slot + 3600


def test_cron_starts_afresh_when_the_clock_was_set_back():
    cron = Cron("0 * * * *", zone="UTC")
    slot = at(2026, 1, 1, 6, zone=UTC)

    assert cron.next(slot, slot - CLOCK_SET_BACK - 3600) < slot


ZONES = ["Europe/Berlin", "Australia/Lord_Howe", "America/New_York", "Asia/Kolkata"]
EXPRESSIONS = [
    "30 2 * * *",
    "15,45 2 * * *",
    "15 0-23 * * *",
    "*/7 1-2 * * *",
    "0 * * * *",
    "5 0 1 * *",
    "45 1 * 4,10 SUN",
]


@given(st.sampled_from(EXPRESSIONS), st.sampled_from(ZONES), st.floats(at(2026, 1, 1), at(2028, 1, 1)))
def test_the_next_slot_always_lies_ahead(expression, zone, wall):
    assert Cron(expression, zone=zone).after(wall) > wall


@pytest.mark.parametrize("minute", [0, 10, 29, 30, 31, 59])
def test_the_next_slot_lies_ahead_in_the_second_of_two_hours_too(minute):
    wall = datetime(2026, 10, 25, 2, minute, fold=1, tzinfo=BERLIN).timestamp()

    assert slots(Cron("30 2 * * *", zone="Europe/Berlin"), wall, 1) == ["10-26 02:30 CET"]
    assert slots(Cron("15 0-23 * * *", zone="Europe/Berlin"), wall, 1) == ["10-25 03:15 CET"]


def test_slots_that_were_passed_over_are_counted():
    cron, slot = Cron("*/10 * * * *", zone="UTC"), at(2026, 1, 1, 6, zone=UTC)
    wait = Wait(slot, slot - 30, 0.0)

    assert check_clocks(cron, wait, slot + 3601, 3631.0) == (
        Wait(slot + 4200, slot + 3601, 3631.0, slot + 3600),
        True,
        6,
    )
    assert check_clocks(cron, wait, slot - 1, 29.0) == (Wait(slot, slot - 1, 29.0), False, 0)


def test_a_clock_that_was_wrong_by_hours_makes_nothing_due():
    cron, noon = Cron("0 3 * * *", zone="UTC"), at(2026, 1, 1, 12, zone=UTC)

    found = check_clocks(cron, Wait(3 * 3600.0, 60.0, 60.0), noon, 90.0)

    assert (found.wait.slot, found.due) == (noon + 15 * 3600, False)


def test_a_slot_that_comes_right_after_the_clock_was_corrected_is_not_lost():
    cron, three = Cron("0 3 * * *", zone="UTC"), at(2026, 1, 1, 3, zone=UTC)

    found = check_clocks(cron, Wait(3 * 3600.0, 60.0, 60.0), three + 5, 90.0)

    assert (found.wait.slot, found.due) == (three + 24 * 3600, True)


def test_a_clock_that_is_set_back_by_minutes_gives_the_slots_in_between_again():
    cron, slot = Cron("0 * * * *", zone="UTC"), at(2026, 1, 1, 6, zone=UTC)
    wait = Wait(slot + 3600, slot + 100, 0.0, last=slot)

    assert check_clocks(cron, wait, slot - 500, 10.0).wait[::3] == (slot, None)
    assert check_clocks(cron, wait, slot - 0.5, 10.0).wait[::3] == (slot + 3600, slot)


def test_the_largest_gap_is_found():
    assert Cron("0 */2 * * *", zone="UTC").largest_gap() == 7200
    assert Cron("0 6 * * MON-FRI", zone="UTC").largest_gap() == timedelta(days=3).total_seconds()


def test_without_a_zone_the_hosts_is_taken():
    assert Cron("0 0 * * *").after(0) > 0


@pytest.mark.parametrize(
    "expression", ["* * * *", "* * * * * *", "", "61 * * * *", "x * * * *", "0 0 30 2 *", "@daily"]
)
def test_a_wrong_expression_is_refused_with_an_example(expression):
    with pytest.raises(InvalidValue, match="schedule"):
        Cron(expression, zone="UTC")


@pytest.mark.parametrize("zone", ["Berlin", "Europe/Nowhere", "../etc/passwd", ""])
def test_an_unknown_zone_is_refused_with_an_example(zone):
    with pytest.raises(InvalidValue, match="Europe/Berlin"):
        Cron("0 0 * * *", zone=zone)


def test_a_thing_that_is_no_expression_is_refused():
    with pytest.raises(InvalidType, match="cron expression"):
        Cron(5)
    with pytest.raises(InvalidType, match="IANA"):
        Cron("0 0 * * *", zone=5)
