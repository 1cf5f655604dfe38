"""Answers introspection requests at ``{prefix}/introspect`` with one document, and publishes ``{prefix}/registry``, a
list of what an app offers.

A document of many devices is made in slices and sent in pages: the first page of the registry is at
``{prefix}/registry``, page 2 at ``{prefix}/registry/2``, and so on; the pages of an answer go to one topic. Each page
has its number and the number of pages.

Reading changes nothing. The documents contain no secrets: adapters and handlers are shown by their names, the broker by
its address, and everything that a person wrote passes through `leadsman.text.clean`.
"""

import sys
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from leadsman.adapters.managed import ManagedAdapter
from leadsman.errors import PayloadError
from leadsman.introspection.pages import Pages, around, page_size
from leadsman.introspection.registrations import kind_of, registered
from leadsman.introspection.requests import Request, understood
from leadsman.monitoring.health import HealthRecords, is_stale
from leadsman.monitoring.heartbeat import failure_of, under_way
from leadsman.mqtt import answers
from leadsman.mqtt.answers import Json
from leadsman.mqtt.connection import Received
from leadsman.mqtt.link import Link
from leadsman.mqtt.message import Message
from leadsman.mqtt.topics import Topics
from leadsman.registration.command import Command
from leadsman.registration.source import Source
from leadsman.registration.telemetry import Telemetry
from leadsman.runtime.publisher import PublisherContext
from leadsman.runtime.runner import Runners
from leadsman.slices import Slices
from leadsman.text import clean, explained
from leadsman.timing.clock import rfc3339

if TYPE_CHECKING:
    from leadsman.introspection.document import (
        AdapterSection,
        AppSection,
        DeviceSection,
        MqttSection,
        RegistryDevice,
        Runtime,
    )
    from leadsman.monitoring.trace import Trace, TraceRow

EXPIRY = 10.0
"""Seconds after which a page of an answer is dropped, since its receiver no longer waits."""
SLICE = 20
"""Devices that are described in one turn of the loop."""
LIST_SLICE = 250
"""Devices of the registry, or rows of the trace, that are described in one turn of the loop."""
MOST_AT_ONCE = 4
"""Answers of more than one slice that are made at the same time."""
MOST_WAITING = 512 * 1024
"""Bytes in the outbox above which the next page waits, so that pages do not displace readings."""
PATIENCE = 60.0
"""Seconds after which a page of the registry no longer waits."""
PAUSE = 0.02
"""Seconds between two looks at the outbox."""


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

    records: HealthRecords
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
        self,
        about: About,
        everything: Sequence[Telemetry | Source | Command],
        parts: Parts,
        context: PublisherContext,
        slices: Slices,
    ) -> None:
        self._about = about
        self._parts = parts
        self._context = context
        self._slices = slices
        self._registered: dict[str, tuple[Telemetry | Source | Command, ...]] = {}
        for each in everything:
            self._registered[each.name] = (*self._registered.get(each.name, ()), each)
        self._jobs = {each.name for each in everything if isinstance(each, Telemetry) and each.job}
        self._started = context.environment.timers.origin
        self._under_way = 0

    def on_request(self, received: Received) -> None:
        """Answer a request. Retained messages are ignored."""
        if received.retain:
            return
        clock = self._context.environment.clock
        request, transaction, error = None, None, None
        try:
            value, transaction = answers.decode(received.payload)
            request = self._understood(value)
        except PayloadError as refused:
            error = explained(refused)
        envelope = answers.document(None, error, clock.wall(), transaction)
        message = answers.answer_anyway(received, self._about.topics, envelope)
        if request is None:
            self._context.send(message._replace(expires=clock.monotonic() + EXPIRY))
            return
        del envelope["data"]  # comes in pages
        self._slices.begin("introspection", self._answer(request, message, envelope))

    def _understood(self, value: Json) -> Request:
        """The request in a payload. Raises `PayloadError`."""
        request = understood(value, self._registered)
        if len(request.names) > SLICE and self._under_way >= MOST_AT_ONCE:
            raise PayloadError(f"{self._under_way} large answers are under way; ask again in a few seconds")
        return request

    def _answer(self, request: Request, message: Message, envelope: dict[str, Json]) -> Generator[float]:
        """Make the document that a request asks for, and send it: in one message, or in pages."""
        self._under_way += 1
        try:
            pages = Pages(page_size(self._parts.link.maximum_packet_size, len(message.payload)))
            yield from self._describe(request, pages)
            documents = pages.end()
            for number, document in enumerate(documents, 1):
                if not (yield from self._room(EXPIRY)):
                    return
                numbers = {"page": number, "pages": len(documents)} if len(documents) > 1 else {}
                payload = around(envelope | numbers, b'{"data":' + document + b"}")
                expires = self._context.environment.clock.monotonic() + EXPIRY
                self._context.send(message._replace(payload=payload, expires=expires))
                if number < len(documents):
                    yield 0.0
        finally:
            self._under_way -= 1

    def registry(self) -> Generator[float]:
        """Make the registry, and publish its pages, in slices. That ends with the connection, for the registry is
        published after each one."""
        about, link = self._about, self._parts.link
        connects = link.connects
        pages = Pages(page_size(link.maximum_packet_size))
        pages.begin("devices", b"{}")
        for number, (name, registrations) in enumerate(self._registered.items(), 1):
            entry = registry_entry(about.topics, name, registrations)
            if entry is not None:
                pages.member(name, entry)
            if number % LIST_SLICE == 0:
                yield 0.0
        documents = pages.end()
        for number, document in enumerate(documents, 1):
            yield from self._room(PATIENCE)
            if link.connects != connects:
                return
            numbers = {"page": number, "pages": len(documents)} if len(documents) > 1 else {}
            topic = about.topics.registry if number == 1 else f"{about.topics.registry}/{number}"
            payload = around(_registry_head(about) | numbers, document)
            self._context.send(Message(topic, payload, retain=True, latest=True))
            yield 0.0

    def _room(self, patience: float) -> Generator[float, None, bool]:
        """Wait until the outbox has room for a page, at most `patience` seconds. Returns whether it has."""
        clock, outbox = self._context.environment.clock, self._parts.link.outbox
        deadline = clock.monotonic() + patience
        while outbox.bytes > MOST_WAITING:
            if clock.monotonic() >= deadline:
                return False
            yield PAUSE
        return True

    def _describe(self, request: Request, pages: Pages) -> Generator[float]:
        """Put the sections that a request asks for on pages."""
        clock = self._context.environment.clock
        now, wall = clock.monotonic(), clock.wall()
        sections = request.sections
        if "app" in sections:
            pages.value("app", self._app(now, wall))
        if "mqtt" in sections:
            pages.value("mqtt", self._mqtt())
        if "adapters" in sections:
            pages.begin("adapters", b"[]")
            for adapter in self._parts.adapters:
                pages.member(None, _adapter(adapter))
        for section in ("devices", "jobs"):
            if section in sections:
                pages.begin(section, b"{}")
                yield from self._describe_devices(request.names, section == "jobs", pages)
        if "trace" in sections:
            pages.begin("trace", b"[]")
            for number, row in enumerate(self._trace(request), 1):
                pages.member(None, row._asdict() | {"at": rfc3339(row.at)})
                if number % LIST_SLICE == 0:
                    yield 0.0

    def _describe_devices(self, names: Sequence[str], jobs: bool, pages: Pages) -> Generator[float]:
        clock, described = self._context.environment.clock, 0
        for name in names:
            if (name in self._jobs) is jobs:
                if described == SLICE:
                    yield 0.0
                    described = 0
                pages.member(name, self._device(name, clock.monotonic(), clock.wall()))
                described += 1

    def _app(self, now: float, wall: float) -> "AppSection":
        section = app_section(self._about)
        section["started_at"] = rfc3339(wall - now + self._started)
        section["uptime"] = round(now - self._started, 3)
        if self._parts.state_files:
            section["state_files"] = dict(self._parts.state_files)
        return section

    def _trace(self, request: Request) -> "list[TraceRow]":
        handlers = frozenset(request.names) if request.chosen else None
        return [row for trace in self._parts.traces for row in trace.rows(handlers, request.since, request.after)]

    def _mqtt(self) -> "MqttSection":
        link, outbox = self._parts.link, self._parts.link.outbox
        oldest = outbox.oldest
        return {
            "broker": self._about.broker,
            "client_id": self._about.client_id,
            "connected": link.up,
            "protocol": link.session.protocol,
            "client": link.client,
            "session": link.number,
            "connects": link.connects,
            "window": link.window,
            "limited_by": link.limited_by,
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
        if name in self._parts.records.entities:
            found["runtime"] = self._runtime(name, now, wall)
        return found

    def _runtime(self, name: str, now: float, wall: float) -> "Runtime":
        parts, health = self._parts, self._parts.records.entities[name]
        snapshot, next_poll = parts.runners.look(name)
        deferred = snapshot.deferred_until
        found: dict[str, object] = {
            "status": parts.records.status(name, now),
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


def _registry_head(about: About) -> dict[str, Json]:
    """What each page of the registry begins with."""
    return {
        "app": about.name,
        "version": clean(about.version),
        "leadsman": about.leadsman,
        "introspect": about.topics.introspect,
        "status": about.topics.status,
    }


def registry_entry(
    topics: Topics, name: str, registrations: Sequence[Telemetry | Source | Command]
) -> "RegistryDevice | None":
    """A device in the registry, with its topics; None for a side job, and for a device that is not enabled."""
    kinds = [kind_of(each) for each in registrations if each.enabled]
    if "periodic" in kinds or not kinds:
        return None
    paths = {
        "state": topics.state(name),
        "availability": topics.availability(name),
        "error": topics.device_error(name),
    }
    if "telemetry" in kinds:
        paths["get"] = topics.of(name, "get")
    if "command" in kinds:
        paths |= {"set": topics.of(name, "set"), "set_result": topics.set_result(name)}
    return cast("RegistryDevice", {"kinds": kinds, "topics": paths})
