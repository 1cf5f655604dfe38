"""Answers introspection requests at ``{prefix}/introspect`` with one document, and publishes ``{prefix}/registry``, a
list of what an app offers.

Reading changes nothing. The documents contain no secrets: adapters and handlers are shown by their names, the broker by
its address, and everything that a person wrote passes through `leadsman.text.clean`.
"""

import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from leadsman.adapters.managed import ManagedAdapter
from leadsman.errors import PayloadError
from leadsman.introspection.registrations import kind_of, registered
from leadsman.monitoring.health import Ledger, is_stale
from leadsman.monitoring.heartbeat import failure_of, under_way
from leadsman.mqtt.answers import Json, answered
from leadsman.mqtt.connection import Received
from leadsman.mqtt.link import Link
from leadsman.mqtt.message import Message
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
        RegistryDevice,
        Runtime,
        TraceRow,
    )
    from leadsman.monitoring.trace import Trace

SECTIONS = ("app", "mqtt", "adapters", "devices", "jobs")
ON_REQUEST = ("trace",)
"""Sections that a request must name."""
LARGEST = 1024 * 1024 - 1024
"""Bytes of an answer. The outbox does not accept a larger message."""
KEYS = ("sections", "devices", "after", "since")
"""The keys of a request."""
EXPIRY = 10.0
"""Seconds after which an answer is dropped, since its receiver no longer waits."""


class About(NamedTuple):
    """The identity of the app."""

    name: str
    version: str
    leadsman: str
    topics: Topics
    broker: str
    client_id: str


class Parts(NamedTuple):
    """The parts of a running app that the documents describe."""

    ledger: Ledger
    link: Link
    runners: Runners
    adapters: Sequence[ManagedAdapter]
    traces: "Sequence[Trace]"
    """The trace, once it has rows."""
    state_files: Mapping[str, str]
    """The state files that cannot be written at the moment, and why."""


class Service:
    """Answers introspection requests of one running app."""

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
        """Publish the registry."""
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
        """The document, with these sections and devices."""
        clock = self._context.environment.clock
        now, wall = clock.monotonic(), clock.wall()
        found: Introspection = {}
        if "app" in sections:
            found["app"] = self._app(now, wall)
        if "mqtt" in sections:
            found["mqtt"] = self._mqtt()
        if "adapters" in sections:
            found["adapters"] = [_adapter(each) for each in self._parts.adapters]
        names = [name for name in self._registered if devices is None or name in devices]
        if "devices" in sections:
            found["devices"] = {name: self._device(name, now, wall) for name in names if name not in self._jobs}
        if "jobs" in sections:
            found["jobs"] = {name: self._device(name, now, wall) for name in names if name in self._jobs}
        return found

    def _app(self, now: float, wall: float) -> "AppSection":
        section = app_section(self._about)
        section["started_at"] = rfc3339(wall - now + self._started)
        section["uptime"] = round(now - self._started, 3)
        if self._parts.state_files:
            section["state_files"] = dict(self._parts.state_files)
        return section

    def _trace(self, request: dict[str, Json], devices: Sequence[str] | None) -> "list[TraceRow]":
        after, since = (_number(request, key) for key in ("after", "since"))
        handlers = None if devices is None else frozenset(devices)
        rows = [row for trace in self._parts.traces for row in trace.rows(handlers, since, int(after))]
        return [cast("TraceRow", row._asdict() | {"at": rfc3339(row.at)}) for row in rows]

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
        deferred = snapshot.deferred_until
        found: dict[str, object] = {
            "status": parts.ledger.status(name, now),
            "stale": is_stale(health, now),
            "circuit": snapshot.circuit,
            **failure_of(health, snapshot, wall - now),
            "retries": snapshot.waits,
            "opens": snapshot.opens,
            "last_duration": None if health.duration is None else round(health.duration, 6),
            "next_due_at": None if next_poll is None else rfc3339(next_poll),
            "deferred_until": None if deferred is None else rfc3339(wall - now + deferred),
            "deferred_reason": None if deferred is None else health.trouble.deferred_reason,
            "poll_under_way": under_way(health, wall - now),
            "counters": {
                "polls": health.polls,
                "failed_polls": health.counters.failed_polls,
                "retried_polls": health.counters.retried_polls,
                "calls": health.successes + health.counters.failed_calls,
                "failed_calls": health.counters.failed_calls,
                "retries": health.counters.retries,
            },
            "held": health.held,
            "missed_polls": health.counters.missed,
        }
        for runner in parts.runners.of(name):
            found |= runner.counters()
        return cast("Runtime", found)  # tests compare it with the schema


def _adapter(adapter: ManagedAdapter) -> "AdapterSection":
    is_open, error = adapter.state
    section: AdapterSection = {
        "adapter": adapter.label,
        "open": is_open,
        "error": error,
        "reopened": adapter.reopened,
    }
    if health := adapter.health:
        section["health"] = health
    return section


def app_section(about: About) -> "AppSection":
    """The facts about an app that do not depend on whether it runs."""
    return {
        "name": about.name,
        "version": clean(about.version),
        "prefix": about.topics.prefix,
        "leadsman": about.leadsman,
        "python": sys.version.split()[0],
    }


def registry_of(about: About, everything: Mapping[str, Sequence[Telemetry | Source | Command]]) -> "Registry":
    """The registry: the devices of an app with their topics."""
    topics = about.topics
    devices: dict[str, RegistryDevice] = {}
    for name, registrations in everything.items():
        kinds = [kind_of(each) for each in registrations if each.enabled]
        if "periodic" in kinds:
            continue
        paths = {
            "state": topics.state(name),
            "availability": topics.availability(name),
            "error": topics.device_error(name),
        }
        if "telemetry" in kinds:
            paths["get"] = topics.of(name, "get")
        if "command" in kinds:
            paths |= {"set": topics.of(name, "set"), "set_result": topics.set_result(name)}
        if kinds:
            devices[name] = cast("RegistryDevice", {"kinds": kinds, "topics": paths})
    return {
        "app": about.name,
        "version": clean(about.version),
        "leadsman": about.leadsman,
        "introspect": topics.introspect,
        "status": topics.status,
        "devices": devices,
    }


def _wanted(request: Json, known: Collection[str]) -> tuple[Sequence[str], Sequence[str] | None]:
    """The sections and devices that a request asks for. Raises `PayloadError`."""
    if request == "":
        return SECTIONS, None
    if not isinstance(request, dict):
        raise PayloadError('send nothing, or an object such as {"sections": ["devices"], "devices": ["kitchen"]}')
    for key in request:
        if key not in KEYS:
            raise PayloadError(f"{key!r} is unknown; {suggestion(str(key), (*KEYS, 'transaction'))}")
    sections = _names(request, "sections", (*SECTIONS, *ON_REQUEST))
    return SECTIONS if sections is None else sections, _names(request, "devices", known)


def _number(request: dict[str, Json], key: str) -> float:
    number = request.get(key, 0)
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < 1e12:
        raise PayloadError(f"{key!r} must be a number, 0 or more")
    return number


def _names(request: dict[str, Json], key: str, known: Collection[str]) -> Sequence[str] | None:
    names = request.get(key)
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise PayloadError(f"{key!r} must be a list of names")
    for name in names:
        if name not in known:
            raise PayloadError(f"there is no {key.removesuffix('s')} {clean(name)!r}; {suggestion(name, known)}")
    return names
