import asyncio

import pytest

from leadsman import exponential, is_a, never, periodic
from leadsman.core.resilience import overrides
from leadsman.core.resilience.failure import Failure
from leadsman.core.resilience.policy import GiveUp, Retry
from leadsman.errors import DeviceTimeout

ONE, TWO = periodic(1), periodic(2)


def left(error, *policies):
    """The error, after it left blocks of these policies, the innermost one first."""
    for policy in policies:
        with pytest.raises(type(error)), overrides.block(policy):
            raise error
    return error


def asked(policies, error, own=never(), states=()):
    _, states, verdict = overrides.step(policies, own, own.start(), states, Failure(error), lambda: 0.5)
    return states, verdict


def test_an_error_takes_the_policies_of_its_blocks_along_the_innermost_one_first():
    assert overrides.take(left(OSError(), ONE, TWO)) == (ONE, TWO)
    assert overrides.take(OSError()) == ()


def test_policies_are_taken_once_as_one_error_may_be_raised_again_elsewhere():
    error = left(OSError(), ONE)
    overrides.take(error)

    assert overrides.take(error) == ()


def test_a_group_has_the_policies_that_all_its_errors_have():
    assert overrides.take(ExceptionGroup("", [left(OSError(), ONE), left(OSError(), ONE, TWO)])) == (ONE,)
    assert overrides.take(ExceptionGroup("", [left(OSError(), ONE), OSError()])) == ()
    assert overrides.take(left(ExceptionGroup("", [left(OSError(), ONE)]), TWO)) == (ONE, TWO)


def test_a_timeout_has_the_policies_of_the_cancellation_that_it_came_of():
    error = DeviceTimeout("no answer")
    error.__cause__ = left(asyncio.CancelledError(), ONE)

    assert overrides.take(error) == (ONE,)


def test_the_first_policy_that_a_failure_concerns_decides_and_the_handlers_own_comes_last():
    picky = ONE.only_when(is_a(OSError))

    assert asked([picky, TWO], OSError())[1] == Retry(1)
    assert asked([picky, TWO], ValueError())[1] == Retry(2)
    assert asked([picky], ValueError(), own=periodic(7))[1] == Retry(7)
    assert asked([never()], OSError(), own=periodic(7))[1] == GiveUp("never")


def test_equal_policies_count_together_and_others_apart():
    states, first = asked([exponential(1).max_retries(2)], OSError())
    states, _ = asked([TWO], OSError(), states=states)
    states, second = asked([exponential(1).max_retries(2)], OSError(), states=states)
    _, third = asked([exponential(1).max_retries(2)], OSError(), states=states)

    assert (first, second, third) == (Retry(1), Retry(2), GiveUp("count"))


def test_policies_that_are_new_each_time_are_not_remembered_without_end():
    states = ()
    for number in range(1, 99):
        states, _ = asked([periodic(number)], OSError(), states=states)

    assert len(states) == overrides.MAX_STATES
    assert states[0][0] == periodic(98)


def test_outside_a_handler_no_code_is_in_one():
    assert not overrides.IN_HANDLER.get()
