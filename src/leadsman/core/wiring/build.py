"""Builds an app out of its parts, and of what extends it."""

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from importlib import import_module
from operator import attrgetter
from typing import NamedTuple

from leadsman.core.events import AppFault
from leadsman.core.extension import Extension, JoinPhase
from leadsman.core.loop.tasks import outcome_in_own_task
from leadsman.core.monitoring.loop_stalls import STALL
from leadsman.core.mqtt.link import Access
from leadsman.core.observers import check_observer, guarded, observer_name
from leadsman.core.registration.injection import ContextDependency
from leadsman.core.text import describe, log_fields
from leadsman.core.wiring.core import Core, Node
from leadsman.core.wiring.plan import Plan
from leadsman.errors import ConfigurationError, InvalidType, labelled

logger = logging.getLogger("leadsman")

JOIN_SECONDS = 10.0
"""Seconds for which the start waits for an extension of a user to join."""


def _always(plan: Plan) -> bool:
    return True


def _has_contexts(plan: Plan) -> bool:
    return any(isinstance(need, ContextDependency) for each in plan.handlers for _, need in each.needs)


def _uses_directory(plan: Plan) -> bool:
    return plan.keep_state or _has_contexts(plan)


def _keeps_readings_on_disk(plan: Plan) -> bool:
    """Not in a dry run, nor in a cluster, where another node reads a device again sooner than this one comes back."""
    return plan.sections.outbox.durability != "memory" and not plan.dry_run and plan.shares != "devices"


def _writes(plan: Plan) -> bool:
    """Whether anything survives the app."""
    return (plan.sections.outbox.durability != "memory" or _uses_directory(plan)) and not plan.dry_run


def _writes_alone(plan: Plan) -> bool:
    """Where something is written anyway, and the app is no node of a pair: those may be on one machine, and have one
    session, which each takes over as it is."""
    return _writes(plan) and plan.shares != "app"


def _does_not_wait(plan: Plan) -> bool:
    """Whether the app begins although another process has its directory."""
    return _writes_alone(plan) and not _uses_directory(plan)


def _subscribes(plan: Plan) -> bool:
    return any(each.enabled for each in plan.registry.subscriptions.values())


def _ends_by_itself(plan: Plan) -> bool:
    return any(limit is not None for limit in plan.sections.supervision)


class Part(NamedTuple):
    """A part of the core that joins an app, and is imported where the app wants it."""

    phase: JoinPhase
    module: str
    wanted: Callable[[Plan], bool] = _always
    join: str = "join"
    """The function of the module that takes the `Core`, and follows what it needs of it. It may be a coroutine
    function."""
    simulated: bool = True
    """Whether it joins the app in a simulated day, too, where no person, no program and no next life of the app reads
    anything."""


BEFORE_DEVICES, DEVICES, STATE, OBSERVERS, DOORS = JoinPhase
PARTS = (
    Part(BEFORE_DEVICES, "leadsman.core.parts.log", join="open_log", simulated=False),
    Part(BEFORE_DEVICES, "leadsman.core.parts.show", lambda plan: plan.show is not None, simulated=False),
    Part(DEVICES, "leadsman.core.parts.devices"),
    Part(
        DEVICES, "leadsman.core.parts.found_devices", lambda plan: any(each.finds is not None for each in plan.readers)
    ),
    Part(DEVICES, "leadsman.core.parts.subscriptions", _subscribes),
    Part(DEVICES, "leadsman.core.parts.state_owner", _writes, simulated=False),
    Part(DEVICES, "leadsman.core.parts.state_owner", _does_not_wait, "warn", simulated=False),
    Part(DEVICES, "leadsman.core.wiring.core", _uses_directory, "claim_state_directory"),
    Part(DEVICES, "leadsman.core.parts.contexts", _has_contexts),
    Part(STATE, "leadsman.core.parts.disk", _keeps_readings_on_disk, simulated=False),
    Part(STATE, "leadsman.core.parts.saved_state", lambda plan: plan.keep_state, simulated=False),
    Part(STATE, "leadsman.core.parts.subscription_record", _writes_alone, simulated=False),
    Part(OBSERVERS, "leadsman.core.parts.heartbeat", simulated=False),
    Part(OBSERVERS, "leadsman.core.parts.log", simulated=False),
    Part(OBSERVERS, "leadsman.core.parts.recovery", lambda plan: bool(plan.adapters)),
    Part(OBSERVERS, "leadsman.core.parts.listeners", lambda plan: bool(plan.live.listeners), simulated=False),
    Part(OBSERVERS, "leadsman.core.parts.supervision", _ends_by_itself, simulated=False),
    Part(DOORS, "leadsman.core.parts.introspection", simulated=False),
    Part(DOORS, "leadsman.core.parts.shared_prefix", lambda plan: not plan.dry_run, simulated=False),
    Part(DOORS, "leadsman.core.parts.registry", simulated=False),
)
"""The parts of the core. What leadsman ships besides is in the list of `leadsman.extensions`."""


class Joining(NamedTuple):
    """A function that joins an app."""

    phase: JoinPhase
    by: str
    """The module of the part, or the extension, for errors."""
    join: Callable[[Core], object]
    extension: str = ""
    """The name of the extension, if a user gave it: then a fault costs the app nothing but it."""


def core_parts(plan: Plan, parts: Iterable[Part] = PARTS, *, simulated: bool = False) -> list[Joining]:
    """What of the core joins an app, imported.

    Args:
        plan: the app.
        parts: the parts that may join.
        simulated: whether it runs for a simulated day.
    """
    return [
        Joining(part.phase, part.module, getattr(import_module(part.module), part.join))
        for part in parts
        if part.wanted(plan) and (part.simulated or not simulated)
    ]


def everything(plan: Plan) -> list[Joining]:
    """What joins an app, in the order in which it joins: by phase, and in each of them the core, what leadsman ships,
    and what a user gave. At each stage of the life of the app it acts in this order, too."""
    from leadsman.core.wiring.shipped import shipped

    found = core_parts(plan)
    for extension in (*shipped(plan), *plan.extensions):
        name = extension.name if extension in plan.extensions else ""
        by = f"the extension {name!r}" if name else type(extension).__module__
        found += [Joining(phase, by, join, name) for phase, join in _joins_of(extension, plan)]
    return sorted(found, key=attrgetter("phase"))


def _joins_of(extension: Extension, plan: Plan) -> Iterator[tuple[JoinPhase, Callable[[Core], object]]]:
    """What an extension lets join. Raises `ConfigurationError`: only its author can put it right."""
    try:
        with _timed(extension.name, "joins"):
            given: object = extension.joins(plan)
            pairs = [*given] if isinstance(given, Iterable) else None
    except ConfigurationError:
        raise
    except Exception as error:
        wrong = f"{type(error).__name__}: {describe(error)}"
        raise ConfigurationError(
            f"{extension.name}: joins raised {wrong}; correct it, or leave the extension out"
        ) from error
    if pairs is None:
        raise InvalidType(
            f"{extension.name}: joins gives {given!r}; write pairs such as (JoinPhase.OBSERVERS, self.join), or"
            " return ()"
        )
    for each in pairs:
        match each:
            case (JoinPhase() as phase, join) if callable(join):
                yield phase, join
            case _:
                raise InvalidType(
                    f"{extension.name}: joins gives {each!r}; write pairs such as (JoinPhase.OBSERVERS, self.join)"
                )


async def build(
    plan: Plan,
    access: Access,
    stopping: asyncio.Event,
    resources: contextlib.ExitStack,
    *,
    node: Node | None = None,
    joins: Iterable[Joining] | None = None,
) -> Core:
    """Make what every app has, and let join it what this app wants. What an earlier run saved is restored.

    Args:
        plan: the app.
        access: the brokers, and how a connection to one is made.
        stopping: is set when the app shall end.
        resources: releases what must be released in any case, also if the app is cancelled.
        node: this process, if it shares the app with others.
        joins: what joins, in this order; None: `everything`.
    """
    if plan.catalogue is not None:
        from leadsman.core.resilience.catalogue import CATALOGUE

        CATALOGUE.set(plan.catalogue)
    core = Core(plan, access, stopping, resources, Node() if node is None else node)
    for each in everything(plan) if joins is None else joins:
        core.joining, core.guest = each.by, each.extension
        if each.extension:
            await _join_guarded(core, each)
        else:
            await _join(core, each)
    core.joining, core.guest = None, ""
    for ready in core.life.joined:
        ready()
    return core


@contextlib.contextmanager
def _timed(extension: str, what: str) -> Iterator[None]:
    """Log that an extension of a user blocked the loop for long, once it has ended: meanwhile `StallWatch` names the
    function."""
    began = time.monotonic()
    yield
    if extension and (took := time.monotonic() - began) >= STALL:
        about = log_fields("extension blocked", extension=extension, seconds=round(took, 3))
        line = "The extension %s blocked the app for %.1f s in %s. Await asyncio.to_thread(…) in an async function."
        logger.warning(line, extension, took, what, extra=about)


async def _join(core: Core, each: Joining) -> None:
    with _timed(each.extension, "a function that joins"):
        joined = each.join(core)
    if asyncio.iscoroutine(joined):
        await joined


async def _join_guarded(core: Core, each: Joining) -> None:
    """Let an extension of a user join. What it raises is a fault, and the app runs without what it would have done;
    what only the user can put right ends the start."""

    async def join() -> None:
        async with asyncio.timeout(JOIN_SECONDS):
            await _join(core, each)

    emit, begins = core.environment.events.emit, f"the extension {each.extension} as the app begins"
    life, waits = core.life, len(core.life.waits)
    stages = life.joined, life.starts
    before = [len(each) for each in stages]
    error = (await outcome_in_own_task(join)).error
    if isinstance(error, ConfigurationError | KeyboardInterrupt):
        raise error
    with labelled(f"extension {each.extension!r}"):
        life.check()
        for what, functions in ("core.documents.measures", core.documents.measures), ("core.tables", core.tables):
            for function in functions:
                check_observer(what, function)
    for stage, number in zip(stages, before, strict=True):
        stage[number:] = [functools.partial(guarded, emit, begins, begin) for begin in stage[number:]]
    life.waits[waits:] = [functools.partial(_waited, emit, begins, wait) for wait in life.waits[waits:]]
    if isinstance(error, TimeoutError) and not str(error):
        error = TimeoutError(f"it did not end within {JOIN_SECONDS:g} s")
    if error is not None:
        core.report(AppFault(f"the extension {each.extension} as it joins", error))


async def _waited(emit: Callable[[AppFault], None], what: str, wait: Callable[[], Awaitable[object]]) -> None:
    """`guarded`, of what is waited for."""
    if (error := (await outcome_in_own_task(wait)).error) is not None:
        emit(AppFault(f"{what}, {observer_name(wait)}", error))
