import asyncio
import logging

import pytest

from leadsman import execute_with_retry, immediate, periodic, retrying
from leadsman.core.resilience.adhoc import (
    retry_api_call,
    retry_scheduler_operation,
    retry_storage_operation,
    retry_worker_operation,
)
from leadsman.errors import InvalidType, InvalidValue
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


class Busy(Exception):
    """What an HTTP library raises."""

    status = 503

    def __init__(self, pause):
        self.headers = {"Retry-After": str(pause)}


@pytest.mark.parametrize(("pause", "waits"), [(0, 2), (12, 12), (30, 30)])
def test_a_server_gets_the_pause_that_it_asks_for(run, pause, waits):
    _, took = run(retrying("http", min_wait=2, max_wait=30).call(Flaky(1, Busy(pause))))

    assert waits <= took <= max(waits, 30)


def test_a_pause_beyond_the_longest_wait_raises_the_error_at_once(run):
    fetch = Flaky(1, Busy(31))

    with pytest.raises(Busy):
        run(retrying("http", max_wait=30).call(fetch))

    assert len(fetch.calls) == 1


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
    assert any("call 1 failed, again in 0.5 s: ConnectionError: refused" in line for line in told)
    assert any("succeeded at call 2" in line for line in told)
    assert told[-1] == "Flaky: gave up: no retries left; call 5 failed: ConnectionError: refused"


def test_an_error_that_does_not_pass_is_logged_with_its_type_and_why_it_is_not_repeated(run, caplog):
    with pytest.raises(ValueError, match="bug"):
        run(execute_with_retry(Flaky(9, ValueError("bug")), retry="storage"))

    assert caplog.messages == [
        "Flaky: gave up: errors of this kind are not retried; see retry_on or the policy; "
        "call 1 failed: ValueError: bug"
    ]


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


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"max_attempts": 0}, "max_attempts: it is 0"),
        ({"max_attempts": "3"}, "max_attempts: '3'"),
        ({"min_wait": "nope"}, "min_wait is 'nope'"),
        ({"max_wait": -1}, "max_wait is -1"),
        ({"min_wait": 20, "max_wait": 10}, "the longer one is max_wait"),
    ],
)
def test_a_wrong_bound_is_refused_where_it_is_written(bounds, message):
    with pytest.raises((InvalidValue, InvalidType), match=message):
        retrying("api", **bounds)
    with pytest.raises((InvalidValue, InvalidType), match=message):
        retry_api_call(**bounds)


@pytest.mark.parametrize("name", ["RETRY__STORAGE_MAX_ATTEMPT", "RETRY__STORAGE_MAX__ATTEMPTS"])
def test_a_misspelt_knob_in_the_environment_is_told_as_a_knob_of_its_family(run, monkeypatch, name):
    monkeypatch.setenv(name, "3")

    with pytest.raises(InvalidValue, match=rf"retry\.storage\..*{name}.*did you mean 'max_attempts'"):
        run(execute_with_retry(Flaky(0), retry="api"))


def test_a_plain_function_is_refused_where_it_is_decorated_and_before_it_is_called():
    def plain():
        raise AssertionError("called")

    async def asynchronous():
        return 1

    with pytest.raises(InvalidType, match="plain is not an async function; write 'async def'"):
        retrying("api")(plain)
    assert retrying("api")(asynchronous).__name__ == "asynchronous"
    assert callable(retrying("api")(Flaky(0)))


def test_a_call_that_gives_nothing_to_await_is_an_error_that_says_what_to_write(run):
    with pytest.raises(InvalidType, match=r"<lambda> returned int, which cannot be awaited; write 'async def'"):
        run(retrying("api").call(lambda: 1))


@pytest.mark.parametrize(
    "alias", [retry_worker_operation, retry_storage_operation, retry_scheduler_operation, retry_api_call]
)
def test_a_decorator_without_its_brackets_is_told_with_what_to_write(alias):
    with pytest.raises(InvalidType, match=rf"with brackets: @{alias.__name__}\(\)"):

        @alias
        async def operation():
            return 1


def test_bounds_given_to_execute_with_retry_are_told_with_what_to_write(run):
    async def fetch(url):
        return url

    with pytest.raises(
        InvalidType,
        match=r"fetch does not take max_attempts; write retrying\('api', max_attempts=5\)\.call\(.*fetch, …\)",
    ):
        run(execute_with_retry(fetch, "url", retry="api", max_attempts=5))


def test_no_argument_of_a_function_collides_with_one_of_ours(run):
    async def takes(self, function, max_attempts, min_wait):
        return (self, function, max_attempts, min_wait)

    given = {"self": 1, "function": 2, "max_attempts": 3, "min_wait": 4}

    assert run(execute_with_retry(takes, **given))[0] == (1, 2, 3, 4)
    assert run(retrying("api").call(takes, **given))[0] == (1, 2, 3, 4)
    assert run(retrying("api")(takes)(**given))[0] == (1, 2, 3, 4)
