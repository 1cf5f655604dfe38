"""Where devices are read: their timers, their event bus, and what runs them. An app has one group of them; in a
cluster, each shard at work on this node has one of its own besides."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from leadsman.core.devices.roster import Device
from leadsman.core.loop.slots import shifts
from leadsman.core.mqtt.message import STANDARD
from leadsman.core.registration.injection import ContextDependency
from leadsman.core.registration.telemetry import Telemetry
from leadsman.core.runtime.handler_calls import SharedResources
from leadsman.core.runtime.poll_runner import PollContext, PollRunner
from leadsman.core.runtime.publisher import PublisherContext, PublishQueue, publisher_of
from leadsman.core.runtime.supervision import cancel, keep_running

if TYPE_CHECKING:
    from leadsman.core.registration.command import Command
    from leadsman.core.registration.source import Source
    from leadsman.core.runtime.commands import CommandQueue, Dispatcher
    from leadsman.core.runtime.publisher import StatePublisher
    from leadsman.core.runtime.runner import Reader
    from leadsman.core.runtime.sources import SourceRunner


class DeviceServices(NamedTuple):
    """The registrations of an app and the services that all groups of its devices use."""

    telemetries: "Mapping[str, Telemetry]"
    """All registrations of the app by name, as are the next two."""
    sources: "Mapping[str, Source]"
    commands: "Mapping[str, Command]"
    resources: SharedResources
    dispatcher: "Callable[[], Dispatcher]"
    """Gives the dispatcher, which executes commands. It is created on first use."""
    end_app: Callable[[str, BaseException], None]
    """Ends the app, because a device that must work does not."""


class DeviceGroup:
    """Makes devices, and runs them from `start` to `stop`.

    Args:
        services: what all groups of the app have in common.
        publishing: the timers and the event bus of the devices, and how they publish.
    """

    def __init__(self, services: DeviceServices, publishing: PublisherContext) -> None:
        self.environment = publishing.environment
        """The timers and the event bus of the devices."""
        self.polling = False
        """Whether the devices are polled."""
        self._services = services
        self._publishing = publishing
        self._polling = PollContext(
            publishing.environment,
            publishing,
            services.resources,
            PublishQueue(),
            asyncio.get_running_loop(),
            services.end_app,
        )
        self._polls: list[PollRunner] = []
        self._sources: list[SourceRunner] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._commands: list[str] = []

    def make(self, name: str) -> Device:
        """Make a registered device ready. What is not enabled gets nothing that runs it."""
        app = self._services
        reader: Telemetry | Source | None = app.telemetries.get(name)
        reader = app.sources.get(name) if reader is None else reader
        runner = None if reader is None or not reader.enabled else self._runner(reader)
        command = app.commands.get(name)
        if reader is not None and runner is not None and (reader.layout != "json" or reader.content is not None):
            self._lay_out(runner.publisher, reader, (reader,) if command is None else (reader, command))
        queue = None if command is None or not command.enabled else self._queue(command, runner)
        return Device(name, reader, runner, command, queue, self.environment.timers.origin)

    def found(self, source: "Source") -> "tuple[Device, SourceRunner]":
        """Make a device ready that a handler has found, with what takes its readings. The handler hands them over, so
        its generator is never run."""
        runner = self._source_runner(source)
        if source.layout != "json":
            self._lay_out(runner.publisher, source, ())
        return Device(source.name, source, runner, None, None, self.environment.clock.monotonic()), runner

    def start(self, pending: Mapping[str, float]) -> None:
        """Run all devices. `pending`: seconds until the next attempt, of those that waited for one before.

        One heap holds everything that is due; a poll is a task only while it runs.
        """
        loop = asyncio.get_running_loop()
        for source in self._sources:
            run = keep_running(f"the source {source.name}", source.run, self.environment)
            self._tasks.append(loop.create_task(run))
        units: dict[str, float] = {}
        for poll in self._polls:
            unit, interval = poll.telemetry.unit, poll.telemetry.interval
            if unit is not None and interval is not None:
                units[unit] = min(interval, units.get(unit, interval))
        spread = shifts(units)
        for poll in self._polls:
            unit = poll.telemetry.unit
            poll.start(pending.get(poll.name, 0.0), 0.0 if unit is None else spread[unit])
        self.polling = True

    async def stop(self, grace: float) -> int:
        """Cancel what runs and wait at most `grace` seconds for it. Returns how many calls are still alive."""
        ends = [self._stop_polls(grace), cancel(self._tasks, grace)]
        if self._commands:
            ends.append(self._services.dispatcher().stop(grace, self._commands))
        return sum(await asyncio.gather(*ends))

    async def _stop_polls(self, grace: float) -> int:
        alive = await cancel([poll.task for poll in self._polls if poll.task is not None], grace)
        for poll in self._polls:
            poll.stopped()
        return alive

    def _runner(self, reader: "Telemetry | Source") -> "Reader":
        if isinstance(reader, Telemetry):
            poll = PollRunner(reader, self._polling)
            self._polls.append(poll)
            return poll
        runner = self._source_runner(reader)
        self._sources.append(runner)
        return runner

    def _source_runner(self, source: "Source") -> "SourceRunner":
        from leadsman.core.runtime.sources import EventRunner, SourceRunner  # only apps with sources need it

        kind = SourceRunner if source.events is None else EventRunner
        return kind(source, self._publishing, self._services.resources)

    def _lay_out(
        self,
        publisher: "StatePublisher",
        reader: "Telemetry | Source",
        handlers: "Iterable[Telemetry | Source | Command]",
    ) -> None:
        """Have the readings of a device published otherwise than as one JSON object. `handlers`: those that may publish
        below it. Only devices with such a layout pay for it."""
        from leadsman.core.runtime.own_topics import ContentTopic, FieldTopics

        context = self._publishing
        if reader.content is not None:
            content, name = reader.content
            topic = context.topics.of(reader.name, name)
            publisher.own_topics = ContentTopic(topic, content.content_type, context.send)
            return
        alone = not any(isinstance(need, ContextDependency) for each in handlers for _, need in each.needs)
        publisher.own_topics = FieldTopics(
            reader.name, reader.layout, context.topics, context.send, context.others, alone=alone
        )

    def _queue(self, command: "Command", reader: "Reader | None") -> "CommandQueue":
        self._commands.append(command.name)
        context = self._publishing
        publisher = publisher_of(command.name, None, STANDARD, context) if reader is None else reader.publisher
        return self._services.dispatcher().queue(command, context, publisher)
