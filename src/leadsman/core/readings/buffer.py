"""A bounded queue between a device library with callbacks and a source that yields readings."""

import asyncio
import contextlib
import logging
import math
import time
from collections import deque
from contextvars import ContextVar
from typing import Generic, Literal, TypeVar

from leadsman.core.loop.durations import whole
from leadsman.core.text import count_noun, log_fields
from leadsman.errors import InvalidValue

SIZE = 1000
WARN_AGAIN = 60.0
"""Seconds between two log lines about dropped items."""

T = TypeVar("T")

logger = logging.getLogger("leadsman")

LASTS: ContextVar[float] = ContextVar("LASTS", default=math.inf)
"""Seconds after which an item is worth nothing to its taker: to a source of events, their expiry."""

_waiting: set[asyncio.Task[object]] = set()


def waits(task: "asyncio.Task[object]") -> bool:
    """Whether a task waits for an item of a `Buffer`, and for nothing else."""
    return task in _waiting


class Buffer(Generic[T]):
    """A bounded queue. Callbacks add items with `put`, from any thread; a source takes them with ``async for``. For a
    source of events, what has waited longer than their expiry is dropped.

    Args:
        size: how many items it holds, 1 or more.
        when_full: which item is dropped when it is full: ``"drop-oldest"``, or ``"drop-newest"``, the one that arrived
            last.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    def __init__(self, size: int = SIZE, when_full: Literal["drop-oldest", "drop-newest"] = "drop-oldest") -> None:
        whole(size, "size", 1, kind=f"write a whole number such as {SIZE}")
        if when_full not in ("drop-oldest", "drop-newest"):
            raise InvalidValue(f"when_full is {when_full!r}; it must be 'drop-oldest' or 'drop-newest'")
        self.dropped = 0
        """Items dropped since the start."""
        self._size = size
        self._drop_oldest = when_full == "drop-oldest"
        self._items: deque[tuple[float | None, T]] = deque()
        """With the time of the loop at which each was added; None if it had none."""
        self._waiter: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._warned_at = -math.inf

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> None:
        """Add an item. Never blocks, never raises."""
        if len(self._items) >= self._size:
            self._dropped(f"A buffer of size {self._size} is full", "its source reads too slowly")
            if not self._drop_oldest:
                return
            with contextlib.suppress(IndexError):  # the source was quicker
                self._items.popleft()
        self._items.append((self._now(), item))
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the app has ended, and a thread has not heard of it
                self._loop.call_soon_threadsafe(self._wake)

    def __aiter__(self) -> "Buffer[T]":
        return self

    async def __anext__(self) -> T:
        while True:
            if not self._items:
                await self._fill()
            at, item = self._items.popleft()
            if at is None or asyncio.get_running_loop().time() - at < LASTS.get():
                return item
            self._dropped("An event in a buffer is too old", "its source did not run, or reads too slowly")

    async def _fill(self) -> None:
        """Wait until there is an item."""
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

    def _now(self) -> float | None:
        """The time of the loop; None in a thread while no source has taken anything."""
        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:
            return None if self._loop is None else self._loop.time()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _dropped(self, what: str, why: str) -> None:
        self.dropped += 1
        now = time.monotonic()
        if now - self._warned_at >= WARN_AGAIN:
            self._warned_at = now
            logger.warning(
                "%s; %s dropped so far, because %s",
                what,
                count_noun(self.dropped, "item"),
                why,
                extra=log_fields("buffer full", size=self._size, dropped=self.dropped),
            )
