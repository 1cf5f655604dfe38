import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.errors import DeviceTimeout, GarbledData, InvalidType, InvalidValue, TransientError
from leadsman.resilience.backoff import ExponentialBackoff
from leadsman.resilience.policy import CLEAR, GiveUp, Retry, RetryPolicy, Streak, exception_types, matches

error = OSError("gone")


def wait(attempt):
    return ExponentialBackoff(jitter=0).delay(attempt)


def cycle(policy, streak, horizon=math.inf):
    """The waits that one failing poll takes, and what is remembered after it."""
    streak, waits = Streak(streak.waits), []
    while True:
        streak, verdict = policy.step(streak, error, wait, horizon)
        if isinstance(verdict, GiveUp):
            return waits, streak, verdict.reason
        waits.append(verdict.delay)


def test_retry_counts_retries_after_the_first_call():
    waits, _, reason = cycle(RetryPolicy(3), CLEAR)

    assert len(waits) == 3
    assert reason == "count"


def test_the_waits_of_an_outage_go_on_growing_from_poll_to_poll_without_a_hole():
    streak, seen = CLEAR, []
    for _ in range(3):
        waits, streak, _ = cycle(RetryPolicy(3), streak)
        seen.append(waits)

    assert seen == [[2, 4, 8], [16, 32, 60], [60, 60, 60]]


def test_a_wait_that_is_dropped_for_the_next_poll_is_not_counted():
    waits, streak, reason = cycle(RetryPolicy(9), CLEAR, horizon=5)

    assert (waits, streak.waits, reason) == ([2, 4], 2, "next-poll")
    assert cycle(RetryPolicy(9), streak)[0][0] == 8


def test_a_retry_that_would_start_at_the_next_poll_is_dropped():
    assert RetryPolicy(3).step(CLEAR, error, lambda n: 30.0, 30.0)[1] == GiveUp("next-poll")
    assert RetryPolicy(3).step(CLEAR, error, lambda n: 29.9, 30.0)[1] == Retry(29.9)


def test_without_retries_nobody_asks_how_long_to_wait():
    def never(attempt):
        raise AssertionError

    assert RetryPolicy(0).step(CLEAR, error, never, math.inf) == (CLEAR, GiveUp("count"))


@pytest.mark.parametrize(
    "kind",
    [
        OSError,
        TimeoutError,
        asyncio.TimeoutError,
        ConnectionResetError,
        PermissionError,
        TransientError,
        DeviceTimeout,
        GarbledData,
    ],
)
def test_the_default_retries_what_the_operating_system_and_adapters_report(kind):
    assert isinstance(RetryPolicy(1).step(CLEAR, kind("x"), wait, math.inf)[1], Retry)


@pytest.mark.parametrize("kind", [ValueError, KeyError, RuntimeError, AttributeError])
def test_the_default_does_not_retry_bugs(kind):
    assert RetryPolicy(1).step(CLEAR, kind("x"), wait, math.inf)[1] == GiveUp("filtered")


def test_a_group_matches_when_all_its_leaves_do():
    both = ExceptionGroup("two", [OSError(), ExceptionGroup("inner", [TimeoutError()])])
    mixed = ExceptionGroup("two", [OSError(), ValueError()])

    assert matches(both, (OSError,))
    assert not matches(mixed, (OSError,))


@pytest.mark.parametrize("given_", [OSError, [OSError], (OSError,)])
def test_retry_on_may_be_a_class_a_list_or_a_tuple(given_):
    assert exception_types(given_, "retry_on") == (OSError,)


@pytest.mark.parametrize(
    "given_",
    [asyncio.CancelledError, (OSError, KeyboardInterrupt), SystemExit, BaseException, "OSError", (1,), None, int],
)
def test_retry_on_takes_only_subclasses_of_exception(given_):
    with pytest.raises(InvalidType, match="subclass of Exception"):
        exception_types(given_, "retry_on")


def test_an_empty_retry_on_is_refused():
    with pytest.raises(InvalidValue, match="retry_on is empty"):
        exception_types((), "retry_on")


@given(st.integers(0, 20), st.integers(0, 1000), st.floats(0.1, 1e5))
def test_a_poll_never_takes_more_retries_than_allowed_nor_waits_past_the_next_poll(retries, before, horizon):
    waits, streak, _ = cycle(RetryPolicy(retries), Streak(before), horizon)

    assert len(waits) <= retries
    assert all(each < horizon for each in waits)
    assert streak.waits == before + len(waits)
