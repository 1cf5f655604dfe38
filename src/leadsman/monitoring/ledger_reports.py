"""Publishes the ledger of each device at ``{prefix}/{device}/ledger``, and describes it for introspection.

The ledger begins a new period at each full hour of the wall clock, and is published then; and within a minute after a
gap has ended. Nothing is published while there is no connection, but a minute after the next one.
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from leadsman.events import Event, LinkUp, MessageDropped
from leadsman.monitoring.ledger import DISABLED, Gap, Ledger, availability, total
from leadsman.monitoring.ledger_state import HOUR, LOST, Now, Row, restore, rows
from leadsman.mqtt.answers import Json
from leadsman.mqtt.link import Link
from leadsman.mqtt.message import Message
from leadsman.mqtt.topics import Topics, encode
from leadsman.resilience.environment import Environment
from leadsman.slices import Slices
from leadsman.text import clean
from leadsman.timing.clock import rfc3339
from leadsman.timing.schedule import Cron, slots_between

SAID = 24 * HOUR
"""Seconds of history in the message of a device. Introspection has all of it."""
MOST_SAID = 20
"""Gaps in the message of a device."""
SOON = 60.0
"""Seconds between two times at which gaps that have ended are published; and from a connection to the ledgers that
could not be published without it, or that the broker may have lost with the session."""
SLICE = 10
"""Devices in one turn of the event loop."""
MOST_WAITING = 512 * 1024
"""Bytes in the outbox above which the next device waits, so that ledgers do not displace readings."""
PAUSE = 0.1
"""Seconds between two looks at the outbox."""


class Schedule(NamedTuple):
    """When a device is due: an interval in seconds, or a cron expression; a source has neither."""

    interval: float | None = None
    cron: Cron | None = None

    def slots(self, origin: float, since: float, until: float) -> int:
        """The slots after `since`, up to and including `until`; see `leadsman.timing.schedule.slots_between`."""
        if self.interval is None and self.cron is None:
            return 0
        return slots_between(self.cron, self.interval or 0.0, origin, since, until)


class _Entry(NamedTuple):
    ledger: Ledger
    schedule: Schedule
    said: bool
    """Whether the ledger is published: a side job has no topics."""


class LedgerReports:
    """Publishes and describes the ledgers of an app. An alarm in the heap.

    Args:
        topics: the topics of the app.
        link: sends the messages.
        environment: clock and timers.
        slices: publishes the ledgers of all devices.
    """

    def __init__(self, topics: Topics, link: Link, environment: Environment, slices: Slices) -> None:
        self.save: Callable[[str, Iterable[Row]], None] | None = None
        """Takes what has changed of a ledger, by the name of its device; None if no state is kept."""
        self.durable = False
        """Whether readings that wait as the app ends are on disk, and sent by its next life."""
        self._topics = topics
        self._link = link
        self._environment = environment
        self._slices = slices
        self._entries: dict[str, _Entry] = {}
        self._schedules: dict[Schedule, Schedule] = {}  # one object for all devices with the same schedule
        self._disabled: dict[str, Now] = {}
        self._first = self._now()
        self._noticed = self._unsaid = self._said = self._repeats = self._started = False
        self._said_at = -math.inf

    def add(self, name: str, ledger: Ledger, schedule: Schedule, *, job: bool = False) -> None:
        """Add the ledger of a device that is read, or of a side job."""
        self._entries[name] = _Entry(ledger, self._schedules.setdefault(schedule, schedule), not job)
        if self._started:
            ledger.on_news = self._notice

    def remove(self, name: str) -> None:
        """Remove the ledger of a device."""
        del self._entries[name]

    def add_disabled(self, name: str, schedule: Schedule, *, job: bool = False) -> None:
        """Add a device that is not enabled. Its slots are counted all the same."""
        self.add(name, Ledger(self._first.uptime), schedule, job=job)
        self._disabled[name] = self._first

    def start(self) -> None:
        """Begin to publish."""
        self._started = True
        notice = self._notice  # one bound method for all devices
        for name, entry in self._entries.items():
            if name not in self._disabled:
                entry.ledger.on_news = notice
        self._arm()

    def ring(self, now: float) -> None:
        """A full hour: begin a new period."""
        self._arm()
        self._slices.begin("the ledger", self._round(self._entries, begin=True))

    def observe(self, event: Event) -> None:
        """Learn why readings were dropped, and that there is a connection. Observes in `Phase.REPORT`."""
        if isinstance(event, MessageDropped):
            entry = self._entries.get(self._topics.device_of(event.topic))
            if entry is not None and event.topic.endswith(("/state", "/history")):
                entry.ledger.explain(event.reason)
        elif isinstance(event, LinkUp) and (self._unsaid or (self._said and not self._link.resumed)):
            self._unsaid = False
            if not self._repeats:
                self._repeats = True
                asyncio.get_running_loop().call_later(SOON, self._say_all)

    def restore(self, name: str, found: Iterable[Row]) -> None:
        """Continue the ledger of an earlier run.

        Raises:
            LookupError, TypeError, ValueError: the rows are damaged.
        """
        entry = self._entries.get(name)
        if entry is not None and name not in self._disabled:
            changed = restore(entry.ledger, found, self._now(), entry.schedule.slots, durable=self.durable)
            if changed and self.save is not None:
                self.save(name, changed)

    def stop(self) -> None:
        """The app has ended, and the broker has all that it will have."""
        now = self._now()
        for name, entry in self._entries.items():
            entry.ledger.on_news = None
            if not self.durable:
                entry.ledger.end(now.uptime, LOST)
            self._save(name, entry, now, stopped=True)

    def document(self, name: str, since: float = 0.0, most_gaps: int | None = None) -> dict[str, Json]:
        """The ledger of a device: a `leadsman.introspection.document.DeviceLedger`.

        Args:
            name: the device or side job.
            since: epoch seconds; earlier periods and gaps are left out.
            most_gaps: gaps at the most, the latest ones; None for all.

        Raises:
            KeyError: there is no such device.
        """
        ledger, now = self._entries[name].ledger, self._now()
        self._count_disabled(name, now)
        periods = list(ledger.periods())
        ends = [*(each.start for each in periods[1:]), now.uptime]
        chosen = [each for each, end in zip(periods, ends, strict=True) if end + now.offset > since]
        gaps = [each for each in ledger.gaps() if each.until is None or each.until + now.offset >= since]
        by, slots = total(chosen), sum(each.slots for each in chosen)
        share = availability(by) if slots else None
        return {
            "at": rfc3339(now.wall),
            "slots": slots,
            "counts": by,
            "availability": None if share is None else round(share, 3),
            "hours": [
                {"start": rfc3339(round(each.start + now.offset)), "slots": each.slots, "counts": dict(each.by)}
                for each in chosen
            ],
            "gaps": [_gap(each, now) for each in (gaps if most_gaps is None else gaps[-most_gaps:])],
        }

    def ledger(self, name: str) -> Ledger:
        """The ledger of a device as it is now.

        Raises:
            KeyError: there is no such device.
        """
        self._count_disabled(name, self._now())
        return self._entries[name].ledger

    def has_slots(self, name: str) -> bool:
        """Whether a device has a schedule, and so slots."""
        schedule = self._entries[name].schedule
        return schedule.interval is not None or schedule.cron is not None

    @property
    def started(self) -> float:
        """When the app started. Periods that began before are those of earlier runs."""
        return self._first.uptime

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def _now(self) -> Now:
        clock = self._environment.clock
        return Now(clock.uptime(), clock.wall())

    def _arm(self) -> None:
        """Ring at the next full hour of the wall clock, or at the one after it if that is less than a minute away."""
        clock = self._environment.clock
        wait = HOUR - clock.wall() % HOUR
        self._environment.timers.add(clock.monotonic() + wait + (HOUR if wait < SOON else 0.0), self)

    def _notice(self) -> None:
        """A gap has ended."""
        if not self._noticed:
            self._noticed = True
            now = self._environment.clock.monotonic()
            wait = max(1.0, self._said_at + SOON - now)
            asyncio.get_running_loop().call_later(wait, self._say_news)

    def _say_all(self) -> None:
        self._repeats = False
        self._slices.begin("the ledger", self._round(self._entries, begin=False))

    def _say_news(self) -> None:
        self._noticed, self._said_at = False, self._environment.clock.monotonic()
        names = [name for name, entry in self._entries.items() if entry.ledger.news]
        self._slices.begin("the ledger", self._round(names, begin=False))

    def _round(self, names: Iterable[str], *, begin: bool) -> Iterator[float]:
        """Publish these ledgers, and save them; with `begin`, a new period begins for each."""
        for number, name in enumerate(tuple(names), 1):
            if name not in self._entries:  # it was forgotten meanwhile
                continue
            entry, now = self._entries[name], self._now()
            self._count_disabled(name, now)
            self._save(name, entry, now, stopped=False)
            if begin:
                entry.ledger.begin(now.uptime)
            entry.ledger.news = False
            if entry.said:
                while self._link.up and self._link.outbox.bytes > MOST_WAITING:
                    yield PAUSE
                self._say(name, now)
            if number % SLICE == 0:
                yield 0.0

    def _say(self, name: str, now: Now) -> None:
        if not self._link.up:
            self._unsaid = True
            return
        self._said = True
        payload = encode(self.document(name, now.wall - SAID, MOST_SAID))
        self._link.put(Message(self._topics.of(name, "ledger"), payload, 1, retain=True, latest=True))

    def _save(self, name: str, entry: _Entry, now: Now, *, stopped: bool) -> None:
        if self.save is not None and name not in self._disabled:
            self.save(name, rows(entry.ledger, now, self._first.offset, stopped=stopped))

    def _count_disabled(self, name: str, now: Now) -> None:
        """Count the slots of a device that is not enabled, since they were counted last."""
        before = self._disabled.get(name)
        if before is None:
            return
        entry = self._entries[name]
        if entry.schedule.cron is None:
            slots = entry.schedule.slots(self._first.uptime, before.uptime, now.uptime)
        else:
            slots = entry.schedule.slots(0.0, before.wall, now.wall)
        self._disabled[name] = now
        if slots:
            entry.ledger.period.slots += slots
            entry.ledger.period.add(DISABLED, slots)


def _gap(gap: Gap, now: Now) -> dict[str, Json]:
    until = now.uptime if gap.until is None else gap.until
    return {
        "since": rfc3339(gap.since + now.offset),
        "until": None if gap.until is None else rfc3339(gap.until + now.offset),
        "seconds": round(until - gap.since, 3),
        "cause": clean(gap.cause),
        "slots": dict(gap.slots),
    }
