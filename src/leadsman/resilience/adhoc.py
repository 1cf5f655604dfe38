"""Retries for what is no poll: opening a file or a connection, a call over HTTP.

``await execute_with_retry(fetch, url, retry="http")`` repeats the call as a family, a named policy or a policy of the
algebra says, and raises the original error when it gives up. `retrying` makes the same a decorator::

    @retrying("http", max_attempts=6)
    async def fetch(url: str) -> bytes: ...

Within a running app the names are those of its settings; elsewhere the families with what the environment says. A wait ends
with the task: whoever cancels it, as the app does when it stops, is not waited for.
"""

import asyncio
import functools
import logging
import os
import random
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

from leadsman.durations import Duration
from leadsman.errors import InvalidType
from leadsman.resilience.catalogue import CATALOGUE, Catalogue
from leadsman.resilience.failure import Failure
from leadsman.resilience.policy import GiveUp, Policy
from leadsman.settings.sources import RETRY_PREFIX, retry_path
from leadsman.wording import told

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("leadsman.retry")


class Retrying:
    """A policy, or the name of one, to be applied to calls. Made by `retrying`."""

    def __init__(self, retry: str | Policy, bounds: dict[str, Any]) -> None:
        self._retry = retry
        self._bounds = bounds

    def __call__(self, function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        """Decorate an async function."""
        if not callable(function):
            raise InvalidType(f"{function!r} is no function; write @retrying('api') above one")

        @functools.wraps(function)
        async def repeated(*args: P.args, **kwargs: P.kwargs) -> T:
            return await self.call(function, *args, **kwargs)

        return repeated

    async def call(self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call an async function until it succeeds or the policy gives up.

        Raises:
            Exception: what the last call raised, with its own cause.
            ConfigurationError: no policy has that name, or the environment says what makes no sense.
        """
        policy, name = self._policy(), getattr(function, "__qualname__", repr(function))
        family = self._retry if isinstance(self._retry, str) else "policy"
        state, attempt, began = policy.start(), 0, asyncio.get_running_loop().time()
        while True:
            attempt += 1
            logger.debug("%s: call %d (%s)", name, attempt, family)
            try:
                value = await function(*args, **kwargs)
            except Exception as error:
                task = asyncio.current_task()
                if task is not None and task.cancelling():  # clean-up made another error of the cancellation
                    raise asyncio.CancelledError from error
                facts = {"verb": "adhoc", "family": family, "handler": name}
                elapsed = asyncio.get_running_loop().time() - began
                failure = Failure(error, facts, 0, elapsed, attempt - 1, False, _faulty)
                state, verdict = policy.step(state, failure, random.random)
                if isinstance(verdict, GiveUp):
                    logger.warning("%s: gave up after %d calls (%s): %s", name, attempt, verdict.reason, told(error))
                    raise
                kind = type(error).__name__
                logger.warning(
                    "%s: call %d failed: %s: %s; again in %.1f s", name, attempt, kind, told(error), verdict.delay
                )
            else:
                if attempt > 1:
                    logger.info("%s: succeeded at call %d", name, attempt)
                return value
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
    """Retries as a decorator, or for ``retrying(…).call(function, …)``.

    Args:
        retry: a family (``worker``, ``storage``, ``scheduler``, ``api``, ``ble``, ``serial``, ``http``, ``caldav``), a named
            policy, or a policy of the algebra.
        max_attempts: calls at the most, the first one included, in place of the family's.
        min_wait: the shortest wait, likewise.
        max_wait: the longest one.

    Raises:
        InvalidType: `retry` is neither.
    """
    if not isinstance(retry, str | Policy):
        raise InvalidType(f"retry is {retry!r}; write a name such as 'api', or a policy; the function comes after it")
    bounds = {"max_attempts": max_attempts, "min_wait": min_wait, "max_wait": max_wait}
    if isinstance(retry, Policy) and any(bound is not None for bound in bounds.values()):
        raise InvalidType(
            "a policy says itself how often and how soon; max_attempts, min_wait and max_wait are for families"
        )
    return Retrying(retry, bounds)


async def execute_with_retry(
    function: Callable[..., Awaitable[T]], *args: Any, retry: str | Policy = "worker", **kwargs: Any
) -> T:
    """Call ``function(*args, **kwargs)`` until it succeeds or the policy gives up; see `retrying` for what `retry` may be.

    Raises:
        Exception: what the last call raised.
        ConfigurationError: no policy has that name.
    """
    return await retrying(retry).call(function, *args, **kwargs)


def retry_worker_operation(**bounds: Any) -> Retrying:
    """`retrying` with the family ``worker``: work that may be done twice."""
    return retrying("worker", **bounds)


def retry_storage_operation(**bounds: Any) -> Retrying:
    """`retrying` with the family ``storage``: files and databases nearby, often and soon."""
    return retrying("storage", **bounds)


def retry_scheduler_operation(**bounds: Any) -> Retrying:
    """`retrying` with the family ``scheduler``: handing work over to a broker."""
    return retrying("scheduler", **bounds)


def retry_api_call(**bounds: Any) -> Retrying:
    """`retrying` with the family ``api``: calls to services far away."""
    return retrying("api", **bounds)


def _faulty(strategy: object, error: Exception) -> None:
    logger.error("%r failed; the default backoff is used instead: %s", strategy, told(error))


def _of_environment() -> Catalogue:
    """The families, for whoever runs no app."""
    section: dict[str, dict[str, Any]] = {}
    origin = {}
    for name, value in os.environ.items():
        if name.startswith(RETRY_PREFIX):
            path = retry_path(name)
            section.setdefault(path[1], {})["".join(path[2:])] = value
            origin[path] = f"environment {name}"
    return Catalogue(section, origin)
