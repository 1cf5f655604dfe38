"""The timers: one heap for everything that is due, such as polls, retries and deadlines.

The loop's own timers cost an object and a Python comparison each; a thousand sleeping handlers cost a thousand tasks.
Here a due time is rounded up to a slot, and a slot is one entry of the heap, however many alarms it holds. With 200
devices at 1 Hz, rounding reduces CPU time by a factor of eight, compared with single timers spread over the second.

Slots are counted from the moment when the timers were made, and handlers start at that moment too. So an interval that
is a multiple of the slot is met exactly, not 25 ms late on average.

In one turn of the event loop at most `BATCH` alarms ring. Between two turns the loop reads and writes its sockets, so a
thousand alarms that are due at once do not keep the connection to the broker waiting. If alarms have been due without a
break for `BEHIND` seconds, the machine is too slow for what it is asked. Then, while the results of earlier alarms pile
up, each batch is followed by a pause as long as the batch took: half of the time is left for the connection.
"""

import asyncio
import math
from collections.abc import Callable
from contextvars import copy_context
from heapq import heappop, heappush
from itertools import islice
from typing import Protocol

from leadsman.core.events import AppFault
from leadsman.core.loop.clock import system_clock
from leadsman.core.loop.slots import BATCH, COARSE, EPSILON, FINE

BEHIND = 0.05
"""Seconds that alarms may be late until they leave half of the time to others; also the longest pause between two
batches."""


class Alarm(Protocol):
    """Something that can be due. Alarms are compared by identity; one may be in a slot once."""

    def ring(self, now: float) -> None:
        """The alarm is due; `now` is monotonic seconds. Must not block. An exception is reported as a fault of the
        app."""
        ...


class Limit(Protocol):
    """Something that begins now, and needs an alarm only if it lasts longer than this turn of the event loop. The
    deadlines of calls are in a room above this one."""

    task: asyncio.Task[object] | None
    """What is limited; None once it is over."""

    def arm(self) -> None:
        """Add the alarm. May be called again."""
        ...


class Timers:
    """Rings alarms when they are due, many per wake-up, in the context in which the timers were made.

    Args:
        loop: the event loop.
        emit: takes the exceptions of alarms, as faults of the app.
        piled_up: whether what alarms caused, such as messages, waits for time of the event loop.
        permitted: called before alarms ring. If it returns false, none of them rings any more; see `stop`.
    """

    __slots__ = (
        "_begun",
        "_behind_since",
        "_context",
        "_emit",
        "_handle",
        "_heap",
        "_loop",
        "_monotonic",
        "_permitted",
        "_piled_up",
        "_ringing",
        "_slots",
        "_wakes_at",
        "origin",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        emit: Callable[[AppFault], None],
        piled_up: Callable[[], bool] = lambda: True,
        permitted: Callable[[], bool] | None = None,
    ) -> None:
        self._loop = loop
        self._monotonic = system_clock(loop).monotonic
        self._emit = emit
        self._piled_up = piled_up
        self._permitted = permitted
        self._context = copy_context()
        self._slots: dict[int, dict[Alarm, None]] = {}
        self._heap: list[int] = []
        self._handle: asyncio.Handle | None = None
        self._wakes_at = math.inf
        self._behind_since = math.inf
        self._ringing = False
        self._begun: dict[Limit, None] = {}
        self.origin = self._monotonic()
        """Where the slots are counted from, monotonic seconds."""

    def add(self, when: float, alarm: Alarm) -> int:
        """Ring `alarm` at the first slot at or after `when`, monotonic seconds. Returns the slot, for `remove`."""
        slot = math.ceil((when - self.origin) / FINE - EPSILON)
        if when - self._monotonic() > 1.0:
            slot = -(-slot // COARSE) * COARSE
        alarms = self._slots.get(slot)
        if alarms is None:
            self._slots[slot] = {alarm: None}
            heappush(self._heap, slot)
            if slot < self._wakes_at:
                self._wake_for(slot)
        else:
            alarms[alarm] = None
        return slot

    def remove(self, slot: int, alarm: Alarm) -> None:
        """Take an alarm back. One that has rung already, or was never there, changes nothing."""
        alarms = self._slots.get(slot)
        if alarms is not None:
            alarms.pop(alarm, None)

    def limit(self, limit: Limit) -> None:
        """Arm `limit` at the end of this batch if alarms ring now, and in the next turn of the event loop otherwise:
        most of what begins is over by then."""
        if not (self._begun or self._ringing):
            self._loop.call_soon(self._arm, context=self._context)
        self._begun[limit] = None

    def first_slot(self, offset: float) -> float:
        """The first coarse slot at or after `offset` seconds from the origin, in monotonic seconds. An alarm that
        starts at a slot is never late."""
        return self.origin + math.ceil(offset / (FINE * COARSE) - EPSILON) * FINE * COARSE

    async def sleep(self, delay: float) -> None:
        """Sleep `delay` seconds, rounded up to a slot, without a timer or a task of one's own."""
        sleeper = _Sleeper(self._loop.create_future())
        slot = self.add(self._monotonic() + delay, sleeper)
        try:
            await sleeper.future
        finally:
            self.remove(slot, sleeper)

    def stop(self) -> None:
        """Ring no alarm any more."""
        if self._handle is not None:
            self._handle.cancel()
        for alarms in self._slots.values():
            alarms.clear()
        self._slots.clear()
        self._heap.clear()
        self._begun.clear()
        self._wakes_at = -math.inf

    def _wake_for(self, slot: int) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._wakes_at = slot
        self._handle = self._loop.call_at(self.origin + slot * FINE, self._wake, context=self._context)

    def _wake(self) -> None:
        self._handle, self._wakes_at = None, -math.inf  # an alarm added while others ring must not arm the loop
        if self._permitted is not None and not self._permitted():
            self.stop()
            return
        now = self._monotonic()
        reached = math.floor((now - self.origin) / FINE + EPSILON)
        self._ring_batch(reached)
        if self._first() <= reached:
            self._behind_since = min(self._behind_since, now)
            self._handle = self._loop.call_soon(self._go_on, now, context=self._context)
            return
        self._wakes_at = self._behind_since = math.inf
        if self._heap:
            self._wake_for(self._heap[0])

    def _ring_batch(self, reached: int) -> None:
        """Ring the alarms that are due, at most `BATCH` of them."""
        room, before = BATCH, -math.inf
        self._ringing = True
        while room and before < self._first() <= reached:  # one that is set back to the past waits for the next turn
            before = self._heap[0]
            alarms = self._slots[self._heap[0]]
            for alarm in list(islice(alarms, room)):
                room -= 1
                if alarm in alarms:  # not taken back by one that rang before it
                    del alarms[alarm]
                    try:
                        alarm.ring(self._monotonic())
                    except KeyboardInterrupt:
                        raise
                    except BaseException as error:  # as on the event bus
                        self._emit(AppFault(f"timer of {alarm!r}", error))
        self._ringing = False
        self._arm()

    def _arm(self) -> None:
        """Arm what began, unless it is over."""
        for limit in self._begun:
            if limit.task is not None:
                limit.arm()
        self._begun.clear()

    def _go_on(self, began: float) -> None:
        """Ring the next batch. What the last one started at `began` has run meanwhile, up to its first wait."""
        now = self._monotonic()
        if now - self._behind_since < BEHIND or not self._piled_up():
            self._wake()
        else:
            pause = min(now - began, BEHIND)
            self._handle = self._loop.call_at(now + pause, self._wake, context=self._context)

    def _first(self) -> float:
        """The first slot that has alarms; infinity if there is none. Slots whose alarms were all taken back are
        deleted."""
        heap, slots = self._heap, self._slots
        while heap and not slots[heap[0]]:
            del slots[heappop(heap)]
        return heap[0] if heap else math.inf


class _Sleeper:
    __slots__ = ("future",)

    def __init__(self, future: asyncio.Future[None]) -> None:
        self.future = future

    def ring(self, now: float) -> None:
        if not self.future.done():
            self.future.set_result(None)
