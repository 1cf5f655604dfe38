"""Adds devices that handlers find at run time to all parts of the app, and removes them. Imported only where a handler
may find devices."""

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING

from leadsman.introspection.registry import registry_entry
from leadsman.introspection.retained import FORGETTING, retained_of
from leadsman.monitoring.ledger_reports import Schedule
from leadsman.mqtt.message import Message
from leadsman.registration.source import Source
from leadsman.runtime.found_devices import Family, FoundDevices, template_of
from leadsman.runtime.runner import Reader
from leadsman.runtime.sources import SourceRunner
from leadsman.slices import Work

if TYPE_CHECKING:
    from leadsman.runtime.persistence import ResilienceStore
    from leadsman.wiring.discovery import Presence
    from leadsman.wiring.optional import Core
    from leadsman.wiring.reports import Reports

GATHER = 1.0
"""Seconds in which devices that come or go are gathered, so that discovery compares its descriptions once for all."""


class FoundParts:
    """The parts of one app that know its devices; a `leadsman.runtime.found_devices.Host`.

    Args:
        core: the parts that every app uses.
        readers: what reads the devices, by name; changed here.
        sources: the sources, by name; changed here.
    """

    def __init__(self, core: "Core", readers: dict[str, Reader], sources: dict[str, Source]) -> None:
        plan, clock = core.plan, core.environment.clock
        finders = [each for each in plan.readers if each.finds is not None]
        families = {each.name: Family(each.finds, template_of(each, each.finds)) for each in finders if each.finds}
        self._loop = asyncio.get_running_loop()
        self.devices = FoundDevices(families, self, core.environment.timers, clock.monotonic, self._loop)
        """The devices that were found."""
        self.store: ResilienceStore | None = None
        """The failure state of devices; None where it is not kept."""
        self._core = core
        self._readers = readers
        self._sources = sources
        self._names = frozenset((*plan.telemetries, *plan.sources, *plan.commands))
        ids = {} if plan.discovery is None else plan.discovery.ids
        self._former = frozenset(ids.values()) - ids.keys()
        self._identifiers = self._described_already()
        self._reports: Reports | None = None
        self._presence: Presence | None = None
        self._gathering = False

    def begin(self, reports: "Reports") -> None:
        """From now on, tell what reports about devices which there are. It knows those that were restored."""
        self._reports = reports

    def describe(self, presence: "Presence") -> None:
        """Discovery is on."""
        self._presence = presence

    def is_taken(self, name: str) -> bool:
        """See `Host`. With discovery, its identifier must not be that of another device either, and a former name of
        one is no name any more."""
        return name in self._names or name in self._former or self.identify(name) in self._identifiers

    def identify(self, name: str) -> str:
        """See `Host`."""
        discovery = self._core.plan.discovery
        if discovery is None:
            return name
        from leadsman.settings.discovery import CONVENTIONS

        return CONVENTIONS[discovery.convention].identify(discovery.ids.get(name, name))

    def join(self, source: Source) -> SourceRunner:
        """See `Host`."""
        core, name, now = self._core, source.name, self._core.environment.clock.monotonic()
        runner = SourceRunner(source, core.publisher, core.shared)
        core.records.register(name, source.stale_after, now, offline_on_error=source.offline_on_error)
        self._readers[name] = runner
        self._sources[name] = source
        core.ledgers.add(name, runner.ledger, Schedule())
        if self.store is not None:
            self.store.add(name)
        if self._reports is not None:
            self._reports.doors.list_ahead(name, self._retained(source, core.others.topics.get(name, ())))
            self._reports.statuses.add(name, now)
            self._reports.heartbeat.changed(name)
            self._reports.doors.registry_changed()
        if self._presence is not None:
            self._presence.add(source)
            self._describe_soon()
        return runner

    def leave(self, name: str, finder: str) -> None:
        """See `Host`."""
        core, source = self._core, self._sources[name]
        topics = self._retained(source, core.others.forget(name))
        if self._presence is not None:
            self._presence.remove(name)
            self._describe_soon()
        self._remove(name)
        core.slices.begin("a forgotten device", self._removal(name, finder, topics))

    def _retained(self, source: Source, others: Collection[str]) -> list[str]:
        """The retained topics of a device that was found."""
        health = self._presence is not None and self._presence.has_health
        return retained_of(registry_entry(self._core.plan.topics, source.name, [source], others, health=health))

    def lose(self, name: str) -> None:
        """See `Host`."""
        if self._presence is not None:
            self._presence.lose(name)
            self._describe_soon()
        self._core.others.forget(name)
        self._remove(name)

    def _remove(self, name: str) -> None:
        core = self._core
        del self._readers[name], self._sources[name]
        core.ledgers.remove(name)
        if self._reports is not None:
            self._reports.statuses.remove(name)
            self._reports.heartbeat.changed()
            self._reports.outages.forget(name)
            self._reports.doors.forget(name)
        core.records.remove(name)
        if self.store is not None:
            self.store.forget(name)
        if core.watching is not None:
            core.watching.recent.forget(name)

    def _removal(self, name: str, finder: str, topics: Collection[str]) -> Work:
        """Remove the topics of a device, unless it is found again meanwhile, here or on another node of a cluster. What
        describes it goes first. Until the registry is published, the one at the broker lists them, so that the next
        start removes what is left."""
        if self._presence is not None:
            yield GATHER + FORGETTING
        core = self._core
        cluster = core.cluster
        for topic in topics:
            while cluster is not None and not core.link.up:  # another node may have it when there is a connection again
                yield GATHER
            if name in self._readers or (cluster is not None and cluster.elsewhere(name, finder)):
                return
            if not core.others.is_described(topic):  # discovery removes those
                core.link.put(Message(topic, b"", 1, retain=True))
        if self._reports is not None:
            self._reports.doors.registry_changed()

    def _describe_soon(self) -> None:
        if not self._gathering:
            self._gathering = True
            self._loop.call_later(GATHER, self._describe)

    def _described_already(self) -> Collection[str]:
        """The identifiers of discovery that registered devices have; none while it is off."""
        plan = self._core.plan
        if plan.discovery is None:
            return ()
        from leadsman.settings.discovery import APP
        from leadsman.wiring.discovery import registered_of

        return {APP, *map(self.identify, registered_of(plan).names)}

    def _describe(self) -> None:
        self._gathering = False
        if self._presence is not None:
            self._presence.change()
