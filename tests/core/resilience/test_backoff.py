import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman import App, BackoffStrategy, ExponentialBackoff, FixedBackoff, LinearBackoff
from leadsman.errors import InvalidType, InvalidValue

waits = st.floats(0.001, 1e6)
draws = st.floats(0, 1, exclude_max=True)
attempts = st.integers(1, 10**9)
strategies = st.one_of(
    st.builds(ExponentialBackoff, waits, waits, factor=st.floats(1, 1000), jitter=st.floats(0, 1)),
    st.builds(LinearBackoff, waits, waits, jitter=st.floats(0, 1)),
    st.builds(FixedBackoff, waits, st.none() | waits, jitter=st.floats(0, 1)),
)


def test_exponential_doubles_up_to_its_cap():
    assert [ExponentialBackoff().wait(n) for n in range(1, 9)] == [2, 4, 8, 16, 32, 60, 60, 60]


def test_linear_grows_by_its_step_up_to_its_cap():
    assert [LinearBackoff(2, 7).wait(n) for n in range(1, 6)] == [2, 4, 6, 7, 7]


def test_fixed_stays():
    assert [FixedBackoff(5).wait(n) for n in (1, 2, 10**9)] == [5, 5, 5]


@pytest.mark.parametrize("attempt", [1024, 1025, 1026, 10**6, 10**9, 10**30])
def test_exponential_is_exact_where_the_power_would_overflow(attempt):
    assert ExponentialBackoff().wait(attempt) == 60


def test_exponential_survives_the_widest_range_of_floats():
    assert ExponentialBackoff(1e-300, 1e8).wait(2000) == 1e8
    assert ExponentialBackoff(1e-300, 1e8).wait(2) == 2e-300


def test_a_factor_of_one_never_grows():
    assert ExponentialBackoff(3, 60, factor=1).wait(10**9) == 3


def test_a_base_above_the_cap_is_clamped_to_it():
    assert ExponentialBackoff(90, 60).wait(1) == 60


@given(strategies, attempts)
def test_waits_never_decrease(strategy, attempt):
    assert strategy.wait(attempt) <= strategy.wait(attempt + 1)


@given(strategies, attempts, draws)
def test_a_delay_never_exceeds_the_cap(strategy, attempt, draw):
    assert 0 <= strategy.delay(attempt, draw) <= strategy.cap


@given(strategies, attempts, draws)
def test_jitter_stays_within_its_fraction_of_the_wait(strategy, attempt, draw):
    wait, delay = strategy.wait(attempt), strategy.delay(attempt, draw)

    assert wait * (1 - strategy.jitter) <= delay * (1 + 1e-12) or math.isclose(delay, strategy.cap)
    assert delay <= wait * (1 + strategy.jitter) * (1 + 1e-12)


def test_at_the_cap_the_draws_are_spread_not_piled_up():
    backoff = ExponentialBackoff()

    drawn = [backoff.delay(10, draw / 100) for draw in range(100)]

    assert len(set(drawn)) == 100
    assert min(drawn) == 48
    assert max(drawn) < 60
    assert sum(drawn) / 100 == pytest.approx(54, abs=0.1)


def test_delay_rolls_its_own_dice_when_none_is_given():
    assert len({ExponentialBackoff().delay(3) for _ in range(50)}) > 40


def test_durations_may_be_text():
    assert ExponentialBackoff("500ms", "2m") == ExponentialBackoff(0.5, 120)


def test_strategies_are_values():
    assert ExponentialBackoff() == ExponentialBackoff(2.0, 60.0, factor=2.0, jitter=0.2)
    assert len({FixedBackoff(5), FixedBackoff(5.0)}) == 1
    with pytest.raises(AttributeError):
        ExponentialBackoff().base = 3


@pytest.mark.parametrize("kind", [ExponentialBackoff, LinearBackoff, FixedBackoff])
@pytest.mark.parametrize("wait", [0, -2, -5.5, float("nan"), float("inf"), "x", 1e12])
def test_an_impossible_wait_is_refused_at_construction(kind, wait):
    with pytest.raises(InvalidValue):
        kind(wait)


def test_a_fixed_wait_of_zero_is_told_how_to_retry_at_once():
    with pytest.raises(InvalidValue, match=r"for retries at once write policy=immediate\(\)"):
        FixedBackoff(0)


def test_a_strategy_is_shown_as_it_is_written():
    for strategy in (FixedBackoff("5s", "6s"), LinearBackoff(3), ExponentialBackoff(1, factor=3.0)):
        assert eval(repr(strategy)) == strategy


@pytest.mark.parametrize("kind", [ExponentialBackoff, LinearBackoff, FixedBackoff])
@pytest.mark.parametrize("wait", [True, None, [2]])
def test_a_wait_of_the_wrong_type_is_refused_at_construction(kind, wait):
    with pytest.raises(InvalidType):
        kind(wait)


@pytest.mark.parametrize(
    "words",
    [
        {"factor": 0.5},
        {"factor": float("nan")},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"jitter": float("inf")},
        {"max_delay": 0},
    ],
)
def test_an_impossible_parameter_is_refused_at_construction(words):
    with pytest.raises(InvalidValue):
        ExponentialBackoff(**words)


@pytest.mark.parametrize("words", [{"factor": "2"}, {"factor": True}, {"jitter": "0.2"}, {"jitter": None}])
def test_a_parameter_of_the_wrong_type_is_refused_at_construction(words):
    with pytest.raises(InvalidType):
        ExponentialBackoff(**words)


def test_any_object_with_a_delay_is_a_strategy():
    class Mine:
        def delay(self, attempt):
            return attempt

    assert isinstance(Mine(), BackoffStrategy)
    App("house").add_telemetry("d", lambda: None, interval=1, retry=3, backoff=Mine())


@pytest.mark.parametrize("thing", ["exponential", 5, None, object(), ExponentialBackoff])
def test_what_is_no_strategy_is_refused_with_what_to_write(thing):
    with pytest.raises(InvalidType, match=r"backoff is .*write ExponentialBackoff\(\)"):
        App("house").add_telemetry("d", lambda: None, interval=1, retry=3, backoff=thing)
