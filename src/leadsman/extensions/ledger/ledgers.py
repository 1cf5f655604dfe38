"""The ledgers of the devices of an app. They observe: the event bus reports what became of the polls, and the
receipts what became of the readings.

A poll on request has no slot, unless a poll of the schedule answers it. Whatever it gives, a reading ends a gap.
"""

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from leadsman.core.event_bus import EventBus, Phase
from leadsman.core.events import DeviceLeft, PollDeferred, PollFailed, PollSkipped, PollWithoutReading, ReadingTaken
from leadsman.core.loop.clock import Clock, rfc3339
from leadsman.core.loop.schedule import Cron, slots_between
from leadsman.errors import ResultError
from leadsman.extensions.ledger.ledger import DISPOSITIONS, Gap, Ledger, Lost, Polled, availability, total
from leadsman.extensions.ledger.saved import LedgerRow, Now, restore, rows

if TYPE_CHECKING:
    from leadsman.core.mqtt.answers import Json

FINAL = tuple(word for word in DISPOSITIONS if word != "buffered")
"""The dispositions that do not change any more: a reading that waits gets another one."""


class Schedule(NamedTuple):
    """When a device is due: an interval in seconds, or a cron expression; a source has neither."""

    interval: float | None = None
    cron: Cron | None = None
    events: bool = False
    """Whether a source sends events, each of which counts for itself."""

    @property
    def has_slots(self) -> bool:
        """Whether a device is ever due."""
        return self.interval is not None or self.cron is not None

    def slots(self, origin: float, since: float, until: float) -> int:
        """The slots after `since`, up to and including `until`; see `leadsman.core.loop.schedule.slots_between`."""
        return slots_between(self.cron, self.interval or 0.0, origin, since, until) if self.has_slots else 0


class LedgerEntry(Ledger):
    """The ledger of a device or a side job, and when that is due.

    Args:
        start: now.
        poll: polls it; None for a source.
        schedule: when it is due.
        job: whether it is a side job.
        allowed: seconds without a reading after which a gap of a source begins.
        disabled: until when the slots are counted of a device that is not enabled; None of one that is enabled.
    """

    __slots__ = ("allowed", "disabled", "heard_at", "job", "schedule")

    def __init__(
        self, start: float, poll: Polled | None, schedule: Schedule, *, job: bool, allowed: float, disabled: Now | None
    ) -> None:
        super().__init__(start, poll)
        self.schedule = schedule
        self.job = job
        self.allowed = allowed
        self.heard_at = math.inf
        """When the last reading of a source was taken, monotonic seconds; infinity before the first."""
        self.disabled = disabled


class Ledgers:
    """The ledgers of an app, by the names of their devices.

    Args:
        clock: its clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: dict[str, LedgerEntry] = {}
        self._schedules: dict[Schedule, Schedule] = {}  # one object for all devices with the same schedule
        self._first = self.now()

    # Which there are

    def add(
        self,
        name: str,
        schedule: Schedule,
        poll: Polled | None,
        *,
        job: bool,
        silence: float = math.inf,
        enabled: bool = True,
    ) -> Ledger:
        """Begin the ledger of a device, or of a side job. It gives the receipts of the readings.

        Args:
            name: the name of the device.
            schedule: when it is due.
            poll: polls it; None for a source.
            job: whether it is a side job.
            silence: seconds without a reading after which a gap of a source begins.
            enabled: whether it is read. The slots of one that is not are counted all the same.
        """
        schedule = self._schedules.setdefault(schedule, schedule)
        disabled, start = None if enabled else self._first, self._clock.uptime()
        entry = LedgerEntry(start, poll, schedule, job=job, allowed=silence, disabled=disabled)
        self._entries[name] = entry
        return entry

    def remove(self, name: str) -> None:
        """Remove the ledger of a device, if it has one."""
        self._entries.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def get(self, name: str) -> LedgerEntry | None:
        """As `ledgers[name]`; None if there is no such device."""
        return self[name] if name in self._entries else None

    def __getitem__(self, name: str) -> LedgerEntry:
        """The ledger of a device, with the slots until now of one that is not enabled.

        Raises:
            KeyError: there is no such device.
        """
        entry = self._entries[name]
        if (before := entry.disabled) is not None:
            now = entry.disabled = self.now()
            if entry.schedule.cron is None:
                slots = entry.schedule.slots(self._first.uptime, before.uptime, now.uptime)
            else:
                slots = entry.schedule.slots(0.0, before.wall, now.wall)
            if slots:
                entry.period.add("disabled", slots)
        return entry

    # What happens

    def subscribe(self, events: EventBus) -> None:
        """Observe what becomes of the polls."""
        events.subscribe_to(ReadingTaken, self._on_reading, Phase.HEALTH)
        events.subscribe_to(PollWithoutReading, self._on_no_reading, Phase.HEALTH)
        events.subscribe_to(PollFailed, self._on_failure, Phase.HEALTH)
        events.subscribe_to(PollDeferred, self._on_pause, Phase.HEALTH)
        events.subscribe_to(PollSkipped, self._on_open_circuit, Phase.HEALTH)
        events.subscribe_to(DeviceLeft, self._on_goodbye, Phase.HEALTH)

    def _on_reading(self, event: ReadingTaken) -> None:
        """A gap ends; of a source also one that nothing else has shown."""
        entry = self._entries.get(event.entity)
        if entry is None:
            return
        if entry.poll is None:
            if event.at - entry.heard_at > entry.allowed:
                entry.silent("silent", self._uptime(entry.heard_at + entry.allowed, event.at))
            entry.heard_at = event.at
        if entry.gap is not None:
            entry.heard(self._clock.uptime())

    def _on_no_reading(self, event: PollWithoutReading) -> None:
        entry, why = self._entries.get(event.entity), event.why
        if entry is None:
            return
        # Several polls were passed over together, maybe for hours: they belong to the period in which that is noticed.
        period = entry.period if event.polls > 1 else entry.receipt(event.due)
        disposition: Lost = "missed" if why == "late" or why == "stopped" else why
        entry.lost(period, disposition, self._uptime(event.due, event.at), event.polls, why)

    def _on_failure(self, event: PollFailed) -> None:
        entry, error = self._entries.get(event.entity), event.error
        if entry is None:
            return
        disposition: Lost = "timed_out" if isinstance(error, TimeoutError) else "failed"
        if event.due is not None:
            self._lost(entry, disposition, event.due, event.at)
        elif entry.poll is None and not isinstance(error, ResultError):  # one bad reading is no silence
            entry.silent(disposition, self._clock.uptime())

    def _on_pause(self, event: PollDeferred) -> None:
        entry = self._entries.get(event.entity)
        if entry is not None and event.due is not None:
            self._lost(entry, "deferred", event.due, event.at)

    def _on_open_circuit(self, event: PollSkipped) -> None:
        entry, at = self._entries.get(event.entity), self._clock.uptime()
        if entry is None:
            return
        if entry.poll is None:
            entry.silent("circuit_open", at)
        else:
            entry.lost(entry.period, "circuit_open", at)

    def _on_goodbye(self, event: DeviceLeft) -> None:
        if (entry := self._entries.get(event.entity)) is not None:
            entry.silent("left", self._clock.uptime())

    def _lost(self, entry: LedgerEntry, disposition: Lost, due: float, now: float) -> None:
        """The poll that came due at `due` gave no reading. Both times are monotonic seconds."""
        entry.lost(entry.receipt(due), disposition, self._uptime(due, now))

    # Restored and saved rows

    def restore(self, name: str, found: Iterable[LedgerRow], *, durable: bool) -> list[LedgerRow]:
        """Continue the ledger of an earlier run. Returns the rows that must be written.

        Args:
            name: the device. One that is not read any more, or not enabled, is passed over.
            found: the rows of the state file.
            durable: whether readings that waited were on disk, and are sent now.

        Raises:
            LookupError, TypeError, ValueError: the rows are damaged.
        """
        entry = self._entries.get(name)
        if entry is None or entry.disabled is not None:
            return []
        return restore(entry, found, self.now(), entry.schedule.slots, durable=durable)

    def rows(self, name: str, *, stopped: bool) -> Iterable[LedgerRow]:
        """The rows that the state file keeps of a device: those that changed since its period began. None of one
        that is not enabled.

        Raises:
            KeyError: there is no such device.
        """
        entry = self._entries[name]
        return () if entry.disabled is not None else rows(entry, self.now(), self._first.offset, stopped=stopped)

    def end(self) -> None:
        """Readings that the broker does not have will never arrive."""
        now = self._clock.uptime()
        for entry in self._entries.values():
            entry.end(now)

    def document(self, name: str, since: float = 0.0, most_gaps: int | None = None) -> "dict[str, Json]":
        """The ledger of a device: a `leadsman.extensions.ledger.document.DeviceLedger`.

        Args:
            name: the device or side job.
            since: epoch seconds; earlier periods and gaps are left out.
            most_gaps: gaps at most, the latest ones; None for all.

        Raises:
            KeyError: there is no such device.
        """
        entry, now = self[name], self.now()
        periods = entry.periods()
        ends = [*(each.start for each in periods[1:]), now.uptime]
        chosen = [each for each, end in zip(periods, ends, strict=True) if end + now.offset > since]
        gaps = [each for each in entry.gaps() if each.until is None or each.until + now.offset >= since]
        by, slots = total(chosen), sum(each.slots for each in chosen)
        share = availability(by) if slots else None
        events = {"events": sum(by.values())} if entry.schedule.events else {}
        return {
            "at": rfc3339(now.wall),
            "slots": slots,
            **events,
            "counts": by,
            "availability": None if share is None else round(share, 3),
            "hours": [
                {"start": rfc3339(round(each.start + now.offset)), "slots": each.slots, "counts": dict(each.by)}
                for each in chosen
            ],
            "gaps": [_gap(each, now) for each in (gaps if most_gaps is None else gaps[-most_gaps:])],
        }

    def now(self) -> Now:
        """This moment."""
        return Now(self._clock.uptime(), self._clock.wall())

    def _uptime(self, at: float, now: float) -> float:
        """A time in monotonic seconds, as the ledgers have it. `now`: this moment in monotonic seconds."""
        return self._clock.uptime() - now + at


def _gap(gap: Gap, now: Now) -> "dict[str, Json]":
    until = now.uptime if gap.until is None else gap.until
    return {
        "since": rfc3339(gap.since + now.offset),
        "until": None if gap.until is None else rfc3339(gap.until + now.offset),
        "seconds": round(until - gap.since, 3),
        "cause": gap.cause,
        "slots": dict(gap.slots),
    }
