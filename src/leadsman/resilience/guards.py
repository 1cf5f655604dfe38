"""The guards of a call, composed once: each takes a call and gives a call.

::

    slow watch ─ bus lock ─ thread ─ deadline ─ call

The lock is waited for before the deadline begins, so the time in the queue is not part of the timeout. The watch is
outside of both, so that time counts as time of the call. A plain ``def`` handler also waits for its thread before the
deadline. That time is part of neither, since handlers that have nothing to do with this one decide about it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol, TypeVar

from leadsman.resilience.circuit import SharedCircuit
from leadsman.resilience.deadline import Deadline
from leadsman.resilience.decision import RetryTokenBucket
from leadsman.resilience.environment import Abandons, Environment

# The lock of a shared bus, such as a serial line: one call at a time, in the order of the requests.

T = TypeVar("T")


class BusLock:
    """A lock that can be taken away from a call that does not end."""

    __slots__ = ("_holder", "_lock")

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._holder: object | None = None

    async def take(self, holder: object) -> None:
        """Wait for the lock."""
        await self._lock.acquire()
        self._holder = holder

    def give_back(self, holder: object) -> None:
        """Release the lock. Nothing happens if `holder` does not hold it, or no longer holds it."""
        if self._holder is holder:
            self._holder = None
            self._lock.release()


def in_turn(call: Callable[[], Awaitable[T]], lock: BusLock, holder: object) -> Callable[[], Awaitable[T]]:
    """The call, made while `holder` holds the lock. To abandon a call that does not end, give its lock back."""

    async def locked() -> T:
        await lock.take(holder)
        try:
            return await call()
        finally:
            lock.give_back(holder)

    return locked


def watch_call(
    call: Callable[[], Awaitable[T]],
    limit: float,
    monotonic: Callable[[], float],
    on_slow: Callable[[], None],
    excused: Callable[[], float] = float,
) -> Callable[[], Awaitable[T]]:
    """The call; `on_slow` is called before it returns if it took longer than `limit` seconds.

    Args:
        call: the call to watch. What it waits for is part of its time, such as the lock of a bus.
        limit: seconds.
        monotonic: the clock.
        on_slow: called after a slow call that succeeded. A call that fails counts as failed anyway.
        excused: seconds of the call that just ended which are not its own, such as its wait for a thread.
    """

    async def timed() -> T:
        began = monotonic()
        result = await call()
        if monotonic() - began - excused() > limit:
            on_slow()
        return result

    return timed


class SharedGuards(NamedTuple):
    """The guards that one handler shares with others."""

    circuit: SharedCircuit | None = None
    tokens: RetryTokenBucket | None = None


NO_SHARED_GUARDS = SharedGuards()
"""No shared guards, as for most handlers."""


class SlowWatch(NamedTuple):
    """Calls `on_slow` after a call that took longer than `limit` seconds."""

    limit: float
    on_slow: Callable[[], None]


class ThreadGuard(Protocol):
    """Waits for a thread before each call."""

    waited: float
    """Seconds that the call under way waited for its thread."""

    def identifier(self) -> int | None:
        """The identifier of the thread in which the call runs, from `threading.get_ident`; None while it runs in
        none."""
        ...

    def in_thread(self, call: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
        """The call, made while it has a thread."""
        ...


def guard_call(
    call: Callable[[], Awaitable[T]],
    caller: Abandons,
    environment: Environment,
    *,
    timeout: float | None,
    bus_lock: BusLock | None,
    thread: ThreadGuard | None = None,
    watch: SlowWatch | None = None,
) -> Callable[[], Awaitable[T]]:
    """The call inside its guards. A guard that is None is left out, and costs nothing.

    Args:
        call: a coroutine function without arguments.
        caller: holds the lock, and is informed of a call that does not end. It then gives the lock back.
        environment: timers and clock.
        timeout: seconds for the call, once it has the lock.
        bus_lock: the lock of the bus that the call shares with others.
        thread: waits for the thread of a plain ``def`` handler.
        watch: notices slow calls.
    """
    if timeout is not None:
        call = Deadline(call, timeout, environment, caller, None if thread is None else thread.identifier).call
    if thread is not None:
        call = thread.in_thread(call)
    if bus_lock is not None:
        call = in_turn(call, bus_lock, caller)
    if watch is not None:
        excused = float if thread is None else lambda: thread.waited
        call = watch_call(call, watch.limit, environment.clock.monotonic, watch.on_slow, excused)
    return call
