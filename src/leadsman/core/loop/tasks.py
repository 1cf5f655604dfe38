"""Calls a user's code and turns whatever it raises into a value, except the cancellation that ends the app.

A task that was cancelled once may report that for ever: `asyncio.TaskGroup` of Python 3.11 and 3.12 does not take its
own cancellation back, and neither does a timeout written by hand. So `Task.cancelling` of a task that runs foreign code
proves nothing. There are two ways to detect whether a cancellation is the app's own. `outcome` asks the app whether it
stops. `outcome_in_own_task` runs the call in another task and only waits for it: a task that only waits was cancelled
if, and only if, it reports so.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")

_AT_ONCE: dict[str, Any] = {"eager_start": True} if sys.version_info >= (3, 12) else {}


class Outcome(NamedTuple, Generic[T]):
    """How a call ended: with `value`, or with `error`."""

    value: T | None
    error: BaseException | None


async def outcome(call: Awaitable[T], stopping: asyncio.Event) -> Outcome[T]:
    """Await a user's code in the current task. `SystemExit` and `KeyboardInterrupt` become values as well: a handler
    does not end the process.

    Args:
        call: what to await.
        stopping: set when the app stops. A cancellation before that came out of the code by itself.

    Raises:
        CancelledError, GeneratorExit: see `user_error`.
    """
    loop = asyncio.get_running_loop()
    try:
        return Outcome(await call, None)
    except BaseException as error:
        return Outcome(None, user_error(error, stopping, loop))


def user_error(error: BaseException, stopping: asyncio.Event, loop: asyncio.AbstractEventLoop) -> BaseException:
    """The exception of a user's code in the current task, as a value: the ``except`` clause of `outcome`, for a caller
    that cannot afford a coroutine more.

    Raises:
        CancelledError: the app stops; also where clean-up made another error of the cancellation.
        GeneratorExit: the event loop has ended.
    """
    if isinstance(error, GeneratorExit) and not loop.is_running():
        raise error
    if stopping.is_set() and isinstance(error, asyncio.CancelledError):
        raise error
    if stopping.is_set() and isinstance(error, Exception):
        raise asyncio.CancelledError from error
    forget_cancellations()
    return error


def begin(call: Callable[[], Awaitable[T]]) -> asyncio.Task[Outcome[T]]:
    """Call an async function in a task of its own. The task raises nothing: its result shows how the call ended."""
    return asyncio.get_running_loop().create_task(_catch(call))


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


async def outcome_in_own_task(call: Callable[[], Awaitable[T]]) -> Outcome[T]:
    """Call an async function in a task of its own, and wait for it; see `end`."""
    return await end(begin(call))


def begin_at_once(coroutine: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> asyncio.Task[T]:
    """Run a coroutine in a task of its own, and at once up to its first wait. One that never waits is done when this
    returns, and costs the loop no turn. On Python 3.11 it starts in the next turn instead."""
    return asyncio.Task(coroutine, loop=loop, **_AT_ONCE)


@contextmanager
def in_the_next_turn() -> Iterator[None]:
    """In this block, `begin_at_once` starts coroutines in the next turn of the loop on every version of Python, so that
    all of them do things in the same order."""
    before = dict(_AT_ONCE)
    _AT_ONCE.clear()
    try:
        yield
    finally:
        _AT_ONCE.update(before)


def forget_cancellations() -> None:
    """Take back the cancellations that a user's code has left behind in the current task."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()


async def _catch(call: Callable[[], Awaitable[T]]) -> Outcome[T]:
    try:
        return Outcome(await call(), None)
    except BaseException as error:  # a task that raised SystemExit would end the loop
        return Outcome(None, error)
