"""A bounded queue between a device library with callbacks and a source that yields readings."""

import asyncio
import contextlib
import logging
import math
import time
from collections import deque
from typing import Generic, Literal, TypeVar

from leadsman.errors import InvalidType, InvalidValue
from leadsman.text import count_noun, log_fields

SIZE = 1000
WARN_AGAIN = 60.0
"""Seconds between two log lines about dropped items."""

T = TypeVar("T")

logger = logging.getLogger("leadsman")

_waiting: set[asyncio.Task[object]] = set()


def waits(task: "asyncio.Task[object]") -> bool:
    """Whether a task waits for an item of a `Buffer`, and for nothing else."""
    return task in _waiting


class Buffer(Generic[T]):
    """A bounded queue. Callbacks add items with `put`, from any thread; a source takes them with ``async for``.

    Args:
        size: how many items it holds, 1 or more.
        when_full: which item is dropped when it is full: ``"drop-oldest"``, or ``"drop-newest"``, the one that arrived
            last.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    def __init__(self, size: int = SIZE, when_full: Literal["drop-oldest", "drop-newest"] = "drop-oldest") -> None:
        if isinstance(size, bool) or not isinstance(size, int):
            raise InvalidType(f"size is {size!r}; write a whole number such as {SIZE}")
        if size < 1:
            raise InvalidValue(f"size is {size}; it must be 1 or more")
        if when_full not in ("drop-oldest", "drop-newest"):
            raise InvalidValue(f"when_full is {when_full!r}; it must be 'drop-oldest' or 'drop-newest'")
        self.dropped = 0
        """Items dropped since the start."""
        self._size = size
        self._drop_oldest = when_full == "drop-oldest"
        self._items: deque[T] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._warned_at = -math.inf

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> None:
        """Add an item. Never blocks, never raises."""
        if len(self._items) >= self._size:
            self._dropped()
            if not self._drop_oldest:
                return
            with contextlib.suppress(IndexError):  # the source was quicker
                self._items.popleft()
        self._items.append(item)
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the app has ended, and a thread has not heard of it
                self._loop.call_soon_threadsafe(self._wake)

    def __aiter__(self) -> "Buffer[T]":
        return self

    async def __anext__(self) -> T:
        while not self._items:
            self._loop = asyncio.get_running_loop()
            self._waiter = self._loop.create_future()
            if self._items:  # a thread was quicker
                break
            task = asyncio.current_task()
            if task is not None:
                _waiting.add(task)
            try:
                await self._waiter
            finally:
                self._waiter = None
                if task is not None:
                    _waiting.discard(task)
        return self._items.popleft()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _dropped(self) -> None:
        self.dropped += 1
        now = time.monotonic()
        if now - self._warned_at >= WARN_AGAIN:
            self._warned_at = now
            logger.warning(
                "A buffer of size %d is full; %s dropped so far, because its source reads too slowly",
                self._size,
                count_noun(self.dropped, "item"),
                extra=log_fields("buffer full", size=self._size, dropped=self.dropped),
            )
