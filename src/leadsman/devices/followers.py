"""Who follows the roster: one row for each part of an app that knows devices."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from leadsman.devices.roster import Departure, Device, Follower
from leadsman.ledger.ledgers import Ledgers, Schedule
from leadsman.monitoring.health import HealthRecords
from leadsman.monitoring.heartbeat import Heartbeat
from leadsman.monitoring.outage_reports import OutageReporter
from leadsman.monitoring.statuses import Statuses
from leadsman.registration.telemetry import Telemetry
from leadsman.runtime.other_topics import OtherTopics

if TYPE_CHECKING:
    from leadsman.nodes.snapshots import Snapshots
    from leadsman.runtime.context import Contexts
    from leadsman.runtime.persistence import ResilienceStore


def ignore(device: Device) -> None:
    """It does not matter that a device joins."""


def forgetting(forget: Callable[[str], object]) -> Follower:
    """Whatever only has to forget a device that has left."""

    def leave(device: Device, why: Departure) -> None:
        forget(device.name)

    return Follower(ignore, leave)


def health(records: HealthRecords) -> Follower:
    """The health records."""

    def join(device: Device) -> None:
        name, reader = device.name, device.reader
        if reader is not None and device.runner is not None:
            due = device.since + (reader.offset if isinstance(reader, Telemetry) else 0.0)
            records.register(name, reader.stale_after, due, offline_on_error=reader.offline_on_error)
        elif device.queue is not None:
            records.register_idle(name, device.since)

    def leave(device: Device, why: Departure) -> None:
        if device.enabled:
            records.remove(device.name)

    return Follower(join, leave)


def ledgers(kept: Ledgers) -> Follower:
    """The ledgers, which give the receipts of the readings. A telemetry that is not enabled has one, too."""

    def join(device: Device) -> None:
        reader, schedule = device.reader, Schedule()
        if isinstance(reader, Telemetry):
            schedule = Schedule(reader.interval, reader.cron)
        if reader is not None and device.runner is not None:
            publisher, poll = device.runner.publisher, device.poll
            ledger = kept.add(device.name, schedule, poll, job=device.job, silence=reader.stale_after)
            publisher.receipts, ledger.comparison = ledger, publisher.comparison
        elif isinstance(reader, Telemetry):
            kept.add_disabled(device.name, schedule, job=device.job)

    def leave(device: Device, why: Departure) -> None:
        kept.remove(device.name)

    return Follower(join, leave)


def contexts(made: "Contexts") -> Follower:
    """The contexts of the handlers that ask for one."""

    def join(device: Device) -> None:
        if device.reader is not None and device.runner is not None:
            made.give(device.reader.needs, device.name, device.runner.retries)
        if device.command is not None and device.queue is not None:
            made.give(device.command.needs, device.name, device.queue.retries)

    def leave(device: Device, why: Departure) -> None:
        """A handler keeps its context: a call of it may still run."""

    return Follower(join, leave)


class SavedState:
    """The failure state that is kept over a restart. A device that another node had goes on where it was there."""

    def __init__(
        self,
        store: "ResilienceStore",
        snapshots: "Snapshots | None",
        others: OtherTopics,
        records: HealthRecords,
        outages: OutageReporter,
        pending: dict[str, float],
    ) -> None:
        self._pending = pending
        """Seconds until the next attempt, of devices whose retry another node waited for."""
        self._store = store
        self._snapshots = snapshots
        self._others = others
        self._records = records
        self._outages = outages

    def join(self, device: Device) -> None:
        """See `Follower`."""
        name = device.name
        if device.runner is None:
            return
        document, age = None, 0.0
        if self._snapshots is not None:
            self._others.keep(name, (self._snapshots.topic(name),))
            document, age = self._snapshots.of(name) or (None, 0.0)
        wait = self._store.adopt(name, document, age, self._records, self._outages)
        if wait:
            self._pending[name] = wait

    def leave(self, device: Device, why: Departure) -> None:
        """See `Follower`."""
        self._pending.pop(device.name, None)
        if device.runner is not None:
            self._store.forget(device.name)


def statuses(found: Statuses, now: Callable[[], float]) -> Follower:
    """The statuses."""

    def join(device: Device) -> None:
        if device.enabled:
            if device.job:
                found.jobs |= {device.name}
            found.add(device.name, now())

    def leave(device: Device, why: Departure) -> None:
        if device.enabled:
            found.remove(device.name)
            found.jobs -= {device.name}

    return Follower(join, leave)


def heartbeat(sent: Heartbeat) -> Follower:
    """The heartbeat, and the availability topics."""

    def join(device: Device) -> None:
        if device.enabled:
            sent.changed(device.name)

    def leave(device: Device, why: Departure) -> None:
        sent.changed()

    return Follower(join, leave)
