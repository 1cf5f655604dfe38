"""Each aggregate against its plain definition: the values of a window as a list."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from leadsman import Delta, Last, Maximum, Mean, Minimum, Seen
from leadsman.errors import InvalidValue

OPEN = Last(60).begin().take(1, 0.0)
"""What an aggregate gives while its window is open."""
EARLY = 0.001
"""The share of its length by which the first window begins before its first reading."""
values = st.integers(-1000, 1000) | st.floats(-1e6, 1e6)
series = st.lists(st.tuples(st.floats(0.01, 200), values | st.none()), min_size=1, max_size=40)
AGGREGATES = [Mean(60), Minimum(60), Maximum(60), Last(60), Delta(60), Delta(60, wraps_at=2**16), Seen(60, 10)]
PLAIN = {
    Mean: lambda values: math.fsum(values) / len(values),
    Minimum: min,
    Maximum: max,
    Last: lambda values: values[-1],
}


def timed(pairs, now=0.0):
    found = []
    for gap, value in pairs:
        now += gap
        found.append((now, value))
    return found


def played(at_work, readings):
    return [at_work.take(value, at) for at, value in readings]


def closed(found):
    return [each for each in found if each is not OPEN]


def windows(readings, length=60.0):
    """The readings of each window that has one, the first to last, without the last, which is open."""
    begin = readings[0][0] - EARLY * length
    numbered = {}
    for at, value in readings:
        numbered.setdefault(math.floor((at - begin) / length), []).append((at, value))
    return [(begin + number * length, inside) for number, inside in numbered.items()][:-1]


def on_a_border(readings, length=60.0):
    """Whether a reading is so near to the end of a window that a float decides where it belongs."""
    begin = readings[0][0] - EARLY * length
    return any(0 < (at - begin) % length < 1e-6 or (at - begin) % length > length - 1e-6 for at, _ in readings)


def same(found, expected):
    """Whether numbers are equal but for the last digits of a float, and None where it is expected."""
    return len(found) == len(expected) and all(
        one is other if None in (one, other) else one == pytest.approx(other, rel=1e-6, abs=1e-6)
        for one, other in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind.__name__)
@given(pairs=series)
def test_a_window_gives_what_its_readings_have_in_common(kind, pairs):
    readings = timed(pairs)
    assume(not on_a_border(readings))
    expected = []
    for _, inside in windows(readings):
        known = [value for _, value in inside if value is not None]
        expected.append(PLAIN[kind](known) if known else None)

    assert same(closed(played(kind(60).begin(), readings)), expected)


@given(pairs=series)
def test_how_much_of_a_window_was_seen_is_the_time_that_its_readings_stand_for(pairs):
    readings, each = timed(pairs), 10.0
    assume(not on_a_border(readings))
    spans = [(at, at + each) for at, value in readings if value is not None]
    merged = []
    for begin, end in spans:
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((begin, end))
    expected = [
        sum(max(0.0, min(end, start + 60) - max(begin, start)) for begin, end in merged) / 60
        for start, _ in windows(readings)
    ]

    assert closed(played(Seen(60, each).begin(), readings)) == pytest.approx(expected, abs=1e-6)


@given(st.lists(st.tuples(st.floats(0.01, 200), st.integers(0, 100)), min_size=2, max_size=40))
def test_the_deltas_of_all_windows_are_what_the_counter_grew(grown):
    counter, readings = 5, []
    for at, step in timed(grown):
        counter += step
        readings.append((at, counter))
    readings.append((readings[-1][0] + 60, counter))  # closes the last window

    found = closed(played(Delta(60).begin(), readings))

    assert sum(each or 0 for each in found) == counter - readings[0][1]


def test_a_delta_counts_from_the_last_value_before_the_window():
    readings = [(at, 2 * at) for at in range(0, 181, 10)]

    assert closed(played(Delta(60).begin(), readings)) == [100, 120, 120]


def test_what_a_counter_grew_while_it_was_replaced_is_not_counted():
    readings = list(enumerate([10, 12, 500, 0, 3, 4], start=1))

    assert closed(played(Delta(4).begin(), readings)) == [490]
    assert closed(played(Delta(4, wraps_at=512).begin(), [*readings, (9, 4)])) == [502, 4]


def test_polls_that_are_a_little_early_or_late_fall_into_one_window_each():
    readings = [(n * 10 + (0.02 if n % 2 else -0.02), n) for n in range(1, 32)]

    assert closed(played(Last(60).begin(), readings)) == [6, 12, 18, 24, 30]


def test_after_an_outage_the_window_before_it_is_given_and_the_empty_ones_are_not():
    readings = [(0, 1), (10, 3), (1000, 7), (1010, 9), (1030, 5)]

    assert closed(played(Mean(60).begin(), readings)) == [2, 8]
    assert closed(played(Seen(60, 10).begin(), readings)) == pytest.approx([20 / 60, 20 / 60], abs=0.002)


def test_a_window_without_a_value_gives_none():
    assert closed(played(Mean(60).begin(), [(0, None), (30, None), (60, 1), (120, 1)])) == [None, 1]


def test_a_sum_of_many_values_loses_no_digits():
    readings = [(n / 1000, 0.1) for n in range(50_000)]

    assert closed(played(Mean(40).begin(), readings)) == [0.1]


@pytest.mark.parametrize("aggregate", AGGREGATES, ids=repr)
@given(pairs=series, cut=st.integers(0, 40))
def test_a_window_goes_on_after_a_restart(aggregate, pairs, cut):
    readings, through = timed(pairs), aggregate.begin()
    before, after = aggregate.begin(), aggregate.begin()
    played(before, readings[:cut])
    after.restore(before.to_json(), 1024.0)
    assume(not on_a_border(readings))
    expected = played(through, readings)[cut:]

    found = played(after, [(at + 1024.0, value) for at, value in readings[cut:]])

    assert [each is OPEN for each in found] == [each is OPEN for each in expected]
    assert same(closed(found), closed(expected))


@pytest.mark.parametrize("state", [[], [1.0], [1.0, ["x"]], [1.0, [float("inf"), 1, 1]], ["x", []]])
def test_a_state_that_makes_no_sense_is_refused(state):
    for aggregate in (Mean(60), Delta(60), Seen(60, 10)):
        if state == [1.0, [float("inf"), 1, 1]] and not isinstance(aggregate, Mean):
            continue
        with pytest.raises((LookupError, TypeError, ValueError)):
            aggregate.begin().restore(state, 0.0)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Mean("-1m"), "window"),
        (lambda: Maximum(0), "window"),
        (lambda: Seen("1m", "2m"), "longer than the window"),
        (lambda: Delta("1m", wraps_at=-1), "wraps_at"),
    ],
)
def test_nonsense_is_named(make, match):
    with pytest.raises(InvalidValue, match=match):
        make()
