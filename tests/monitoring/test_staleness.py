"""For how long no device was fresh."""

from hypothesis import given
from hypothesis import strategies as st

from leadsman.monitoring.staleness import Staleness

LOOKS = st.lists(st.tuples(st.floats(0, 100), st.booleans()), max_size=20)


@given(LOOKS)
def test_it_lasts_since_the_first_look_after_the_last_fresh_one(steps):
    now, found, times = 0.0, Staleness(), []
    for step, fresh in steps:
        now += step
        found = found.seen(now, fresh=fresh)
        times = [] if fresh else [*times, now]

    assert found.lasts(now) == (now - times[0] if times else 0.0)


def test_a_clock_that_goes_back_makes_it_no_shorter_than_nothing():
    assert Staleness(10.0).lasts(5.0) == 0.0
