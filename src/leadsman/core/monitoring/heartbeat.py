"""Publishes the app's status at ``{prefix}/status``: birth, heartbeat, last status and will; and with it the
availability of each device at ``{prefix}/{device}/availability``.

A heartbeat is sent at a fixed interval, and within a second of every change of a device's status. It is about the size
of `MAX_DOCUMENT_BYTES` at most, so that it can be made in one piece. All these messages carry the number of the
session: an ``offline`` whose session is older than that of the last ``online`` is a will that came too late.

The availability of a device is published after each connection, and when it changes. When the app stops, only the app's
own status changes, as by the will after a crash.
"""

import asyncio
import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, cast

from leadsman.core.events import (
    CircuitMoved,
    Event,
    LinkUp,
    MessageDropped,
    PrefixShared,
    ReadingTaken,
    StateFailed,
    StateWritten,
)
from leadsman.core.loop.clock import Clock, rfc3339
from leadsman.core.loop.slices import Slices
from leadsman.core.monitoring.added_fields import AddedFields
from leadsman.core.monitoring.condition import condition_of, time_of
from leadsman.core.monitoring.health import NO_TROUBLE, OK, STARTING, Health
from leadsman.core.monitoring.log_output import left_out_lines
from leadsman.core.monitoring.statuses import StatusChange, Statuses
from leadsman.core.mqtt.link import Link
from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.outbox import Outbox
from leadsman.core.mqtt.topics import Topics, encode
from leadsman.core.resilience.environment import Environment, Snapshot
from leadsman.core.text import clean, describe

if TYPE_CHECKING:
    from leadsman.core.monitoring.document import (
        DroppedBy,
        LinkState,
        OutboxState,
        Status,
        StatusDevice,
        StatusMqtt,
        StatusOutbox,
        StatusWord,
        StoredReadings,
        TopicFault,
    )
    from leadsman.core.mqtt.topic_faults import TopicFault as Fault

MIN_INTERVAL_SECONDS = 1.0
"""The shortest time between two heartbeats, in seconds."""
RATE = 60.0
"""Seconds. Messages that were dropped in this period are counted together."""
_JUST_AFTER = 0.001
"""Seconds. A timer of the loop may be that early."""
MAX_DOCUMENT_BYTES = 64 * 1024
"""Bytes. A larger document contains counts instead, and only the first devices that are not ok."""
_ENTRY, _REPORT = 48, 512
"""Bytes that are expected of a device in a document, besides its name: if it is well, and if it is in trouble."""
_ENTITIES_PER_TURN = 200
"""Entities that are looked at in one turn of the loop, because time may have changed their status."""
_PLAIN: "Mapping[StatusWord, StatusDevice]" = {OK: {"status": OK}, STARTING: {"status": STARTING}}
"""The reports of devices that have nothing else to report."""


ANNOUNCED = 100
"""Devices that are announced in one slice."""
MAX_OUTBOX_MESSAGES = 1000
"""Messages in the outbox above which the announcement goes slowly, so that readings do not wait behind it."""
MAX_FAULTS = 20
"""Topics with a fault that a document lists."""
SLICE_INTERVAL = 0.1
"""Seconds between two slices of a slow announcement."""


class Heartbeat:
    """Publishes the status of the app, with its devices.

    Args:
        topics: the topics of the app.
        common: the fields of every document of the run: those of `offline`, and the client id.
        interval: seconds between heartbeats if nothing changes.
        statuses: the statuses of the devices and side jobs.
        link: sends the messages, and is described in them.
        environment: the clocks, and the events, which get the faults of sections.
        slices: does what is too long for one turn of the loop.
        snapshot: what a device's execution remembers, and epoch seconds of when it will be asked next, or None.
    """

    def __init__(
        self,
        topics: Topics,
        common: "Status",
        interval: float,
        statuses: Statuses,
        link: Link,
        environment: Environment,
        slices: Slices,
        *,
        snapshot: Callable[[str], tuple[Snapshot, float | None]],
    ) -> None:
        self._topics = topics
        self._common = common
        self._interval = interval
        self._statuses = statuses
        self._link = link
        self._clock = clock = environment.clock
        self._snapshot = snapshot
        self._started = clock.monotonic()
        self._slices = slices
        self._changed = asyncio.Event()
        statuses.on_change.add(self._notice_change)
        self._drops: deque[tuple[int, int]] = deque()
        self.state_files: dict[str, str] = {}
        """Files of the app's state that cannot be written at the moment, and why."""
        self.sections = AddedFields("a section of the heartbeat", environment.events.emit)
        """Called with each document, to add what the parts of the app say in it."""

    def on_reading(self, event: ReadingTaken) -> None:
        """As `observe`, the most frequent event."""
        if not self._statuses.stays_well(event.entity):
            self.observe(event)

    def observe(self, event: Event) -> None:
        """Process a new connection, or the effect of an event on the status of a device. Observes in
        `Phase.REPORT`."""
        if isinstance(event, LinkUp):
            self._send_status()
            self.announce()
            return
        entity: str | None = getattr(event, "entity", None)
        if entity is None:
            self._notice(event)
            return
        change = self._statuses.status_change(entity, event.at)
        if change is not None:
            self._notice_change(change)
        if type(event) is CircuitMoved:
            self._changed.set()  # also if the status stays, so that a probe can be watched

    def _notice(self, event: Event) -> None:
        match event:
            case StateFailed(file=file, error=error):
                self.state_files[clean(file)] = f"{type(error).__name__}: {describe(error)}"
                self._changed.set()
            case PrefixShared():
                self._changed.set()
            case StateWritten(file=file):
                self.state_files.pop(clean(file), None)
                self._changed.set()
            case MessageDropped(at=at, messages=messages, is_answer=False):
                second, dropped = self._drops.pop() if self._drops and self._drops[-1][0] == int(at) else (int(at), 0)
                self._drops.append((second, dropped + messages))
                while self._drops[0][0] < at - RATE:
                    self._drops.popleft()

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        while True:
            await self._let_time_pass()
            self._statuses.refresh(self._clock.monotonic())
            self._changed.clear()
            self._send_status()
            next_at = self._clock.monotonic() + self._interval
            await asyncio.sleep(MIN_INTERVAL_SECONDS)
            await self._change_or(next_at)

    async def _change_or(self, next_at: float) -> None:
        """Wait for a change of status, or until `next_at`. Staleness is seen by the clock, also when nothing
        happens."""
        while not self._changed.is_set() and (now := self._clock.monotonic()) < next_at:
            wait = min(next_at, self._statuses.next_at + _JUST_AFTER) - now
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                await self._let_time_pass()

    async def _let_time_pass(self) -> None:
        """Look at the entities whose status time may have changed."""
        while True:
            for change in self._statuses.advance(self._clock.monotonic(), _ENTITIES_PER_TURN):
                self._notice_change(change)
            if self._statuses.next_at > self._clock.monotonic():
                return
            await asyncio.sleep(0)

    def goodbye(self) -> None:
        """Publish that the app stops. That holds for all devices, as the will does."""
        self._send(self._topics.status, self._payload("offline"))

    def changed(self, joined: str | None = None) -> None:
        """Devices have come or gone: send a heartbeat soon, and the availability of the one that `joined`."""
        self._changed.set()
        if joined is not None:
            self._publish_availability(joined)

    def announce(self) -> None:
        """Begin to publish the availability of every device. It ends with the connection, for the next one begins it
        again."""
        self._slices.begin("the announcement of the devices", self._announcement(self._link.connects))

    def _publish_availability(self, entity: str) -> None:
        """Publish the availability of one device as it is now; nothing for a side job."""
        if entity not in self._statuses.jobs:
            self._send(self._topics.availability(entity), b"offline" if entity in self._statuses.offline else b"online")

    def _announcement(self, connects: int) -> Iterator[float]:
        for number, entity in enumerate(tuple(self._statuses.words), 1):
            if self._link.connects != connects:
                return
            if entity in self._statuses.words:  # a device may be forgotten meanwhile
                self._publish_availability(entity)
            if number % ANNOUNCED == 0:
                yield SLICE_INTERVAL if self._link.outbox.messages > MAX_OUTBOX_MESSAGES else 0.0

    def document(self, state: Literal["online", "offline"], listed: int | None = None) -> "Status":
        """The heartbeat of this moment. With `listed`, it contains counts, and at most so many of the devices that are
        not ok."""
        now, statuses, link = self._clock.monotonic(), self._statuses, self._link
        statuses.refresh(now)
        well = state == "online" and statuses.well and link.last_error is None and not self.state_files
        document: Status = {
            **self._common,
            "state": state,
            "session": link.number,
            "health": "ok" if well else "degraded",
            "at": rfc3339(self._clock.wall()),
            "uptime": round(now - self._started, 1),
            "mqtt": self._mqtt(now),
        }
        if self.state_files:
            document["state_files"] = dict(self.state_files)
        if (lines := left_out_lines()) > 0:
            document["log_lines_left_out"] = lines
        words, jobs = statuses.words, statuses.jobs
        if listed is None:
            document["devices"] = self._reports((entity for entity in words if entity not in jobs), now)
        else:
            bad = (entity for entity in statuses.troubled if words[entity] not in _PLAIN and entity not in jobs)
            document["devices"] = self._reports(itertools.islice(bad, listed), now)
            document["counts"] = statuses.counts - Counter(words[job] for job in jobs)
        if jobs:
            document["jobs"] = self._reports(jobs, now)
        self.sections.to(cast("dict[str, object]", document))
        return document

    def _mqtt(self, now: float) -> "StatusMqtt":
        waiting: StatusOutbox = {
            **outbox_state(self._link.outbox, self._clock),
            "dropped_last_minute": sum(dropped for second, dropped in self._drops if second > now - RATE),
        }
        return {**link_state(self._link, self._clock), "outbox": waiting}

    def _reports(self, entities: Iterable[str], now: float) -> "dict[str, StatusDevice]":
        records, words = self._statuses.records, self._statuses.words
        return {entity: self._report(entity, records[entity], words[entity], now) for entity in entities}

    def _report(self, entity: str, health: Health, status: "StatusWord", now: float) -> "StatusDevice":
        if health.trouble is NO_TROUBLE and status in _PLAIN and not health.counters.missed_polls:
            return _PLAIN[status]
        condition = condition_of(health, now, self._clock.wall())
        report: StatusDevice = {"status": status}
        if health.counters.missed_polls:
            report["missed_polls"] = health.counters.missed_polls
        if condition.poll_under_way is not None:
            report["poll_under_way"] = condition.poll_under_way
        if condition.deferred_until is not None:
            report["deferred_until"] = condition.deferred_until
        if condition.deferred_until is not None or condition.left:
            report["deferred_reason"] = condition.deferred_reason
        if status in _PLAIN:
            return report
        if condition.stale:
            report["stale"] = True
        snapshot, next_poll = self._snapshot(entity)
        if snapshot.opened_at is not None:
            report["opened_at"] = rfc3339(self._clock.wall() - now + snapshot.opened_at)
            report["opens"] = snapshot.opens
        return {
            **report,
            "consecutive_failures": condition.failures,
            "attempts": snapshot.attempts,
            "failing_since": condition.failing_since,
            "last_error": condition.error,
            "last_success_at": condition.last_success_at,
            "circuit": condition.circuit,
            "retries": health.counters.retries,
            "polls": health.polls,
            "failed_polls": health.counters.failed_polls,
            "next_poll_at": time_of(next_poll),
        }

    def _notice_change(self, change: StatusChange) -> None:
        self._changed.set()
        if change.online is not None:
            self._publish_availability(change.entity)

    def _send_status(self) -> None:
        if not self._link.up:
            return  # once there is a connection, the birth contains it all
        self._send(self._topics.status, self._payload("online"))

    def _payload(self, state: Literal["online", "offline"]) -> bytes:
        statuses = self._statuses
        size = statuses.characters + _ENTRY * len(statuses.words) + _REPORT * len(statuses.troubled)
        listed = None if size <= MAX_DOCUMENT_BYTES else MAX_DOCUMENT_BYTES // _REPORT
        payload = encode(self.document(state, listed))
        while len(payload) > MAX_DOCUMENT_BYTES and listed != 0:  # the messages of their errors are long
            listed = MAX_DOCUMENT_BYTES // _REPORT if listed is None else listed // 2
            payload = encode(self.document(state, listed))
        return payload

    def _send(self, topic: str, payload: bytes) -> None:
        self._link.put(Message(topic, payload, qos=1, retain=True, latest=True))


def link_state(link: Link, clock: Clock) -> "LinkState":
    """The fields of each report about the connection to the broker."""
    found: LinkState = {
        "broker": str(link.broker),
        "protocol": link.session.protocol,
        "client": link.client,
        "connects": link.connects,
        "breaks": link.breaks,
        "limited_by": link.limited_by,
        "last_error": link.last_error,
    }
    if faults := link.faults:
        ahead = clock.wall() - clock.monotonic()
        found["faults"] = {
            clean(topic): describe_fault(each, ahead) for topic, each in itertools.islice(faults.items(), MAX_FAULTS)
        }
    return found


def describe_fault(fault: "Fault", ahead: float) -> "TopicFault":
    """What is wrong with a topic. `ahead`: what epoch seconds are ahead of monotonic seconds."""
    found: TopicFault = {
        "kind": fault.kind,
        "error": clean(fault.text),
        "since": rfc3339(fault.since + ahead),
        "lost": fault.lost,
    }
    if fault.lost:
        found["lost_at"] = rfc3339(fault.lost_at + ahead)
    if fault.taken:
        found["taken"] = fault.taken
    return found


def outbox_state(outbox: Outbox, clock: Clock) -> "OutboxState":
    """The fields of each report about the messages that wait."""
    taken = outbox.oldest(clock.offset())
    found: OutboxState = {
        "messages": outbox.messages,
        "bytes": outbox.bytes,
        "oldest": None if taken is None else max(0.0, round(clock.uptime() - taken, 3)),
        "dropped": outbox.dropped,
        "dropped_by": cast("DroppedBy", {cause: messages for cause, messages in outbox.drops.items() if messages}),
    }
    if outbox.on_disk is not None:
        found["on_disk"] = cast("StoredReadings", outbox.on_disk._asdict())
    return found


def will(version: str, session: int, *, dry_run: bool) -> bytes:
    """The message that the broker publishes when the connection breaks."""
    return encode(offline(version, session, dry_run=dry_run))


def offline(version: str, session: int, *, dry_run: bool) -> "Status":
    """The document of an app of which nobody knows more than that it is not there."""
    found: Status = {"state": "offline", "session": session, "health": "degraded", "version": version}
    if dry_run:
        found["dry_run"] = True
    return found
