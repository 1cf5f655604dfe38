"""The sections of the document that describes an app: what it is, its connection, its adapters and its devices.

Reading changes nothing. The document contains no secrets: adapters and handlers are shown by their names, the broker by
its address, and everything that a person wrote passes through `leadsman.text.clean`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from leadsman.adapters.managed import ManagedAdapter
from leadsman.introspection.registrations import Registrations, registered
from leadsman.introspection.registry import About, app_section
from leadsman.ledger.ledgers import Ledgers
from leadsman.loop.clock import Clock, rfc3339
from leadsman.monitoring.health import NO_TROUBLE, Health, HealthRecords, is_stale, status
from leadsman.monitoring.heartbeat import deferred_reason, deferred_until, dropped_by, failure_of, under_way
from leadsman.monitoring.statuses import Statuses
from leadsman.monitoring.totals import Totals
from leadsman.mqtt.answers import Json
from leadsman.mqtt.link import Link
from leadsman.mqtt.topics import encode
from leadsman.registration.command import Command
from leadsman.registration.injection import Handler
from leadsman.resilience.environment import Snapshot
from leadsman.runtime.publisher import Publication, StatePublisher
from leadsman.runtime.runner import Answer, Runner, Runners
from leadsman.text import clean

if TYPE_CHECKING:
    from leadsman.introspection.document import (
        AdapterSection,
        AppSection,
        Away,
        Candidates,
        Compared,
        DeviceOutbox,
        DroppedBy,
        FieldTerms,
        MqttSection,
        OutboxSection,
        Published,
        Runtime,
        Subscribed,
    )
    from leadsman.introspection.watching import Watching
    from leadsman.monitoring.trace import Trace
    from leadsman.nodes.brief import Brief
    from leadsman.nodes.standby.node import Ownership
    from leadsman.runtime.found_devices import FoundDevices
    from leadsman.runtime.subscriber import Subscriber

_TEMPLATE = (
    '{"status":"%s","stale":%s,"circuit":"%s","consecutive_failures":0,"attempts":%d,"opened_at":null,'
    '"failing_since":null,"last_error":null,"last_success_at":%s,"retries":%d,"opens":%d,"last_duration":%s,'
    '"next_due_at":%s,"deferred_until":null,"deferred_reason":null,"poll_under_way":null,"counters":{'
    + ",".join(f'"{each}":%d' for each in Totals._fields)
    + '},"held":false,"missed_polls":%d,"published":{"published_at":%s,"suppressed":%d}}'
)


class State(NamedTuple):
    """What is known of a device."""

    status: str
    health: Health
    snapshot: Snapshot
    next_poll: float | None
    """Epoch seconds."""
    publisher: StatePublisher

    @property
    def is_usual(self) -> bool:
        """Whether the template has room for it."""
        health, snapshot = self.health, self.snapshot
        return (
            health.trouble is NO_TROUBLE
            and not health.held
            and health.life is None
            and snapshot.opened_at is None
            and snapshot.deferred_until is None
            and self.publisher.publication.refused is None
        )

    def text(self, now: float) -> bytes:
        """It, at `now`, as the JSON of a `leadsman.introspection.document.Runtime`. It must be usual."""
        health, snapshot, publication = self.health, self.snapshot, self.publisher.publication
        read = _written(health.success_wall)
        text = _TEMPLATE % (
            self.status,
            "true" if is_stale(health, now) else "false",
            snapshot.circuit,
            snapshot.attempts,
            read,
            snapshot.waits,
            snapshot.opens,
            "null" if health.duration is None else repr(round(health.duration, 6)),
            _written(self.next_poll),
            *health.totals(self.publisher.published),
            health.counters.missed,
            read if publication.at == health.success_wall else _written(publication.at),
            publication.suppressed,
        )
        return text.encode()


def _written(wall: float | None) -> str:
    return "null" if wall is None else f'"{rfc3339(wall)}"'


MOST_COMPARED = 20
"""Fields of a reading that are compared in the document."""
LONGEST_VALUE = 100
"""Characters of a text in a comparison."""


def after_reading(publisher: StatePublisher, link: Link, clock: Clock) -> dict[str, object]:
    """The fields of `Runtime` about readings that were taken."""
    found: dict[str, object] = {"published": published(publisher.publication)}
    if (waiting := in_outbox(link, publisher.topics, clock)) is not None:
        found["outbox"] = waiting
    return found


def away(link: Link, clock: Clock) -> "Away":
    """The field of `MqttSection` about a connection that is lost."""
    since = link.choice.away_since
    if link.up or since is None:
        return {}
    return {"away_since": rfc3339(clock.wall() - clock.monotonic() + since)}


def published(publication: Publication) -> "Published":
    """What the publisher of a device did with its readings."""
    found: Published = {
        "published_at": None if publication.at is None else rfc3339(publication.at),
        "suppressed": publication.suppressed,
    }
    if publication.last is not None and publication.refused is not None:
        found["compared"] = compared(publication.last, publication.refused)
    return found


def compared(before: Mapping[str, Json], after: Mapping[str, Json]) -> "dict[str, Compared]":
    """The numbers, texts and other values of two readings that a publish rule compared, at most `MOST_COMPARED`. Names
    of nested fields have dots. Fields that differ come first."""
    old, new = dict(_fields(before, "")), dict(_fields(after, ""))
    names = sorted({**old, **new}, key=lambda name: old.get(name) == new.get(name))
    return {name: {"published": _short(old.get(name)), "read": _short(new.get(name))} for name in names[:MOST_COMPARED]}


def says_nothing(link: Link, topics: Sequence[str]) -> bool:
    """Whether there is nothing to say of the topics of a device: no message of them waits, and the broker refused
    none."""
    return not any(topic in link.outbox or link.fault_of(topic) is not None for topic in topics)


def in_outbox(link: Link, topics: Sequence[str], clock: Clock) -> "DeviceOutbox | None":
    """Where the readings of a device are in the outbox, and what the broker said of them; None if there is nothing to
    say. It is about one of their topics: one that the broker refuses, or else the first that has readings there."""
    faults = {topic: fault for topic in topics if (fault := link.fault_of(topic)) is not None}
    topic = next(iter((*faults, *(each for each in topics if each in link.outbox))), None)
    if topic is None:
        return None
    standing = link.outbox.standing(topic)
    until, since = standing.paused_until, standing.since
    return {
        "topic": topic,
        "messages": standing.messages,
        "in_flight": standing.in_flight,
        "topics_before": standing.before,
        "oldest": None if since is None else round(clock.uptime() - since, 3),
        "paused_for": None if until is None else round(max(0.0, until - clock.monotonic()), 3),
        "refused": faults.get(topic),
    }


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
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


class Parts(NamedTuple):
    """The parts of a running app that are described, and that requests are about."""

    records: HealthRecords
    ledgers: Ledgers
    link: Link
    runners: Runners
    poll: Callable[[str, Answer], None]
    """Polls a device and answers later; see `leadsman.runtime.poller.Poller.ask`."""
    adapters: Sequence[ManagedAdapter]
    traces: "Sequence[Trace]"
    """The trace, once it has rows."""
    state_files: Mapping[str, str]
    """The state files that cannot be written at the moment, and why."""
    statuses: Statuses
    ready: Callable[[], bool]
    """Whether the app polls its devices."""
    watching: "Watching | None" = None
    """What is kept for people who watch; None where nobody can."""
    subscribers: "Mapping[str, Subscriber] | None" = None
    """What handles the messages of other programs, by topic filter."""
    found: "FoundDevices | None" = None
    """The devices that were found at run time; None where no handler finds any."""
    node: "Ownership | None" = None
    """The node that owns the app; None if it shares it with no other."""
    nodes: "Callable[[], list[Brief]] | None" = None
    """The nodes that share the app, this one included; None if it shares it with no other."""
    terms_of: "Callable[[Handler], dict[str, FieldTerms]]" = lambda _: {}
    """What the type of what a handler returns says about its fields."""


class Sections:
    """Makes the sections about one running app.

    Args:
        about: the identity of the app.
        registrations: its registrations.
        parts: the parts that are described.
        clock: the clock of the app.
        started: when the app started, monotonic seconds.
    """

    def __init__(self, about: About, registrations: Registrations, parts: Parts, clock: Clock, started: float) -> None:
        self._about = about
        self._parts = parts
        self._clock = clock
        self._started = started
        self._written: dict[str, bytes] = {}
        self._texts: dict[bytes, bytes] = {}
        self._terms: dict[int, dict[str, FieldTerms]] = {}
        self.registrations = registrations

    def forget(self, name: str) -> None:
        """Describe the registrations of a device anew: it is gone, and another one may have its name."""
        self._written.pop(name, None)

    def app(self) -> "AppSection":
        """The app."""
        now, wall = self._clock.monotonic(), self._clock.wall()
        section = app_section(self._about)
        section["started_at"] = rfc3339(wall - now + self._started)
        section["uptime"] = round(now - self._started, 3)
        if self._parts.watching is not None:
            section["loop_lag"] = round(self._parts.watching.lag.seconds, 4)
        if self._parts.state_files:
            section["state_files"] = dict(self._parts.state_files)
        if (node := self._parts.node) is not None:
            section["node"] = {
                "name": clean(node.name),
                "token": node.token,
                "since": node.since,
                "takeovers": node.takeovers,
            }
        if self._parts.nodes is not None:
            section["nodes"] = self._parts.nodes()
        return section

    def mqtt(self) -> "MqttSection":
        """The connection to the broker."""
        link, outbox = self._parts.link, self._parts.link.outbox
        oldest = outbox.oldest(self._clock.offset())
        found = outbox.on_disk
        waiting: OutboxSection = {
            "messages": outbox.messages,
            "bytes": outbox.bytes,
            "in_flight": outbox.in_flight,
            "delivered": outbox.delivered,
            "dropped": outbox.dropped,
            "dropped_by": cast("DroppedBy", dropped_by(outbox)),
            "oldest": None if oldest is None else max(0.0, round(self._clock.uptime() - oldest, 3)),
        }
        if found is not None:
            waiting["on_disk"] = {
                "store": found.store,
                "readings": found.readings,
                "only": found.only,
                "replayed": found.replayed,
                "dead": found.dead,
                "room": found.room,
            }
        subscribers = self._parts.subscribers or {}
        section: MqttSection = {
            "broker": str(link.broker),
            **_candidates(link),
            "client_id": self._about.client_id,
            "connected": link.up,
            **away(link, self._clock),
            "protocol": link.session.protocol,
            "client": link.client,
            "session": link.number,
            "connects": link.connects,
            "breaks": link.breaks,
            "window": link.window,
            "limited_by": link.limited_by,
            "last_error": link.last_error,
            "outbox": waiting,
            "subscriptions": {name: _subscribed(each) for name, each in subscribers.items()},
        }
        if not subscribers:
            del section["subscriptions"]
        return section

    def adapters(self) -> "list[AdapterSection]":
        """The adapters."""
        return [_adapter(adapter) for adapter in self._parts.adapters]

    def words(self, name: str) -> list[str]:
        """What the registrations of a device do, in plain English."""
        from leadsman.introspection.words import sentences  # few ask

        return [sentence for each in self.registrations.of(name) for sentence in sentences(each)]

    def fields(self, name: str) -> "dict[str, FieldTerms]":
        """What the type of each field of a device's readings says about it. A handler is looked at once."""
        found = [each for each in self.registrations.of(name) if each.enabled]
        if not found:
            return {}
        handler = next((each for each in found if not isinstance(each, Command)), found[0]).handler
        terms = self._terms.get(id(handler))  # a handler may have no hash
        if terms is None:
            terms = self._terms[id(handler)] = self._parts.terms_of(handler)
        return terms

    def device(self, name: str) -> bytes:
        """One device, or one side job, as the JSON of a `DeviceSection`."""
        registrations = self._registrations(name)
        if name not in self._parts.records.entities:
            return b'{"registrations":%b}' % registrations
        return b'{"registrations":%b,"runtime":%b}' % (registrations, self._state(name))

    def _registrations(self, name: str) -> bytes:
        """The registrations of a device as JSON. They never change, and those of similar devices are the same: so they
        are written once, and kept once."""
        text = self._written.get(name)
        if text is None:
            text = encode([registered(each) for each in self.registrations.of(name)])
            text = self._written[name] = self._texts.setdefault(text, text)
        return text

    def _state(self, name: str) -> bytes:
        """The state of a device, or of a side job, as the JSON of a `Runtime`."""
        parts, now, health = self._parts, self._clock.monotonic(), self._parts.records.entities[name]
        runners = parts.runners.of(name)
        snapshot, next_poll = runners[0].look()
        known = State(status(health, now), health, snapshot, next_poll, runners[0].publisher)
        lone = len(runners) == 1 and name not in self.registrations.jobs and not self._counters(name, runners)
        if lone and known.is_usual and says_nothing(parts.link, known.publisher.topics):
            return known.text(now)
        return encode(self._runtime(name, known, runners, now))

    def _runtime(self, name: str, known: State, runners: Sequence[Runner], now: float) -> "Runtime":
        parts, health, snapshot = self._parts, known.health, known.snapshot
        wall, next_poll = self._clock.wall(), known.next_poll
        deferred = deferred_until(health, snapshot, now)
        totals = health.totals(runners[0].publisher.published)
        found: dict[str, object] = {
            "status": known.status,
            "stale": is_stale(health, now),
            "circuit": snapshot.circuit,
            **failure_of(health, snapshot, wall - now),
            "retries": snapshot.waits,
            "opens": snapshot.opens,
            "last_duration": None if health.duration is None else round(health.duration, 6),
            "next_due_at": None if next_poll is None else rfc3339(next_poll),
            "deferred_until": None if deferred is None else rfc3339(wall - now + deferred),
            "deferred_reason": deferred_reason(health, deferred),
            "poll_under_way": under_way(health, wall - now),
            "counters": totals._asdict(),
            "held": health.held,
            "missed_polls": health.counters.missed,
        }
        if health.life is not None:
            found["life"] = {"since": rfc3339(health.life.since), **health.life.before.plus(totals)._asdict()}
        found |= self._counters(name, runners)
        if name not in self.registrations.jobs:
            found |= after_reading(runners[0].publisher, parts.link, self._clock)
        return cast("Runtime", found)  # tests compare it with the schema

    def _counters(self, name: str, runners: Sequence[Runner]) -> dict[str, object]:
        """What only some devices count: commands, messages of a source, devices that were found."""
        found: dict[str, object] = {}
        for runner in runners:
            found |= runner.counters()
        if self._parts.found is not None:
            found |= self._parts.found.counters(name)
        return found


def _subscribed(subscriber: "Subscriber") -> "Subscribed":
    counts = subscriber.counts
    return {
        "received": counts.received,
        "failed": counts.failed,
        "dropped": counts.dropped,
        "waiting": counts.waiting,
        "received_at": None if counts.received_at is None else rfc3339(counts.received_at),
        "last_error": counts.last_error,
        "device": subscriber.subscription.device,
    }


def _candidates(link: Link) -> "Candidates":
    """The field of `MqttSection` about several brokers."""
    candidates = link.choice.candidates
    if len(candidates) == 1:
        return {}
    return {"brokers": [{"broker": str(each.broker), "last_error": each.error} for each in candidates]}


def _adapter(adapter: ManagedAdapter) -> "AdapterSection":
    is_open, error = adapter.state
    section: AdapterSection = {
        "adapter": adapter.label,
        "open": is_open,
        "error": error,
        "reopened": adapter.reopened,
    }
    if (kind := adapter.resource_kind) is not None:
        section["kind"] = kind
    if health := adapter.health:
        section["health"] = health
    return section
