"""Runs calls in tasks of their own, so that it is clear which task was cancelled, and by which code.

A task that was cancelled once may report that for ever: `asyncio.TaskGroup` of Python 3.11 and 3.12 does not take its
own
cancellation back, and neither does a timeout written by hand. So `Task.cancelling` of a task that runs foreign code
proves
nothing. A task that only waits for such a call in another task was cancelled if, and only if, it reports so.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Outcome(NamedTuple, Generic[T]):
    """How a call ended: with `value`, or with `error`."""

    value: T | None
    error: BaseException | None


def begin(call: Callable[[], Awaitable[T]]) -> asyncio.Task[Outcome[T]]:
    """Call an async function in a task of its own. The task raises nothing: its result says how the call ended."""
    return asyncio.get_running_loop().create_task(_caught(call))


async def end(task: asyncio.Task[Outcome[T]]) -> Outcome[T]:
    """Wait for what `begin` began. A `CancelledError` in the outcome came out of the call by itself.

    Raises:
        CancelledError: the task that waits was cancelled, and so the call too, which then gave no value.
    """
    waiting = asyncio.current_task()
    assert waiting is not None  # only tasks wait
    before = waiting.cancelling()
    try:
        outcome = await task
    except asyncio.CancelledError as error:  # before the call had begun
        outcome = Outcome[T](None, error)
    if outcome.error is not None and waiting.cancelling() > before:
        raise asyncio.CancelledError from outcome.error
    return outcome


async def outcome_of(call: Callable[[], Awaitable[T]]) -> Outcome[T]:
    """Call an async function in a task of its own, and wait for it; see `end`."""
    return await end(begin(call))


def forget_cancellations() -> None:
    """Take back what cancellations somebody else's code has left behind in the current task."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()


async def _caught(call: Callable[[], Awaitable[T]]) -> Outcome[Any]:
    try:
        return Outcome(await call(), None)
    except BaseException as error:  # a task that raised SystemExit would end the loop
        return Outcome(None, error)
