"""The sections of the document that describes an app: what it is, its connection, its adapters and its devices.

Reading changes nothing. The document contains no secrets: adapters and handlers are shown by their names, the broker by
its address, and everything that a person wrote passes through `leadsman.core.text.clean`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from leadsman.core.adapters.adapter import CANNOT_OPEN
from leadsman.core.adapters.managed import ManagedAdapter
from leadsman.core.extension import Extension
from leadsman.core.introspection.added import AddedDocuments
from leadsman.core.introspection.registrations import describe_registration
from leadsman.core.introspection.registry import DeviceRegistry, app_section
from leadsman.core.loop.clock import Clock, rfc3339
from leadsman.core.monitoring.condition import condition_of, time_of
from leadsman.core.monitoring.health import HealthRecords, Totals, is_source_offline
from leadsman.core.monitoring.heartbeat import describe_fault, link_state, outbox_state
from leadsman.core.monitoring.statuses import Statuses
from leadsman.core.mqtt.answers import Json
from leadsman.core.mqtt.link import Link
from leadsman.core.mqtt.topic_faults import OF_THE_BROKER
from leadsman.core.mqtt.topics import encode
from leadsman.core.registration.command import Command
from leadsman.core.registration.source import Source
from leadsman.core.registration.telemetry import Telemetry
from leadsman.core.runtime.publisher import Publication
from leadsman.core.runtime.runner import Answer, Runners

if TYPE_CHECKING:
    from leadsman.core.introspection.document import (
        AdapterSection,
        AppSection,
        ComparedField,
        DeviceOutbox,
        FieldTerms,
        MqttSection,
        OutboxSection,
        Published,
        Runtime,
        Subscribed,
    )
    from leadsman.core.monitoring.document import Counters
    from leadsman.core.runtime.found_devices import FoundDevices
    from leadsman.core.runtime.subscriber import Subscriber

MAX_COMPARED_FIELDS = 20
"""Fields of a reading that are compared in the document."""
MAX_VALUE_CHARS = 100
"""Characters of a text in a comparison."""


def away_since(link: Link, clock: Clock) -> str | None:
    """When the connection was lost; None while it holds."""
    return None if link.up else time_of(link.choice.away_since, clock.wall() - clock.monotonic())


def describe_publication(publication: Publication) -> "Published":
    """What the publisher of a device did with its readings."""
    found: Published = {
        "published_at": time_of(publication.at),
        "suppressed": publication.suppressed,
    }
    if publication.rule_errors:
        found["rule_errors"] = publication.rule_errors
    if publication.last is not None and publication.refused is not None:
        found["compared"] = compare_fields(publication.last, publication.refused)
    return found


def compare_fields(before: Mapping[str, Json], after: Mapping[str, Json]) -> "dict[str, ComparedField]":
    """The numbers, texts and other values of two readings that a publish rule compared, at most `MAX_COMPARED_FIELDS`.
    Names of nested fields have dots. Fields that differ come first."""
    old, new = dict(_fields(before, "")), dict(_fields(after, ""))
    names = sorted({**old, **new}, key=lambda name: old.get(name) == new.get(name))
    return {
        name: {"published": _short(old.get(name)), "read": _short(new.get(name))}
        for name in names[:MAX_COMPARED_FIELDS]
    }


def in_outbox(link: Link, topics: Sequence[str], clock: Clock) -> "DeviceOutbox | None":
    """Where the readings of a device are in the outbox, and why they are not taken, or were lost; None if none are
    there and none were lost lately. It is about one of their topics: one with a fault, or else the first that has
    readings there."""
    faults = {topic: fault for topic in topics if (fault := link.fault_of(topic)) is not None}
    topic = next(iter((*faults, *(each for each in topics if each in link.outbox))), None)
    if topic is None:
        return None
    standing = link.outbox.standing(topic)
    until, since = standing.paused_until, standing.since
    found: DeviceOutbox = {
        "topic": topic,
        "messages": standing.messages,
        "in_flight": standing.in_flight,
        "topics_before": standing.before,
        "oldest": None if since is None else round(clock.uptime() - since, 3),
        "paused_for": None if until is None else round(max(0.0, until - clock.monotonic()), 3),
        "refused": None,
    }
    if (fault := faults.get(topic)) is not None:
        found["refused"] = fault.text if fault.kind in OF_THE_BROKER else None
        found["fault"] = describe_fault(fault, clock.wall() - clock.monotonic())
    return found


def _fields(reading: Mapping[str, Json], path: str) -> Iterator[tuple[str, Json]]:
    for name, value in reading.items():
        if isinstance(value, Mapping):
            yield from _fields(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def _short(value: Json) -> Json:
    """A value that is fit for a comparison by a person."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= MAX_VALUE_CHARS else text[: MAX_VALUE_CHARS - 1] + "…"


class Introspected(NamedTuple):
    """The parts of a running app that are described, and that requests are about."""

    records: HealthRecords
    link: Link
    runners: Runners
    poll: Callable[[str, Answer, Json, bytes], None]
    """Polls a device and answers later; see `leadsman.core.runtime.poll_runner.ask`."""
    adapters: Sequence[ManagedAdapter]
    state_files: Mapping[str, str]
    """The state files that cannot be written at the moment, and why."""
    statuses: Statuses
    ready: Callable[[], bool]
    """Whether the app polls its devices."""
    added: AddedDocuments
    """What other parts add."""
    own: tuple[Extension, ...] = ()
    """The extensions that the app was given."""
    subscribers: "Mapping[str, Subscriber] | None" = None
    """The subscribers, which handle the messages of other programs, by topic filter."""
    found: "FoundDevices | None" = None
    """The devices that were found at run time; None where no handler finds any."""
    terms_of: "Callable[[Telemetry | Source | Command], dict[str, FieldTerms]]" = lambda _: {}
    """The terms that the type of a handler's result sets for its fields."""


class Sections:
    """Makes the sections about one running app.

    Args:
        registry: the devices of the app.
        parts: the parts that are described.
        clock: the clock of the app.
        started: when the app started, monotonic seconds.
    """

    def __init__(self, registry: DeviceRegistry, parts: Introspected, clock: Clock, started: float) -> None:
        self._about = registry.about
        self._parts = parts
        self._clock = clock
        self._started = started
        self._written: dict[str, bytes] = {}
        self._texts: dict[bytes, bytes] = {}
        self._terms: dict[object, dict[str, FieldTerms]] = {}
        self._devices = registry.devices

    def forget(self, name: str) -> None:
        """Describe the registrations of a device anew: it has changed, or is gone, and another one may have its name,
        or the identity of its handler."""
        self._written.pop(name, None)
        self._terms.clear()

    def app(self) -> "AppSection":
        """The app."""
        now, wall = self._clock.monotonic(), self._clock.wall()
        section = app_section(self._about)
        section["started_at"] = rfc3339(wall - now + self._started)
        section["uptime"] = round(now - self._started, 3)
        if self._parts.state_files:
            section["state_files"] = dict(self._parts.state_files)
        self._parts.added.app.to(cast("dict[str, object]", section))
        return section

    def mqtt(self) -> "MqttSection":
        """The connection to the broker."""
        link, outbox, clock = self._parts.link, self._parts.link.outbox, self._clock
        waiting: OutboxSection = {
            **outbox_state(outbox, clock),
            "in_flight": outbox.in_flight,
            "delivered": outbox.delivered,
        }
        section: MqttSection = {
            **link_state(link, clock),  # type: ignore[typeddict-item]  # mypy fears more keys
            "client_id": self._about.client_id,
            "connected": link.up,
            "session": link.number,
            "window": link.window,
            "outbox": waiting,
        }
        if len(candidates := link.choice.candidates) > 1:
            section["brokers"] = [{"broker": str(each.broker), "last_error": each.error} for each in candidates]
        if (lost := away_since(link, clock)) is not None:
            section["away_since"] = lost
        if link.refusal is not None:
            section["refusal"] = link.refusal
        if link.not_listening is not None:
            section["not_listening"] = link.not_listening
        if self._parts.subscribers:
            section["subscriptions"] = {
                name: _describe_subscriber(each) for name, each in self._parts.subscribers.items()
            }
        return section

    def adapters(self) -> "list[AdapterSection]":
        """The adapters."""
        return [_adapter(adapter) for adapter in self._parts.adapters]

    def fields(self, name: str) -> "dict[str, FieldTerms]":
        """The terms that the types of a device's fields set, by field. A handler is looked at once."""
        found = [each for each in self._registered(name) if each.enabled]
        if not found:
            return {}
        each = next((each for each in found if not isinstance(each, Command)), found[0])
        key = id(each.handler), None if isinstance(each, Command) else (each.field, each.filters)  # it may have no hash
        terms = self._terms.get(key)
        if terms is None:
            terms = self._terms[key] = self._parts.terms_of(each)
        names: dict[str, FieldTerms] = {
            path: {"name": words.name} for one in found for path, words in one.fields.items() if words.name is not None
        }
        return terms | {path: {**terms.get(path, {}), **term} for path, term in names.items()} if names else terms

    def device(self, name: str) -> bytes:
        """One device, or one side job, as the JSON of a `DeviceSection`."""
        registrations = self._registrations(name)
        if name not in self._parts.records.entities:
            return b'{"registrations":%b}' % registrations
        return b'{"registrations":%b,"runtime":%b}' % (registrations, encode(self._runtime(name)))

    def _registrations(self, name: str) -> bytes:
        """The registrations of a device as JSON. They never change, and those of similar devices are the same: so they
        are written once, and kept once."""
        text = self._written.get(name)
        if text is None:
            text = encode([describe_registration(each) for each in self._registered(name)])
            text = self._written[name] = self._texts.setdefault(text, text)
        return text

    def _registered(self, name: str) -> list[Telemetry | Source | Command]:
        device = self._devices.get(name)
        return [] if device is None else device.registrations

    def _runtime(self, name: str) -> "Runtime":
        """The state of a device, or of a side job."""
        parts, now, wall = self._parts, self._clock.monotonic(), self._clock.wall()
        health, runners = parts.records.entities[name], parts.runners.of(name)
        publisher, (snapshot, next_poll) = runners[0].publisher, runners[0].snapshot()
        condition = condition_of(health, now, wall, snapshot.deferred_until)
        totals = health.totals(publisher.published)
        found: Runtime = {
            "status": condition.status,
            "stale": condition.stale,
            "circuit": snapshot.circuit,
            "consecutive_failures": condition.failures,
            "attempts": snapshot.attempts,
            "opened_at": time_of(snapshot.opened_at, wall - now),
            "failing_since": condition.failing_since,
            "last_error": condition.error,
            "last_success_at": condition.last_success_at,
            "retries_since_success": snapshot.waits,
            "opens": snapshot.opens,
            "last_duration": None if health.duration is None else round(health.duration, 6),
            "next_poll_at": time_of(next_poll),
            "deferred_until": condition.deferred_until,
            "deferred_reason": condition.deferred_reason,
            "poll_under_way": condition.poll_under_way,
            "counters": _counters(totals),
            "held": health.held,
            "missed_polls": health.counters.missed_polls,
        }
        for runner in runners:
            runner.count(found)
        if parts.found is not None:
            parts.found.count(name, found)
        if snapshot.failed_probes:
            found["failed_probes"] = dict(snapshot.failed_probes)
        if is_source_offline(health):
            found["finder_failed"] = True
        if health.life is not None:
            found["life"] = {"since": rfc3339(health.life.since), **_counters(health.life.before.plus(totals))}
        if not self._devices[name].job:
            found["published"] = describe_publication(publisher.publication)
            if (waiting := in_outbox(parts.link, publisher.topics, self._clock)) is not None:
                found["outbox"] = waiting
        parts.added.runtime.to(cast("dict[str, object]", found), name)
        return found


def _counters(totals: Totals) -> "Counters":
    return cast("Counters", totals._asdict())  # tests compare it with the schema


def _describe_subscriber(subscriber: "Subscriber") -> "Subscribed":
    counts = subscriber.counts
    return {
        "received": counts.received,
        "failed": counts.failed,
        "dropped": counts.dropped,
        "waiting": counts.waiting,
        "received_at": time_of(counts.received_at),
        "last_error": counts.last_error,
        "device": subscriber.subscription.device,
    }


def _adapter(adapter: ManagedAdapter) -> "AdapterSection":
    (is_open, error), health = adapter.state, adapter.health
    if (fault := health.pop(CANNOT_OPEN, None)) is not None:
        is_open, error = False, str(fault)
    section: AdapterSection = {
        "adapter": adapter.label,
        "open": is_open,
        "error": error,
        "reopened": adapter.reopened,
    }
    if (kind := adapter.resource_kind) is not None:
        section["kind"] = kind
    if health:
        section["health"] = health
    return section
