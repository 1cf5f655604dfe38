"""The threads of plain ``def`` handlers: taken for one call, and used again.

::

    taken ─── the call ───▶ given back: to the next that waits, or free ─── IDLE ───▶ ended
      │
      ╰─ the call hangs: its caller gives up, and the thread stays taken until the call ends

All of it but the calls themselves takes place on the event loop.
"""

import asyncio
import contextvars
import functools
import queue
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

from leadsman.core.loop.durations import human
from leadsman.core.loop.threads import begin, count, end_of, wake
from leadsman.errors import DeviceUnavailable, NoFreeThread

AT_ONCE = 4
"""Threads that make calls which began less than `FREE_THREAD_WAIT` seconds ago. Many short calls of one moment share
them."""
FREE_THREAD_WAIT = 0.02
"""Seconds that a call waits for those threads. Then up to `AT_ONCE` further ones are started."""
IDLE = 600.0
"""Seconds without a call, after which a thread of `ThreadPool` ends, unless it is the last one without a call. Longer
than most intervals: a thread that ends before each call costs virtual time twice what the call does."""
_ROUNDING = 0.001
"""Seconds. What is due no later than this is due now."""
_NAMED = 3
"""Holders of threads that an error names."""

T = TypeVar("T")


class Holder(Protocol):
    """Who makes calls in a thread of `ThreadPool`."""

    @property
    def name(self) -> str:
        """For the errors of those that wait for a thread."""
        ...


class _Job(NamedTuple):
    """A call that a thread makes, and the future of its caller."""

    call: Callable[[], Any]
    future: asyncio.Future[Any]


class TakenThread:
    """One daemon thread of `ThreadPool`. Each taker makes one call, which gives it back when it ends."""

    __slots__ = ("_jobs", "_loop", "_thread", "_threads", "holder", "running", "since")

    def __init__(self, threads: "ThreadPool", loop: asyncio.AbstractEventLoop, name: str) -> None:
        self.holder: Holder | None = None
        """Who has taken it."""
        self.running = False
        """Whether a call is under way."""
        self.since = 0.0
        """When it was taken, or given back; seconds of the loop."""
        self._threads = threads
        self._loop = loop
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"leadsman {name}", daemon=True)
        begin(self._thread)

    @property
    def identifier(self) -> int | None:
        """The result of `threading.get_ident` in it."""
        return self._thread.ident

    def run(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Make the call, with the caller's context variables. Cancelling the future does not end the call."""
        future: asyncio.Future[T] = self._loop.create_future()
        self.running = True
        count(+1)
        self._jobs.put(_Job(functools.partial(contextvars.copy_context().run, call), future))
        return future

    def end(self) -> None:
        """End the thread, after the call under way."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            value, error = end_of(job.call)
            try:
                wake(self._loop.call_soon_threadsafe, self._ended, job.future, value, error)
            except RuntimeError:  # the loop is closed: nobody takes this thread again
                return
            del job, value, error  # a thread without a call keeps nothing alive

    def _ended(self, future: asyncio.Future[Any], value: object, error: BaseException | None) -> None:
        self.running = False
        if not future.done():  # else the caller has stopped waiting
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)
        self._threads.give_back(self)


class ThreadPool:
    """Threads that calls of one event loop share: each call takes one for itself, and waits if there is none.

    Threads are started as they are needed: one that is free is used again, and a call for which none is free after
    `FREE_THREAD_WAIT` seconds gets a new one. A call that hangs keeps its thread. Its place among the `most` is free
    again once it ends.

    Args:
        name: of the threads, and in errors.
        most: how many there are at once.
    """

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._all: set[TakenThread] = set()
        self._free: list[TakenThread] = []  # the one that was given back last is taken first, so that others may end
        self._waiting: dict[asyncio.Future[TakenThread], float] = {}  # since when
        self._growth: asyncio.TimerHandle | None = None
        self._clearance: asyncio.TimerHandle | None = None
        self._stopped = False

    def __len__(self) -> int:
        return len(self._all)

    async def acquire(self, holder: Holder, limit: float) -> TakenThread:
        """Take a thread: at once if there is one, else in the order of the requests.

        Raises:
            NoFreeThread: there was none within `limit` seconds. The message names their holders.
        """
        thread = None if self._waiting else self._free.pop() if self._free else self._first()
        if thread is None:
            thread = await self._turn(limit)
        thread.holder, thread.since = holder, self._loop.time()
        return thread

    def give_back(self, thread: TakenThread) -> None:
        """Let others have the thread."""
        thread.holder, thread.since = None, self._loop.time()
        if self._waiting:
            self._grant(thread)
        elif self._stopped:
            self._end(thread)
        else:
            self._free.append(thread)
            self._clear_later()

    def stop(self) -> None:
        """End the threads; those that have a call end after it."""
        self._stopped = True
        for timer in (self._growth, self._clearance):
            if timer is not None:
                timer.cancel()
        while self._free:
            self._end(self._free.pop())

    async def _turn(self, limit: float) -> TakenThread:
        waiter: asyncio.Future[TakenThread] = self._loop.create_future()
        self._waiting[waiter] = self._loop.time()
        self._grow_later()
        timer = self._loop.call_later(limit, self._refuse, waiter, limit)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:  # granted in the same turn
                self.give_back(waiter.result())
            raise
        finally:
            timer.cancel()
            self._waiting.pop(waiter, None)

    def _first(self) -> TakenThread | None:
        """A new thread for a call that has not waited; None if it is to wait for those that have just begun."""
        now = self._loop.time()
        brisk = sum(thread.holder is not None and now - thread.since < FREE_THREAD_WAIT for thread in self._all)
        return self._start() if brisk < AT_ONCE else None

    def _start(self) -> TakenThread | None:
        """A new thread; None if there may be no further one."""
        if len(self._all) >= self._most:
            return None
        try:
            thread = TakenThread(self, self._loop, self._name)
        except DeviceUnavailable:  # the system cannot start another thread
            return None
        self._all.add(thread)
        return thread

    def _grant(self, thread: TakenThread) -> None:
        waiter = next(iter(self._waiting))
        del self._waiting[waiter]
        if waiter.done():  # cancelled, in the same turn
            self.give_back(thread)
        else:
            waiter.set_result(thread)

    def _grow_later(self, soonest: float = 0.0) -> None:
        """Start threads when the first of those that wait has done so for `FREE_THREAD_WAIT` seconds, in `soonest`
        seconds at the earliest."""
        if self._growth is None and self._waiting and len(self._all) < self._most and not self._stopped:
            due = max(soonest, next(iter(self._waiting.values())) + FREE_THREAD_WAIT - self._loop.time())
            self._growth = self._loop.call_later(due, self._grow)

    def _grow(self) -> None:
        self._growth = None
        ripe = self._loop.time() - FREE_THREAD_WAIT + _ROUNDING
        for since in list(self._waiting.values())[:AT_ONCE]:
            if since > ripe or (thread := self._start()) is None:
                break
            self.give_back(thread)
        self._grow_later(FREE_THREAD_WAIT)

    def _refuse(self, waiter: asyncio.Future[TakenThread], limit: float) -> None:
        self._waiting.pop(waiter, None)
        if not waiter.done():
            waiter.set_exception(
                NoFreeThread(f"no thread of {self._name} was free within {human(limit)}{self._held()}")
            )

    def _held(self) -> str:
        """Who has the threads, those that have one for the longest time first."""
        now = self._loop.time()
        held = sorted((thread.since, thread.holder.name) for thread in self._all if thread.holder is not None)
        if not held:  # not one could be started
            return ": the system cannot start another thread"
        names = ", ".join(f"{name} (for {human(round(now - since, 1))})" for since, name in held[:_NAMED])
        others = f" and {len(held) - _NAMED} others" if len(held) > _NAMED else ""
        which = "it is" if len(held) == 1 else f"all {len(held)} are"
        return f": {which} busy with {names}{others}; set a timeout on the blocking calls there"

    def _clear_later(self) -> None:
        if self._clearance is None and len(self._free) > 1:
            due = max(0.0, self._free[0].since + IDLE - self._loop.time())
            self._clearance = self._loop.call_later(due, self._clear)

    def _clear(self) -> None:
        """End threads that had no call for `IDLE` seconds, but one."""
        self._clearance = None
        ripe = self._loop.time() - IDLE + _ROUNDING
        while len(self._free) > 1 and self._free[0].since <= ripe:
            self._end(self._free.pop(0))
        self._clear_later()

    def _end(self, thread: TakenThread) -> None:
        self._all.discard(thread)
        thread.end()
