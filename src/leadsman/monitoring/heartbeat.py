"""Publishes the app's status at ``{prefix}/status`` (birth, heartbeat, goodbye and will), and ``online`` or ``offline``
for each device.

A heartbeat is sent at a fixed interval, and within a second of every change of a device's status. Its contents are read
from the ledger when it is sent. All these messages carry the number of the session: an ``offline`` whose session is
older than that of the last ``online`` is a will that came too late.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping

from leadsman.events import CircuitMoved, Event, LinkUp, MessageDropped, StateFailed, StateWritten
from leadsman.monitoring.health import DEFERRED, OK, STARTING, WELL, Health, Ledger, is_deferred, is_offline, is_stale
from leadsman.mqtt.link import Link
from leadsman.mqtt.message import Message
from leadsman.mqtt.topics import Topics, encode
from leadsman.resilience.environment import Snapshot
from leadsman.text import clean, describe
from leadsman.timing.clock import Clock, rfc3339

MOST_OFTEN = 1.0
"""The shortest time between two heartbeats, in seconds."""
RATE = 60.0
"""Seconds. Messages that were dropped in this period are counted together."""
_JUST_AFTER = 0.001
"""Seconds. A device is stale after its time, not at it."""
LARGEST = 64 * 1024
"""Bytes. A larger document contains counts instead, and only the devices that are not ok."""


class Heartbeat:
    """Publishes the status of the app and of its devices.

    Args:
        topics: the topics of the app.
        constants: fields of every document: the version, and ``dry_run`` in a dry run.
        interval: seconds between heartbeats if nothing changes.
        ledger: the health records of the devices.
        link: sends the messages, and is described in them.
        clock: the clocks.
        jobs: the entities that are side jobs, which have no topics.
        look: what a device's execution remembers, and epoch seconds of when it will be asked next, or None.
    """

    def __init__(
        self,
        topics: Topics,
        constants: Mapping[str, object],
        interval: float,
        ledger: Ledger,
        link: Link,
        clock: Clock,
        *,
        look: Callable[[str], tuple[Snapshot, float | None]],
        jobs: frozenset[str] = frozenset(),
    ) -> None:
        self._topics = topics
        self._constants = constants
        self._interval = interval
        self._ledger = ledger
        self._link = link
        self._clock = clock
        self._look = look
        self._jobs = jobs
        self._started = clock.monotonic()
        now = self._started
        self._statuses = {entity: ledger.status(entity, now) for entity in ledger.entities}
        self._offline = {
            entity for entity, word in self._statuses.items() if is_offline(word, ledger.entities[entity], now)
        }
        self._changed = asyncio.Event()
        self._drops: deque[tuple[int, int]] = deque()
        self.state_files: dict[str, str] = {}
        """Files of the app's state that cannot be written at the moment, and why."""

    def observe(self, event: Event) -> None:
        """Process a new connection, or the effect of an event on the status of a device. Observes in `Phase.REPORT`."""
        if isinstance(event, LinkUp):
            self._announce()
            return
        entity: str | None = getattr(event, "entity", None)
        if entity is None:
            self._notice(event)
            return
        self._look_at(entity, event.at)
        if type(event) is CircuitMoved:
            self._changed.set()  # also if the status stays, so that a probe can be watched

    def _notice(self, event: Event) -> None:
        match event:
            case StateFailed(file=file, error=error):
                self.state_files[clean(file)] = f"{type(error).__name__}: {describe(error)}"
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
            self._changed.clear()
            self._send_status()
            next_at = self._clock.monotonic() + self._interval
            await asyncio.sleep(MOST_OFTEN)
            self._look_at_all()
            await self._change_or(next_at)
            self._look_at_all()  # so that the document and the availability topics agree

    async def _change_or(self, next_at: float) -> None:
        """Wait for a change of status, or until `next_at`. Staleness is seen by the clock, also when nothing
        happens."""
        while not self._changed.is_set() and (now := self._clock.monotonic()) < next_at:
            wait = min(next_at, self._ledger.next_change(now) + _JUST_AFTER) - now
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                self._look_at_all()

    def goodbye(self) -> None:
        """Publish that the app stops: the app and every device are offline."""
        for entity in self._statuses:
            self._send_availability(entity, online=False)
        self._send(self._topics.status, self._payload("offline"))

    def document(self, state: str) -> dict[str, object]:
        """The heartbeat of this moment."""
        now = self._clock.monotonic()
        reports = self._devices()
        devices = {entity: each for entity, each in reports.items() if entity not in self._jobs}
        jobs = {"jobs": {entity: reports[entity] for entity in self._jobs}} if self._jobs else {}
        link, outbox = self._link, self._link.outbox
        trouble = {"state_files": dict(self.state_files)} if self.state_files else {}
        well = (
            state == "online" and all(status in WELL for status in self._statuses.values()) and link.last_error is None
        )
        return {
            "state": state,
            "session": link.number,
            "health": "ok" if well and not trouble else "degraded",
            "uptime_s": round(now - self._started, 1),
            **self._constants,
            "mqtt": {
                "protocol": link.session.protocol,
                "connects": link.connects,
                "outbox_messages": outbox.messages,
                "outbox_bytes": outbox.bytes,
                "dropped": outbox.dropped,
                "dropped_last_minute": sum(dropped for second, dropped in self._drops if second > now - RATE),
                "last_error": link.last_error,
            },
            **trouble,
            "devices": devices,
            **jobs,
        }

    def _devices(self) -> dict[str, dict[str, object]]:
        now = self._clock.monotonic()
        return {entity: self._device(entity, now) for entity in self._statuses}

    def _device(self, entity: str, now: float) -> dict[str, object]:
        health, status = self._ledger.entities[entity], self._ledger.status(entity, now)
        report: dict[str, object] = {"status": status}
        if is_stale(health, now):
            report["stale"] = True
        if health.counters.missed:
            report["missed_polls"] = health.counters.missed
        wall = self._clock.wall() - now
        if (poll := under_way(health, wall)) is not None:
            report["poll_under_way"] = poll
        if health.trouble.deferred_until is not None and is_deferred(health, now):
            report["deferred_until"] = rfc3339(wall + health.trouble.deferred_until)
            report["deferred_reason"] = health.trouble.deferred_reason
        if status not in (OK, STARTING):
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

    def _announce(self) -> None:
        self._send_status()
        for entity in self._statuses:
            self._send_availability(entity, online=entity not in self._offline)

    def _look_at_all(self) -> None:
        now = self._clock.monotonic()
        for entity in self._statuses:
            self._look_at(entity, now)

    def _look_at(self, entity: str, now: float) -> None:
        before, status = self._statuses[entity], self._ledger.status(entity, now)
        if status == before and status != DEFERRED:
            return
        self._statuses[entity] = status
        offline = is_offline(status, self._ledger.entities[entity], now)
        if offline != (entity in self._offline):
            (self._offline.add if offline else self._offline.discard)(entity)
            self._send_availability(entity, online=not offline)
        elif status == before:
            return
        self._changed.set()

    def _send_status(self) -> None:
        if not self._link.up:
            return  # once there is a connection, the birth contains it all
        self._send(self._topics.status, self._payload("online"))

    def _payload(self, state: str) -> bytes:
        document = self.document(state)
        payload = encode(document)
        if len(payload) > LARGEST:
            devices = {name: each for name, each in self._devices().items() if name not in self._jobs}
            document["counts"] = Counter(str(each["status"]) for each in devices.values())
            document["devices"] = {name: each for name, each in devices.items() if each["status"] not in (OK, STARTING)}
            payload = encode(document)
        return payload

    def _send_availability(self, entity: str, *, online: bool) -> None:
        if entity in self._jobs:
            return
        self._send(self._topics.availability(entity), b"online" if online else b"offline")

    def _send(self, topic: str, payload: bytes) -> None:
        self._link.put(Message(topic, payload, qos=1, retain=True, latest=True))


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
