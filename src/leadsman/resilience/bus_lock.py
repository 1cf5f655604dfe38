"""The lock of a shared bus, such as a serial line: one call at a time, in the order of the requests."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

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
