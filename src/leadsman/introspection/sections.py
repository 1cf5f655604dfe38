"""The sections of the document that describes an app: what it is, its connection, its adapters and its devices.

Reading changes nothing. The document contains no secrets: adapters and handlers are shown by their names, the broker by
its address, and everything that a person wrote passes through `leadsman.text.clean`.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from leadsman.adapters.managed import ManagedAdapter
from leadsman.introspection.delivery import after_reading, away, says_nothing
from leadsman.introspection.registrations import Registrations, registered
from leadsman.introspection.registry import About
from leadsman.introspection.usual_state import State
from leadsman.ledger.ledgers import Ledgers
from leadsman.monitoring.health import HealthRecords, is_stale, status
from leadsman.monitoring.heartbeat import deferred_reason, deferred_until, dropped_by, failure_of, under_way
from leadsman.monitoring.statuses import Statuses
from leadsman.mqtt.link import Link
from leadsman.mqtt.topics import encode
from leadsman.registration.command import Command
from leadsman.registration.injection import Handler
from leadsman.runtime.runner import Answer, Runner, Runners
from leadsman.text import clean
from leadsman.timing.clock import Clock, rfc3339

if TYPE_CHECKING:
    from leadsman.introspection.connection_document import Candidates, DroppedBy, MqttSection, OutboxSection
    from leadsman.introspection.counters_document import Subscribed
    from leadsman.introspection.document import AdapterSection, AppSection, FieldTerms, Runtime
    from leadsman.introspection.watching import Watching
    from leadsman.monitoring.trace import Trace
    from leadsman.nodes.document import Brief
    from leadsman.runtime.found_devices import FoundDevices
    from leadsman.runtime.subscriber import Subscriber
    from leadsman.standby.member import Ownership


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


def app_section(about: About) -> "AppSection":
    """The facts about an app that do not depend on whether it runs."""
    section: AppSection = {
        "name": about.name,
        "version": clean(about.version),
        "prefix": about.topics.prefix,
        "leadsman": about.leadsman,
        "python": sys.version.split()[0],
    }
    if about.topics.root is not None:
        section["root"] = about.topics.root
    return section
