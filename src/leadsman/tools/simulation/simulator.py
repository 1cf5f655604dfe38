"""Runs a user's app for a simulated day, once for each policy. A handler is called only where it runs on the twins of
its app; else a stand-in makes up its readings, so that nothing real is touched. Each call of a handler passes through
here, and what the app does is recorded."""

import asyncio
import contextlib
import functools
import gc
import io
import logging
import math
import random
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, get_type_hints

from leadsman.core.adapters.adapter import DeclaresTransientErrors, LimitsRetries
from leadsman.core.adapters.managed import ManagedAdapter
from leadsman.core.app import App
from leadsman.core.event_bus import Phase
from leadsman.core.events import (
    AttemptFailed,
    CircuitMoved,
    DeviceHeld,
    Event,
    MessageDropped,
    PollDeferred,
    PollFailed,
    PollMissed,
    PollSkipped,
    ReadingTaken,
)
from leadsman.core.introspection.registrations import policy_text
from leadsman.core.loop.schedule import Cron, zone_of
from leadsman.core.loop.tasks import in_the_next_turn
from leadsman.core.loop.user_code import place_of
from leadsman.core.mqtt.link import Access, Link
from leadsman.core.mqtt.message import Message
from leadsman.core.registration.annotation import result_of
from leadsman.core.registration.injection import Handler
from leadsman.core.registration.setup import Setup
from leadsman.core.registration.telemetry import Telemetry
from leadsman.core.resilience.backoff import Draw
from leadsman.core.resilience.failure import Failure
from leadsman.core.resilience.policy import Policy, State, Verdict
from leadsman.core.runtime.handler_calls import MAX_THREADS
from leadsman.core.runtime.thread_pool import ThreadPool
from leadsman.core.settings.sources import Where
from leadsman.core.text import explain
from leadsman.core.text.suggestion import suggestion
from leadsman.core.wiring.build import build, core_parts
from leadsman.core.wiring.plan import plan_of as wiring_plan_of
from leadsman.core.wiring.run import run, stop
from leadsman.errors import DeviceTimeout, DeviceUnavailable, InvalidValue, LeadsmanError
from leadsman.testing.broker import ForgetfulBroker
from leadsman.testing.harness import own_context
from leadsman.testing.loop import VirtualLoop
from leadsman.tools.simulation.outcome import (
    DEFERRED,
    FAILED,
    HELD,
    MISSED,
    SKIPPED,
    DeviceDay,
    Lost,
    PolicyDay,
    Stage,
    figures_of,
)
from leadsman.tools.simulation.scenario import BROKER, Chance, PlannedFault, Scenario, merge_spans, plan_of
from leadsman.tools.simulation.variant import Variant

BLOCKED = 1.0
"""Real seconds. A call in which no virtual time passes, and which takes longer, has blocked the simulation."""
WAIT_FOR_THREAD = 60.0
"""Seconds that a call waits if others have all threads."""
BLOCKED_CALLS = 3
"""So many of them in a row are the handler's fault. A single one may be that of a busy machine."""
OF_ITS_OWN = 5
"""A handler whose first so many calls fail, though there is no fault, does not work in a simulation."""
FAILING = 0.2
"""Seconds of a call that fails because the device is weak."""
SHORT_BYTES = 2**16
"""Bytes. Whether a longer message is too large is left to the outbox."""


class SimulationError(LeadsmanError):
    """The app cannot be simulated. The message explains why, and what to write."""


class ShortLink(Link):
    """A link through which a message arrives when it is put. Without a connection messages wait in the outbox, as they
    do in every app, and so do those that are put before it is empty again."""

    def put(self, message: Message) -> None:
        """See `Link`."""
        outbox = self.outbox
        if outbox.messages or not self.up or message.size > SHORT_BYTES:
            super().put(message)
            return
        outbox.delivered += 1
        if message.receipt is not None:
            message.receipt.published += 1


class DayRecorder:
    """Observes the events of an app.

    Args:
        devices: the days of the simulated devices. Their handlers count the calls.
        topics: the topics of their readings.
        end: the length of the day, in seconds. What comes later is not recorded.
    """

    def __init__(self, devices: Mapping[str, DeviceDay], topics: frozenset[str], end: float) -> None:
        self.dropped = 0
        """Readings that the outbox dropped."""
        self.devices = devices
        self._topics = topics
        self._end = end

    def observe(self, event: Event) -> None:
        """Take one event."""
        if event.at >= self._end:
            return
        if type(event) is ReadingTaken:  # most are, and a match of all kinds takes longer
            device = self.devices[event.entity]
            device.readings.append(round(event.at, 3))
            device.under_way = None
        elif isinstance(event, MessageDropped):
            self.dropped += event.messages if event.topic in self._topics else 0
        elif (failing := self.devices.get(getattr(event, "entity", ""))) is not None:
            self._record(failing, event)

    def _record(self, device: DeviceDay, event: Event) -> None:
        at = round(event.at, 3)
        match event:
            case AttemptFailed(requested=False):
                began, device.under_way = device.under_way, None
                device.failures.append(at if began is None else began)
            case PollFailed():
                device.lost.append(Lost(at, FAILED))
            case PollSkipped():
                device.lost.append(Lost(at, SKIPPED))
            case PollMissed():
                device.lost.append(Lost(at, MISSED, event.polls))
            case PollDeferred():
                later = 0 if device.interval is None else int(event.seconds / device.interval)
                device.lost.append(Lost(at, DEFERRED, 1 + later))
            case DeviceHeld():
                slots = 0 if device.interval is None else int((self._end - event.at) / device.interval)
                device.lost += [Lost(at, HELD, slots)] if slots else []
            case CircuitMoved():
                device.circuits.append((at, event.state))


class FaultyHandler:
    """Stands in place of a handler. The app calls it as it would call the handler. Each call is counted, and fails,
    hangs or takes longer as the plan of faults sets."""

    def __init__(
        self, telemetry: Telemetry, wires: tuple[str, ...], call: Handler, day: DeviceDay, run: "_PolicyRun"
    ) -> None:
        self._name = telemetry.name
        self._call = call
        self._day = day
        self._run = run
        self._faults = run.stage.plan.of(wires)
        self._well_until = 0.0  # no fault is under way before that moment
        self._weakness = run.stage.plan.weakness(telemetry.name)
        self._chance = Chance(run.stage.seed, "call", telemetry.name)
        self._worked = False
        self._failed = self._blocked = 0

    async def __call__(self, **given: object) -> object:
        """Call the handler, or fail."""
        loop, weakness = self._run.loop, self._weakness
        now = loop.time()
        self._day.call(now)
        if now >= self._well_until:
            await self._meet_faults(now)
        if weakness.failing or weakness.slow:
            luck = self._chance.at(round(now * 10))
            if luck < weakness.failing:
                await asyncio.sleep(FAILING)
                raise DeviceTimeout("simulated: no answer")
            if luck >= 1 - weakness.slow:
                await asyncio.sleep(weakness.slower)
                now = loop.time()
        real = time.perf_counter()
        try:
            result = await self._call(**given)
        except Exception as error:
            self._check(error)
            raise
        finally:
            if time.perf_counter() - real > BLOCKED and loop.time() == now:
                self._is_blocked(time.perf_counter() - real)
            else:
                self._blocked = 0
        self._worked = True
        return result

    async def _meet_faults(self, now: float) -> None:
        """Fail if a fault is under way, and find out when the next one begins."""
        for fault in self._faults:
            if fault.begin <= now < fault.end:
                await self._refuse(fault, now)
        self._well_until = min((fault.begin for fault in self._faults if fault.begin > now), default=math.inf)

    async def _refuse(self, fault: PlannedFault, now: float) -> None:
        if fault.silent:
            await asyncio.sleep(fault.end - now)  # the timeout of the call ends it, if that comes first
            raise DeviceTimeout(f"simulated: {fault.wire} did not answer")
        raise DeviceUnavailable(f"simulated: {fault.wire} is away")

    def _is_blocked(self, seconds: float) -> None:
        """End the simulation if the handler sleeps or waits in real time again and again."""
        self._blocked += 1
        if self._blocked >= BLOCKED_CALLS:
            self._run.fail(
                f"{self._name}: its handler blocked the simulation for {seconds:.1f} s of real time, "
                f"{self._blocked} times; use asyncio.sleep and an adapter with a twin, or write --stand-in {self._name}"
            )

    def _check(self, error: Exception) -> None:
        """End the simulation if the handler cannot work in it."""
        self._failed += 1
        if not self._worked and self._failed >= OF_ITS_OWN:
            where = place_of(error)
            self._run.fail(
                f"{self._name}: its handler fails although nothing is wrong: {explain(error)}"
                f"{f' ({where})' if where else ''}; a simulation enters no lifespan and has twins for adapters. "
                f"See whether leadsman run --dry-run works, or write --stand-in {self._name}"
            )


class PlainHandler:
    """Calls a plain ``def`` handler in a thread of the run. Time stands still meanwhile.

    Args:
        name: of its device, for the error of one that gets no thread.
        handler: the handler.
        run: has the threads.
    """

    def __init__(self, name: str, handler: Handler, run: "_PolicyRun") -> None:
        self.name = name
        self._handler = handler
        self._run = run

    async def __call__(self, **given: object) -> object:
        """Make the call."""
        thread = await self._run.threads.acquire(self, WAIT_FOR_THREAD)
        return await thread.run(functools.partial(self._handler, **given))


def stand_in(handler: Handler, loop: asyncio.AbstractEventLoop) -> Handler:
    """A handler that returns plausible values for the fields of another one's result: numbers that rise and fall over
    two hours."""
    fields = _fields_of(handler)

    async def call(**given: object) -> dict[str, object]:
        part = loop.time() / 7200 % 1
        wave = 20 + round(4 * abs(2 * part - 1), 2)
        return {name: _value(kind, wave) for name, kind in fields.items()}

    return call


def _fields_of(handler: Handler) -> dict[str, object]:
    """The names and types of the fields of a handler's result, as far as its annotation has them."""
    try:
        for kind in result_of(handler).kinds:
            if isinstance(kind, type) and kind.__module__ != "builtins" and (found := get_type_hints(kind)):
                return {name: each for name, each in found.items() if not name.startswith("_")}
    except Exception:  # names that are there for type checkers only
        return {"value": float}
    return {"value": float}


def _value(kind: object, wave: float) -> object:
    if kind is bool:
        return True
    if kind is int:
        return int(wave)
    return wave if kind is float else "simulated"


class NoHardware:
    """In place of an adapter that has no twin. Handlers that ask for it are not called."""

    def __init__(self, adapter: object) -> None:
        self.retry_tokens = adapter.retry_tokens if isinstance(adapter, LimitsRetries) else None
        self.transient_errors = adapter.transient_errors if isinstance(adapter, DeclaresTransientErrors) else ()

    async def __aenter__(self) -> None:
        """Open nothing."""

    async def __aexit__(self, *exc_info: object) -> None:
        """Close nothing."""


def wires_of(telemetry: Telemetry) -> tuple[str, ...]:
    """What a handler depends on: its device, and the labels of its adapters."""
    needed: list[Any] = [dependency for _, dependency in telemetry.needs]
    return (telemetry.name, *(each.label for each in needed if isinstance(each, ManagedAdapter)))


class Dice:
    """Chance for the waits of one device, which no other device changes."""

    def __init__(self, seed: int, device: str) -> None:
        self._chance = Chance(seed, "wait", device)
        self._drawn = 0

    def __call__(self) -> float:
        """The next number in [0, 1)."""
        self._drawn += 1
        return self._chance.at(self._drawn)


class WithDice(Policy):
    """A policy with dice of its own."""

    __slots__ = ("draw", "inner")
    inner: Policy
    draw: Draw

    def __init__(self, inner: Policy, draw: Draw) -> None:
        self._hold(inner=inner, draw=draw)

    @property
    def inside(self) -> tuple[Policy, ...]:
        return (self.inner,)

    def start(self) -> State:
        return self.inner.start()

    def step(self, state: State, failure: Failure, draw: Draw) -> tuple[State, Verdict]:
        return self.inner.step(state, failure, self.draw)


STEPS = 288
"""Parts of a day, between which progress is shown."""
ALL = "all"
"""For `Simulation.stand_ins`: every device."""

Progress = Callable[[float], None]
"""Takes how much of a day is done, 0 to 1."""


class Simulation(NamedTuple):
    """What is to be simulated."""

    app: App
    where: Where
    """The sources of the settings."""
    scenario: Scenario
    length: float
    """Seconds."""
    seed: int
    devices: tuple[str, ...] = ()
    """Only these; empty: all that are polled."""
    stand_ins: tuple[str, ...] = ()
    """Devices whose handlers are not called, or `ALL`."""
    begins: datetime | None = None
    """When the day begins; None: when the built-in day does."""


def stage_of(simulation: Simulation) -> Stage:
    """Look at the app without running it.

    Raises:
        ConfigurationError: its settings are wrong, or it has no device that is polled.
    """
    with simulation.app.unloaded():
        setup, zoneless = _load(simulation)
        polled = setup.registry.telemetries
        adapters = tuple(sorted({wire for each in polled.values() for wire in wires_of(each)[1:]}))
        begins = simulation.begins or simulation.scenario.begins
        texts = {_written(each) for each in polled.values()}
        return Stage(
            simulation.app.name,
            simulation.scenario.title,
            tuple(polled),
            adapters,
            tuple(name for name, each in polled.items() if _is_played(simulation, setup, each)),
            tuple(name for name, each in polled.items() if each.on_failure == "stop"),
            zoneless,
            plan_of(simulation.scenario, adapters, tuple(polled), simulation.length, simulation.seed),
            begins,
            simulation.length,
            simulation.seed,
            _shifts(polled.values(), begins, simulation.length),
            texts.pop() if len(texts) == 1 else f"{len(texts)} policies",
        )


def firsts(simulation: Simulation, variants: Sequence[Variant]) -> list[int]:
    """For each variant, the place of the first one that gives all devices the same options: its day is the same.

    Raises:
        ConfigurationError: a policy does not fit one of the devices.
    """
    with simulation.app.unloaded():
        setup, _ = _load(simulation)
        polled = setup.registry.telemetries.values()
        changed = [[each.of(telemetry, setup.catalogue) for telemetry in polled] for each in variants]
    made = [[(each.guards, each.overrun) for each in telemetries] for telemetries in changed]
    return [made.index(each) for each in made]


def simulate(simulation: Simulation, stage: Stage, variant: Variant, progress: Progress) -> PolicyDay:
    """Run the app for a day under one policy.

    Raises:
        SimulationError: the app cannot be simulated.
        ConfigurationError: the policy does not fit one of its devices.
        KeyboardInterrupt: Ctrl-C; everything is closed before.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_as_before(simulation.seed))
        loop = VirtualLoop(stage.begins.timestamp())
        stack.callback(loop.close)
        stack.enter_context(simulation.app.unloaded())
        setup, _ = _load(simulation)
        run_ = _PolicyRun(stage, variant, setup, loop)
        stack.callback(run_.end)
        directory = stack.enter_context(TemporaryDirectory(prefix="leadsman-simulation-", ignore_cleanup_errors=True))
        run_.go(Path(directory), progress)
    days = tuple(run_.recorder.devices.values())
    return PolicyDay(variant.name, days, figures_of(days, run_.recorder.dropped))


class _PolicyRun:
    """One day under one policy."""

    def __init__(self, stage: Stage, variant: Variant, setup: Setup, loop: VirtualLoop) -> None:
        self.stage = stage
        self.loop = loop
        self.threads: ThreadPool
        """Of all plain handlers; there while the app is served."""
        self._setup = setup
        self._stopping = asyncio.Event()
        self._problem: str | None = None
        self._interrupted = False
        self._serving: asyncio.Task[None] | None = None
        self._broker = ForgetfulBroker()
        devices: dict[str, DeviceDay] = {}
        for name, telemetry in setup.registry.telemetries.items():
            changed = variant.of(telemetry, setup.catalogue)
            day = devices[name] = DeviceDay(name, stage.length, changed.interval)
            handler = FaultyHandler(changed, wires_of(telemetry), self._call_of(telemetry), day, self)
            guards = changed.guards._replace(policy=WithDice(changed.guards.policy, Dice(stage.seed, name)))
            on_failure = "continue" if changed.on_failure == "stop" else changed.on_failure
            layout = "both" if changed.layout == "fields" else changed.layout  # lost readings are counted by their JSON
            setup.registry.telemetries[name] = changed._replace(
                handler=handler,
                plain=False,
                guards=guards,
                on_failure=on_failure,
                layout=layout,
                content=None if name in stage.stand_ins else changed.content,
            )
        _use_twins(setup)
        states = frozenset(map(setup.topics.state, devices))
        self.recorder = DayRecorder(devices, states, stage.length)

    def _call_of(self, telemetry: Telemetry) -> Callable[..., object]:
        if telemetry.name in self.stage.stand_ins:
            return stand_in(telemetry.handler, self.loop)
        return PlainHandler(telemetry.name, telemetry.handler, self) if telemetry.plain else telemetry.handler

    def fail(self, problem: str) -> None:
        """End the simulation with a message."""
        self._problem = self._problem or problem
        self.loop.call_soon_threadsafe(self.loop.stop)

    def go(self, directory: Path, progress: Progress) -> None:
        """Let the day pass."""
        loop, length = self.loop, self.stage.length
        self._serving = loop.create_task(self._serve(directory), context=own_context())
        for step in self.stage.plan.steps:
            loop.call_at(step.at, loop.step_wall, step.seconds)
        for begin, end in merge_spans([(each.begin, each.end) for each in self.stage.plan.of([BROKER])]):
            loop.call_at(begin, self._broker.stop)
            loop.call_at(end, self._broker.start)
        with self._interruptible():
            for part in range(1, STEPS + 1):
                self._until(length * part / STEPS)
                progress(part / STEPS)

    def _until(self, moment: float) -> None:
        """Let time pass until `moment`, and end early for a reason."""
        try:
            self.loop.run_until_complete(_passed(moment - self.loop.time()))
        except RuntimeError:  # the loop was stopped
            if self._problem is None and not self._interrupted:
                raise
        if self._interrupted:
            raise KeyboardInterrupt
        if self._problem is not None:
            raise SimulationError(self._problem)
        if self._serving is not None and self._serving.done():
            self._serving.result()

    async def _serve(self, directory: Path) -> None:
        plan = wiring_plan_of(self._setup, variables={"STATE_DIRECTORY": str(directory)})
        plan = plan._replace(sections=plan.sections.alone(), shares=None)  # a simulated day has one node
        with contextlib.ExitStack() as resources:
            self.threads = ThreadPool("handlers", MAX_THREADS)
            resources.callback(self.threads.stop)
            access = Access(plan.brokers, lambda _: self._broker.connect, link=ShortLink)
            core = await build(plan, access, self._stopping, resources, joins=core_parts(plan, simulated=True))
            core.environment.events.subscribe(self.recorder.observe, Phase.HEALTH)
            await stop(core, await run(core))

    def end(self) -> None:
        """End all tasks, whatever they do."""
        for _ in range(3):  # a stubborn handler swallows some of them
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            with contextlib.suppress(RuntimeError):
                self.loop.run_until_complete(asyncio.sleep(0.01))

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Stop the loop at the first Ctrl-C. An app takes what its handlers raise, a KeyboardInterrupt too, so that
        must not be raised in the middle of one. The second Ctrl-C is as usual."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def interrupted(number: int, frame: object) -> None:
            self._interrupted = True
            signal.signal(signal.SIGINT, before)
            self.loop.stop()

        before = signal.signal(signal.SIGINT, interrupted)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


def _load(simulation: Simulation) -> tuple[Setup, tuple[str, ...]]:
    """The setup of the app, with nothing but the devices that are polled and asked for; and those of them whose cron
    schedules name no zone, and are in UTC here."""
    app = simulation.app
    app.load(simulation.where)
    setup, registry = app.setup, app.setup.registry
    polled = {name: each for name, each in registry.telemetries.items() if each.enabled and not each.job}
    if not polled:
        reason = setup.idle_reason or "sources, events, commands and side jobs are not simulated"
        raise InvalidValue(f"the app {app.name!r} has no device that is polled, and nothing to simulate: {reason}")
    for name in (*simulation.devices, *(name for name in simulation.stand_ins if name != ALL)):
        if name not in polled:
            raise InvalidValue(f"no device {name!r} is polled; {suggestion(name, polled)}")
    chosen = {name: each for name, each in polled.items() if name in (simulation.devices or polled)}
    registry.telemetries = {name: _in_utc(each) for name, each in chosen.items()}
    registry.sources, registry.commands = {}, {}
    return setup, tuple(name for name, each in chosen.items() if each.cron is not None and each.cron.zone is None)


def _in_utc(telemetry: Telemetry) -> Telemetry:
    """The registration with UTC in a cron schedule without a zone. The zone of the host would make another day on
    another machine."""
    cron = telemetry.cron
    if cron is None or cron.zone is not None:
        return telemetry
    return telemetry._replace(cron=Cron(cron.expression, zone="UTC", at_start=cron.at_start))


def _is_played(simulation: Simulation, setup: Setup, telemetry: Telemetry) -> bool:
    """Whether a stand-in takes the place of a handler: on request, or because its app has no twins, and so nothing
    shows that the handler reaches its device by an adapter alone."""
    asked = telemetry.name in simulation.stand_ins or ALL in simulation.stand_ins
    return asked or setup.declaration.twins is None


def _use_twins(setup: Setup) -> None:
    """Replace all adapters by their twins, or by nothing where the app has no twins."""
    if setup.declaration.twins is not None:
        setup.use_twins()
        return
    for managed in setup.adapters:
        managed.adapter = NoHardware(managed.adapter)


def _shifts(polled: Iterable[Telemetry], begins: datetime, length: float) -> tuple[float, ...]:
    """When the zone of a cron schedule changes its offset during the day, to the minute."""
    zones = {zone_of(each.cron.zone) for each in polled if each.cron is not None}
    found: set[float] = set()
    for zone in zones:
        before = begins.astimezone(zone).utcoffset()
        for minute in range(int(length // 60) + 1):
            offset = datetime.fromtimestamp(begins.timestamp() + 60 * minute, zone).utcoffset()
            if offset != before:
                found.add(60.0 * minute)
            before = offset
    return tuple(sorted(found))


def _written(telemetry: Telemetry) -> str:
    """The policy of a device in short: without the usual errors and the backoff."""
    text = policy_text(telemetry).split(", retry_on=")[0].split(", backoff=")[0]
    breaker = telemetry.guards.breaker
    circuit = "" if breaker is None else f", circuit_breaker={breaker.threshold}"
    return text.replace("retry=until the next poll", "UNTIL_NEXT_POLL") + circuit


@contextlib.contextmanager
def _as_before(seed: int) -> Iterator[None]:
    """Keep logs and prints of the app quiet in the block, make chance repeatable, and restore all of that."""
    disabled, dice, thresholds = logging.root.manager.disable, random.getstate(), gc.get_threshold()
    logging.disable(logging.CRITICAL)
    gc.set_threshold(100_000, 50, 100)
    random.seed(seed)
    try:
        with contextlib.redirect_stdout(_Nowhere()), in_the_next_turn():
            yield
    finally:
        random.setstate(dice)
        gc.set_threshold(*thresholds)
        logging.disable(disabled)


class _Nowhere(io.TextIOBase):
    """Takes what handlers print."""

    def write(self, text: str) -> int:
        return len(text)


async def _passed(duration: float) -> None:
    await asyncio.sleep(max(0.0, duration))
