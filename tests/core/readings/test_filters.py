"""Each filter of single readings against its plain definition."""

import math
import statistics

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from leadsman import Clamp, LowPass, Median, Outlier, Rate, Round, Scale
from leadsman.errors import InvalidType, InvalidValue

values = st.integers(-1000, 1000) | st.floats(-1e6, 1e6)
any_finite = st.floats(allow_nan=False, allow_infinity=False)
gaps = st.floats(0.01, 1e4)
series = st.lists(st.tuples(gaps, values), min_size=1, max_size=30)
FILTERS = [
    Round(1),
    Scale(2, 1),
    Clamp(-5, 5),
    Median(5),
    Outlier(5),
    LowPass("30s"),
    Rate("1h", wraps_at=2**32),
]


def outputs(filter_, values, step=1.0):
    """What comes out, with a reading each `step` seconds."""
    at_work = filter_.begin()
    return [at_work.take(value, 100.0 + step * n) for n, value in enumerate(values)]


def played(at_work, pairs, now=0.0):
    found = []
    for gap, value in pairs:
        now += gap
        found.append(at_work.take(value, now))
    return found


def same(found, expected):
    """Whether numbers are equal but for the last digits of a float, and None where it is expected."""
    return len(found) == len(expected) and all(
        one is other if None in (one, other) else one == pytest.approx(other, rel=1e-3, abs=1e-3)
        for one, other in zip(found, expected, strict=True)
    )


@given(st.lists(values, min_size=1, max_size=30), st.integers(2, 9))
def test_a_median_is_that_of_the_last_readings(given, n):
    found = outputs(Median(n), given)

    for number, value in enumerate(found):
        assert value == pytest.approx(statistics.median(given[max(0, number - n + 1) : number + 1]), rel=1e-12)


def test_a_single_wrong_value_does_not_come_through_a_median():
    assert outputs(Median(3), [20, 21, 999, 21, 22]) == [20, 20.5, 21, 21, 22]


@given(st.lists(values, min_size=1, max_size=30), st.integers(3, 9), st.floats(0.5, 5), st.floats(0, 10))
def test_an_outlier_is_replaced_by_the_median_as_hampel_defines_it(given, n, limit, least):
    found = outputs(Outlier(n, limit=limit, least=least), given)

    for number, value in enumerate(found):
        recent = given[max(0, number - n + 1) : number + 1]
        middle = statistics.median(recent)
        width = max(limit * 1.4826 * statistics.median(abs(each - middle) for each in recent), least)
        if abs(abs(given[number] - middle) - width) > 1e-6:  # what a float cannot decide is left out
            wanted = given[number] if abs(given[number] - middle) <= width else middle
            assert value == pytest.approx(wanted, rel=1e-12)


def test_rounded_values_need_the_width_of_a_step():
    steps = [21.0, 21.0, 21.0, 21.0, 21.1, 21.0, 35.0]

    assert outputs(Outlier(5), steps)[4] == 21.0
    assert outputs(Outlier(5, least=0.15), steps) == [21.0, 21.0, 21.0, 21.0, 21.1, 21.0, 21.0]


@given(st.floats(0.1, 1e4), series)
def test_a_low_pass_is_the_exponential_mean_with_the_next_point(constant, pairs):
    found = played(LowPass(constant).begin(), pairs)

    smoothed = pairs[0][1]
    for (gap, value), out in zip(pairs[1:], found[1:], strict=True):
        weight = math.exp(-gap / constant)
        smoothed = weight * smoothed + (1 - weight) * value
        assert out == pytest.approx(smoothed, rel=1e-9, abs=1e-6)


@given(values, values, st.floats(0.1, 1e3), st.lists(gaps, min_size=1, max_size=9))
def test_a_low_pass_depends_on_the_elapsed_time_and_not_on_how_many_readings_came(start, value, constant, between):
    often, once = LowPass(constant).begin(), LowPass(constant).begin()
    for step in (often, once):
        step.take(start, 0.0)
    found = played(often, [(gap, value) for gap in between])[-1]

    assert found == pytest.approx(once.take(value, math.fsum(between)), rel=1e-6, abs=1e-6)


def test_a_low_pass_has_followed_a_step_by_63_percent_after_its_time_constant():
    assert outputs(LowPass("30s"), [0, 100], step=30)[1] == pytest.approx(63.2, abs=0.05)


@given(st.lists(any_finite, min_size=1, max_size=20))
@example([1e308, -1e308, 1e308, 5.0, 5.0])
def test_huge_values_leave_no_nan_in_a_low_pass(given):
    at_work = LowPass(1).begin()

    found = [at_work.take(value, float(n)) for n, value in enumerate([*given, *[5.0] * 800])]

    assert all(math.isfinite(each) for each in found)
    assert found[-1] == pytest.approx(5.0)


@given(values, st.integers(0, 9))
def test_round_rounds_as_python_does(value, decimals):
    (found,) = outputs(Round(decimals), [value])

    assert found == round(value, decimals)
    assert isinstance(found, float if decimals else int)


def test_no_negative_zero_is_published():
    assert str(outputs(Round(1), [-0.01])[0]) == "0.0"


@given(values, st.floats(-100, 100), values)
def test_scale_multiplies_and_adds(value, factor, offset):
    assume(factor)
    assert outputs(Scale(factor, offset), [value]) == [factor * value + offset]


@given(values, values, values)
def test_a_clamped_value_is_the_nearest_one_within_the_limits(value, one, other):
    low, high = sorted((one, other))

    assert outputs(Clamp(low, high), [value]) == [min(max(value, low), high)]
    assert outputs(Clamp(low=low), [value]) == [max(value, low)]
    assert outputs(Clamp(high=high), [value]) == [min(value, high)]


@given(st.lists(st.tuples(gaps, st.integers(0, 10**6)), min_size=1, max_size=20), st.floats(1, 3600))
def test_a_rate_is_the_increase_over_the_time_since_the_reading_before(grown, per):
    counter, pairs = 0, []
    for gap, step in grown:
        counter += step
        pairs.append((gap, counter))
    found = played(Rate(per).begin(), pairs)

    assert found[0] is None
    for (gap, step), rate in zip(grown[1:], found[1:], strict=True):
        assert rate == pytest.approx(step * per / gap, rel=1e-6)


@given(st.lists(st.integers(0, 2**15), min_size=1, max_size=30))
def test_a_counter_that_wraps_has_the_rate_of_one_that_does_not(steps):
    totals = [sum(steps[: n + 1]) for n in range(len(steps))]

    assert outputs(Rate(1, wraps_at=2**17), [each % 2**17 for each in totals]) == outputs(Rate(1), totals)


def test_the_rate_after_a_counter_was_replaced_is_not_known_and_then_goes_on():
    assert outputs(Rate("1h"), [1000, 1001, 3, 5], step=3600) == [None, 1, None, 2]
    assert outputs(Rate("1h", wraps_at=2**32), [1000, 1001, 3, 5], step=3600) == [None, 1, None, 2]


def test_over_an_outage_it_is_the_mean_rate():
    assert outputs(Rate("1h"), [10, None, None, 16], step=3600) == [None, None, None, 2]


def test_a_second_reading_of_the_same_moment_gives_no_rate():
    at_work = Rate(1).begin()

    assert [at_work.take(value, 5.0) for value in (1, 2)] == [None, None]
    assert at_work.take(3, 6.0) == 2


def test_the_first_rate_after_a_restart_is_not_known_since_the_clock_may_have_been_wrong():
    before, after = Rate("1h").begin(), Rate("1h").begin()
    before.take(10, 0.0)
    after.restore(before.to_json(), 0.0)

    assert [after.take(value, at) for value, at in ((20, 1.0), (21, 3601.0))] == [None, 1]


@pytest.mark.parametrize("filter_", [each for each in FILTERS if not isinstance(each, Rate)], ids=repr)
@given(pairs=series, cut=st.integers(0, 30), later=st.floats(-1e5, 1e5))
def test_it_goes_on_after_a_restart_as_if_there_had_been_none(filter_, pairs, cut, later):
    through, before, after = filter_.begin(), filter_.begin(), filter_.begin()
    played(before, pairs[:cut])
    after.restore(before.to_json(), later)
    stopped = sum(gap for gap, _ in pairs[:cut])

    expected = played(through, pairs)[cut:]

    assert same(played(after, pairs[cut:], stopped + later), expected)


@pytest.mark.parametrize("filter_", FILTERS, ids=repr)
def test_no_value_gives_no_output_and_changes_no_state(filter_):
    with_gaps, without = filter_.begin(), filter_.begin()
    found = [with_gaps.take(value, float(at)) for at, value in enumerate([1, None, 2, None, None, 4])]

    assert [found[at] for at in (1, 3, 4)] == [None] * 3
    assert [found[at] for at in (0, 2, 5)] == [without.take(value, at) for at, value in ((0.0, 1), (2.0, 2), (5.0, 4))]


@pytest.mark.parametrize("state", [["x"], [float("nan")], [1.0, "2"], [None], [True]])
@pytest.mark.parametrize("filter_", [Median(3), Outlier(3), LowPass(1)], ids=repr)
def test_a_state_that_makes_no_sense_is_refused(filter_, state):
    with pytest.raises((LookupError, TypeError, ValueError)):
        filter_.begin().restore(state, 0.0)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: Median(1), InvalidValue, "2 to 1001"),
        (lambda: Median("5"), InvalidType, "whole number"),
        (lambda: Outlier(2), InvalidValue, "3 to 1001"),
        (lambda: Outlier(5, limit=0), InvalidValue, "more than 0"),
        (lambda: Outlier(5, least=-1), InvalidValue, "negative"),
        (lambda: LowPass("-30s"), InvalidValue, "time_constant"),
        (lambda: LowPass(0), InvalidValue, "time_constant"),
        (lambda: Round(10), InvalidValue, "0 to 9"),
        (lambda: Round(1.5), InvalidType, "whole number"),
        (lambda: Scale(0), InvalidValue, "factor"),
        (lambda: Scale(math.inf), InvalidValue, "finite"),
        (lambda: Scale("2"), InvalidType, "a number"),
        (lambda: Clamp(), InvalidValue, "no limit"),
        (lambda: Clamp(5, 1), InvalidValue, "exchange"),
        (lambda: Clamp("1"), InvalidType, "low"),
        (lambda: Rate("1h", wraps_at=0), InvalidValue, "wraps_at"),
        (lambda: Rate("soon"), InvalidValue, "per"),
    ],
)
def test_nonsense_is_named(make, error, match):
    with pytest.raises(error, match=match):
        make()
