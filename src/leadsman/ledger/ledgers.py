"""The ledgers of the devices of an app. They observe: the event bus reports what became of the polls, and the
receipts what became of the readings.

A poll on request has no slot, unless a poll of the schedule answers it. Whatever it gives, a reading ends a gap.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from leadsman.errors import ResultError
from leadsman.event_bus import EventBus, Phase
from leadsman.events import (
    DeviceLeft,
    MessageDropped,
    PollDeferred,
    PollFailed,
    PollSkipped,
    PollWithoutReading,
    ReadingTaken,
)
from leadsman.ledger.ledger import (
    BUFFERED,
    CIRCUIT_OPEN,
    DEFERRED,
    DISABLED,
    DISPOSITIONS,
    FAILED,
    LATE,
    NEVER_POLLED,
    ONE_DELAY,
    TIMED_OUT,
    Gap,
    Ledger,
    Polled,
    availability,
    total,
)
from leadsman.ledger.saved import LOST, LedgerRow, Now, restore, rows
from leadsman.loop.clock import Clock, rfc3339
from leadsman.loop.schedule import Cron, slots_between
from leadsman.monitoring.bugs import placed
from leadsman.monitoring.health import GOODBYE
from leadsman.mqtt.answers import Json
from leadsman.mqtt.topics import RESERVED, Topics
from leadsman.text import clean

FINAL = tuple(word for word in DISPOSITIONS if word != BUFFERED)
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
        """The slots after `since`, up to and including `until`; see `leadsman.loop.schedule.slots_between`."""
        return slots_between(self.cron, self.interval or 0.0, origin, since, until) if self.has_slots else 0


class _Silence:
    """The silence of a source."""

    __slots__ = ("allowed", "heard_at")

    def __init__(self, allowed: float) -> None:
        self.allowed = allowed
        """Seconds without a reading after which a gap begins."""
        self.heard_at = math.inf
        """When the last reading was taken, monotonic seconds; infinity before the first."""


class LedgerEntry(NamedTuple):
    """The ledger of a device or a side job."""

    ledger: Ledger
    schedule: Schedule
    job: bool
    silence: _Silence | None
    """None of a polled device."""


class Ledgers:
    """The ledgers of an app, by the names of their devices.

    Args:
        topics: the topics of the app.
        clock: its clock.
    """

    def __init__(self, topics: Topics, clock: Clock) -> None:
        self.on_news: Callable[[], None] | None = None
        """Called when a gap ends."""
        self._topics = topics
        self._clock = clock
        self._entries: dict[str, LedgerEntry] = {}
        self._schedules: dict[Schedule, Schedule] = {}  # one object for all devices with the same schedule
        self._quiet: dict[str, LedgerEntry] = {}  # those of which the next reading may end a gap
        self._disabled: dict[str, Now] = {}
        self._first = self.now()
        self._on_news = self._notice  # one bound method for all devices

    # Which there are

    def add(
        self, name: str, schedule: Schedule, poll: Polled | None, *, job: bool, silence: float = math.inf
    ) -> Ledger:
        """Begin the ledger of a device that is read, or of a side job. It gives the receipts of the readings.

        Args:
            name: the name of the device.
            schedule: when it is due.
            poll: polls it; None for a source.
            job: whether it is a side job.
            silence: seconds without a reading after which a gap of a source begins.
        """
        ledger = Ledger(self._clock.uptime(), poll, self._on_news)
        schedule = self._schedules.setdefault(schedule, schedule)
        entry = self._entries[name] = LedgerEntry(ledger, schedule, job, _Silence(silence) if poll is None else None)
        if entry.silence is not None:
            self._quiet[name] = entry
        return ledger

    def add_disabled(self, name: str, schedule: Schedule, *, job: bool) -> None:
        """Begin that of a device that is not enabled. Its slots are counted all the same."""
        self.add(name, schedule, NEVER_POLLED, job=job)
        self._disabled[name] = self._first

    def remove(self, name: str) -> None:
        """Remove the ledger of a device, if it has one."""
        self._entries.pop(name, None)
        self._quiet.pop(name, None)
        self._disabled.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __getitem__(self, name: str) -> LedgerEntry:
        """The ledger of a device, with the slots until now of one that is not enabled.

        Raises:
            KeyError: there is no such device.
        """
        entry = self._entries[name]
        if (before := self._disabled.get(name)) is not None:
            now = self._disabled[name] = self.now()
            if entry.schedule.cron is None:
                slots = entry.schedule.slots(self._first.uptime, before.uptime, now.uptime)
            else:
                slots = entry.schedule.slots(0.0, before.wall, now.wall)
            if slots:
                entry.ledger.period.add(DISABLED, slots)
        return entry

    # What happens

    def subscribe(self, events: EventBus) -> None:
        """Observe what becomes of the polls, and why readings are dropped."""
        events.subscribe_to(ReadingTaken, self._on_reading, Phase.HEALTH)
        events.subscribe_to(PollWithoutReading, self._on_no_reading, Phase.HEALTH)
        events.subscribe_to(PollFailed, self._on_failure, Phase.HEALTH)
        events.subscribe_to(PollDeferred, self._on_pause, Phase.HEALTH)
        events.subscribe_to(PollSkipped, self._on_open_circuit, Phase.HEALTH)
        events.subscribe_to(DeviceLeft, self._on_goodbye, Phase.HEALTH)
        events.subscribe_to(MessageDropped, self._on_drop)

    def _on_reading(self, event: ReadingTaken) -> None:
        """A gap ends; of a source also one that nothing else has shown."""
        entry = self._quiet.pop(event.entity, None)
        if entry is None:
            return
        ledger, silence = entry.ledger, entry.silence
        if silence is not None:
            self._quiet[event.entity] = entry
            if event.at - silence.heard_at > silence.allowed:
                ledger.silent("nothing was heard", self._uptime(silence.heard_at + silence.allowed, event.at))
            silence.heard_at = event.at
        if ledger.gap is not None:
            ledger.heard(self._clock.uptime())

    def _on_no_reading(self, event: PollWithoutReading) -> None:
        entry = self._entries.get(event.entity)
        if entry is None:
            return
        self._quiet[event.entity] = entry
        ledger, interval, since = entry.ledger, entry.schedule.interval, self._clock.uptime() - event.at + event.due
        if not event.cause and interval is not None and interval < ONE_DELAY and ledger.gap is None:
            ledger.late(since, event.polls)
            return
        # Several polls were passed over together, maybe for hours: they belong to the period in which that is noticed.
        period = ledger.period if event.polls > 1 else ledger.receipt(event.due)
        ledger.lost(period, event.why, event.cause or LATE, since, event.polls)

    def _on_failure(self, event: PollFailed) -> None:
        entry, error, due = self._quiet_entry(event.entity), event.error, event.due
        if entry is None:
            return
        cause = placed(error)
        if due is not None:
            disposition = TIMED_OUT if isinstance(error, TimeoutError) else FAILED
            entry.ledger.lost(entry.ledger.receipt(due), disposition, cause, self._uptime(due, event.at))
        elif entry.silence is not None and not isinstance(error, ResultError):  # one bad reading is no silence
            entry.ledger.silent(cause, self._clock.uptime())

    def _on_pause(self, event: PollDeferred) -> None:
        entry, due = self._quiet_entry(event.entity), event.due
        if entry is not None and due is not None:
            cause = str(event.reason or "the device asked for a pause")
            entry.ledger.lost(entry.ledger.receipt(due), DEFERRED, cause, self._uptime(due, event.at))

    def _on_open_circuit(self, event: PollSkipped) -> None:
        entry, at = self._quiet_entry(event.entity), self._clock.uptime()
        if entry is None:
            return
        if entry.silence is None:
            cause = "isolated by hand" if event.isolated else "after failures"
            entry.ledger.lost(entry.ledger.period, CIRCUIT_OPEN, cause, at)
        else:
            entry.ledger.silent("circuit open", at)

    def _on_goodbye(self, event: DeviceLeft) -> None:
        if (entry := self._quiet_entry(event.entity)) is not None:
            entry.ledger.silent(f"{GOODBYE}: {event.reason}", self._clock.uptime())

    def _on_drop(self, event: MessageDropped) -> None:
        entry = self._entries.get(self._topics.device_of(event.topic))
        word = event.topic.rsplit("/", 1)[-1]
        if entry is not None and (word in ("state", "history") or word not in RESERVED):
            entry.ledger.explain(event.reason)

    def _quiet_entry(self, name: str) -> LedgerEntry | None:
        """The entry of a device that gave no reading; None if it has no ledger."""
        entry = self._entries.get(name)
        if entry is not None:
            self._quiet[name] = entry
        return entry

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
        entry = None if name in self._disabled else self._quiet_entry(name)
        if entry is None:
            return []
        return restore(entry.ledger, found, self.now(), entry.schedule.slots, durable=durable)

    def rows(self, name: str, *, stopped: bool) -> Iterable[LedgerRow]:
        """The rows that the state file keeps of a device: those that changed since its period began. None of one
        that is not enabled.

        Raises:
            KeyError: there is no such device.
        """
        ledger = self._entries[name].ledger
        return () if name in self._disabled else rows(ledger, self.now(), self._first.offset, stopped=stopped)

    def end(self) -> None:
        """Readings that the broker does not have will never arrive."""
        now = self.now()
        for entry in self._entries.values():
            entry.ledger.end(now.uptime, LOST)

    def has_slots(self, name: str) -> bool:
        """Whether a device has a ledger with slots: a source has none."""
        return name in self._entries and self._entries[name].schedule.has_slots

    def counts_events(self, name: str) -> bool:
        """Whether a device has a ledger, and sends events."""
        return name in self._entries and self._entries[name].schedule.events

    def slots_since_start(self, name: str) -> Mapping[str, int]:
        """See `Ledger`.

        Raises:
            KeyError: there is no such device.
        """
        return self[name].ledger.slots_since_start()

    def availability(self, name: str) -> float | None:
        """The share of the slots in the ledger of a device that gave a reading, 0 to 1; None if there are none.

        Raises:
            KeyError: there is no such device.
        """
        share = self[name].ledger.availability()
        return None if share is None else share / 100

    def document(self, name: str, since: float = 0.0, most_gaps: int | None = None) -> dict[str, Json]:
        """The ledger of a device: a `leadsman.ledger.document.DeviceLedger`.

        Args:
            name: the device or side job.
            since: epoch seconds; earlier periods and gaps are left out.
            most_gaps: gaps at the most, the latest ones; None for all.

        Raises:
            KeyError: there is no such device.
        """
        ledger, now = self[name].ledger, self.now()
        periods = list(ledger.periods())
        ends = [*(each.start for each in periods[1:]), now.uptime]
        chosen = [each for each, end in zip(periods, ends, strict=True) if end + now.offset > since]
        gaps = [each for each in ledger.gaps() if each.until is None or each.until + now.offset >= since]
        by, slots = total(chosen), sum(each.slots for each in chosen)
        share = availability(by) if slots else None
        events = {"events": sum(by.values())} if self.counts_events(name) else {}
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

    def _notice(self) -> None:
        if self.on_news is not None:
            self.on_news()

    def _uptime(self, at: float, now: float) -> float:
        """A time in monotonic seconds, as the ledgers have it. `now`: this moment in monotonic seconds."""
        return self._clock.uptime() - now + at


def _gap(gap: Gap, now: Now) -> dict[str, Json]:
    until = now.uptime if gap.until is None else gap.until
    found: dict[str, Json] = {
        "since": rfc3339(gap.since + now.offset),
        "until": None if gap.until is None else rfc3339(gap.until + now.offset),
        "seconds": round(until - gap.since, 3),
        "cause": clean(gap.cause),
        "slots": dict(gap.slots),
    }
    return found | {"arrived": gap.arrived} if gap.arrived else found
