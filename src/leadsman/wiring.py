"""The wiring: builds the parts of an app, runs them from the first poll to the end, and stops them. Read it from
top to bottom."""

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from leadsman.adapters.managed import REOPENING, ManagedAdapter
from leadsman.errors import ConfigurationError, Stopped
from leadsman.event_bus import EventBus, Phase
from leadsman.events import (
    AdapterFailed,
    AdapterReopened,
    AppFault,
    AttemptFailed,
    CircuitRequested,
    Event,
    LinkUp,
    PollFailed,
    StateFailed,
    StateWritten,
)
from leadsman.monitoring.event_log import Log, on_reading
from leadsman.monitoring.health import Ledger
from leadsman.monitoring.heartbeat import Heartbeat
from leadsman.monitoring.log_lines import Lines, fields
from leadsman.monitoring.outage_reports import OutageReporter
from leadsman.mqtt.broker import Broker
from leadsman.mqtt.connection import Connector
from leadsman.mqtt.link import ClientIdentity, Link
from leadsman.mqtt.message import Message
from leadsman.mqtt.outbox import Outbox
from leadsman.mqtt.topics import Topics
from leadsman.registration.injection import ContextOffer
from leadsman.registration.telemetry import Telemetry
from leadsman.resilience import scope
from leadsman.resilience.backoff import ExponentialBackoff
from leadsman.resilience.environment import Environment, PolicyOverride, Snapshot
from leadsman.runtime.calls import SharedResources
from leadsman.runtime.poller import Poller
from leadsman.runtime.publisher import PublisherContext
from leadsman.tasks import outcome_of
from leadsman.text import clean, counted, describe
from leadsman.timing.clock import rfc3339, system_clock
from leadsman.timing.timers import Timers

if TYPE_CHECKING:
    from leadsman.introspection.service import Service
    from leadsman.monitoring.trace import Trace
    from leadsman.monitoring.watchdog import Watchdog
    from leadsman.registration.command import Command
    from leadsman.registration.source import Source
    from leadsman.resilience.catalogue import Catalogue
    from leadsman.runtime.adapter_recovery import LastResort
    from leadsman.runtime.commands import CommandQueue, Dispatcher
    from leadsman.runtime.context import Contexts
    from leadsman.runtime.directory import StateDirectory
    from leadsman.runtime.operator import OperatorRequests
    from leadsman.runtime.persistence import ResilienceStore
    from leadsman.runtime.sources import SourceRunner

_CANCEL_GRACE, _FLUSH, _CLOSE = 0.4, 0.6, 0.3
"""Seconds, of the two that `leadsman.process` allows, for: handlers to end; the broker to take the rest; the parts of
the app, the connection and the adapters to close, each."""

RESTARTING = ExponentialBackoff(1.0, 60.0)
"""Between the death of a part of the app and its next life."""

REGISTRY_DELAY = 1.0
"""Seconds from a connection to the registry: first readings go first."""

_TRACED = (AttemptFailed, PollFailed, AdapterFailed, AdapterReopened, CircuitRequested)
"""The events that create the trace: an app in which nothing fails has none."""

logger = logging.getLogger("leadsman")


class Plan(NamedTuple):
    """Everything that is needed to run an app, checked and complete."""

    name: str
    version: str
    leadsman: str
    topics: Topics
    client_id: str
    state_name: str
    """The default name of the state directory."""
    broker: Broker
    environment: Mapping[str, str]
    """Where state, health file and service manager are."""
    dry_run: bool
    heartbeat: float
    slots: tuple[ManagedAdapter, ...]
    telemetries: tuple[Telemetry, ...]
    sources: "tuple[Source, ...]"
    commands: "tuple[Command, ...]"
    lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None
    last_resort: "LastResort | None"
    keep_state: bool
    """Whether resilience remembers over a restart."""
    overrides: PolicyOverride
    """Policies that take the place of the handlers' own for a while."""
    catalogue: "Catalogue | None"
    traced: "Callable[[Trace], None]"
    """Called with the trace, once there is something in it."""
    settings_file: str | None
    """Where settings were read, for the log."""


async def serve(plan: Plan, connect: Connector, stopping: asyncio.Event) -> int:
    """Run until `stopping` is set, then end within two seconds.

    Rooms that most apps do not use are entered only by those that do: an import costs a start two milliseconds.

    Returns:
        How many calls would not end, and had to be left behind.

    Raises:
        Stopped: a handler with ``on_failure="stop"`` failed for good; all was ended in order before.
    """
    with contextlib.ExitStack() as held:
        return await _serve(plan, connect, stopping, held)


async def _serve(plan: Plan, connect: Connector, stopping: asyncio.Event, held: contextlib.ExitStack) -> int:
    """As `serve`. What is to be let go in any case, also when it is cancelled, is put into `held`."""
    loop = asyncio.get_running_loop()
    clock, topics = system_clock(loop), plan.topics
    events = EventBus(clock)
    if plan.catalogue is not None:
        from leadsman.resilience.catalogue import CATALOGUE

        CATALOGUE.set(plan.catalogue)
    timers = scope.handler_context().run(Timers, loop, events.emit)
    environment = Environment(timers, clock, events, plan.overrides, stopping)
    telemetries = [telemetry for telemetry in plan.telemetries if telemetry.enabled]
    sources = [source for source in plan.sources if source.enabled]
    commands = [command for command in plan.commands if command.enabled]
    read: list[Telemetry | Source] = [*telemetries, *sources]
    ledger = Ledger()
    for telemetry in telemetries:
        ledger.register(telemetry.name, telemetry.stale_after, timers.origin + telemetry.offset)
    for source in sources:
        ledger.register(source.name, source.stale_after, timers.origin)
    for command in commands:
        ledger.register_idle(command.name, timers.origin)

    identity = ClientIdentity(
        plan.client_id, topics.status, lambda number: heartbeat.will(number), plan.broker.protocol
    )
    link = Link(identity, connect, Outbox(), clock, events)
    mail, lanes = PublisherContext(environment, topics, link.put), SharedResources()
    ended: list[str] = []

    def give_up(name: str, error: BaseException) -> None:
        ended.append(f"{name} failed for good, and on_failure is 'stop': {type(error).__name__}: {describe(error)}")
        stopping.set()

    poller = Poller(mail, lanes, give_up)
    for telemetry in telemetries:
        poller.add(telemetry)
    feeds = _feeds(sources, mail, lanes)
    lines: dict[str, CommandQueue] = {}
    dispatcher = functools.cache(lambda: _dispatcher(mail, poller, feeds, lines, lanes))
    for command in commands:
        dispatcher().add(command)
    storage = functools.cache(lambda: _storage(plan, environment, held))
    contexts = _contexts(storage, mail, [*read, *commands], {**poller.polls, **feeds}, lines)

    traces: list[Trace] = []
    service = functools.cache(
        lambda: _service(plan, ledger, link, poller, feeds, lines, mail, traces, heartbeat.state_files)
    )

    def trace(event: Event) -> None:
        if traces:
            traces[0].observe(event)
        elif isinstance(event, _TRACED):
            traces.append(_trace(plan, read))
            traces[0].observe(event)

    control = functools.cache(lambda: _control(mail, poller, feeds))
    link.subscriptions.listeners[topics.introspect] = lambda received: service().on_request(received)
    if commands:
        link.subscriptions.listeners[topics.of("+", "set")] = lambda received: dispatcher().on_set(received)
    if read:
        link.subscriptions.listeners[topics.of("+", "+/set")] = lambda received: control().on_set(received)
    if any(not telemetry.job for telemetry in telemetries):
        link.subscriptions.listeners[topics.of("+", "get")] = lambda received: dispatcher().on_get(received)

    def look(name: str) -> tuple[Snapshot, float | None]:
        return poller.look(name) if name in poller.polls else (feeds[name].execution.snapshot(), None)

    def register(event: Event) -> None:
        if isinstance(event, LinkUp):
            loop.call_later(REGISTRY_DELAY, lambda: None if stopping.is_set() else service().register())

    bound = Lines()
    outages = OutageReporter(topics, link.put, ledger, bound, lambda device: _transient(device, read))
    memory = _memory(storage(), poller, feeds, environment, traces) if plan.keep_state else None
    if memory is not None or contexts is not None:
        await storage().claim(stopping)
    pending = {} if memory is None else await memory.restore(ledger, outages, stopping)
    logger.info("%s", _opening(plan, len({each.name for each in [*read, *commands]})), extra=fields("start"))
    for name, health in ledger.entities.items():
        if health.failing_since is not None:
            since, error = rfc3339(health.failing_since), f"{health.error_type}: {health.error_message}"
            logger.info("%s: still failing since %s: %s", name, since, error, extra=fields("still failing", name))
    if memory is not None and memory.outages:
        traces.append(_trace(plan, read))
        traces[0].resume(memory.outages)
    jobs = frozenset(telemetry.name for telemetry in telemetries if telemetry.job)
    heartbeat = Heartbeat(
        topics, plan.version, plan.heartbeat, ledger, link, clock, look=look, jobs=jobs, dry_run=plan.dry_run
    )
    events.subscribe(ledger, Phase.LEDGER)
    for report in (heartbeat.observe, outages.observe, Log(plan.name, topics.prefix, bound, timers).observe, register):
        events.subscribe(report, Phase.REPORT)
    events.subscribe(trace, Phase.TRACE)
    if memory is not None:
        events.subscribe(memory.observe, Phase.SAVE)
    if memory is not None or contexts is not None:
        storage().announce()
    if logger.isEnabledFor(logging.DEBUG):
        events.subscribe(on_reading, Phase.REPORT)
    if plan.slots:
        from leadsman.runtime.adapter_recovery import AdapterRecovery

        needs = {each.name: each.needs for each in read}
        events.subscribe(AdapterRecovery(plan.slots, needs, plan.last_resort, environment).observe, Phase.ACT)

    def kept(where: str, run: Callable[[], Awaitable[Any]]) -> asyncio.Task[None]:
        return loop.create_task(_kept(where, run, environment))

    tasks = [kept("the link", link.run), kept("the heartbeat", heartbeat.run)]
    lifespan = _Lifespan(plan.lifespan, environment)
    try:
        await lifespan.entered_or(stopping)
    except ConfigurationError:
        timers.stop()
        await _cancelled(tasks, _CLOSE)
        await link.close()
        raise
    running: list[asyncio.Task[Any]] = []
    signs = _signs(plan.environment, ledger, jobs, link, timers)
    if not stopping.is_set():
        tasks += [loop.create_task(slot.keep(environment)) for slot in plan.slots]
        running = [kept(f"the source {name}", feed.run) for name, feed in feeds.items()]
        poller.start(pending)
        if signs is not None:
            signs.start()
        await stopping.wait()
    if signs is not None:
        signs.stop()

    ends = [poller.stop(_CANCEL_GRACE), _cancelled(running, _CANCEL_GRACE)]
    if lines:
        ends.append(dispatcher().stop(_CANCEL_GRACE))
    alive = sum(await asyncio.gather(*ends))
    lanes.stop()
    timers.stop()
    await _cancelled(tasks, _CLOSE)
    _say_goodbye(heartbeat, link, topics, environment)
    closing = [loop.create_task(slot.close()) for slot in plan.slots]
    closing.append(loop.create_task(lifespan.leave()))
    if contexts is not None:
        closing.append(loop.create_task(contexts.finish()))
    if memory is not None:
        closing.append(loop.create_task(memory.finish()))
    if not await link.flush(_FLUSH):
        one, many = "message was not delivered, and ends", "messages were not delivered, and end"
        logger.warning("%s with the process", counted(link.outbox.messages, one, many))
    await link.close()
    alive += await _ended(closing, _CLOSE, environment)
    if ended:
        raise Stopped(ended[0], alive)
    return alive


def _opening(plan: Plan, devices: int) -> str:
    """What the log says first: what is started, and with what."""
    settings = f"settings from {plan.settings_file}" if plan.settings_file else "no settings file"
    about = f"{counted(devices, 'device')}, broker {plan.broker}, topics below {plan.topics.prefix}/, {settings}"
    return f"{plan.name} {clean(plan.version)} starts with leadsman {plan.leadsman}: {about}"


def _transient(device: str, read: "Sequence[Telemetry | Source]") -> tuple[type[Exception], ...]:
    """The errors that the adapters of a device declare as worth another attempt."""
    needs = next((each.needs for each in read if each.name == device), ())
    return tuple(kind for _, offer in needs if isinstance(offer, ManagedAdapter) for kind in offer.transient_errors)


def _feeds(sources: "Sequence[Source]", mail: PublisherContext, lanes: SharedResources) -> "dict[str, SourceRunner]":
    if not sources:
        return {}
    from leadsman.runtime.sources import SourceRunner

    return {source.name: SourceRunner(source, mail, lanes) for source in sources}


def _dispatcher(
    mail: PublisherContext,
    poller: Poller,
    feeds: "dict[str, SourceRunner]",
    lines: "dict[str, CommandQueue]",
    lanes: SharedResources,
) -> "Dispatcher":
    from leadsman.runtime.commands import Dispatcher

    return Dispatcher(mail, poller, feeds, lines, lanes)


def _contexts(
    storage: "Callable[[], StateDirectory]",
    mail: PublisherContext,
    registered: Sequence[Any],
    readers: dict[str, Any],
    lines: "dict[str, CommandQueue]",
) -> "Contexts | None":
    """The contexts of those handlers that ask for one."""
    asking = [each for each in registered if any(isinstance(offer, ContextOffer) for _, offer in each.needs)]
    if not asking:
        return None
    from leadsman.registration.command import Command
    from leadsman.runtime.context import Contexts

    contexts = Contexts(storage(), mail)
    for each in asking:
        owner = lines if isinstance(each, Command) else readers
        contexts.give(each.needs, each.name, owner[each.name].execution.retries)
    return contexts


def _service(
    plan: Plan,
    ledger: Ledger,
    link: Link,
    poller: Poller,
    feeds: "dict[str, SourceRunner]",
    lines: "dict[str, CommandQueue]",
    mail: PublisherContext,
    traces: "list[Trace]",
    state_files: "dict[str, str]",
) -> "Service":
    from leadsman.introspection.service import About, Parts, Service

    about = About(plan.name, plan.version, plan.leadsman, plan.topics, str(plan.broker), plan.client_id)
    parts = Parts(ledger, link, poller, feeds, lines, plan.slots, traces, state_files)
    return Service(about, (*plan.telemetries, *plan.sources, *plan.commands), parts, mail)


def _trace(plan: Plan, read: "Sequence[Telemetry | Source]") -> "Trace":
    from leadsman.introspection.registrations import policy_text
    from leadsman.monitoring.trace import Trace

    trace = Trace({each.name: policy_text(each) for each in read})
    plan.traced(trace)
    return trace


def _storage(plan: Plan, environment: Environment, held: contextlib.ExitStack) -> "StateDirectory":
    """Where state is kept. What fails there is an event, whichever thread finds it."""
    from leadsman.runtime.directory import StateDirectory
    from leadsman.runtime.store import state_directory

    loop = asyncio.get_running_loop()

    def report(file: Path, error: Exception | None) -> None:
        event = StateWritten(str(file)) if error is None else StateFailed(str(file), error)
        with contextlib.suppress(RuntimeError):  # the app has ended, and a thread of a handler's has not
            loop.call_soon_threadsafe(environment.events.emit, event)

    directory = StateDirectory(state_directory(plan.state_name, plan.environment), report)
    held.callback(directory.release)
    return directory


def _memory(
    directory: "StateDirectory",
    poller: Poller,
    feeds: "dict[str, SourceRunner]",
    environment: Environment,
    traces: "Sequence[Trace]",
) -> "ResilienceStore":
    from leadsman.runtime.persistence import ResilienceStore

    return ResilienceStore(
        directory, poller, {name: feed.execution for name, feed in feeds.items()}, environment, traces
    )


def _control(mail: PublisherContext, poller: Poller, feeds: "dict[str, SourceRunner]") -> "OperatorRequests":
    from leadsman.runtime.operator import OperatorRequests

    return OperatorRequests(mail, poller, feeds)


def _signs(
    environment: Mapping[str, str], ledger: Ledger, jobs: frozenset[str], link: Link, timers: Timers
) -> "Watchdog | None":
    if not environment.keys() & {"NOTIFY_SOCKET", "LEADSMAN_HEALTH_FILE", "RUNTIME_DIRECTORY"}:
        return None
    from leadsman.monitoring.watchdog import Watchdog

    return Watchdog(environment, ledger, jobs, link, timers)


class _Lifespan:
    """The user's context manager, entered and left by one task, as many of them demand."""

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[Any]] | None, environment: Environment) -> None:
        self._make = make
        self._environment = environment
        self._entered = asyncio.Event()
        self._leave = asyncio.Event()
        self._task = None if make is None else asyncio.get_running_loop().create_task(self._live(make))

    async def entered_or(self, stopping: asyncio.Event) -> None:
        """Wait until it is entered, or the app is to stop."""
        if self._task is None:
            return
        waits = [asyncio.ensure_future(event.wait()) for event in (self._entered, stopping)]
        await asyncio.wait([*waits, self._task], return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        if self._task.done():
            self._task.result()

    async def leave(self) -> None:
        """Leave it, or give up entering it."""
        if self._task is None:
            return
        self._leave.set()
        if not self._entered.is_set():
            self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _live(self, make: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        attempt = 0
        while True:
            attempt += 1
            error = (await outcome_of(functools.partial(self._once, make))).error
            if error is None:
                return
            if self._entered.is_set() or not isinstance(error, Exception | asyncio.CancelledError | GeneratorExit):
                raise error
            if isinstance(error, ConfigurationError):
                raise error
            self._environment.events.emit(AppFault("entering the lifespan; it is tried again", error))
            await self._environment.timers.sleep(REOPENING.delay(attempt))

    async def _once(self, make: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        async with make():
            self._entered.set()
            await self._leave.wait()


async def _kept(where: str, run: Callable[[], Awaitable[Any]], environment: Environment) -> None:
    """Run a part of the app for as long as the app runs. If it fails, that is reported, and it is restarted after a
    while."""
    deaths, clock = 0, environment.clock
    while True:
        began = clock.monotonic()
        error = (await outcome_of(run)).error
        if error is not None:
            deaths = deaths + 1 if clock.monotonic() - began < RESTARTING.max_delay else 1
            environment.events.emit(AppFault(where, error))
        await environment.timers.sleep(RESTARTING.delay(max(1, deaths)))


async def _cancelled(tasks: Sequence[asyncio.Task[Any]], grace: float) -> int:
    """Cancel tasks and wait at most `grace` seconds. Returns how many are still alive."""
    for task in tasks:
        task.cancel()
    if not tasks:
        return 0
    _, pending = await asyncio.wait(tasks, timeout=grace)
    return len(pending)


def _say_goodbye(heartbeat: Heartbeat, link: Link, topics: Topics, environment: Environment) -> None:
    """Say that the app stops; a fault of ours there must cost neither the stores nor the state nor the DISCONNECT."""
    try:
        heartbeat.goodbye()
    except Exception as error:
        environment.events.emit(AppFault("the goodbye", error))
        link.put(Message(topics.status, heartbeat.will(link.number), 1, retain=True, latest=True))


async def _ended(tasks: Sequence[asyncio.Task[None]], timeout: float, environment: Environment) -> int:
    done, pending = await asyncio.wait(tasks, timeout=timeout)
    for task in done:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            environment.events.emit(AppFault("closing a part of the app", error))
    return len(pending)
