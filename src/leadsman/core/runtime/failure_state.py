"""Keeps failure state over a restart, in one SQLite file: streaks, budgets, circuits, deferrals and holds; the state of
filters with it; and what parts of the app keep in further tables.

So a crash loop does not poll a dead device at full rate again after each restart, and an outage is reported once, not
once per restart.

**Writes are limited.** A first change is written within a quarter of a second. Further ones wait: a minute, then two,
four, up to 15 minutes, for as long as something changes. A hold, a release, and a circuit that a person moved wait a
minute at most. That a device is well is written once per `SUCCESSES`. See `Pace`, and docs/adr/state.md for the
measurements.

Other nodes of the app get a change sooner; see `SharedState`.

A damaged file is kept aside. A file that cannot be written is reported once, and tried again. Polling continues in any
case.
"""

import asyncio
import json
import logging
import math
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from leadsman.core.events import (
    AttemptFailed,
    CircuitMoved,
    DeviceHeld,
    DeviceReleased,
    Event,
    PollDeferred,
    PollFailed,
    ReadingTaken,
)
from leadsman.core.loop.clock import Clock
from leadsman.core.loop.threads import Worker
from leadsman.core.monitoring.health import EarlierLives, Health, HealthRecords, Trouble, life_of, makes_offline_by_name
from leadsman.core.monitoring.outage import Outage
from leadsman.core.monitoring.outage_reports import OutageReporter
from leadsman.core.mqtt.answers import Json
from leadsman.core.resilience.environment import Environment
from leadsman.core.runtime.runner import Reader
from leadsman.core.runtime.statefile import FurtherTable, Saved, StateFile
from leadsman.core.storage.database import is_locked
from leadsman.core.storage.directory import LOCK_CHECK_INTERVAL, LOCK_TIMEOUT, StateDirectory
from leadsman.core.text import describe, log_fields

if TYPE_CHECKING:
    from leadsman.core.mqtt.message import Message

SHARED = 1.0
"""Seconds until other nodes of the app have a change. The file, which wears a card out, is written less often."""


class StatesElsewhere(Protocol):
    """The failure state of the devices that several nodes share, as it is heard. Nothing of it is checked."""

    def found(self) -> dict[str, tuple[str, float]]:
        """The documents by device, with their ages in seconds."""
        ...

    def of(self, device: str) -> tuple[str, float] | None:
        """The document of one device, with its age in seconds; None if there is none."""
        ...

    def message(self, device: str, document: str) -> "Message | None":
        """The message that publishes the document of a device; None if it is too large."""
        ...

    def topic(self, device: str) -> str:
        """Where the document of a device is."""
        ...


class SharedState:
    """The failure state of devices as other nodes had it, and as they get it.

    Args:
        elsewhere: what another node published of each device, and its age in seconds. It counts instead of what the
            file has.
        publish: takes a device and its document.
        document: makes the document of a device.
        loop: the event loop.
    """

    def __init__(
        self,
        elsewhere: Mapping[str, tuple[str, float]],
        publish: Callable[[str, str], None],
        document: Callable[[str], str],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._elsewhere = elsewhere
        self._publish = publish
        self._document = document
        self._loop = loop
        self._changed: set[str] = set()

    def newest(self, found: dict[str, Saved], wall: float) -> dict[str, Saved]:
        """The states in the file, or those that another node had after it; `wall` is now, epoch seconds."""
        newer = {
            name: Saved(wall - age, document)
            for name, (document, age) in self._elsewhere.items()
            if name not in found or found[name].document != document
        }
        return {**found, **newer}

    def change(self, name: str) -> None:
        """A device has changed: publish it within `SHARED`."""
        if not self._changed:
            self._loop.call_later(SHARED, self.flush)
        self._changed.add(name)

    def forget(self, name: str) -> None:
        """A device is gone."""
        self._changed.discard(name)

    def flush(self) -> None:
        """Publish what has changed."""
        changed, self._changed = sorted(self._changed), set()
        for name in changed:
            self._publish(name, self._document(name))


# A row of the file behind ``keep_state=True``: what is written about one handler, and the checks when it is read.

MIN_TIME, MAX_TIME = -1e10, 1e11
"""Numbers that make sense in the file: as epoch seconds, the years 1653 to 5138."""


class SavedOutage(NamedTuple):
    """The outage of a handler that fails."""

    since: float
    """Its first failure, epoch seconds."""
    failures: int
    """Failed polls."""
    kind: str
    message: str
    """The type and the message of the last error."""
    began: float
    """Its first failure, monotonic seconds."""

    def to_json(self, now: float) -> Json:
        """The outage for the file. `now` is monotonic seconds."""
        since, failures, kind, message, began = self
        return {"since": since, "failures": failures, "type": kind, "message": message, "lasted": now - began}

    @classmethod
    def of(cls, health: Json, written: float) -> "SavedOutage":
        """The outage of the file, which was written at `written`, monotonic seconds."""
        kind, message, lasted = str(health["type"]), str(health["message"]), float(health["lasted"])
        return cls(float(health["since"]), int(health["failures"]), kind, message, written - lasted)


class Known(NamedTuple):
    """A row of the file that is valid."""

    found: Mapping[str, Json]
    """Who had found the device at run time, and what was known of it; empty for one that was registered."""
    wall: float
    """When it was written, epoch seconds."""
    away: float
    """Seconds since then; 0 where the clock was set back."""
    execution: Mapping[str, Json]
    streak_wall: float | None
    success: float | None
    """Epoch seconds, both."""
    held: bool
    outage: SavedOutage | None
    filters: Json
    """The state of its filters, not checked; None if there is none. `FilteredReadings.restore` checks it."""
    life: Json
    """The counters over all lives, not checked; None if there are none. `life_of` checks them."""


UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""The errors that an invalid row raises."""


def known_of(saved: Saved, clock: Clock) -> Known:
    """Check a row and read it. Raises `UNREADABLE` if it is invalid."""
    if not isinstance(saved.wall, int | float) or not isinstance(saved.document, str):
        raise TypeError("its checksum is wrong")
    document: Json = json.loads(saved.document)
    execution, success, health = document["execution"], document.get("success"), document.get("health")
    _check({key: value for key, value in document.items() if key not in ("execution", "filters", "life")})
    _check({key: value for key, value in execution.items() if key != "circuit"})
    circuit = list(execution.get("circuit", ()))
    _check(circuit[:2] if circuit[:1] == ["closed"] else circuit)  # its third is a bit for each poll of the window
    _check(saved.wall)
    wall, streak = float(saved.wall), execution.get("streak")
    found = {key: document[key] for key in ("found_by", "found_type") if key in document}
    away = max(0.0, clock.wall() - wall)
    return Known(
        found if isinstance(found.get("found_by"), str) else _NOTHING,
        wall,
        away,
        execution,
        None if streak is None else float(streak["wall"]),
        None if success is None else float(success),
        document.get("held") is True,
        SavedOutage.of(health, clock.monotonic() - away) if health else None,
        document.get("filters"),
        document.get("life"),
    )


def _check(value: Json) -> None:
    """Check that all numbers are in range. The JSON of Python contains NaN and Infinity, and 1e308 is no time."""
    if isinstance(value, float | int):
        if not MIN_TIME <= value <= MAX_TIME:
            raise ValueError(f"it contains the number {value:.6g}")
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            _check(each)


FILE = "resilience.db"
SUCCESSES = 900.0
"""Seconds between two writes of nothing but successes."""
_NOTHING: Mapping[str, Json] = {}
_CHANGES = (AttemptFailed, PollFailed, CircuitMoved, PollDeferred, DeviceHeld, DeviceReleased)

Rejoin = Callable[[str, Mapping[str, Json], float], bool]
"""Takes the name of a device, what was kept of it as `Known.found`, and for how many seconds it was silent. Returns
whether it is known now."""

logger = logging.getLogger("leadsman")


FIRST_WRITE_DELAY = 0.25
"""Seconds to the first write after a time without any."""
FLOOR = 60.0
"""Seconds between two writes, at least."""
CEILING = 900.0
"""Seconds between two writes at most, while something changes."""


class Pace:
    """When to write. Pure: it is handed `now`, monotonic seconds.

    While something changes, the wait between two writes doubles from `FLOOR` to `CEILING`; a time without changes that
    is longer than that begins it again.
    """

    def __init__(self) -> None:
        self._at = -math.inf
        self._wait = FLOOR

    def due(self, now: float, *, urgent: bool) -> float:
        """When a change at `now` is to be written, monotonic seconds."""
        return max(now + FIRST_WRITE_DELAY, self._at + (FLOOR if urgent else self._wait))

    def wrote(self, now: float) -> None:
        """It was written."""
        quiet = now - self._at >= CEILING + FLOOR
        self._wait = FLOOR if quiet else min(2 * self._wait, CEILING)
        self._at = now


class FailureStateStore:
    """Keeps the file of one running app. An alarm in the heap.

    Args:
        directory: where.
        readers: the polls and sources to remember, by the names of their devices.
        environment: timers, clock and events.
        found: what to keep of a device that was found at run time, by its name, as `Known.found`.
        tables: what parts of the app keep in the file.
    """

    def __init__(
        self,
        directory: StateDirectory,
        readers: Mapping[str, Reader],
        environment: Environment,
        found: Callable[[str], Mapping[str, Json]],
        tables: Sequence[FurtherTable],
    ) -> None:
        self.path = directory.path / FILE
        """The file."""
        self._directory = directory
        self._tables = tables
        self._file = StateFile(self.path, environment.clock.wall, tables)
        self._readers = readers
        self._environment = environment
        self._loop = asyncio.get_running_loop()
        self._found_kept = found
        self._gone: set[str] = set()
        """Devices whose rows are to be deleted."""
        self._kept: set[str] = set()
        """Devices that have rows in the file, or in what is handed to the thread."""
        self._worker = Worker("state")
        self._changed: set[str] = set()
        self._failing: set[str] = set()
        self._successes: dict[str, float] = {}
        self._outages: dict[str, SavedOutage] = {}
        self._pace = Pace()
        self._alarm: tuple[int, float] | None = None  # its slot, and when it is due
        self._first: dict[str, tuple[float, float]] = {}
        """When the first call since the last success began that gave no reading: epoch and monotonic seconds."""
        self._successes_at = environment.clock.monotonic()
        self._failed = False
        self._records: Mapping[str, Health] = {}
        self._shared: SharedState | None = None
        self.pending: dict[str, float] = {}
        """Seconds until the next attempt, of devices that waited for one before they came here."""
        self.outages: dict[str, float] = {}
        """Handlers that were failing when the app ended, and since when, epoch seconds."""

    async def restore(
        self,
        records: HealthRecords,
        outages: OutageReporter,
        stopping: asyncio.Event,
        rejoin: Rejoin | None = None,
    ) -> None:
        """Remember what the file holds. Never raises; takes `LOCK_TIMEOUT` at most, or until `stopping`. `rejoin` takes
        a device that was found at run time in an earlier run; None where no handler finds any.
        """
        wall = self._environment.clock.wall()
        found, self._records = await self._found(stopping), records.entities
        self._kept |= found.keys()
        if self._shared is not None:
            found = self._shared.newest(found, wall)
        for name in self._readers:
            records.restore(name, life=EarlierLives(wall))
        for name, saved in found.items():
            if name in self._readers or self._rejoined(name, saved, rejoin):
                self.pending[name] = self._continued(name, saved, self._file.path, records, outages)

    def adopt(
        self, name: str, document: str | None, age: float, records: HealthRecords, outages: OutageReporter
    ) -> None:
        """Remember a device that joins. If another node of a cluster had it, `document` is what that published of it
        `age` seconds ago."""
        self._records = records.entities
        self._gone.discard(name)
        self._records[name].life = EarlierLives(self._environment.clock.wall())
        self.change(name)
        saved = Saved(self._environment.clock.wall() - age, document)
        wait = 0.0 if document is None else self._continued(name, saved, "a topic", records, outages)
        if wait:
            self.pending[name] = wait

    def _continued(
        self, name: str, saved: Saved, where: object, records: HealthRecords, outages: OutageReporter
    ) -> float:
        """Go on with a device where an earlier run or another node was. Returns seconds until its next attempt."""
        try:
            return self._restore(name, known_of(saved, self._environment.clock), records, outages)
        except UNREADABLE as error:
            warn_damaged("%s: its state in %s is damaged (%s); the device starts without it", name, where, error)
            self.change(name)  # what makes sense takes its place
            return 0.0

    def _rejoined(self, name: str, saved: Saved, rejoin: Rejoin | None) -> bool:
        """Whether a device that was found at run time is known again. One that is not taken back is deleted."""
        try:
            known = known_of(saved, self._environment.clock)
        except UNREADABLE:
            return False
        if not known.found or rejoin is None:
            return False
        silence = 0.0 if known.success is None else max(0.0, known.wall - known.success)
        if rejoin(name, known.found, silence):
            self._records[name].life = EarlierLives(self._environment.clock.wall())
            return True
        self.forget(name)
        return False

    def forget(self, name: str, *, at_once: bool = False) -> None:
        """Delete the rows of a device that is gone, with the next write. ``at_once``: now, so that the next life of the
        app does not have it if this one is killed. Those of one turn of the loop are one write."""
        for kept in (self._successes, self._outages, self._first, self.outages):
            kept.pop(name, None)
        self._changed.discard(name)
        self._failing.discard(name)
        if self._shared is not None:
            self._shared.forget(name)
        for table in self._tables:
            table.forget(name)
        self._gone.add(name)
        if at_once and name in self._kept:
            self._loop.call_soon(self._delete)
        else:
            self._arm(self._pace.due(self._environment.clock.monotonic(), urgent=True))

    def _delete(self) -> None:
        """Write that devices are gone, unless it was written meanwhile."""
        if self._gone:
            self._write(self._environment.clock.monotonic())

    def share(self, elsewhere: Mapping[str, tuple[str, float]], publish: Callable[[str, str], None]) -> SharedState:
        """Share the state with other nodes of the app, before `restore`; see `SharedState`."""
        self._shared = SharedState(elsewhere, publish, self._document, self._loop)
        return self._shared

    def publish(self) -> None:
        """Publish what has changed, if the state is shared."""
        if self._shared is not None:
            self._shared.flush()

    def soon(self) -> None:
        """Something new is to be written with what is written next."""
        self._arm(self._pace.due(self._environment.clock.monotonic(), urgent=False))

    async def _found(self, stopping: asyncio.Event) -> dict[str, Saved]:
        """The states in the file. One that is locked is asked again for a while, and one that hangs is left to its
        thread."""
        deadline = self._environment.clock.monotonic() + LOCK_TIMEOUT
        stop = asyncio.ensure_future(stopping.wait())
        try:
            while True:
                wait = deadline - self._environment.clock.monotonic()
                reading = asyncio.wrap_future(self._worker.submit(self._read))
                either: set[asyncio.Future[Any]] = {stop, reading}
                await asyncio.wait(either, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
                found: dict[str, Saved] | Exception = (
                    reading.result() if reading.done() else TimeoutError("the disk does not answer")
                )
                if not isinstance(found, Exception):
                    return found
                if stop.done():
                    return {}
                if self._environment.clock.monotonic() + LOCK_CHECK_INTERVAL >= deadline or not is_locked(found):
                    self._settled(found)
                    return {}
                await asyncio.wait({stop}, timeout=LOCK_CHECK_INTERVAL)
        finally:
            stop.cancel()

    def _restore(self, name: str, known: Known, records: HealthRecords, outages: OutageReporter) -> float:
        reader, clock, life = self._readers[name], self._environment.clock, None
        try:
            life = None if known.life is None else life_of(known.life)
        except (LookupError, TypeError, ValueError) as error:
            warn_damaged("%s: its counters in %s cannot be read (%s); they begin again", name, self._file.path, error)
        records.restore(name, life=life or EarlierLives(clock.wall()))
        try:
            if known.filters is not None and reader.filters is not None:
                reader.filters.restore(known.filters, clock.monotonic(), known.away)
        except UNREADABLE as error:
            warn_damaged(
                "%s: the state of its filters in %s cannot be read (%s); they begin again", name, self._file.path, error
            )
        pending = reader.execution.restore(known.execution, known.away)
        snapshot = reader.execution.snapshot()
        records.restore(name, circuit=snapshot.circuit)
        if known.streak_wall is not None:
            self.outages[name] = known.streak_wall
        if known.success is not None:
            self._successes[name] = known.success
            records.restore(name, success_wall=known.success)
        if known.held and reader.hold():
            records.restore(name, held=True)
        if known.outage is not None:
            since, failures, kind, message, began = self._outages[name] = known.outage
            offline = makes_offline_by_name(records.entities[name], kind)
            records.restore(name, trouble=Trouble(failures, since, kind, message, offline=offline))
            now = clock.monotonic()
            outages.restore(name, Outage(began, since, now, kind, message, frozenset({kind}), failures))
            self._failing.add(name)
        if snapshot.deferred_until is not None:
            trouble = records.entities[name].trouble._replace(deferred_until=snapshot.deferred_until)
            records.restore(name, trouble=trouble)
        return pending

    def observe(self, event: Event) -> None:
        """Notice what changes. Observes in `Phase.SAVE`, after the trace."""
        if type(event) is ReadingTaken:
            self._successes[event.entity] = event.wall
            if event.entity in self._failing:
                self._failing.discard(event.entity)
                self._outages.pop(event.entity, None)
                self._first.pop(event.entity, None)
                self.change(event.entity)
            elif event.at - self._successes_at >= SUCCESSES:
                self._write(event.at)
        elif isinstance(event, _CHANGES) and event.entity in self._readers:
            self._failing.add(event.entity)
            if isinstance(event, AttemptFailed):
                self._first.setdefault(event.entity, (event.outage, event.began))
            if isinstance(event, PollFailed):
                since, began = self._first.get(event.entity, (event.outage, event.began))
                before = self._outages.get(event.entity, SavedOutage(since, 0, "", "", began))
                self._outages[event.entity] = before._replace(
                    failures=before.failures + 1, kind=type(event.error).__name__, message=describe(event.error)
                )
            self.change(event.entity, urgent=_by_a_person(event))

    def ring(self, now: float) -> None:
        """Write what has changed."""
        self._alarm = None
        self._pace.wrote(now)
        self._write(now)

    async def finish(self) -> None:
        """Write what is left, and when each device was well last."""
        self._changed |= set(self._successes)
        job = self._job(self._environment.clock.monotonic())
        self._settled(await asyncio.wrap_future(self._worker.submit(job)))
        await asyncio.wrap_future(self._worker.submit(self._file.close))
        self._worker.stop()

    def change(self, name: str, *, urgent: bool = False) -> None:
        """The state of a device has changed: write it soon."""
        self._changed.add(name)
        if self._shared is not None:
            self._shared.change(name)
        self._arm(self._pace.due(self._environment.clock.monotonic(), urgent=urgent))

    def _arm(self, due: float) -> None:
        """Ring at `due`, or earlier if that is arranged already."""
        if self._alarm is not None:
            slot, when = self._alarm
            if when <= due:
                return
            self._environment.timers.remove(slot, self)
        self._alarm = self._environment.timers.add(due, self), due

    def _write(self, now: float) -> None:
        written = self._worker.submit(self._job(now))
        written.add_done_callback(lambda done: self._loop.call_soon_threadsafe(self._settled, done.result()))

    def _job(self, now: float) -> Callable[[], Exception | None]:
        """What to write, gathered now, to be written in a thread."""
        if now - self._successes_at >= SUCCESSES:
            self._changed |= set(self._successes)
            self._successes_at = now
        documents = {name: self._document(name) for name in sorted(self._changed)}
        self._changed.clear()
        gathered = [table.gather() for table in self._tables]
        wall = self._environment.clock.wall()
        gone, self._gone = self._gone, set()
        self._kept = (self._kept - gone) | documents.keys()
        return lambda: self._written(documents, gathered, wall, gone)

    def _document(self, name: str) -> str:
        now = self._environment.clock.monotonic()
        outage, reader, health = self._outages.get(name), self._readers[name], self._records[name]
        execution, life = reader.execution, health.life
        filters = {}  # nodes share what changes with failures: there, a state of filters would be of weeks ago
        if reader.filters is not None and self._shared is None:
            filters = {"filters": reader.filters.to_json(now)}
        document: Json = {
            **self._found_kept(name),
            **filters,
            "execution": execution.to_json(),
            "success": self._successes.get(name),
            "held": execution.circuit.held,
            "health": None if outage is None else outage.to_json(now),
            "life": None if life is None else life.to_json(health.totals(reader.publisher.published)),
        }
        return json.dumps(document)

    def _read(self) -> dict[str, Saved] | Exception:
        """In the thread."""
        try:
            found = self._file.read(keep_aside=not self._directory.foreign)
            self._file.read_tables()
            return found
        except (sqlite3.Error, OSError) as error:
            return error

    def _written(
        self,
        documents: Mapping[str, str],
        gathered: Sequence[Callable[[], None]],
        wall: float,
        gone: set[str],
    ) -> Exception | None:
        """In the thread."""
        try:
            if self._directory.may_write():
                for keep in gathered:
                    keep()
                self._file.write(documents, wall, gone)
        except (sqlite3.Error, OSError) as error:
            return error
        return None

    def _settled(self, error: Exception | None) -> None:
        """The file was written, or could not be: then it is tried again, also when nothing else changes."""
        failed, self._failed = self._failed, error is not None
        if self._failed:
            self._arm(self._environment.clock.monotonic() + FLOOR)
        if self._failed != failed:
            self._directory.report(self._file.path, error)


def warn_damaged(message: str, name: str, where: object, error: Exception) -> None:
    """Log that something saved of a device makes no sense."""
    about = log_fields("state damaged", name, error_type=type(error).__name__)
    logger.warning(message, name, where, describe(error), extra=about)


def _by_a_person(event: Event) -> bool:
    """Whether it stays until a person does something about it: then it must not wait for long."""
    return isinstance(event, DeviceHeld | DeviceReleased) or (
        isinstance(event, CircuitMoved) and event.state in ("isolated", "disabled")
    )
