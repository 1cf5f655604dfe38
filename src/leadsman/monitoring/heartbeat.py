"""Publishes the app's status at ``{prefix}/status``: birth, heartbeat, goodbye and will.

A heartbeat is sent at a fixed interval, and within a second of every change of a device's status. It is about the size
of `LARGEST` at most, so that it can be made in one piece. All these messages carry the number of the session: an
``offline`` whose session is older than that of the last ``online`` is a will that came too late.
"""

import asyncio
import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping

from leadsman.events import CircuitMoved, Event, LinkUp, MessageDropped, PrefixShared, StateFailed, StateWritten
from leadsman.loop.clock import Clock, rfc3339
from leadsman.loop.slices import Slices
from leadsman.monitoring.availability import Availability
from leadsman.monitoring.health import GOODBYE, NO_TROUBLE, OK, STARTING, Health, is_deferred, is_stale
from leadsman.monitoring.statuses import Change, Statuses
from leadsman.mqtt.link import Link
from leadsman.mqtt.message import Message
from leadsman.mqtt.outbox import Outbox
from leadsman.mqtt.topics import Topics, encode
from leadsman.resilience.environment import Snapshot
from leadsman.text import clean, describe

MOST_OFTEN = 1.0
"""The shortest time between two heartbeats, in seconds."""
RATE = 60.0
"""Seconds. Messages that were dropped in this period are counted together."""
_JUST_AFTER = 0.001
"""Seconds. A timer of the loop may be that early."""
LARGEST = 64 * 1024
"""Bytes. A larger document contains counts instead, and only the first devices that are not ok."""
_ENTRY, _REPORT = 48, 512
"""Bytes that are expected of a device in a document, besides its name: if it is well, and if it is in trouble."""
_SLICE = 200
"""Entities that are looked at in one turn of the loop, because time may have changed their status."""
_PLAIN: Mapping[str, dict[str, object]] = {word: {"status": word} for word in (OK, STARTING)}
"""The reports of devices of which there is nothing else to say."""


class Heartbeat:
    """Publishes the status of the app, with its devices.

    Args:
        topics: the topics of the app.
        constants: fields of every document: the version, the client id, and ``dry_run`` in a dry run.
        interval: seconds between heartbeats if nothing changes.
        statuses: the statuses of the devices and side jobs.
        link: sends the messages, and is described in them.
        clock: the clocks.
        slices: does what is too long for one turn of the loop.
        look: what a device's execution remembers, and epoch seconds of when it will be asked next, or None.
    """

    def __init__(
        self,
        topics: Topics,
        constants: Mapping[str, object],
        interval: float,
        statuses: Statuses,
        link: Link,
        clock: Clock,
        slices: Slices,
        *,
        look: Callable[[str], tuple[Snapshot, float | None]],
    ) -> None:
        self._topics = topics
        self._constants = constants
        self._interval = interval
        self._statuses = statuses
        self._link = link
        self._clock = clock
        self._look = look
        self._started = clock.monotonic()
        self._availability = Availability(topics, statuses, link, slices)
        self._changed = asyncio.Event()
        statuses.on_change = self._notice_change
        self._drops: deque[tuple[int, int]] = deque()
        self.state_files: dict[str, str] = {}
        """Files of the app's state that cannot be written at the moment, and why."""
        self.nodes: Callable[[], Mapping[str, int]] | None = None
        """How many nodes share the app, by what they are; None if it shares it with no other."""

    def observe(self, event: Event) -> None:
        """Process a new connection, or the effect of an event on the status of a device. Observes in `Phase.REPORT`."""
        if isinstance(event, LinkUp):
            self._send_status()
            self._availability.announce()
            return
        entity: str | None = getattr(event, "entity", None)
        if entity is None:
            self._notice(event)
            return
        change = self._statuses.look(entity, event.at)
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
            case MessageDropped(at=at, messages=messages):
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
            await asyncio.sleep(MOST_OFTEN)
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
            for change in self._statuses.advance(self._clock.monotonic(), _SLICE):
                self._notice_change(change)
            if self._statuses.next_at > self._clock.monotonic():
                return
            await asyncio.sleep(0)

    def goodbye(self) -> None:
        """Publish that the app stops. That says it for all devices, as the will does."""
        self._send(self._topics.status, self._payload("offline"))

    def changed(self, joined: str | None = None) -> None:
        """Devices have come or gone: send a heartbeat soon, and the availability of the one that `joined`."""
        self._changed.set()
        if joined is not None:
            self._availability.say(joined)

    def announce(self) -> None:
        """Begin to publish the availability of every device once more."""
        self._availability.announce()

    def document(self, state: str, listed: int | None = None) -> dict[str, object]:
        """The heartbeat of this moment. With `listed`, it contains counts, and at most so many of the devices that are
        not ok."""
        now = self._clock.monotonic()
        self._statuses.refresh(now)
        jobs = {"jobs": self._reports(self._statuses.jobs, now)} if self._statuses.jobs else {}
        link, outbox = self._link, self._link.outbox
        trouble = {"state_files": dict(self.state_files)} if self.state_files else {}
        well = state == "online" and self._statuses.well and link.last_error is None
        return {
            "state": state,
            "session": link.number,
            "health": "ok" if well and not trouble else "degraded",
            "at": rfc3339(self._clock.wall()),
            "uptime_s": round(now - self._started, 1),
            **self._constants,
            "mqtt": {
                "broker": str(link.broker),
                "protocol": link.session.protocol,
                "client": link.client,
                "connects": link.connects,
                "breaks": link.breaks,
                "outbox_messages": outbox.messages,
                "outbox_bytes": outbox.bytes,
                **on_disk(outbox),
                **oldest(outbox, self._clock),
                "dropped": outbox.dropped,
                "dropped_by": dropped_by(outbox),
                "dropped_last_minute": sum(dropped for second, dropped in self._drops if second > now - RATE),
                "limited_by": link.limited_by,
                "last_error": link.last_error,
            },
            **trouble,
            **({} if self.nodes is None else {"nodes": dict(self.nodes())}),
            **self._devices(now, listed),
            **jobs,
        }

    def _devices(self, now: float, listed: int | None) -> dict[str, object]:
        words, jobs = self._statuses.words, self._statuses.jobs
        if listed is None:
            return {"devices": self._reports((entity for entity in words if entity not in jobs), now)}
        bad = (entity for entity in self._statuses.troubled if words[entity] not in _PLAIN and entity not in jobs)
        counts = self._statuses.counts - Counter(words[job] for job in jobs)
        return {"devices": self._reports(itertools.islice(bad, listed), now), "counts": counts}

    def _reports(self, entities: Iterable[str], now: float) -> dict[str, dict[str, object]]:
        records, words = self._statuses.records, self._statuses.words
        return {entity: self._report(entity, records[entity], words[entity], now) for entity in entities}

    def _report(self, entity: str, health: Health, status: str, now: float) -> dict[str, object]:
        if health.trouble is NO_TROUBLE and status in _PLAIN and not health.counters.missed:
            return _PLAIN[status]
        report: dict[str, object] = {"status": status}
        if status not in _PLAIN and is_stale(health, now):
            report["stale"] = True
        if health.counters.missed:
            report["missed_polls"] = health.counters.missed
        wall = self._clock.wall() - now
        if (poll := under_way(health, wall)) is not None:
            report["poll_under_way"] = poll
        until = health.trouble.deferred_until if is_deferred(health, now) else None
        if until is not None:
            report["deferred_until"] = rfc3339(wall + until)
        if until is not None or health.trouble.left is not None:
            report["deferred_reason"] = deferred_reason(health, until)
        if status not in _PLAIN:
            report |= self._trouble(entity, health, wall)
        return report

    def _trouble(self, entity: str, health: Health, wall: float) -> dict[str, object]:
        snapshot, next_poll = self._look(entity)
        report = failure_of(health, snapshot, wall) | {
            "circuit": health.circuit,
            "retries": health.counters.retries,
            "polls": health.polls,
            "failed_polls": health.counters.failed_polls,
            "next_poll_at": None if next_poll is None else rfc3339(next_poll),
        }
        if snapshot.opened_at is None:
            del report["opened_at"]
        else:
            report["opens"] = snapshot.opens
        return report

    def _notice_change(self, change: Change) -> None:
        self._changed.set()
        if change.online is not None:
            self._availability.say(change.entity)

    def _send_status(self) -> None:
        if not self._link.up:
            return  # once there is a connection, the birth contains it all
        self._send(self._topics.status, self._payload("online"))

    def _payload(self, state: str) -> bytes:
        statuses = self._statuses
        size = statuses.characters + _ENTRY * len(statuses.words) + _REPORT * len(statuses.troubled)
        listed = None if size <= LARGEST else LARGEST // _REPORT
        payload = encode(self.document(state, listed))
        while len(payload) > LARGEST and listed != 0:  # the messages of their errors are long
            listed = LARGEST // _REPORT if listed is None else listed // 2
            payload = encode(self.document(state, listed))
        return payload

    def _send(self, topic: str, payload: bytes) -> None:
        self._link.put(Message(topic, payload, qos=1, retain=True, latest=True))


def on_disk(outbox: Outbox) -> dict[str, object]:
    """What the heartbeat says of readings on disk."""
    found = outbox.on_disk
    return {} if found is None else {"on_disk": found._asdict()}


def oldest(outbox: Outbox, clock: Clock) -> dict[str, object]:
    """What the heartbeat says of the oldest reading that waits."""
    taken = outbox.oldest(clock.offset())
    return {} if taken is None else {"oldest_s": max(0.0, round(clock.uptime() - taken, 1))}


def dropped_by(outbox: Outbox) -> dict[str, int]:
    """The messages that were dropped since the start, by cause."""
    return {cause: messages for cause, messages in outbox.drops.items() if messages}


def will(version: str, session: int, *, dry_run: bool) -> bytes:
    """The document that the broker publishes when the connection breaks."""
    document = {"state": "offline", "session": session, "health": "degraded", "version": version}
    return encode(document | ({"dry_run": True} if dry_run else {}))


def failure_of(health: Health, snapshot: Snapshot, wall: float) -> dict[str, object]:
    """What the heartbeat and introspection both report of a failing device; `wall` is epoch minus monotonic seconds."""
    opened, since = snapshot.opened_at, health.failing_since
    return {
        "consecutive_failures": health.trouble.failures,
        "attempts": snapshot.attempts,
        "opened_at": None if opened is None else rfc3339(wall + opened),
        "failing_since": None if since is None else rfc3339(since),
        "last_error": None
        if health.trouble.error_type is None
        else f"{health.trouble.error_type}: {health.trouble.error_message}",
        "last_success_at": None if health.success_wall is None else rfc3339(health.success_wall),
    }


def deferred_until(health: Health, snapshot: Snapshot, now: float) -> float | None:
    """The end of the pause that a device asked for, monotonic seconds; None if there is none. The poll at its end may
    be under way, or late, so it may have passed."""
    if snapshot.deferred_until is None and is_deferred(health, now):
        return health.trouble.deferred_until
    return snapshot.deferred_until


def deferred_reason(health: Health, until: float | None) -> str | None:
    """Why a device is deferred: the reason of its goodbye comes before that of its pause, which ends at `until`."""
    if health.trouble.left is not None:
        return f"{GOODBYE}: {health.trouble.left}"
    return None if until is None else health.trouble.deferred_reason


def under_way(health: Health, wall: float) -> dict[str, object] | None:
    """The report of a poll that retries after failed calls; `wall` is epoch minus monotonic seconds."""
    poll = health.trouble.trying
    if poll is None or poll.next_at is None:
        return None
    return {
        "failed_calls": poll.calls,
        "last_error": f"{poll.error_type}: {poll.error_message}",
        "next_call_at": rfc3339(wall + poll.next_at),
    }
