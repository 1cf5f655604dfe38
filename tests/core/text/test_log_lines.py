"""The limit of log lines about one subject."""

from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.text.log_lines import (
    MAX_CAUSED_LINES,
    MAX_CAUSES,
    MAX_LINES,
    MAX_PERIOD,
    MAX_SUBJECTS,
    MINUTE,
    Lines,
    others,
)


def lines_of(lines, times, subject="d"):
    return [before for at in times if (before := lines.left_out(subject, at)) is not None]


def test_a_flood_that_others_cause_is_a_line_an_hour_and_each_line_counts():
    found = lines_of(others(), range(24 * 3600))

    assert len(found) < MAX_CAUSED_LINES * (24 + 8)
    assert sum(found) + len(found) > 23 * 3600


def test_lines_about_a_device_come_six_a_minute():
    assert len(lines_of(Lines(), [n / 10 for n in range(36_000)])) == 60 * MAX_LINES


def test_after_a_quiet_period_the_lines_come_as_at_first():
    lines = others()
    lines_of(lines, range(3 * 3600))

    assert lines_of(lines, [100_000.0])[0] > 0
    assert lines_of(lines, [100_001.0, 100_002.0]) == [0, 0]
    assert len(lines_of(lines, [100_000.0 + MINUTE])) == 1


@given(st.lists(st.floats(0, 10 * MAX_PERIOD), max_size=200))
def test_no_line_is_lost_from_the_counts_also_if_the_clock_is_set_back(times):
    lines = others()
    found = lines_of(lines, times)
    left = lines._periods["d"].left_out if times else 0

    assert len(found) + sum(found) + left == len(times)


def test_subjects_are_bounded():
    lines = others()
    for n in range(MAX_SUBJECTS + 100):
        lines.left_out(str(n), 0.0)

    assert len(lines._periods) == MAX_SUBJECTS


@given(st.lists(st.tuples(st.floats(0, 20), st.sampled_from([None, "a", "b", "c", "d"])), max_size=200))
def test_a_cause_is_left_out_only_if_the_log_had_it_in_the_last_minute(steps):
    lines, at, had = Lines(), 0.0, {}
    for later, cause in steps:
        at += later
        if lines.left_out("d", at, cause) is not None:
            had[cause] = at
        elif cause is not None:
            assert at - had[cause] < MINUTE


def test_a_device_that_has_a_new_cause_each_time_is_limited_too():
    lines = Lines()
    found = [n for n in range(36_000) if lines.left_out("d", n / 10, f"cause {n}") is not None]

    assert len(found) == 60 * MAX_CAUSES
