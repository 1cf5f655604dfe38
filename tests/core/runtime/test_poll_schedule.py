import math

import pytest

from leadsman import Cron
from leadsman.core.runtime.poll_schedule import CLOCK_CHECK, CronSchedule, IntervalSchedule, schedule_of

HOUR = 3600.0


@pytest.fixture
def hourly(bench):
    schedule = CronSchedule(Cron("0 * * * *", zone="UTC"))  # the virtual wall clock starts at midnight
    schedule.start(0.0, 0.0, bench.environment)
    return schedule


def test_an_interval_starts_at_its_offset_rounded_up_to_a_slot(bench):
    schedule = IntervalSchedule(10.0)

    assert schedule.start(2.51, 0.0, bench.environment) == pytest.approx(2.55)
    assert schedule.due == pytest.approx(2.55)


@pytest.mark.parametrize(("shift", "second"), [(0.0, 10.0), (2.0, 12.0), (4.9, 14.9), (5.0, 5.0), (8.0, 8.0)])
def test_a_shift_moves_all_polls_but_the_first(bench, shift, second):
    schedule = IntervalSchedule(10.0)

    now = schedule.start(0.0, shift, bench.environment)
    rung = [now]
    for _ in range(3):
        is_due, missed, now = schedule.advance(now, bench.environment)
        assert (is_due, missed) == (True, 0)
        rung.append(now)

    assert rung == [pytest.approx(at) for at in (0.0, second, second + 10, second + 20)]


def test_polls_missed_before_the_first_one_could_ring_are_counted(bench):
    schedule = IntervalSchedule(10.0)
    schedule.start(0.0, 2.0, bench.environment)

    assert schedule.advance(25.0, bench.environment) == (True, 2, pytest.approx(32.0))


def test_an_interval_stays_on_its_grid_and_counts_what_was_missed(bench):
    schedule = IntervalSchedule(10.0)
    schedule.start(0.0, 0.0, bench.environment)

    assert schedule.advance(0.004, bench.environment) == (True, 0, 10.0)
    assert schedule.advance(45.0, bench.environment) == (True, 3, 50.0)
    assert schedule.horizon(45.0, bench.clock) == 50.0


def test_the_next_poll_of_an_interval_is_told_in_epoch_seconds(bench):
    schedule = IntervalSchedule(10.0)
    schedule.start(0.0, 0.0, bench.environment)
    start = bench.clock.wall() - bench.clock.monotonic()

    assert schedule.next_due(-math.inf, 0, bench.clock) == pytest.approx(start)
    assert schedule.next_due(25.0, 0, bench.clock) == pytest.approx(start + 30)
    assert schedule.next_due(25.0, 2, bench.clock) == pytest.approx(start + 50)


def test_cron_rings_at_each_check_of_the_clock_and_is_due_only_at_its_slot(bench, hourly):
    now = bench.clock.monotonic()

    is_due, missed, following = hourly.advance(now, bench.environment)

    assert (is_due, missed) == (False, 0)
    assert following == pytest.approx(CLOCK_CHECK)

    bench.pass_time(HOUR)
    is_due, missed, following = hourly.advance(bench.clock.monotonic(), bench.environment)

    assert (is_due, missed) == (True, 0)
    assert following == pytest.approx(HOUR + CLOCK_CHECK)


def test_cron_counts_the_slots_that_passed_while_the_process_slept(bench, hourly):
    bench.pass_time(3 * HOUR + 60)

    is_due, missed, _ = hourly.advance(bench.clock.monotonic(), bench.environment)

    assert (is_due, missed) == (True, 2)


def test_cron_at_start_is_due_at_once(bench):
    schedule = CronSchedule(Cron("0 * * * *", zone="UTC", at_start=True))

    assert schedule.start(0.0, 0.0, bench.environment) == bench.environment.timers.origin
    assert schedule.advance(bench.clock.monotonic(), bench.environment)[0]


def test_the_horizon_of_cron_moves_with_a_clock_that_is_set(bench, hourly):
    before = hourly.horizon(0.0, bench.clock)
    bench.loop.step_wall(600)

    assert hourly.horizon(0.0, bench.clock) == pytest.approx(before - 600)


def test_the_next_poll_of_cron_is_not_before_the_end_of_a_pause(bench, hourly):
    start = bench.clock.wall() - bench.clock.monotonic()

    assert hourly.next_due(-math.inf, 0, bench.clock) == pytest.approx(start + HOUR)
    assert hourly.next_due(1.5 * HOUR, 1, bench.clock) == pytest.approx(start + 3 * HOUR)


def test_a_handler_has_the_schedule_that_it_was_registered_with():
    assert type(schedule_of(5.0, None)) is IntervalSchedule
    assert type(schedule_of(None, Cron("* * * * *"))) is CronSchedule
