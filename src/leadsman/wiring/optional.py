"""The parts that only some apps use. This is the one place that imports their modules when the app starts or later: an
import costs a start about two milliseconds, and only apps that use a part pay for it."""

import asyncio
import contextlib
import functools
import logging
import os
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from leadsman.devices import followers
from leadsman.devices.home import Home, Registered, Surroundings
from leadsman.devices.roster import Follower, Phase
from leadsman.events import (
    AdapterFailed,
    AdapterReopened,
    AppFault,
    AttemptFailed,
    CircuitRequested,
    CommandDone,
    DeviceHeld,
    Event,
    LinkUp,
    MessageFailed,
    PollFailed,
    StateFailed,
    StateWritten,
)
from leadsman.monitoring.statuses import Statuses
from leadsman.registration.injection import ContextDependency
from leadsman.runtime.runner import Runners
from leadsman.text import describe, log_fields
from leadsman.wiring.core import Core

if TYPE_CHECKING:
    from leadsman.monitoring.trace import Trace
    from leadsman.monitoring.watchdog import Watchdog
    from leadsman.runtime.adapter_recovery import AdapterRecovery
    from leadsman.runtime.commands import Dispatcher
    from leadsman.runtime.context import Contexts
    from leadsman.runtime.directory import StateDirectory
    from leadsman.runtime.found_devices import FoundDevices
    from leadsman.runtime.own_requests import OwnRequests
    from leadsman.runtime.persistence import ResilienceStore
    from leadsman.runtime.subscriber import Subscriber
    from leadsman.spool.committer import Committer
    from leadsman.wiring.discovery import Presence

_STORED_AFTER = {"acked-or-durable": 0.15, "write-through": 0.01}
"""Seconds after which the write of a reading begins that the broker does not have, by ``outbox.durability``. The write
before it, and its own sync, come on top: a quarter of a second is promised of 99 of 100 (docs/how-to/durability.md)."""
_NOBODY: Mapping[str, str] = {}
OUTBOX_FILE = "outbox.db"
"""In the state directory."""
logger = logging.getLogger("leadsman")

_TRACED = frozenset(
    {
        AppFault,
        AttemptFailed,
        PollFailed,
        AdapterFailed,
        AdapterReopened,
        CircuitRequested,
        DeviceHeld,
        MessageFailed,
    }
)
"""The events that create the trace, as a command that failed does: an app in which nothing fails, and nobody
interferes, has none."""


class OptionalParts:
    """The parts that an app has because of what it registers and which options it was given.

    Args:
        core: the parts that every app uses.
        resources: releases what must be released in any case, also if the app is cancelled.
    """

    def __init__(self, core: Core, resources: contextlib.ExitStack) -> None:
        plan = core.plan
        self.core = core
        """The parts that every app uses."""
        self.resources = resources
        self._loop = asyncio.get_running_loop()
        self.traces: list[Trace] = []
        """The trace, once there is something in it."""
        registered = Registered(plan.telemetries, plan.sources, plan.commands)
        self.surroundings = Surroundings(registered, core.shared, lambda: self.dispatcher, core.end_app)
        """What all homes of devices have in common."""
        self.home = Home(self.surroundings, core.publisher)
        """Where the devices are read that are here from the start of the app to its end, and those that are found."""
        self.runners = Runners(core.roster.readers, core.roster.queues)
        """What runs the handlers."""
        self.found = self._found() if any(each.finds is not None for each in plan.readers) else None
        """The devices that were found at run time; None where no handler may find any."""
        for name in plan.residents:
            core.roster.join(self.home.make(name))
        self.subscribers = self._subscribers()
        """What handles the messages of other programs, by topic filter."""
        self.contexts = self._contexts()
        """The contexts of handlers that ask for one; None where none does."""
        self.store = self._store() if plan.keep_state else None
        """The failure state of devices; None where it is not kept."""
        self.committer: Committer | None = None
        """What keeps readings on disk; None while none had to wait."""

    @cached_property
    def readings(self) -> Path | None:
        """Where readings that wait for the broker are written; None if they wait in memory only."""
        plan = self.core.plan
        if (
            plan.dry_run
            or plan.cluster is not None
            or (plan.outbox is not None and plan.outbox.durability not in _STORED_AFTER)
        ):
            return None
        try:
            return plan.state_directory / OUTBOX_FILE
        except RuntimeError as error:  # the user has no home directory
            about = log_fields("no state directory", error=describe(error))
            logger.warning("readings wait in memory only: %s; set STATE_DIRECTORY", describe(error), extra=about)
            return None

    @property
    def found_readings(self) -> bool:
        """Whether an earlier run left a file of readings, which are sent now."""
        return self.readings is not None and os.path.exists(self.readings)  # Path.exists may raise

    @property
    def keeps_readings(self) -> bool:
        """Whether the next run sends what the broker does not have."""
        committer = self.committer
        return self.readings is not None and (committer is None or committer.backlog.store in ("ok", "opening"))

    def store_readings(self) -> None:
        """Have readings that wait for the broker written to disk. What an earlier run left there is sent first."""
        if self.readings is None:
            return
        plan = self.core.plan
        durability = "acked-or-durable" if plan.outbox is None else plan.outbox.durability
        self.core.link.store(_STORED_AFTER[durability], self._write)
        if self.found_readings:
            self._make_committer(self.readings).open()

    def _write(self, number: int) -> None:
        if self.readings is not None:
            (self.committer or self._make_committer(self.readings)).write(number)

    def _make_committer(self, path: Path) -> "Committer":
        from leadsman.spool.committer import Committer
        from leadsman.spool.row import Quota

        core, settings = self.core, self.core.plan.outbox
        quota = Quota() if settings is None else Quota(settings.most_bytes, settings.most_age)
        environment = core.environment
        self.committer = Committer(core.link, path, quota, environment.clock, environment.events)
        self.resources.callback(self.committer.abandon)
        return self.committer

    async def store_the_rest(self) -> None:
        """Write the readings that the broker does not have as the app ends."""
        outbox = self.core.link.outbox
        if self.readings is not None and self.committer is None and outbox.unstored(outbox.number):
            self._make_committer(self.readings)
        if self.committer is not None:
            await self.committer.finish()

    def _found(self) -> "FoundDevices":
        from leadsman.devices.found import FoundHost, families_of
        from leadsman.runtime.found_devices import FoundDevices, Names

        core, plan = self.core, self.core.plan
        names = Names(frozenset((*plan.telemetries, *plan.sources, *plan.commands)))
        if plan.discovery is not None:
            from leadsman.wiring.discovery import names_of

            names = names_of(plan, plan.discovery)
        host, environment = FoundHost(core.roster, self.home), core.environment
        families = families_of(plan.readers)
        return FoundDevices(families, host, names, environment.timers, environment.clock.monotonic, self._loop)

    def topic_removal(self, on_removed: Callable[[], None] | None) -> Follower:
        """What removes the topics of found devices that are forgotten. `on_removed`: is called when they are gone."""
        from leadsman.devices.found import TopicRemoval

        core, cluster = self.core, self.core.cluster
        has_health = core.described is not None and core.described.convention.has_health

        def elsewhere(name: str, finder: str) -> bool | None:
            if cluster is None:
                return False
            return cluster.elsewhere(name, finder) if core.link.up else None

        removal = TopicRemoval(
            core.roster, core.plan.topics, core.others, core.link, core.slices, has_health, elsewhere, on_removed
        )
        return Follower(followers.ignore, removal.leave)

    def _subscribers(self) -> "dict[str, Subscriber]":
        core = self.core
        enabled = [each for each in core.plan.subscriptions.values() if each.enabled]
        if not enabled:
            return {}
        from leadsman.runtime.subscriber import Subscriber

        found = {each.topic_filter: Subscriber(each, core.environment, core.shared) for each in enabled}
        core.link.subscriptions.listeners.update((name, each.on_message) for name, each in found.items())
        return found

    @cached_property
    def dispatcher(self) -> "Dispatcher":
        """What executes commands."""
        from leadsman.runtime.commands import Dispatcher

        core = self.core
        return Dispatcher(core.publisher, self.runners, core.shared)

    def _contexts(self) -> "Contexts | None":
        asking = [
            each
            for each in self.core.plan.handlers
            if any(isinstance(dependency, ContextDependency) for _, dependency in each.needs)
        ]
        if not asking:
            return None
        from leadsman.runtime.context import Contexts

        made = Contexts(self.state_directory, self.core.publisher, self._own_requests)
        follower = followers.contexts(made)
        for device in self.core.roster.values():
            follower.join(device)
        self.core.roster.follow(Phase.STATE, follower)
        return made

    def ask_poll(self, name: str) -> None:
        """Ask for a poll of a device; see `leadsman.runtime.own_requests`. May be called from any thread."""
        self._own_requests.poll(name)

    @cached_property
    def _own_requests(self) -> "OwnRequests":
        from leadsman.runtime.own_requests import OwnRequests

        core = self.core
        elsewhere = () if core.cluster is None else core.plan.telemetries
        return OwnRequests(core.roster.polls, self.runners, core.environment, self._loop, self.found, elsewhere)

    @cached_property
    def state_directory(self) -> "StateDirectory":
        """Where state is kept. What fails there is an event, whichever thread finds it."""
        from leadsman.runtime.directory import StateDirectory

        loop, emit = asyncio.get_running_loop(), self.core.environment.events.emit

        def report(file: Path, error: Exception | None) -> None:
            event = StateWritten(str(file)) if error is None else StateFailed(str(file), error)
            with contextlib.suppress(RuntimeError):  # the app has ended, and a thread of a handler's has not
                loop.call_soon_threadsafe(emit, event)

        plan = self.core.plan
        directory = StateDirectory(plan.state_directory, report)
        self.resources.callback(directory.release)
        return directory

    @property
    def keeps_state(self) -> bool:
        """Whether anything is kept in the state directory."""
        return self.store is not None or self.contexts is not None

    def _store(self) -> "ResilienceStore":
        from leadsman.runtime.persistence import ResilienceStore

        core, readers = self.core, self.runners.readers
        finders = _NOBODY if self.found is None else self.found.finders
        store = ResilienceStore(self.state_directory, readers, core.environment, self.traces, finders)
        if self.found is not None and core.cluster is None:  # else their handler finds them again, where it is
            store.rejoin = self.found.restore
        if (snapshots := core.snapshots) is not None:
            for name in readers:
                core.others.keep(name, (snapshots.topic(name),))
            shared = store.share(snapshots.found(), self._publish_snapshot)

            def repeat(event: Event) -> None:
                """A broker that has forgotten the session may have forgotten what it retained, too."""
                if isinstance(event, LinkUp) and core.link.connects > 1 and not core.link.resumed:
                    for name in readers:
                        shared.change(name)

            core.environment.events.subscribe(repeat, readings=False)
        return store

    def _publish_snapshot(self, name: str, document: str) -> None:
        snapshots = self.core.snapshots
        message = None if snapshots is None else snapshots.message(name, document)
        if message is not None:
            self.core.link.put(message)

    def adapter_recovery(self) -> "AdapterRecovery | None":
        """What reopens adapters that no longer work; None where there is no adapter."""
        plan = self.core.plan
        if not plan.adapters:
            return None
        from leadsman.runtime.adapter_recovery import AdapterRecovery

        needs = {each.name: each.needs for each in plan.readers}
        return AdapterRecovery(plan.adapters, needs, plan.last_resort, self.core.environment)

    def presence(self, statuses: Statuses, announce: Callable[[], None]) -> "Presence | None":
        """What describes the devices to others; None where nobody asked for it. `announce` publishes the availability
        of all devices again."""
        if self.core.described is None:
            return None
        from leadsman.wiring.discovery import Presence

        roster = self.core.roster
        rejoined = () if self.found is None else [roster[each] for each in self.found.finders]
        return Presence(self.core.described, self.core, self.resources, statuses, announce, rejoined)

    def watchdog(self, statuses: Statuses) -> "Watchdog | None":
        """What shows that the app works; None where nobody looks."""
        core, variables = self.core, self.core.plan.variables
        if not variables.keys() & {"NOTIFY_SOCKET", "LEADSMAN_HEALTH_FILE", "RUNTIME_DIRECTORY"}:
            return None
        from leadsman.monitoring.watchdog import Watchdog

        return Watchdog(variables, statuses, core.link, core.environment.timers)

    def make_trace(self) -> "Trace":
        """Begin the trace."""
        from leadsman.introspection.registrations import policy_text
        from leadsman.monitoring.trace import Trace

        readers = {each.name: each for each in self.core.plan.readers}
        trace = Trace(functools.cache(lambda name: policy_text(readers[name]) if name in readers else None))
        self.traces.append(trace)
        self.core.plan.live.trace = trace
        return trace

    def trace(self, event: Event) -> None:
        """Pass an event to the trace, which begins with the first failure. Observes in `Phase.TRACE`."""
        if self.traces:
            self.traces[0].observe(event)
        elif type(event) in _TRACED or (type(event) is CommandDone and event.error is not None):
            self.make_trace().observe(event)
