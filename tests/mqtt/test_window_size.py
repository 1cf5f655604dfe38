from hypothesis import given
from hypothesis import strategies as st

from leadsman.mqtt.send_window import AGAIN, FIRST, MOST, SHORTEST, WindowSize

LARGE = 65_535


def run(size, rate, seconds, start=0.0):
    """A window that is always full, of a broker that takes `rate(size)` messages a second. Returns the time."""
    now = start
    size.full(now)
    while now < start + seconds:
        now += 1 / rate(size.size)
        size.acknowledged(now)
        size.full(now)
    return now


def road(round_trip, capacity=1e9):
    return lambda size: min(size / round_trip, capacity)


def test_it_begins_with_what_brokers_allow_by_default_and_never_exceeds_what_this_one_allows():
    assert WindowSize(LARGE).size == FIRST
    assert WindowSize(3).size == 3
    assert WindowSize(3).settled
    assert not WindowSize(LARGE).settled


def test_a_long_road_gets_more_messages_in_flight():
    size = WindowSize(LARGE)

    run(size, road(0.4), 10)

    assert size.size == MOST


def test_a_busy_broker_gets_no_more_than_twice_what_it_needs():
    size = WindowSize(LARGE)

    run(size, road(0.1, capacity=1000), 10)

    assert 100 <= size.size <= 2 * 160


def test_it_does_not_grow_where_nothing_waits():
    size = WindowSize(LARGE)
    now = 0.0

    for _ in range(1000):
        now += 0.01
        size.full(now)
        size.acknowledged(now)
        size.caught_up()

    assert size.size == FIRST


def test_a_round_is_not_shorter_than_a_pause_of_the_event_loop():
    size = WindowSize(LARGE)
    size.full(0.0)

    for number in range(10 * FIRST):
        size.acknowledged(SHORTEST * number / (10 * FIRST))

    assert size.size == FIRST


def test_a_road_that_has_become_longer_is_noticed():
    size = WindowSize(LARGE)
    now = run(size, road(0.02, capacity=1000), 5)
    before = size.size

    for _ in range(6):
        now = run(size, road(0.5, capacity=1000), AGAIN, start=now)

    assert before < 100
    assert size.size > 2 * before


def test_a_trial_that_gains_nothing_is_taken_back():
    size = WindowSize(LARGE)
    now = run(size, road(0.1, capacity=1000), 10)
    before = size.size

    run(size, road(0.1, capacity=1000), 10 * AGAIN, start=now)

    assert size.size == before


@given(st.integers(1, LARGE), st.floats(0.001, 0.5), st.floats(50, 5000))
def test_it_finds_nearly_what_the_road_and_the_broker_can_do(receive_maximum, round_trip, capacity):
    size, rate = WindowSize(receive_maximum), road(round_trip, capacity)
    most = min(receive_maximum, MOST)

    run(size, rate, 40 * max(round_trip, SHORTEST, FIRST / capacity))

    assert 1 <= size.size <= most
    assert rate(size.size) >= 0.9 * rate(most)
    assert size.size <= max(2 * FIRST, 4 * capacity * round_trip)


steps = st.lists(
    st.tuples(st.sampled_from(["full", "caught up", "acknowledged", "acknowledged"]), st.floats(0, 30)), max_size=200
)


@given(st.integers(1, LARGE), steps)
def test_whatever_happens_it_stays_within_its_bounds(receive_maximum, steps):
    size, now = WindowSize(receive_maximum), 0.0
    first = size.size
    for step, seconds in steps:
        now += seconds
        if step == "full":
            size.full(now)
        elif step == "acknowledged":
            size.acknowledged(now)
        else:
            size.caught_up()
        assert first <= size.size <= min(receive_maximum, MOST)
