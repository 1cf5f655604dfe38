"""What resilience remembers over a restart: streaks, budgets, circuits, deferrals, holds, and the trace, in one SQLite file.

So a crash loop does not ask a dead device at full rate again with every life, and an outage is told once, not once per life.

**Writes are bounded.** A first change is written within a quarter of a second; further ones at most once per `FLOOR`; that a
device is well, once per `SUCCESSES`. A commit in WAL mode writes some three pages of 4 KiB, and each page once more when the
log is folded in: at the very most, in an outage without end, 1,440 commits and 35 MiB a day, 125 GiB in ten years; a healthy
app writes 96 commits and 2.3 MiB. A card of 8 GB that stands 1,000 cycles takes 8,000 GB.

A file that is broken is kept aside; one that cannot be written is told once. Polling goes on in any case.
"""

import asyncio
import contextlib
import json
import logging
import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from leadsman.events import (
    AttemptFailed,
    CircuitMoved,
    Event,
    Held,
    PollDeferred,
    PollFailed,
    ReadingTaken,
    Released,
)
from leadsman.health import Ledger
from leadsman.outage import Outage
from leadsman.poll import Poller
from leadsman.reports import Outages
from leadsman.resilience.execution import Execution
from leadsman.resilience.terms import World
from leadsman.trace import Row, Trace
from leadsman.wording import told
from leadsman.workers import Worker

FILE = "resilience.db"
FLOOR = 60.0
"""Seconds between two writes, at the least."""
SOON = 0.25
"""Seconds to the first write after a time without any."""
SUCCESSES = 900.0
"""Seconds between two writes of nothing but successes."""
ROWS = 10_000
"""Rows of the trace that are kept."""
_CHANGES = (AttemptFailed, PollFailed, CircuitMoved, PollDeferred, Held, Released)

logger = logging.getLogger("leadsman")


class Saved(NamedTuple):
    """One handler, as it is in the file. `wall` is epoch seconds of the write."""

    wall: float
    document: Mapping[str, Any]


class StateFile:
    """The file. Blocks, so all but the first read is done in a thread.

    Raises:
        sqlite3.Error, OSError: from its methods; whoever calls them says what that means.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database: sqlite3.Connection | None = None

    def read(self) -> dict[str, Saved]:
        """All handlers. A file that is broken is kept aside, and nothing is known then."""
        if not self.path.exists():
            return {}
        try:
            rows = self._open().execute("SELECT name, wall, document FROM handler").fetchall()
            return {name: Saved(float(wall), json.loads(document)) for name, wall, document in rows}
        except (sqlite3.DatabaseError, ValueError, TypeError) as error:
            if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
                raise
            self.close()
            aside = self.path.with_suffix(".broken")
            for suffix in ("-wal", "-shm"):
                with contextlib.suppress(OSError):
                    Path(f"{self.path}{suffix}").unlink()
            self.path.replace(aside)
            logger.warning("%s is broken (%s); kept as %s, starting without", self.path, told(error), aside.name)
            return {}

    def write(self, handlers: Mapping[str, str], rows: Sequence[Row], wall: float) -> None:
        """Write these handlers and add these rows of the trace, or nothing of them."""
        database = self._open()
        with database:
            database.executemany(
                "INSERT INTO handler (name, wall, document) VALUES (?, ?, ?) "
                "ON CONFLICT (name) DO UPDATE SET wall = excluded.wall, document = excluded.document",
                [(name, wall, document) for name, document in handlers.items()],
            )
            database.executemany(
                "INSERT INTO trace (at, handler, outage, document) VALUES (?, ?, ?, ?)",
                [(row.at, row.handler, row.outage_id, json.dumps(row._asdict())) for row in rows],
            )
            if rows:
                database.execute("DELETE FROM trace WHERE number <= (SELECT max(number) FROM trace) - ?", (ROWS,))

    def trace(self) -> Iterable[dict[str, Any]]:
        """The rows of the trace, oldest first, numbered over all lives of the app."""
        for number, document in self._open().execute("SELECT number, document FROM trace ORDER BY number"):
            yield json.loads(document) | {"number": number}

    def close(self) -> None:
        """Close it."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _open(self) -> sqlite3.Connection:
        if self._database is not None:
            return self._database
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600))
        database = sqlite3.connect(self.path, timeout=1.0, check_same_thread=False)  # one thread at a time has it
        try:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            database.executescript(
                "CREATE TABLE IF NOT EXISTS handler (name TEXT PRIMARY KEY, wall REAL NOT NULL, document TEXT NOT NULL);"
                "CREATE TABLE IF NOT EXISTS trace (number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL,"
                " handler TEXT NOT NULL, outage TEXT, document TEXT NOT NULL);"
            )
        except BaseException:
            database.close()
            raise
        self._database = database
        return database


class Memory:
    """Keeps the file of one running app. An alarm in the heap.

    Args:
        file: where.
        poller: whose polls are remembered.
        feeds: executions of sources, by name.
        world: timers, clock and events.
        traces: the trace, once there is something in it.
    """

    def __init__(
        self, file: StateFile, poller: Poller, feeds: Mapping[str, Execution], world: World, traces: Sequence[Trace]
    ) -> None:
        self._file = file
        self._poller = poller
        self._executions = {name: poll.execution for name, poll in poller.polls.items()} | dict(feeds)
        self._world = world
        self._traces = traces
        self._worker = Worker("state")
        self._changed: set[str] = set()
        self._failing: set[str] = set()
        self._successes: dict[str, float] = {}
        self._health: dict[str, dict[str, Any]] = {}
        self._armed = False
        self._written_at = -FLOOR
        self._successes_at = world.clock.monotonic()
        self._traced = 0
        self._told = False
        self.outages: dict[str, float] = {}
        """Handlers that were failing when the app ended, and since when, epoch seconds."""
        self.commits = 0
        """Writes so far."""

    def restore(self, ledger: Ledger, outages: Outages) -> dict[str, float]:
        """Remember what the file holds. Reads it, which blocks for a moment; never raises.

        Returns:
            For handlers whose next attempt was waited for: seconds until it.
        """
        pending: dict[str, float] = {}
        try:
            found = self._file.read()
        except (sqlite3.Error, OSError) as error:
            self._tell("read", error)
            return pending
        wall, now = self._world.clock.wall(), self._world.clock.monotonic()
        for name, saved in found.items():
            if name not in self._executions:
                continue
            try:
                away = max(0.0, wall - saved.wall)  # a clock that was set back: the app was not away
                pending[name] = self._restore(name, saved.document, away, ledger, outages, now)
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                logger.warning("%s: what %s holds of it makes no sense (%s)", name, self._file.path, told(error))
        return pending

    def _restore(
        self, name: str, document: Mapping[str, Any], away: float, ledger: Ledger, outages: Outages, now: float
    ) -> float:
        pending = self._executions[name].thaw(document["execution"], away)
        ledger.restore(name, circuit=self._executions[name].snapshot().circuit)
        if "streak" in document["execution"]:
            self.outages[name] = float(document["execution"]["streak"]["wall"])
        if document.get("success") is not None:
            self._successes[name] = float(document["success"])
            ledger.restore(name, success_wall=self._successes[name])
        if document.get("held") is True and name in self._poller.polls:
            self._poller.polls[name].held = True
            ledger.restore(name, held=True)
        health = document.get("health")
        if health:
            since, failures = float(health["since"]), int(health["failures"])
            kind, message = str(health["type"]), str(health["message"])
            ledger.restore(name, failures=failures, failing_wall=since, error_type=kind, error_message=message)
            began = now - float(health["lasted"]) - away
            outages.restore(name, Outage(began, since, now, kind, message, frozenset({kind}), failures))
            self._health[name] = {
                "since": since,
                "failures": failures,
                "type": kind,
                "message": message,
                "began": began,
            }
            self._failing.add(name)
        return pending

    def observe(self, event: Event) -> None:
        """Notice what changes. Comes after the trace."""
        if type(event) is ReadingTaken:
            self._successes[event.entity] = event.wall
            if event.entity in self._failing:
                self._failing.discard(event.entity)
                self._health.pop(event.entity, None)
                self._change(event.entity)
            elif event.at - self._successes_at >= SUCCESSES:
                self._change(event.entity)
        elif isinstance(event, _CHANGES) and event.entity in self._executions:
            self._failing.add(event.entity)
            if isinstance(event, PollFailed):
                before = self._health.get(event.entity, {"since": event.wall, "failures": 0, "began": event.at})
                failures = before["failures"] + 1
                kind = {"type": type(event.error).__name__, "message": told(event.error)}
                self._health[event.entity] = before | kind | {"failures": failures}
            self._change(event.entity)

    def ring(self, now: float) -> None:
        """Write what has changed."""
        self._armed = False
        self._worker.submit(self._job(now))

    async def finish(self) -> None:
        """Write what is left, and when each device was well last."""
        self._changed |= set(self._successes)
        job = self._job(self._world.clock.monotonic())
        await asyncio.wrap_future(self._worker.submit(job))
        await asyncio.wrap_future(self._worker.submit(self._file.close))
        self._worker.stop()

    def _change(self, name: str) -> None:
        self._changed.add(name)
        if not self._armed:
            self._armed = True
            now = self._world.clock.monotonic()
            self._world.timers.add(max(now + SOON, self._written_at + FLOOR), self)

    def _job(self, now: float) -> Callable[[], None]:
        """What to write, gathered now, to be written in a thread."""
        if now - self._successes_at >= SUCCESSES:
            self._changed |= set(self._successes)
            self._successes_at = now
        documents = {name: json.dumps(self._document(name, now)) for name in sorted(self._changed)}
        self._changed.clear()
        rows = [row for trace in self._traces for row in trace.rows(after=self._traced)]
        self._traced = rows[-1].number if rows else self._traced
        self._written_at, wall = now, self._world.clock.wall()
        return lambda: self._write(documents, rows, wall)

    def _document(self, name: str, now: float) -> dict[str, Any]:
        health = self._health.get(name)
        poll = self._poller.polls.get(name)
        return {
            "execution": self._executions[name].frozen(),
            "success": self._successes.get(name),
            "held": poll is not None and poll.held,
            "health": None if health is None else health | {"lasted": now - health["began"]},
        }

    def _write(self, documents: Mapping[str, str], rows: Sequence[Row], wall: float) -> None:
        if not documents and not rows:
            return
        try:
            self._file.write(documents, rows, wall)
            self.commits += 1
        except (sqlite3.Error, OSError) as error:
            self._file.close()
            self._tell("written", error)
        else:
            self._told = False

    def _tell(self, what: str, error: Exception) -> None:
        if not self._told:
            self._told = True
            logger.warning(
                "%s cannot be %s: %s; it is remembered until the app ends", self._file.path, what, told(error)
            )
