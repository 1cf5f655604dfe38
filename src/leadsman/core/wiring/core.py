"""What every app has, and what its parts join."""

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from leadsman.core.adapters.managed import declared_errors
from leadsman.core.devices.group import DeviceGroup, DeviceServices
from leadsman.core.devices.roster import Departure, Device, Follower, Roster, RosterPhase, forgetting
from leadsman.core.event_bus import EventBus
from leadsman.core.events import AppFault, StateFailed, StateWritten
from leadsman.core.introspection.added import AddedDocuments
from leadsman.core.loop.clock import system_clock
from leadsman.core.loop.slices import Slices
from leadsman.core.loop.timers import Timers
from leadsman.core.monitoring.health import HealthRecords
from leadsman.core.monitoring.heartbeat import will
from leadsman.core.monitoring.outage_reports import OutageReporter
from leadsman.core.mqtt.link import Access, ClientIdentity
from leadsman.core.mqtt.outbox import Outbox
from leadsman.core.observers import Observers, check_observer
from leadsman.core.readings.reading import Reading
from leadsman.core.registration.telemetry import Telemetry
from leadsman.core.resilience.environment import Environment
from leadsman.core.resilience.overrides import handler_context
from leadsman.core.runtime.handler_calls import SharedResources
from leadsman.core.runtime.other_topics import OtherTopics
from leadsman.core.runtime.publisher import PublisherContext
from leadsman.core.runtime.runner import Runners
from leadsman.core.text import describe
from leadsman.core.text.log_lines import Lines
from leadsman.core.wiring.offers import Offers
from leadsman.core.wiring.plan import NoHome, Plan
from leadsman.errors import ConfigurationError, DeviceUnavailable, InvalidType, Stopped

if TYPE_CHECKING:
    from leadsman.core.runtime.commands import Dispatcher
    from leadsman.core.runtime.failure_state import StatesElsewhere
    from leadsman.core.runtime.own_requests import OwnRequests
    from leadsman.core.runtime.statefile import FurtherTable
    from leadsman.core.storage.directory import StateDirectory


class Life:
    """The life of an app: what its parts do when it begins, while it runs, and when it ends. A part adds what it does
    at a stage, as an observer subscribes to the event bus. `leadsman.core.wiring.run` goes through the stages, and
    names no part.

    The stages are in this order. At each, parts act in the order in which they were added.
    """

    __slots__ = (
        "after_delivery",
        "before_stop",
        "beside",
        "close",
        "fatal",
        "joined",
        "last_messages",
        "starts",
        "stop_handlers",
        "waits",
    )

    def __init__(self) -> None:
        self.fatal: list[Stopped] = []
        """Why the app must end, if a device failed that must work, a person must fix something, or nothing works any
        more."""
        self.joined: list[Callable[[], object]] = []
        """Is called when all parts have joined: each event has all its observers."""
        self.beside: list[tuple[str, Callable[[], Awaitable[object]]]] = []
        """Runs from the beginning until the goodbye, beside all else. If it fails, it is begun again; the text is what
        the log calls it."""
        self.waits: list[Callable[[], Awaitable[object]]] = []
        """Is waited for before anything touches a device."""
        self.starts: list[Callable[[], object]] = []
        """Is called when devices may be read: the lifespan is entered, and the adapters are being opened."""
        self.before_stop: list[Callable[[], Awaitable[object]]] = []
        """Is waited for, one after the other, when the app is asked to stop and devices may still be read."""
        self.stop_handlers: list[Callable[[float], Awaitable[int]]] = []
        """Ends the calls of handlers, all at once, in as many seconds; returns how many did not end."""
        self.last_messages: list[tuple[str, Callable[[], object]]] = []
        """Puts the last messages into the outbox. A fault there is reported under the text, and costs no other."""
        self.close: list[Callable[[], Awaitable[object]]] = []
        """Closes what needs no connection, while the last messages are sent."""
        self.after_delivery: list[Callable[[bool], Awaitable[object]]] = []
        """Closes the rest, once the broker has all messages, or has had its time for that; whether it has them all is
        the argument."""

    def check(self) -> None:
        """See that all that was added can be called as its stage does.

        Raises:
            InvalidType: it cannot, or it is async at a stage that awaits nothing.
        """
        for stage in set(self.__slots__) - {"fatal"}:
            what, awaited = f"core.life.{stage}", stage not in ("joined", "last_messages", "starts")
            pairs = stage in ("beside", "last_messages")
            for each in getattr(self, stage):
                match each:
                    case (str(), function) if pairs:
                        check_observer(what, function, awaited=awaited)
                    case _ if pairs:
                        raise InvalidType(f"{what}: {each!r} is no pair; give a text for the log and a function")
                    case _:
                        check_observer(what, each, awaited=awaited)


class Node:
    """This process, as one that may share the app with others. This one shares it with none."""

    shared = False
    """Whether other nodes read devices of the app at the same time."""
    takes_turns = False
    """Whether the nodes take the session at the broker over from each other, with what waits there."""
    permitted: Callable[[], bool] | None = None
    """Whether this node may act now, which is asked before any timer rings; None: it always may."""

    @property
    def failure_states(self) -> "StatesElsewhere | None":
        """How devices fail on the other nodes, once it is known; None where that is not shared."""
        return None

    @property
    def leaving(self) -> bool:
        """Whether the process ends with the app."""
        return True

    def outbox(self) -> Outbox:
        """A new outbox, for the messages that wait for the broker."""
        return Outbox()

    def has(self, device: str) -> bool:
        """Whether this node answers for a device now."""
        return True

    def elsewhere(self, finder: str) -> bool | None:
        """Whether another node may have what `finder` had found here. None while that is unknown."""
        return False

    def attach(self, core: "Core") -> None:
        """Hear the other nodes, and offer what is known of them, before the devices join."""

    def join(self, core: "Core") -> None:
        """Join the app, after its devices and all that reports of them."""


class Core(Offers):
    """What every app has. Parts join it: they follow its events and its devices, act at the stages of its life, and
    offer what other parts ask for.

    Args:
        plan: the app.
        access: the brokers, and how a connection to one is made.
        stopping: is set when the app shall end.
        resources: releases what must be released in any case, also if the app is cancelled.
        node: this process, among those that share the app.
    """

    def __init__(
        self, plan: Plan, access: Access, stopping: asyncio.Event, resources: contextlib.ExitStack, node: Node
    ) -> None:
        super().__init__()
        self._loop = loop = asyncio.get_running_loop()
        clock = system_clock(loop)
        events = EventBus(clock)
        identity = ClientIdentity(
            plan.identity.client_id,
            plan.topics.status,
            functools.partial(will, plan.identity.version, dry_run=plan.dry_run),
            plan.topics.node,
            takes_turns=node.takes_turns,
        )
        self.plan = plan
        self.guest = ""
        """The extension of a user that joins just now, by its name."""
        self._early: list[AppFault] = []
        """The faults while parts join."""
        self.node = node
        self.resources = resources
        self.life = Life()
        """The work of the parts when the app begins, while it runs, and when it ends."""
        self.life.joined.append(self._report_early)
        self.link = access.link(identity, access, node.outbox(), clock, events)
        timers = handler_context().run(Timers, loop, events.emit, self.link.piled_up, node.permitted)
        self.environment = Environment(timers, clock, events, plan.overrides, stopping)
        self.documents = AddedDocuments(events.emit, lambda: (self.joining, self.guest))
        """What parts add to the documents of the app."""
        self.tables: list[Callable[[], FurtherTable]] = []
        """What parts keep in the file of the saved state; each is made where the state is kept."""
        self.others = OtherTopics(events.emit)
        """Further retained topics of the devices."""
        self.publisher = PublisherContext(self.environment, plan.topics, self.link.put, self.others)
        """How the devices publish. A part that takes readings joins it before the devices are made."""
        self._on_reading: Observers[[Reading]] = Observers("what takes readings", events.emit)
        self.shared = SharedResources()
        self.slices = Slices(loop, events.emit)
        """Does what is too long for one turn of the loop."""
        self.roster = Roster(self.report)
        """The devices."""
        self.runners = Runners(self.roster.readers, self.roster.queues)
        """The runners of their handlers."""
        self.records = HealthRecords()
        self.log_lines = Lines()
        """Bounds the lines about what others cause."""
        self.outages = OutageReporter(
            plan.topics, self.link.put, self.records, self.log_lines, self._declared_errors, plan.jobs, self._place_of
        )
        self.roster.follow(RosterPhase.HEALTH, _health_follower(self.records))
        self.roster.follow(RosterPhase.HEALTH, forgetting(self.others.forget))

    @cached_property
    def device_services(self) -> DeviceServices:
        """The registrations and services that all groups of devices use."""
        known, dispatcher = self.plan.registry, lambda: self.dispatcher
        return DeviceServices(known.telemetries, known.sources, known.commands, self.shared, dispatcher, self._end_for)

    @cached_property
    def device_group(self) -> DeviceGroup:
        """The devices that exist for the whole run, and those that are found later."""
        return DeviceGroup(self.device_services, self.publisher)

    @cached_property
    def dispatcher(self) -> "Dispatcher":
        """Executes commands. Created on first use."""
        from leadsman.core.runtime.commands import Dispatcher

        return Dispatcher(self.publisher, self.roster.queues, self.roster.readers, self.shared)

    @cached_property
    def own_requests(self) -> "OwnRequests":
        """Handles the requests of the app's own code about its devices. Created on first use."""
        from leadsman.core.runtime.own_requests import OwnRequests

        elsewhere = self.plan.registry.telemetries if self.node.shared else ()
        return OwnRequests(self.roster.polls, self.runners, self.environment, self._loop, elsewhere)

    @cached_property
    def state_directory(self) -> "StateDirectory":
        """Where state is kept. Created on first use. What fails there is an event, whichever thread finds it."""
        from leadsman.core.storage.directory import NOWHERE, StateDirectory
        from leadsman.core.storage.owner import this_process

        loop, emit = self._loop, self.environment.events.emit

        def report(file: Path, error: Exception | None) -> None:
            event = StateWritten(str(file)) if error is None else StateFailed(str(file), error)
            with contextlib.suppress(RuntimeError):  # the app has ended, and a thread of a handler's has not
                loop.call_soon_threadsafe(emit, event)

        try:
            plan = self.plan
            app = this_process(plan.identity.name, plan.identity.program, plan.registry.names)
            directory = StateDirectory(plan.state_directory, report, app=app)
        except NoHome as error:
            directory = StateDirectory(NOWHERE, report, str(error))
        self.resources.callback(directory.release)
        return directory

    def take_state_directory(self) -> None:
        """Have the state directory made, locked and marked as that of this app, in a thread. That it cannot be written
        is reported by the parts that write there."""

        def occupy() -> None:
            with contextlib.suppress(OSError):
                self.state_directory.occupy()

        with contextlib.suppress(DeviceUnavailable):  # no thread is free
            self._loop.run_in_executor(None, occupy)

    def listen(self, on_reading: Callable[[Reading], None]) -> None:
        """Have each reading handed over, published or not. What `on_reading` raises is reported, and costs no reading.
        An extension of a user gets a copy: what it does with the fields changes no message.

        Raises:
            ConfigurationError: the devices are made, and publish without it; or it is no function, or async.
        """
        if "device_group" in self.__dict__:
            raise ConfigurationError("listen: the devices are made already; call it in JoinPhase.BEFORE_DEVICES")
        check_observer("listen", on_reading)
        self._on_reading.add(_with_copies(on_reading) if self.guest else on_reading)
        self.publisher = self.publisher._replace(on_reading=self._on_reading)

    def report(self, fault: AppFault) -> None:
        """Emit a fault; while parts join, when all have joined: then there is a log."""
        (self._early.append if self.joining else self.environment.events.emit)(fault)

    def _report_early(self) -> None:
        for fault in self._early:
            self.environment.events.emit(fault)
        self._early.clear()

    def end(self, reason: str | Stopped) -> None:
        """End the app, since a device failed that must work, or for another reason that is given as its error."""
        self.life.fatal.append(Stopped(reason) if isinstance(reason, str) else reason)
        self.environment.stopping.set()

    def _end_for(self, name: str, error: BaseException) -> None:
        self.end(f"{name} failed for good, and on_failure is 'stop': {type(error).__name__}: {describe(error)}")

    def _place_of(self, device: str) -> str:
        """Where the readings of a device are, for people."""
        reader = self.roster[device].reader if device in self.roster else None
        only_fields = reader is not None and reader.layout == "fields"
        return self.plan.topics.of(device, "#") if only_fields else self.plan.topics.state(device)

    def _declared_errors(self, device: str) -> tuple[type[Exception], ...]:
        """The errors that the adapters of a device declare as worth a retry."""
        return declared_errors(next((each.needs for each in self.plan.readers if each.name == device), ()))


async def claim_state_directory(core: Core) -> None:
    """Lock the directory of what must survive the app, which waits for a process that is about to leave it. Readings
    are there, too, in a file that has a lock of its own."""
    await core.state_directory.claim(core.environment.stopping)
    core.life.joined.append(core.state_directory.announce)


def _with_copies(on_reading: Callable[[Reading], None]) -> Callable[[Reading], None]:
    """A function that calls `on_reading` with copies of readings."""
    import copy  # few apps show readings, or extend an app so that it gets them

    @functools.wraps(on_reading)
    def listen(reading: Reading) -> None:
        on_reading(reading._replace(fields=copy.deepcopy(reading.fields)))

    return listen


def _health_follower(records: HealthRecords) -> Follower:
    """Lets each device that runs have a health record."""

    def join(device: Device) -> None:
        name, reader = device.name, device.reader
        if reader is not None and device.runner is not None:
            due = device.since + (reader.offset if isinstance(reader, Telemetry) else 0.0)
            pushed, by = (False, None) if isinstance(reader, Telemetry) else (True, reader.found_by)
            records.register(name, reader.stale_after, due, offline_on=reader.offline_on, pushed=pushed, found_by=by)
        elif device.queue is not None:
            records.register_idle(name, device.since)

    def leave(device: Device, why: Departure) -> None:
        if device.enabled:
            records.remove(device.name)

    return Follower(join, leave)
