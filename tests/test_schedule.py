from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman import Cron
from leadsman.errors import InvalidType, InvalidValue
from leadsman.schedule import CLOCK_SET_BACK, next_on_grid, spread_offset

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


@given(st.text(min_size=1), st.floats(0, 1e6))
def test_a_spread_is_the_same_at_every_start_and_within_bounds(name, spread):
    assert 0 <= spread_offset(name, spread) <= spread
    assert spread_offset(name, spread) == spread_offset(name, spread)


def test_a_hundred_names_are_spread_evenly():
    offsets = [spread_offset(f"device-{n}", 10.0) for n in range(100)]

    assert all(sum(low <= offset < low + 2.5 for offset in offsets) >= 15 for low in (0, 2.5, 5, 7.5))


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
