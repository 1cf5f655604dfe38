"""Answers introspection requests at ``{prefix}/introspect`` with one document, and publishes ``{prefix}/registry``, a
list of what an app offers.

Reading changes nothing. The documents contain no secrets: adapters and handlers are shown by their names, the broker by
its address, and everything that a person wrote passes through `leadsman.text.clean`.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from leadsman.adapters.managed import ManagedAdapter
from leadsman.errors import PayloadError
from leadsman.introspection.registrations import kind_of, registered
from leadsman.monitoring.health import Ledger, is_stale
from leadsman.monitoring.heartbeat import under_way
from leadsman.mqtt.connection import Received
from leadsman.mqtt.link import Link
from leadsman.mqtt.message import Message
from leadsman.mqtt.requests import Json, answered
from leadsman.mqtt.topics import Topics, encode
from leadsman.registration.command import Command
from leadsman.registration.source import Source
from leadsman.registration.telemetry import Telemetry
from leadsman.runtime.publisher import PublisherContext
from leadsman.runtime.runner import Runners
from leadsman.text import clean, suggestion
from leadsman.timing.clock import rfc3339

if TYPE_CHECKING:
    from leadsman.introspection.document import (
        AdapterSection,
        AppSection,
        DeviceSection,
        Introspection,
        MqttSection,
        Registry,
        Runtime,
        TraceRow,
    )
    from leadsman.monitoring.trace import Trace

SECTIONS = ("app", "mqtt", "adapters", "devices", "jobs")
ASKED_FOR = ("trace",)
"""Sections that come only to whoever names them."""
LARGEST = 1024 * 1024 - 1024
"""Bytes of an answer; the outbox takes no more in one message."""
KEYS = ("sections", "devices", "after", "since")
"""Of a request."""
EXPIRY = 10.0
"""Seconds after which nobody waits for an answer any more."""


class About(NamedTuple):
    """What the app says of itself."""

    name: str
    version: str
    leadsman: str
    topics: Topics
    broker: str
    client_id: str


class Parts(NamedTuple):
    """Where it looks."""

    ledger: Ledger
    link: Link
    runners: Runners
    slots: Sequence[ManagedAdapter]
    traces: "Sequence[Trace]"
    """The trace, once there is something in it."""
    state_files: Mapping[str, str]
    """Files of the app's state that cannot be written at the moment, and why."""


class Service:
    """Answers introspection of one running app."""

    def __init__(
        self, about: About, everything: Sequence[Telemetry | Source | Command], parts: Parts, context: PublisherContext
    ) -> None:
        self._about = about
        self._parts = parts
        self._context = context
        self._registered: dict[str, list[Telemetry | Source | Command]] = {}
        for each in everything:
            self._registered.setdefault(each.name, []).append(each)
        self._jobs = {each.name for each in everything if isinstance(each, Telemetry) and each.job}
        self._started = context.environment.timers.origin

    def register(self) -> None:
        """Put the registry there."""
        registry = encode(registry_of(self._about, self._registered))
        self._context.send(Message(self._about.topics.registry, registry, retain=True, latest=True))

    def on_request(self, received: Received) -> None:
        """Answer a request. Retained messages are ignored."""
        if not received.retain:
            clock = self._context.environment.clock
            message = answered(received, self._about.topics, clock.wall(), self._answer)
            self._context.send(message._replace(expires=clock.monotonic() + EXPIRY))

    def _answer(self, request: Json) -> "Introspection":
        """The document that a request asks for. Raises `PayloadError`."""
        wanted = _wanted(request, self._registered)
        data = self.document(*wanted)
        if "trace" in wanted[0]:
            data["trace"] = self._trace(request, wanted[1])
        if len(encode(data)) > LARGEST:
            raise PayloadError(f"the answer is larger than {LARGEST} bytes; ask for some 'devices'")
        return data

    def document(self, sections: Sequence[str] = SECTIONS, devices: Sequence[str] | None = None) -> "Introspection":
        """The document, or some sections of it, and of some devices."""
        clock = self._context.environment.clock
        now, wall = clock.monotonic(), clock.wall()
        found: Introspection = {}
        if "app" in sections:
            found["app"] = app_section(self._about)
            found["app"]["started_at"] = rfc3339(wall - now + self._started)
            found["app"]["uptime"] = round(now - self._started, 3)
            if self._parts.state_files:
                found["app"]["state_files"] = dict(self._parts.state_files)
        if "mqtt" in sections:
            found["mqtt"] = self._mqtt()
        if "adapters" in sections:
            found["adapters"] = []
            for slot in self._parts.slots:
                is_open, error = slot.state
                section: AdapterSection = {
                    "adapter": slot.label,
                    "open": is_open,
                    "error": error,
                    "reopened": slot.reopened,
                }
                if health := slot.health:
                    section["health"] = health
                found["adapters"].append(section)
        names = [name for name in self._registered if devices is None or name in devices]
        if "devices" in sections:
            found["devices"] = {name: self._device(name, now, wall) for name in names if name not in self._jobs}
        if "jobs" in sections:
            found["jobs"] = {name: self._device(name, now, wall) for name in names if name in self._jobs}
        return found

    def _trace(self, request: dict[str, Any], devices: Sequence[str] | None) -> "list[TraceRow]":
        after, since = (_number(request, key) for key in ("after", "since"))
        handlers = None if devices is None else frozenset(devices)
        rows = [row for trace in self._parts.traces for row in trace.rows(handlers, since, int(after))]
        return [row._asdict() | {"at": rfc3339(row.at)} for row in rows]  # type: ignore[misc]  # tests hold it against its type

    def _mqtt(self) -> "MqttSection":
        link, outbox = self._parts.link, self._parts.link.outbox
        oldest = outbox.oldest
        return {
            "broker": self._about.broker,
            "client_id": self._about.client_id,
            "connected": link.up,
            "protocol": link.session.protocol,
            "session": link.number,
            "connects": link.connects,
            "last_error": link.last_error,
            "outbox": {
                "messages": outbox.messages,
                "bytes": outbox.bytes,
                "in_flight": outbox.in_flight,
                "delivered": outbox.delivered,
                "dropped": outbox.dropped,
                "oldest": None if oldest is None else round(self._context.environment.clock.uptime() - oldest, 3),
            },
        }

    def _device(self, name: str, now: float, wall: float) -> "DeviceSection":
        found: DeviceSection = {"registrations": [registered(each) for each in self._registered[name]]}
        if name in self._parts.ledger.entities:
            found["runtime"] = self._runtime(name, now, wall)
        return found

    def _runtime(self, name: str, now: float, wall: float) -> "Runtime":
        parts, health = self._parts, self._parts.ledger.entities[name]
        snapshot, next_poll = parts.runners.look(name)
        opened, deferred = snapshot.opened_at, snapshot.deferred_until
        found: Any = {
            "status": parts.ledger.status(name, now),
            "stale": is_stale(health, now),
            "circuit": snapshot.circuit,
            "consecutive_failures": health.failures,
            "attempts": snapshot.attempts,
            "retries": snapshot.waits,
            "opens": snapshot.opens,
            "opened_at": None if opened is None else rfc3339(wall - now + opened),
            "failing_since": None if health.failing_since is None else rfc3339(health.failing_since),
            "last_error": None if health.error_type is None else f"{health.error_type}: {health.error_message}",
            "last_success_at": None if health.success_wall is None else rfc3339(health.success_wall),
            "last_duration": None if health.duration is None else round(health.duration, 6),
            "next_due_at": None if next_poll is None else rfc3339(next_poll),
            "deferred_until": None if deferred is None else rfc3339(wall - now + deferred),
            "deferred_reason": None if deferred is None else health.deferred_reason,
            "poll_under_way": under_way(health, wall - now),
            "counters": {
                "polls": health.polls,
                "failed_polls": health.failed_polls,
                "retried_polls": health.retried_polls,
                "calls": health.successes + health.failed_calls,
                "failed_calls": health.failed_calls,
                "retries": health.retries,
            },
            "held": health.held,
            "missed_polls": health.missed,
        }
        for runner in parts.runners.of(name):
            found |= runner.counters()
        return found  # type: ignore[no-any-return]  # its words are literals to the schema; tests hold them against it


def app_section(about: About) -> "AppSection":
    """What is known of an app also when it does not run."""
    return {
        "name": about.name,
        "version": clean(about.version),
        "prefix": about.topics.prefix,
        "leadsman": about.leadsman,
        "python": sys.version.split()[0],
    }


def registry_of(about: About, everything: Mapping[str, Sequence[Telemetry | Source | Command]]) -> "Registry":
    """The registry."""
    topics = about.topics
    devices: dict[str, Any] = {}
    for name, told_of in everything.items():
        kinds = [kind_of(each) for each in told_of if each.enabled]
        if "periodic" in kinds:
            continue
        words = {
            "state": topics.state(name),
            "availability": topics.availability(name),
            "error": topics.device_error(name),
        }
        if "telemetry" in kinds:
            words["get"] = topics.of(name, "get")
        if "command" in kinds:
            words |= {"set": topics.of(name, "set"), "set_result": topics.set_result(name)}
        if kinds:
            devices[name] = {"kinds": kinds, "topics": words}
    return {
        "app": about.name,
        "version": clean(about.version),
        "leadsman": about.leadsman,
        "introspect": topics.introspect,
        "status": topics.status,
        "devices": devices,
    }


def _wanted(request: Any, known: Mapping[str, object]) -> tuple[Sequence[str], Sequence[str] | None]:
    """The sections and devices that a request asks for. Raises `PayloadError`."""
    if request == "":
        return SECTIONS, None
    if not isinstance(request, dict):
        raise PayloadError('send nothing, or an object such as {"sections": ["devices"], "devices": ["kitchen"]}')
    for key in request:
        if key not in KEYS:
            raise PayloadError(f"{key!r} is unknown; {suggestion(str(key), (*KEYS, 'transaction'))}")
    sections = _names(request, "sections", (*SECTIONS, *ASKED_FOR))
    return SECTIONS if sections is None else sections, _names(request, "devices", known)


def _number(request: dict[str, Any], key: str) -> float:
    number = request.get(key, 0)
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < 1e12:
        raise PayloadError(f"{key!r} is a number, 0 or more")
    return number


def _names(request: dict[str, Any], key: str, known: Any) -> Sequence[str] | None:
    names = request.get(key)
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise PayloadError(f"{key!r} is a list of names")
    for name in names:
        if name not in known:
            raise PayloadError(f"there is no {key.removesuffix('s')} {clean(name)!r}; {suggestion(name, known)}")
    return names
