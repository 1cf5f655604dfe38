"""The guards of a call, composed once: each takes a call and gives a call.

::

    caller ─ bus lock ─ thread ─ deadline ─ call

The lock is waited for before the deadline begins. An adapter has a lock of its own, a
`leadsman.core.resilience.turns.SharedLine`, which is waited for inside the call; the deadline stands still meanwhile,
since the line knows the caller. A plain ``def`` handler also waits for its thread before the deadline. None of these
waits is part of the timeout, since others decide about them.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple, Protocol, TypeVar

from leadsman.core.resilience.circuit import SharedCircuit
from leadsman.core.resilience.deadline import Deadline
from leadsman.core.resilience.decision import RetryTokenBucket
from leadsman.core.resilience.environment import Abandons, Environment
from leadsman.core.resilience.line import Turn
from leadsman.core.resilience.turns import CALLER, LineUser, SharedLine

T = TypeVar("T")


class BusLock:
    """The line of a group, which a call has from its beginning to its end. It can be taken away from a call that does
    not end."""

    __slots__ = ("_line", "_turns")

    def __init__(self) -> None:
        self._line = SharedLine()
        self._turns: dict[object, Turn] = {}

    @contextlib.asynccontextmanager
    async def turn(self, holder: object) -> AsyncIterator[None]:
        """Wait for the lock, and have it until the end of the context."""
        async with self._line.turn():
            turn = self._line.holder
            if turn is not None:
                self._turns[holder] = turn
            try:
                yield
            finally:
                self._turns.pop(holder, None)

    def give_back(self, holder: object) -> None:
        """Release the lock. Nothing happens if `holder` does not hold it, or no longer holds it."""
        turn = self._turns.pop(holder, None)
        if turn is not None:
            self._line.end(turn, answered=False)


def in_turn(call: Callable[[], Awaitable[T]], lock: BusLock, holder: object) -> Callable[[], Awaitable[T]]:
    """The call, made while `holder` holds the lock. To abandon a call that does not end, give its lock back."""

    async def locked() -> T:
        async with lock.turn(holder):
            return await call()

    return locked


def known_to_lines(call: Callable[[], Awaitable[T]], caller: LineUser) -> Callable[[], Awaitable[T]]:
    """The call, made while lines know whose it is."""

    async def known() -> T:
        before = CALLER.set(caller)
        try:
            return await call()
        finally:
            CALLER.reset(before)

    return known


class SharedGuards(NamedTuple):
    """The guards that one handler shares with others."""

    circuit: SharedCircuit | None = None
    tokens: RetryTokenBucket | None = None


NO_SHARED_GUARDS = SharedGuards()
"""No shared guards, as for most handlers."""


class ThreadGuard(Protocol):
    """Waits for a thread before each call. The threads of handlers are in a room above this one."""

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
    lines: LineUser | None = None,
) -> Callable[[], Awaitable[T]]:
    """The call inside its guards. A guard that is None is left out, and costs nothing.

    Args:
        call: a coroutine function without arguments.
        caller: holds the lock, and is informed of a call that does not end. It then gives the lock back.
        environment: timers and clock.
        timeout: seconds for the call, once it has the lock.
        bus_lock: the lock of the bus that the call shares with others.
        thread: waits for the thread of a plain ``def`` handler.
        lines: how lines know the call; None if it shares none with others.
    """
    if timeout is not None:
        call = deadline = Deadline(call, timeout, environment, caller, None if thread is None else thread.identifier)
        if lines is not None:
            lines.deadline = deadline
    if thread is not None:
        call = thread.in_thread(call)
    if bus_lock is not None:
        call = in_turn(call, bus_lock, caller)
    if lines is not None:
        call = known_to_lines(call, lines)
    return call
