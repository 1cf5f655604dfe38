import asyncio
import logging

import pytest

from leadsman import execute_with_retry, retrying
from leadsman.errors import InvalidType, InvalidValue
from leadsman.resilience.adhoc import (
    retry_api_call,
    retry_scheduler_operation,
    retry_storage_operation,
    retry_worker_operation,
)
from leadsman.resilience.policy import immediate, periodic
from leadsman.testing import VirtualLoop


@pytest.fixture
def run():
    """Run a coroutine in virtual time; its result and how long it took."""
    loop = VirtualLoop()

    def until(coroutine):
        result = loop.run_until_complete(coroutine)
        return result, loop.time()

    yield until
    loop.close()


class Flaky:
    """Fails so many times."""

    def __init__(self, times, error=None):
        self.times, self.calls, self.error = times, [], error or ConnectionError("refused")

    async def __call__(self, *args, **kwargs):
        self.calls.append((args, kwargs))
        if len(self.calls) <= self.times:
            raise self.error
        return "done"


def test_a_call_is_repeated_until_it_succeeds(run):
    fetch = Flaky(2)

    result, took = run(execute_with_retry(fetch, "url", retry="storage", timeout=5))

    assert (result, took) == ("done", 1.5)
    assert fetch.calls == [(("url",), {"timeout": 5})] * 3


def test_the_original_error_is_raised_with_its_own_cause(run):
    cause = OSError("cable")
    error = ConnectionError("refused")
    error.__cause__ = cause

    with pytest.raises(ConnectionError, match="refused") as caught:
        run(execute_with_retry(Flaky(99, error), retry="storage"))

    assert caught.value is error
    assert caught.value.__cause__ is cause


def test_an_error_that_does_not_pass_is_raised_at_once(run):
    fetch = Flaky(99, ValueError("bug"))

    with pytest.raises(ValueError, match="bug"):
        run(execute_with_retry(fetch, retry="api"))

    assert len(fetch.calls) == 1


def test_a_policy_of_the_algebra_will_do_too(run):
    assert run(execute_with_retry(Flaky(3), retry=periodic("10s").max_retries(3))) == ("done", 30)
    with pytest.raises(ConnectionError):
        run(execute_with_retry(Flaky(3), retry=periodic("10s").budget("20s")))


def test_a_decorator_takes_bounds_of_its_own(run):
    calls = Flaky(99)

    @retrying("storage", max_attempts=2, min_wait="3s")
    async def fetch(what):
        """Fetch it."""
        return await calls(what)

    with pytest.raises(ConnectionError):
        run(fetch("x"))
    assert len(calls.calls) == 2
    assert fetch.__doc__ == "Fetch it."
    assert run(retrying("storage", max_wait=0.5).call(Flaky(4)))[0] == "done"


@pytest.mark.parametrize(
    ("alias", "calls"),
    [(retry_worker_operation, 3), (retry_storage_operation, 5), (retry_scheduler_operation, 3), (retry_api_call, 4)],
)
def test_each_family_has_a_decorator_that_can_be_searched_for(run, alias, calls):
    flaky = Flaky(99)

    with pytest.raises(ConnectionError):
        run(alias()(flaky.__call__)())

    assert len(flaky.calls) == calls


def test_the_environment_retunes_a_family_and_is_read_when_the_call_is_made(run, monkeypatch):
    monkeypatch.setenv("RETRY__STORAGE_MAX_ATTEMPTS", "7")
    monkeypatch.setenv("RETRY__STORAGE_MIN_WAIT", "1.0")
    flaky = Flaky(99)

    with pytest.raises(ConnectionError):
        run(execute_with_retry(flaky, retry="storage"))

    assert len(flaky.calls) == 7
    with pytest.raises(ConnectionError):
        run(retrying("storage", max_attempts=2).call(flaky))
    assert len(flaky.calls) == 9


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RETRY__API_MAX_ATTEMPTS", "0"),
        ("RETRY__API_MAX_ATTEMPTS", "x"),
        ("RETRY__API_TRIES", "3"),
        ("RETRY__APY_MIN_WAIT", "3"),
    ],
)
def test_a_bad_value_in_the_environment_names_the_variable(run, monkeypatch, name, value):
    monkeypatch.setenv(name, value)

    with pytest.raises((InvalidValue, InvalidType), match=name):
        run(execute_with_retry(Flaky(0), retry="api"))


def test_each_wait_is_logged_before_it_and_the_end_after_it(run, caplog):
    caplog.set_level(logging.DEBUG, "leadsman.retry")

    run(execute_with_retry(Flaky(1), retry="storage"))
    with pytest.raises(ConnectionError):
        run(execute_with_retry(Flaky(9), retry="storage"))

    told = [record.getMessage() for record in caplog.records]
    assert any("call 1 failed: ConnectionError: refused; again in 0.5 s" in line for line in told)
    assert any("succeeded at call 2" in line for line in told)
    assert "gave up after 5 calls (count): refused" in told[-1]


def test_a_wait_ends_with_its_task():
    async def cancelled():
        task = asyncio.create_task(execute_with_retry(Flaky(99), retry=periodic("1h")))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(cancelled(), 5))


def test_a_cancellation_that_clean_up_turned_into_an_error_is_never_retried():
    calls = []

    async def stubborn():
        calls.append(1)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise OSError("closing failed") from None

    async def cancelled():
        task = asyncio.create_task(execute_with_retry(stubborn, retry=immediate().max_retries(5)))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert calls == [1]


@pytest.mark.parametrize("wrong", [5, None, print])
def test_what_is_no_policy_is_refused_at_once(wrong):
    with pytest.raises(InvalidType, match="retry is"):
        retrying(wrong)
    with pytest.raises(InvalidType, match="for families"):
        retrying(immediate(), max_attempts=3)


def test_an_unknown_family_is_told_with_what_it_may_have_been(run):
    with pytest.raises(InvalidValue, match="did you mean 'api'"):
        run(execute_with_retry(Flaky(0), retry="apii"))
