"""Retries for calls outside of handlers: opening a file or a connection, or an HTTP request.

``await execute_with_retry(fetch, url, retry="http")`` repeats the call by a family, a named policy or a policy of the
algebra, and raises the original error when it gives up. `retrying` does the same as a decorator::

    @retrying("http", max_attempts=6)
    async def fetch(url: str) -> bytes: ...

In a running app, names are looked up in its settings; elsewhere, they are the families, adjusted by the environment. A
wait ends with its task, so a stopping app is not delayed.
"""

import asyncio
import functools
import inspect
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ParamSpec, TypedDict, TypeVar, Unpack, cast

from leadsman.core.loop.durations import Duration
from leadsman.core.loop.tasks import outcome_in_own_task
from leadsman.core.resilience.catalogue import CATALOGUE, Catalogue, check_bounds
from leadsman.core.resilience.failure import Failure, sift
from leadsman.core.resilience.policy import REASONS, GiveUp, Policy
from leadsman.core.settings.entry import RANKS, RETRY_PREFIX, SettingEntry, retry_path
from leadsman.core.text import describe, log_fields
from leadsman.errors import InvalidType

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("leadsman.retry")


class Bounds(TypedDict, total=False):
    """Limits that override those of a family."""

    max_attempts: int | None
    """The most calls, including the first one."""
    min_wait: Duration | None
    """The shortest wait."""
    max_wait: Duration | None
    """The longest wait."""


class Retrying:
    """A policy, or the name of one, that is applied to calls. `retrying` makes it."""

    def __init__(self, retry: str | Policy, bounds: Bounds) -> None:
        self._retry = retry
        self._bounds = bounds

    def __call__(self, function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        """Decorate an async function. Raises `InvalidType` for any other."""
        if not callable(function):
            raise InvalidType(f"{function!r} is not a function; write @retrying('api') above one")
        inner = inspect.unwrap(function)
        if inspect.isfunction(inner) and not inspect.iscoroutinefunction(inner):
            raise InvalidType(f"{_name(function)} is not an async function; {_ASYNC}")

        @functools.wraps(function)
        async def repeated(*args: P.args, **kwargs: P.kwargs) -> T:
            return await self.call(function, *args, **kwargs)

        return repeated

    async def call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call an async function until it succeeds or the policy gives up. Each call runs in a task of its own.

        Raises:
            Exception: the error of the last call, with its own cause.
            ConfigurationError: no policy has that name, the environment contains an invalid value, or the function is
                not async.
        """
        policy, name = self._policy(), _name(function)
        family = self._retry if isinstance(self._retry, str) else "policy"
        state, attempt, began = policy.start(), 0, asyncio.get_running_loop().time()
        while True:
            attempt += 1
            log = functools.partial(_log, name, attempt)
            log(logging.DEBUG, "call", "call %d (%s)", attempt, family)
            value, error = await outcome_in_own_task(lambda: _awaitable(function(*args, **kwargs), name))
            if error is None:
                if attempt > 1:
                    log(logging.INFO, "call succeeded", "succeeded at call %d", attempt)
                return cast("T", value)
            if not isinstance(error, Exception):
                raise error
            error = sift(error)
            facts = {"verb": "adhoc", "family": family, "handler": name}
            elapsed = asyncio.get_running_loop().time() - began
            failure = Failure(error, facts, 0, elapsed, attempt - 1, False, _on_strategy_error, time.time())
            state, verdict = policy.step(state, failure, random.random)
            asked, kind = policy.pause(failure), type(error).__name__
            if asked is not None and asked > policy.cap:  # the caller waits, and was promised no longer wait
                verdict = GiveUp("deferred")
            if isinstance(verdict, GiveUp):
                why, reason = REASONS[verdict.reason], verdict.reason
                text = "%s; call %d failed: %s"
                log(logging.WARNING, "gave up", text, why, attempt, _write_error(error), reason=reason, error_type=kind)
                raise error
            text = "call %d failed, again in %.1f s: %s"
            log(logging.WARNING, "call failed", text, attempt, verdict.delay, _write_error(error), error_type=kind)
            await asyncio.sleep(verdict.delay)

    def _policy(self) -> Policy:
        if isinstance(self._retry, Policy):
            return self._retry
        return (CATALOGUE.get() or _of_environment()).policy(self._retry, **self._bounds)


def retrying(
    retry: str | Policy = "worker",
    *,
    max_attempts: int | None = None,
    min_wait: Duration | None = None,
    max_wait: Duration | None = None,
) -> Retrying:
    """Apply retries as a decorator, or with ``retrying(…).call(function, …)``.

    Args:
        retry: a family (``worker``, ``storage``, ``scheduler``, ``api``, ``ble``, ``serial``, ``http``, ``caldav``), a
            named policy, or a policy of the algebra.
        max_attempts: the most calls, including the first one; overrides the family's value.
        min_wait: the shortest wait; overrides the family's value.
        max_wait: the longest wait; overrides the family's value.

    Raises:
        InvalidType: `retry` is not one of these.
        InvalidValue, InvalidType: a limit is invalid.
    """
    if not isinstance(retry, str | Policy):
        raise InvalidType(f"retry is {retry!r}; write a name such as 'api', or a policy; the function comes after it")
    bounds: Bounds = {"max_attempts": max_attempts, "min_wait": min_wait, "max_wait": max_wait}
    if isinstance(retry, Policy) and any(bound is not None for bound in bounds.values()):
        raise InvalidType(
            "a policy already defines how often and how soon to retry; max_attempts, min_wait and "
            "max_wait are for families only"
        )
    check_bounds(bounds)
    return Retrying(retry, bounds)


async def execute_with_retry(
    function: Callable[..., Awaitable[T]], /, *args: Any, retry: str | Policy = "worker", **kwargs: Any
) -> T:
    """Call ``function(*args, **kwargs)`` until it succeeds or the policy gives up; see `retrying` for the values of
    `retry`.

    All other arguments are passed to the function. Limits are given to `retrying`: ``await retrying("api",
    max_attempts=5).call(fetch, url)``.

    Raises:
        Exception: the error of the last call.
        ConfigurationError: no policy has that name, or a limit of `retrying` is given that the function does not take.
    """
    _check_arguments(function, kwargs, retry)
    return await retrying(retry).call(function, *args, **kwargs)


def retry_worker_operation(function: None = None, /, **bounds: Unpack[Bounds]) -> Retrying:
    """`retrying` with the family ``worker``: work that may be done twice."""
    return _family("worker", function, bounds)


def retry_storage_operation(function: None = None, /, **bounds: Unpack[Bounds]) -> Retrying:
    """`retrying` with the family ``storage``: files and databases nearby, often and soon."""
    return _family("storage", function, bounds)


def retry_scheduler_operation(function: None = None, /, **bounds: Unpack[Bounds]) -> Retrying:
    """`retrying` with the family ``scheduler``: handing work over to a broker."""
    return _family("scheduler", function, bounds)


def retry_api_call(function: None = None, /, **bounds: Unpack[Bounds]) -> Retrying:
    """`retrying` with the family ``api``: calls to services far away."""
    return _family("api", function, bounds)


_ASYNC = "write 'async def'; what blocks goes into one with await asyncio.to_thread(…)"


def _family(family: str, function: object, bounds: Bounds) -> Retrying:
    if function is not None:  # the decorator without brackets
        name = "call" if family == "api" else "operation"
        raise InvalidType(f"write the decorator with brackets: @retry_{family}_{name}()")
    return retrying(family, **bounds)


def _check_arguments(function: Callable[..., Any], kwargs: Mapping[str, object], retry: str | Policy) -> None:
    """See that bounds which the function does not take are not meant for `retrying`."""
    given = [name for name in ("max_attempts", "min_wait", "max_wait") if name in kwargs]
    if not given:
        return
    try:
        takes = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a function of C may have no signature
        return
    names = {each.name for each in takes}
    if any(each.kind is each.VAR_KEYWORD for each in takes) or names.issuperset(given):
        return
    bounds = ", ".join(f"{name}={kwargs[name]!r}" for name in given)
    family = repr(retry) if isinstance(retry, str) else "'worker'"
    raise InvalidType(
        f"{_name(function)} does not take {' or '.join(given)}; write retrying({family}, "
        f"{bounds}).call({_name(function)}, …)"
    )


async def _awaitable(value: Awaitable[T], name: str) -> T:
    if not inspect.isawaitable(value):
        raise InvalidType(f"{name} returned {type(value).__name__}, which cannot be awaited; {_ASYNC}")
    return await value


def _name(function: object) -> str:
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def _write_error(error: Exception) -> str:
    """An error at the end of a line: its type and its message."""
    kind, text = type(error).__name__, describe(error)
    return kind if text == kind else f"{kind}: {text}"


def _log(operation: str, attempt: int, level: int, event: str, text: str, *values: object, **fields: str) -> None:
    about = log_fields(event, operation=operation, attempt=attempt, **fields)
    logger.log(level, f"%s: {text}", operation, *values, extra=about, stacklevel=2)


def _on_strategy_error(strategy: object, error: Exception) -> None:
    logger.error(
        "%r failed; the default backoff is used instead: %s",
        strategy,
        describe(error),
        extra=log_fields("strategy failed", error_type=type(error).__name__),
    )


def _of_environment() -> Catalogue:
    """The families, for a program without an app."""
    section: dict[str, dict[str, str]] = {}
    origins = {}
    for name, value in os.environ.items():
        if name.startswith(RETRY_PREFIX):
            path = retry_path(name)
            section.setdefault(path[1], {})["".join(path[2:])] = value
            origins[path] = SettingEntry(path, value, RANKS.index("environment"), f"environment {name}")
    return Catalogue(section, origins)
