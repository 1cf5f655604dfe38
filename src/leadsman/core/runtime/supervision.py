"""Keeps the tasks of an app running, and ends them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from leadsman.core.events import AppFault
from leadsman.core.loop.tasks import outcome_in_own_task
from leadsman.core.resilience.backoff import ExponentialBackoff
from leadsman.core.resilience.environment import Environment

RESTARTING = ExponentialBackoff(1.0, 60.0)
"""The waits between the failure of a part of the app and its next run."""


async def keep_running(where: str, run: Callable[[], Awaitable[object]], environment: Environment) -> None:
    """Run a part of the app for as long as the app runs. If it fails, that is reported, and it is restarted after a
    while."""
    failures, clock = 0, environment.clock
    while True:
        began = clock.monotonic()
        error = (await outcome_in_own_task(run)).error
        if error is not None:
            failures = failures + 1 if clock.monotonic() - began < RESTARTING.max_delay else 1
            environment.events.emit(AppFault(where, error))
        await environment.timers.sleep(RESTARTING.delay(max(1, failures)))


async def cancel(tasks: Sequence[asyncio.Task[None]], grace: float) -> int:
    """Cancel tasks and wait at most `grace` seconds for them. Returns how many are still alive."""
    for task in tasks:
        task.cancel()
    if not tasks:
        return 0
    _, pending = await asyncio.wait(tasks, timeout=grace)
    return len(pending)


async def close_all(tasks: Sequence[asyncio.Task[None]], timeout: float, environment: Environment) -> int:
    """Wait at most `timeout` seconds for tasks that close something, and report those that fail. Returns how many are
    still alive."""
    if not tasks:
        return 0
    done, pending = await asyncio.wait(tasks, timeout=timeout)
    for task in done:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            environment.events.emit(AppFault("closing a part of the app", error))
    return len(pending)
