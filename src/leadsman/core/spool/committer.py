"""Decides when the file of the spool writes readings that wait in the outbox, and when it reads them back: the
part in the event loop, with a worker thread that calls the file.

One call at a time is made in the thread. It writes readings that wait, deletes those that arrived, and reads a page.
Nothing here blocks the event loop. While the file cannot be used, the outbox waits in memory, as it does without one;
the file is tried again after `REOPEN_INTERVAL`.
"""

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from leadsman.core.event_bus import EventBus
from leadsman.core.events import Event, LinkUp, MessageDropped, StateFailed, StateWritten
from leadsman.core.loop.clock import Clock
from leadsman.core.loop.threads import Worker
from leadsman.core.mqtt.link import Link
from leadsman.core.mqtt.message_state import Item
from leadsman.core.mqtt.outbox import Dropped, Store
from leadsman.core.spool.backlog import MAX_ROWS, Backlog, Times
from leadsman.core.spool.row import Evicted, Found, Quota, SpoolRow, TopicRows
from leadsman.core.text import count_noun, describe, log_fields
from leadsman.errors import SpoolError, SpoolFull, SpoolLocked, SpoolReplaced, SpoolUnavailable

if TYPE_CHECKING:
    from leadsman.core.spool.file import SpoolFile

DELETE_DELAY = 1.0
"""Seconds after which rows that are no longer needed are deleted, unless something is written earlier."""
LAST_DELETE_DELAY = 0.05
"""The same, where a topic has no other rows. Readings that it sends meanwhile have none. If the app is killed then, the
next life sends the rows again, and the broker keeps the last of them, which is older."""
MAX_DELETED_ROWS = 1000
"""Rows no longer needed that are deleted at once."""
PAGE = 256 * 1024
"""Bytes of rows that are read at once."""
REOPEN_INTERVAL = 30.0
"""Seconds until a file that cannot be used is tried again."""
AGAIN_SOON = 1.0
"""The same for a disk that is full, for a file that another process is about to leave, and for one that was replaced
again."""
LEAVING = 10.0
"""Seconds after the start for which another process that has the file is taken for one that is about to end."""

OPEN_TIMEOUT = 20.0
"""Seconds in which a file must be open. After them readings no longer wait for it: a disk may hang instead of failing.
A million rows take about two seconds, and ten on a machine that does much else."""
CANCEL_TIMEOUT = 0.3
"""Seconds that a cancelled app waits for the call in the thread, so that the next one finds the file closed."""
READINGS_PER_CHECK = 16
"""Readings that arrive between two looks at whether more can be read."""
TIMER_TOLERANCE = 0.001
"""Seconds. A timer of the loop may be that early."""

logger = logging.getLogger("leadsman")
T = TypeVar("T")


class _Call(NamedTuple):
    """The work of the thread in one call."""

    batch: list[Item]
    add: list[SpoolRow]
    delete: list[int]
    buried: list[tuple[Item, str]]
    dead: list[tuple[SpoolRow, str]]
    first: list[int]
    """The rows to read before those that follow."""
    after: int
    page: int
    """How many rows to read; 0 for none."""

    @property
    def changes(self) -> bool:
        """Whether something is to be written or deleted."""
        return bool(self.add or self.delete or self.dead)


NO_CALL = _Call([], [], [], [], [], [], 0, 0)


class _Done(NamedTuple):
    """The result of a call in the thread. With `broken` the file must be opened again."""

    job: _Call
    found: Found | None = None
    topics: dict[str, TopicRows] | None = None
    written: bool = False
    """Whether the rows of the job were written, deleted and buried."""
    evicted: Sequence[Evicted] = ()
    """The rows deleted besides, also if nothing was written."""
    first: Sequence[SpoolRow] = ()
    """The rows that were read before the page."""
    page: list[SpoolRow] | None = None
    taken_at: float | None = None
    """When the first reading that was not read back was taken, epoch seconds."""
    room: int | None = None
    """See `OnDisk`."""
    error: SpoolError | None = None
    broken: bool = False


class Committer:
    """Keeps the file of one running app.

    Args:
        link: whose outbox is kept.
        path: the file.
        quota: how much waits on disk at most.
        clock: the clocks.
        events: takes lost messages, and whether the file can be used.
    """

    def __init__(self, link: Link, path: Path, quota: Quota, clock: Clock, events: EventBus) -> None:
        self.path = path
        self._link = link
        self._clock = clock
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._quota = quota
        self._file: SpoolFile | None = None
        self._worker = Worker("outbox")
        self._open = self._busy = self._closing = False
        self._first = True
        self._due = False
        self._ripe = 0
        self._retry_at = self._reopen_at = -math.inf
        self._began = clock.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._patience: asyncio.TimerHandle | None = None
        self.backlog = Backlog(link.outbox, random.getrandbits(63), self._woken)
        link.outbox.keep(self.backlog)
        events.subscribe(self._observe, readings=False)

    def open(self) -> None:
        """Open the file. The readings of a topic wait until it is known which of them are in it."""
        self._next()

    def write(self, number: int) -> None:
        """Write the readings that wait, up to this number."""
        self._due, self._ripe = True, max(self._ripe, number)
        self._next()

    async def finish(self) -> None:
        """Write all that waits, and close the file."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.wrap_future(self._worker.submit(int))  # after the call that is being made
        if not self._open and self._link.outbox.unkept:
            await self._make(self._job())
        if self._open:
            job = self._job()
            while job.changes:
                await self._make(job)
                job = self._job() if self.backlog.store == "ok" else NO_CALL
        await asyncio.wrap_future(self._worker.submit(self._close))
        self._worker.stop()

    def abandon(self) -> None:
        """Close the file, if `finish` did not, because the app was cancelled."""
        if not self._closing:
            self._closing = True
            with contextlib.suppress(TimeoutError):
                self._worker.submit(self._close).result(CANCEL_TIMEOUT)
            self._worker.stop()

    async def _make(self, job: _Call) -> None:
        self._finished(await asyncio.wrap_future(self._worker.submit(self._do, job, opened=self._open)))

    def _observe(self, event: Event) -> None:
        if isinstance(event, LinkUp):
            self._next()
            self._look_again()

    def _woken(self) -> None:
        """A row is no longer needed. Called for each reading that arrives late."""
        backlog = self.backlog
        if self._timer is None or (backlog.outdated and self._timer.when() > self._loop.time() + LAST_DELETE_DELAY):
            self._wait(LAST_DELETE_DELAY if backlog.outdated else DELETE_DELAY)
        if not self._busy and (backlog.deletes >= MAX_DELETED_ROWS or (backlog.rows and self._may_read())):
            self._next()

    def _may_read(self) -> bool:
        return not self.backlog.deletes % READINGS_PER_CHECK or not self._link.outbox.ready

    def _next(self, *, idle: bool = False) -> None:
        """Make the next call in the thread, if there is something to do."""
        if self._busy or self._closing:
            return
        early = self._clock.monotonic() < self._retry_at
        deletes = self.backlog.deletes
        writes = not early and (not self._open or self._due or deletes >= MAX_DELETED_ROWS or (idle and deletes > 0))
        if writes or self._page():
            self._busy = True
            if not self.backlog.known:
                self._patience = self._loop.call_later(OPEN_TIMEOUT, self._hangs)
            made = self._worker.submit(self._do, self._job() if writes else self._read(), opened=self._open)
            made.add_done_callback(lambda done: self._soon(self._finished, done.result()))

    def _hangs(self) -> None:
        """The file is not open yet: go on in memory. It may still open, some time."""
        self.backlog.give_up()
        self._change("memory", SpoolUnavailable(f"the disk has not answered for {OPEN_TIMEOUT:g} s"))
        self._link.pump()

    def _soon(self, callback: Callable[[T], None], argument: T) -> None:
        """In the thread: make a call in the loop."""
        with contextlib.suppress(RuntimeError):  # the app has ended
            self._loop.call_soon_threadsafe(callback, argument)

    def _page(self) -> int:
        """How many rows to read."""
        if not self._open or self._closing or not self._link.up:
            return 0
        return self.backlog.wanted(self._link.window)

    def _read(self) -> _Call:
        page = self._page()
        return NO_CALL._replace(first=self.backlog.first() if page else [], after=self.backlog.read, page=page)

    def _job(self) -> _Call:
        """The job that is due now."""
        backlog = self.backlog
        if not self._open:
            return NO_CALL._replace(delete=backlog.to_delete())
        now = self._now()
        ripe = self._link.outbox.number if self._closing else self._ripe if self._due else 0
        batch = backlog.batch(ripe)
        self._due = len(batch) == MAX_ROWS
        rows = [backlog.row(item, now) for item in batch]
        buried = backlog.dead_letters()
        dead = [(backlog.row(item, now), why) for item, why in buried]
        job = self._read()._replace(batch=batch, add=rows, buried=buried, dead=dead)
        return job._replace(delete=backlog.to_delete())

    def _do(self, job: _Call, *, opened: bool) -> "_Done":
        """In the thread."""
        done = _Done(job)
        try:
            file = self._spool_file()
            if not opened:
                found = file.open(self._listed)
                gone = file.write((), job.delete) if job.delete and not self._first else ()
                return _Done(job, found, file.by_topic(), evicted=gone, taken_at=file.taken_at(0))
            if job.changes:
                done = self._write(file, job)
            first = file.read_some(job.first) if job.first else []
            page = file.read(job.after, job.page, PAGE) if job.page else None
            return done._replace(first=first, page=page, taken_at=file.taken_at(page[-1].id if page else job.after))
        except SpoolError as error:
            return done._replace(error=error, broken=True)
        except Exception as error:  # a fault of ours, or an unknown kind of damage
            return done._replace(error=SpoolUnavailable(f"{type(error).__name__}: {describe(error)}"), broken=True)

    def _listed(self, topics: frozenset[str]) -> None:
        """In the thread: the file is opened, and has rows of these topics at most."""
        self._soon(self._list_topics, topics)

    def _list_topics(self, topics: frozenset[str]) -> None:
        self.backlog.list_topics(topics)
        self._link.pump()

    def _write(self, file: "SpoolFile", job: _Call) -> "_Done":
        """In the thread. If the disk is full, delete alone, which a disk that is almost full allows."""
        try:
            gone = file.write(job.add, job.delete, job.dead)
            return _Done(job, written=True, evicted=gone, room=file.room)
        except SpoolFull as error:
            evicted = file.write((), job.delete) if job.add and job.delete else ()
            return _Done(job, evicted=evicted, error=error)

    def _spool_file(self) -> "SpoolFile":
        """In the thread, since the import of SQLite takes a while."""
        if self._file is None:
            from leadsman.core.spool.file import SpoolFile

            self._file = SpoolFile(self.path, self._quota, self._clock.wall)
        return self._file

    def _close(self) -> None:
        """In the thread."""
        if self._file is not None:
            self._file.close()

    def _finished(self, done: "_Done") -> None:
        """A call in the thread was made."""
        self._busy = False
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        if done.room is not None:
            self.backlog.room = done.room
        if done.written or (done.evicted and done.found is None):
            self._report(self.backlog.written(done.job.batch if done.written else (), done.evicted))
        if done.error is not None and not done.written:
            self.backlog.failed(done.job.batch, done.job.delete, done.job.buried)
        if done.error is None:
            self.backlog.taken_at = done.taken_at
            self._succeeded(done)
        elif done.broken:
            self._broken(done.error)
        else:
            self._change("full", done.error)
            self._retry(AGAIN_SOON)
        if done.page is not None:
            self._report(self.backlog.page(done.page, self._now(), done.first))
        if done.page is not None or done.found is not None or done.broken:
            self._link.pump()
        self._next()
        self._look_again()

    def _look_again(self) -> None:
        """See again soon whether rows can be deleted, or read back."""
        due = self.backlog.deletes or (self.backlog.rows and self._link.up)
        if due and self._timer is None and not self._busy and not self._closing:
            self._wait(LAST_DELETE_DELAY if self.backlog.outdated else DELETE_DELAY)

    def _succeeded(self, done: "_Done") -> None:
        if done.found is not None:
            next_row = done.found.next_id if self._first else None
            self._report(self.backlog.begin(done.topics or {}, next_row, done.evicted))
            self._open, self._first = True, False
            self._ripe = self._link.outbox.number
            if done.found.rows or done.found.quarantined:
                self._log_found(done.found)
        elif not done.written:
            return
        self._retry_at = -math.inf
        self._change("ok", None)

    def _broken(self, error: SpoolError) -> None:
        """The file cannot be used as it is."""
        self._open = False
        if isinstance(error, SpoolReplaced):
            self._first = self._due = True
            now = self._clock.monotonic()
            if now < self._reopen_at:
                self._retry(AGAIN_SOON)
            self._reopen_at = max(now, self._retry_at) + AGAIN_SOON
            return
        self.backlog.give_up()
        full, locked = isinstance(error, SpoolFull), isinstance(error, SpoolLocked)
        self._change("full" if full else "locked" if locked else "memory", error)
        leaving = locked and self._clock.monotonic() < self._began + LEAVING
        self._retry(AGAIN_SOON if full or leaving else REOPEN_INTERVAL)

    def _retry(self, seconds: float) -> None:
        self._due = True
        self._retry_at = self._clock.monotonic() + seconds
        self._wait(seconds + TIMER_TOLERANCE)

    def _wait(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._closing:
            self._timer = self._loop.call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._next(idle=True)
        self._look_again()

    def _change(self, store: Store, error: SpoolError | None) -> None:
        """The file can be used, or not. That is reported when it changes."""
        before, self.backlog.store = self.backlog.store, store
        if store == before or {store, before} == {"ok", "opening"}:
            return
        path = str(self.path)
        self._events.emit(StateWritten(path) if error is None else StateFailed(path, error))

    def _log_found(self, found: Found) -> None:
        """Log what an earlier run left."""
        readings = count_noun(found.rows, "reading waits", "readings wait")
        salvaged, damaged, unread = found.salvaged, found.damaged, found.unread
        about = log_fields("outbox found", readings=found.rows, salvaged=salvaged, damaged=damaged, unread=unread)
        logger.info("%s on disk for the broker from an earlier run", readings, extra=about)

    def _report(self, dropped: Sequence[Dropped]) -> None:
        for topic, messages, reason, cause, is_answer in dropped:
            self._events.emit(MessageDropped(topic, reason, messages, cause=cause, is_answer=is_answer))

    def _now(self) -> Times:
        return Times(self._clock.wall(), self._clock.monotonic())
