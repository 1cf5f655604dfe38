"""The handlers of a simulated app. Each call of a handler passes here, is counted, and fails, hangs or takes longer as
the plan of faults says."""

import asyncio
import math
import time
from collections.abc import Callable
from types import UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from leadsman.adapters.adapter import DeclaresTransientErrors, LimitsRetries
from leadsman.adapters.managed import ManagedAdapter
from leadsman.errors import DeviceTimeout, DeviceUnavailable, LeadsmanError
from leadsman.loop.user_code import place_of
from leadsman.registration.injection import Handler
from leadsman.registration.telemetry import Telemetry
from leadsman.resilience.backoff import Draw
from leadsman.resilience.failure import Failure
from leadsman.resilience.policy import Policy, State, Verdict
from leadsman.text import explain
from leadsman.tools.simulation.guard import DEVICE, first_touch
from leadsman.tools.simulation.scenario import Chance, FaultPlan, PlannedFault

BLOCKED = 1.0
"""Real seconds. A call in which no virtual time passes, and which takes longer, has blocked the simulation."""
BLOCKED_CALLS = 3
"""So many of them in a row are the handler's fault. A single one may be that of a busy machine."""
OF_ITS_OWN = 5
"""A handler whose first so many calls fail, though there is no fault, does not work in a simulation."""
FAILING = 0.2
"""Seconds of a call that fails because the device is weak."""


class SimulationError(LeadsmanError):
    """The app cannot be simulated. The message says why, and what to write."""


class Calls:
    """The calls of one device so far."""

    __slots__ = ("began", "readings", "under_way")

    def __init__(self) -> None:
        self.began: list[float] = []
        """When each call began, virtual seconds."""
        self.under_way: float | None = None
        """When the last call began, until its outcome is known."""


class Conditions(NamedTuple):
    """What all handlers of one run share."""

    plan: FaultPlan
    seed: int
    loop: asyncio.AbstractEventLoop
    fail: Callable[[str], None]
    """Ends the simulation with a message."""


class FaultyHandler:
    """Stands in place of a handler. The app calls it as it would call the handler."""

    def __init__(self, telemetry: Telemetry, wires: tuple[str, ...], call: Handler, conditions: Conditions) -> None:
        self.calls = Calls()
        self._name = telemetry.name
        self._call = call
        self._conditions = conditions
        self._faults = conditions.plan.of(wires)
        self._well_until = 0.0  # no fault is under way before that moment
        self._weakness = conditions.plan.weakness(telemetry.name)
        self._chance = Chance(conditions.seed, "call", telemetry.name)
        self._worked = False
        self._failed = self._blocked = 0

    async def __call__(self, **given: object) -> object:
        """Call the handler, or fail."""
        loop, calls, weakness = self._conditions.loop, self.calls, self._weakness
        now = loop.time()
        calls.began.append(now)
        calls.under_way = now
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
        token, real = DEVICE.set(self._name), time.perf_counter()
        try:
            result = await self._call(**given)
        except Exception as error:
            self._check(error)
            raise
        finally:
            DEVICE.reset(token)
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
            self._conditions.fail(
                f"{self._name}: its handler blocked the simulation for {seconds:.1f} s of real time, "
                f"{self._blocked} times; use asyncio.sleep and an adapter with a twin, or write --stand-in {self._name}"
            )

    def _check(self, error: Exception) -> None:
        """End the simulation if the handler cannot work in it."""
        touch = first_touch()
        if touch is not None:
            place = f" ({touch.place})" if touch.place else ""
            self._conditions.fail(
                f"{touch.device or self._name}: its handler {touch.what}{place}, and a simulation touches nothing "
                f"real; put that into an adapter with a twin, or write --stand-in {self._name}"
            )
        self._failed += 1
        if not self._worked and self._failed >= OF_ITS_OWN:
            where = place_of(error)
            self._conditions.fail(
                f"{self._name}: its handler fails although nothing is wrong: {explain(error)}"
                f"{f' ({where})' if where else ''}; a simulation enters no lifespan and has twins for adapters. "
                f"See whether leadsman run --dry-run works, or write --stand-in {self._name}"
            )


def in_thread(handler: Handler) -> Handler:
    """A plain ``def`` handler, called in a thread. Time stands still meanwhile."""

    async def call(**given: object) -> object:
        return await asyncio.to_thread(handler, **given)

    return call


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
    """The names and types of the fields of a handler's result, as far as its annotation says."""
    try:
        wanted = get_type_hints(handler).get("return")
        kinds = get_args(wanted) if get_origin(wanted) in (Union, UnionType) else (wanted,)
        for kind in kinds:
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
