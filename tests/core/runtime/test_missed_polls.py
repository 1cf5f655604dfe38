"""When missed polls are reported: nothing is lost, nothing waits for long, and nothing is reported too often."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from leadsman.core.runtime.poll_runner import REPORT_EACH, MissedPolls

RINGS = st.lists(st.tuples(st.floats(0.001, 3.0), st.integers(0, 5)), max_size=60)
"""The seconds since the last ring, and the polls that were missed before this one."""
SHORT = st.floats(0.01, REPORT_EACH, exclude_max=True)
LONG = st.floats(REPORT_EACH, 1e5) | st.none()


def reports(missed, rings):
    """The times of the reports, and how many polls each has; and the time of the last ring."""
    now, found = 0.0, []
    for passed, polls in rings:
        now += passed
        reported = missed.add(polls, now)
        found += [(now, reported)] if reported else []
    return found, now


@given(RINGS, SHORT | LONG)
def test_each_missed_poll_is_reported_once(rings, interval):
    missed = MissedPolls(interval)
    found, _ = reports(missed, rings)

    assert sum(polls for _, polls in found) + missed.drain() == sum(polls for _, polls in rings)
    assert missed.drain() == 0


@given(RINGS, SHORT)
def test_a_device_with_a_short_interval_is_reported_once_a_second_at_the_most(rings, interval):
    found, _ = reports(MissedPolls(interval), rings)

    assert all(after >= before + REPORT_EACH for (before, _), (after, _) in itertools.pairwise(found))


@given(RINGS, LONG)
def test_a_device_with_a_long_interval_is_reported_at_once(rings, interval):
    found, _ = reports(MissedPolls(interval), rings)

    assert [polls for _, polls in found] == [polls for _, polls in rings if polls]


@given(RINGS, SHORT | LONG, st.integers(1, 5))
def test_the_first_missed_poll_is_reported_at_once(rings, interval, polls):
    missed = MissedPolls(interval)
    _, last = reports(missed, [(passed, 0) for passed, _ in rings])

    assert missed.add(polls, last) == polls


@given(RINGS, SHORT | LONG)
def test_what_waits_is_reported_by_a_ring_a_second_later(rings, interval):
    missed = MissedPolls(interval)
    found, last = reports(missed, rings)
    later = last + REPORT_EACH

    waited = missed.add(0, later)

    assert sum(polls for _, polls in found) + waited == sum(polls for _, polls in rings)
    assert missed.over(later) is (waited == 0 or interval is None or interval >= REPORT_EACH)


@given(RINGS, SHORT | LONG)
def test_what_is_over_forgets_nothing(rings, interval):
    missed = MissedPolls(interval)
    found, last = reports(missed, rings)

    if missed.over(last):
        assert missed.drain() == 0
        assert all(at + REPORT_EACH <= last for at, _ in found) or interval is None or interval >= REPORT_EACH
