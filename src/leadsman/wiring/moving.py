"""Adds the devices of a shard to all parts of a running app, and removes them, since another node has them then.
Imported only in a cluster."""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, cast

from leadsman.event_bus import EventBus
from leadsman.events import Event
from leadsman.monitoring.ledger_reports import Schedule
from leadsman.registration.source import Source
from leadsman.registration.telemetry import Telemetry
from leadsman.resilience import scope
from leadsman.resilience.environment import Environment
from leadsman.runtime.poller import Poller
from leadsman.runtime.runner import Reader
from leadsman.runtime.sources import SourceRunner
from leadsman.runtime.supervision import cancel, keep_running
from leadsman.timing.clock import Clock
from leadsman.timing.timers import Timers
from leadsman.wiring.reports import Reports

if TYPE_CHECKING:
    from leadsman.wiring.discovery import Presence
    from leadsman.wiring.optional import Core, OptionalParts

EndApp = Callable[[str, BaseException], None]


class _ShardEvents(EventBus):
    """The bus of the app, for the devices of one shard: a call that outlives the shard on this node says nothing of a
    device that is gone."""

    __slots__ = ("_app", "over")

    def __init__(self, app: EventBus, clock: Clock) -> None:
        super().__init__(clock)
        self._app = app
        self.over = False
        """Whether the devices are gone."""

    def emit(self, event: Event) -> None:
        """See `EventBus`."""
        if not self.over or getattr(event, "entity", None) is None:
            self._app.emit(event)


class _AtWork(NamedTuple):
    """The devices of one shard, which are polled here."""

    names: tuple[str, ...]
    environment: Environment
    """The timers of the shard, which ring while its lease holds; and an event that says that it is given up, as the end
    of the app is."""
    events: _ShardEvents
    poller: Poller
    sources: list[asyncio.Task[None]]
    pending: dict[str, float]
    """Seconds until the next attempt, of devices whose retry another node waited for."""


class MovingDevices:
    """The devices of this node.

    Args:
        core: the parts that every app uses.
        optional: those that this app uses besides.
        reports: what reports about devices.
        presence: what tells others about them; None where nobody is told.
        end_app: ends the app, because a device that must work does not.
    """

    def __init__(
        self, core: "Core", optional: "OptionalParts", reports: Reports, presence: "Presence | None", end_app: EndApp
    ) -> None:
        self._core = core
        self._optional = optional
        self._reports = reports
        self._presence = presence
        self._end_app = end_app
        self._at_work: dict[str, _AtWork] = {}

    @property
    def environment(self) -> Environment:
        """That of the app, which stays while shards come and go."""
        return self._core.environment

    def begin(self, key: str, names: Iterable[str], permitted: Callable[[], bool]) -> None:
        """Begin to read the devices of a shard. `permitted` is asked before any of their timers rings."""
        core = self._core
        loop, events = asyncio.get_running_loop(), _ShardEvents(core.environment.events, core.environment.clock)
        timers = scope.handler_context().run(Timers, loop, events.emit, core.link.piled_up, permitted)
        environment = core.environment._replace(timers=timers, events=events, stopping=asyncio.Event())
        publisher = core.publisher._replace(environment=environment)
        poller = Poller(publisher, core.shared, self._end_app)
        work = _AtWork(tuple(names), environment, events, poller, [], {})
        self._at_work[key] = work
        for name in work.names:
            self._join(name, work)
        work.poller.start(work.pending)

    async def stop(self, keys: Iterable[str], grace: float) -> int:
        """End the polls, the sources and the commands of these shards, and wait at most `grace` seconds for them.
        Returns how many calls are still alive."""
        ends = []
        for work in (self._at_work[key] for key in keys if key in self._at_work):
            work.environment.stopping.set()
            ends += [work.poller.stop(grace), cancel(work.sources, grace)]
            commands = [name for name in work.names if name in self._optional.runners.commands]
            if commands:
                ends.append(self._optional.dispatcher.stop(grace, commands))
        alive = sum(await asyncio.gather(*ends))
        for work in (self._at_work[key] for key in keys if key in self._at_work):
            work.environment.timers.stop()
        if self._optional.store is not None:
            self._optional.store.publish()
        return alive

    def remove(self, keys: Iterable[str]) -> None:
        """Forget the devices of these shards, whose polls have ended. Their topics stay: another node goes on there."""
        for key in keys:
            work = self._at_work.pop(key, None)
            if work is not None:
                work.events.over = True
                for name in work.names:
                    self._leave(name)

    def changed(self) -> None:
        """Tell of the devices that came or went."""
        self._reports.heartbeat.changed()
        self._reports.doors.registry_changed()
        if self._presence is not None:
            self._presence.change()

    def _join(self, name: str, work: _AtWork) -> None:
        core, plan, statuses = self._core, self._core.plan, self._reports.statuses
        now = core.environment.clock.monotonic()
        telemetry, source, command = plan.telemetries.get(name), plan.sources.get(name), plan.commands.get(name)
        if telemetry is not None and telemetry.enabled:
            self._join_telemetry(telemetry, work, now)
        if source is not None and source.enabled:
            self._join_source(source, work, now)
        if command is not None and command.enabled:
            self._optional.commands_here[name] = command
            core.records.register_idle(name, now)
            queue = self._optional.dispatcher.add(command, work.poller.publishing)
            if self._optional.contexts is not None:
                self._optional.contexts.give(command.needs, name, queue.retries)
            if self._presence is not None:
                self._presence.add_command(command)
        statuses.add(name, now)
        self._adopt(name, work)
        statuses.look(name, now)
        self._reports.heartbeat.changed(name)

    def _adopt(self, name: str, work: _AtWork) -> None:
        """Let a device go on where the node was that had it, if state is kept."""
        core, store = self._core, self._optional.store
        if store is not None and core.snapshots is not None and name in self._optional.readers:
            core.others.keep(name, (core.snapshots.topic(name),))
            document, age = core.snapshots.of(name) or (None, 0.0)
            work.pending[name] = store.adopt(name, document, age, core.records, self._reports.outages)

    def _join_telemetry(self, telemetry: Telemetry, work: _AtWork, now: float) -> None:
        core, name = self._core, telemetry.name
        runner = core.poller.runners[name] = work.poller.add(telemetry)
        self._optional.telemetries_here[name] = telemetry
        due = now + telemetry.offset
        core.records.register(name, telemetry.stale_after, due, offline_on_error=telemetry.offline_on_error)
        core.ledgers.add(name, runner.ledger, Schedule(telemetry.interval, telemetry.cron), job=telemetry.job)
        if telemetry.job:
            self._reports.statuses.jobs |= {name}
        self._read(telemetry, runner)

    def _join_source(self, source: Source, work: _AtWork, now: float) -> None:
        core, name = self._core, source.name
        runner = SourceRunner(source, work.poller.publishing, core.shared)
        self._optional.registered_sources[name] = source
        core.records.register(name, source.stale_after, now, offline_on_error=source.offline_on_error)
        core.ledgers.add(name, runner.ledger, Schedule())
        self._read(source, runner)
        run = keep_running(f"the source {name}", runner.run, work.environment)
        work.sources.append(asyncio.get_running_loop().create_task(run))

    def _read(self, reader: Telemetry | Source, runner: Reader) -> None:
        """A device that gives readings."""
        name = reader.name
        self._optional.readers[name] = runner
        if self._optional.contexts is not None:
            self._optional.contexts.give(reader.needs, name, runner.retries)
        if self._presence is not None and not (isinstance(reader, Telemetry) and reader.job):
            self._presence.add(reader)

    def _leave(self, name: str) -> None:
        core, optional, reports = self._core, self._optional, self._reports
        if optional.found is not None:
            optional.found.devices.let_go(name)
        if optional.readers.pop(name, None) is not None:
            core.ledgers.remove(name)
            if optional.store is not None:
                optional.store.forget(name)
        core.others.forget(name)
        core.poller.runners.pop(name, None)
        for registered in (optional.telemetries_here, optional.registered_sources, optional.commands_here):
            cast("dict[str, object]", registered).pop(name, None)
        if name in optional.runners.commands:
            optional.dispatcher.remove(name)
        reports.statuses.remove(name)
        reports.statuses.jobs -= {name}
        reports.outages.forget(name)
        reports.doors.forget(name)
        core.records.remove(name)
        if core.watching is not None:
            core.watching.recent.forget(name)
        if self._presence is not None:
            self._presence.lose(name)
