"""Builds an app out of its parts."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import NamedTuple

from leadsman.core.mqtt.link import Access
from leadsman.core.registration.injection import ContextDependency
from leadsman.core.wiring.core import Core, Node
from leadsman.core.wiring.plan import Plan


def _always(plan: Plan) -> bool:
    return True


def _is_described(plan: Plan) -> bool:
    return plan.sections.discovery is not None


def _has_endpoint(plan: Plan) -> bool:
    return plan.sections.http is not None


def _has_contexts(plan: Plan) -> bool:
    return any(isinstance(need, ContextDependency) for each in plan.handlers for _, need in each.needs)


def _uses_directory(plan: Plan) -> bool:
    return plan.keep_state or _has_contexts(plan)


def _keeps_readings_on_disk(plan: Plan) -> bool:
    """Not in a dry run, nor in a cluster, where another node reads a device again sooner than this one comes back."""
    return plan.sections.outbox.durability != "memory" and not plan.dry_run and plan.sections.cluster is None


def _writes(plan: Plan) -> bool:
    """Whether anything survives the app."""
    return (plan.sections.outbox.durability != "memory" or _uses_directory(plan)) and not plan.dry_run


def _writes_alone(plan: Plan) -> bool:
    """Where something is written anyway, and the app is no node of a pair: those may be on one machine, and have one
    session, which each takes over as it is."""
    return _writes(plan) and plan.sections.standby is None


def _does_not_wait(plan: Plan) -> bool:
    """Whether the app begins although another process has its directory."""
    return _writes_alone(plan) and not _uses_directory(plan)


def _subscribes(plan: Plan) -> bool:
    return any(each.enabled for each in plan.registry.subscriptions.values())


def _is_supervised(plan: Plan) -> bool:
    return bool(plan.variables.keys() & {"NOTIFY_SOCKET", "LEADSMAN_HEALTH_FILE", "RUNTIME_DIRECTORY"})


def _ends_by_itself(plan: Plan) -> bool:
    return any(limit is not None for limit in plan.sections.supervision)


class Part(NamedTuple):
    """A part that joins an app, and is imported where the app wants it."""

    module: str
    wanted: Callable[[Plan], bool] = _always
    join: str = "join"
    """The function of the module that takes the `Core`, and follows what it needs of it. It may be a coroutine
    function."""
    simulated: bool = True
    """Whether it joins the app in a simulated day, too, where no person, no program and no next life of the app reads
    anything."""


PARTS = (
    Part("leadsman.core.parts.log", join="open_log", simulated=False),
    # Before the devices: what takes their readings, what counts them, and the other nodes that share the app.
    Part("leadsman.extensions.http.part", _has_endpoint, "watch", simulated=False),
    Part("leadsman.core.parts.show", lambda plan: plan.show is not None, simulated=False),
    Part("leadsman.extensions.discovery.part", _is_described, "describe", simulated=False),
    Part("leadsman.extensions.ledger.part", simulated=False),
    Part("leadsman.extensions.trace.part", simulated=False),
    Part("leadsman.core.wiring.core", join="attach_node"),
    # The devices, and what their handlers use.
    Part("leadsman.core.parts.devices"),
    Part("leadsman.core.parts.found_devices", lambda plan: any(each.finds is not None for each in plan.readers)),
    Part("leadsman.core.parts.subscriptions", _subscribes),
    Part("leadsman.core.parts.state_owner", _writes, simulated=False),
    Part("leadsman.core.parts.state_owner", _does_not_wait, "warn", simulated=False),
    Part("leadsman.core.wiring.core", _uses_directory, "claim_state_directory"),
    Part("leadsman.core.parts.contexts", _has_contexts),
    # What survives the app. What reports of the devices comes later, and finds them as they were.
    Part("leadsman.core.parts.disk", _keeps_readings_on_disk, simulated=False),
    Part("leadsman.core.parts.saved_state", lambda plan: plan.keep_state, simulated=False),
    Part("leadsman.core.parts.subscription_record", _writes_alone, simulated=False),
    # What observes the devices.
    Part("leadsman.core.parts.heartbeat", simulated=False),
    Part("leadsman.core.parts.log", simulated=False),
    Part("leadsman.core.parts.recovery", lambda plan: bool(plan.adapters)),
    Part("leadsman.core.parts.listeners", lambda plan: bool(plan.live.listeners), simulated=False),
    Part("leadsman.extensions.watchdog.part", _is_supervised, simulated=False),
    Part("leadsman.core.parts.supervision", _ends_by_itself, simulated=False),
    # What people and other programs read, and what they request.
    Part("leadsman.core.parts.introspection", simulated=False),
    Part("leadsman.core.parts.shared_prefix", lambda plan: not plan.dry_run, simulated=False),
    Part("leadsman.core.parts.registry", simulated=False),
    Part("leadsman.extensions.discovery.part", _is_described, simulated=False),
    Part("leadsman.extensions.http.part", _has_endpoint, simulated=False),
    Part("leadsman.core.wiring.core", join="join_node"),
    Part("leadsman.core.parts.heartbeat", join="publish_offline", simulated=False),
)
"""All parts, in the order in which they join. At each stage of the life of the app they act in this order, too."""


async def build(
    plan: Plan,
    access: Access,
    stopping: asyncio.Event,
    resources: contextlib.ExitStack,
    *,
    node: Node | None = None,
    parts: Iterable[Part] = PARTS,
) -> Core:
    """Make what every app has, and let the parts join it that this app wants. What an earlier run saved is restored.

    Args:
        plan: the app.
        access: the brokers, and how a connection to one is made.
        stopping: is set when the app shall end.
        resources: releases what must be released in any case, also if the app is cancelled.
        node: this process, if it shares the app with others.
        parts: what may join.
    """
    if plan.catalogue is not None:
        from leadsman.core.resilience.catalogue import CATALOGUE

        CATALOGUE.set(plan.catalogue)
    core = Core(plan, access, stopping, resources, Node() if node is None else node)
    for part in parts:
        if part.wanted(plan):
            core.joining = part.module
            joined = getattr(import_module(part.module), part.join)(core)
            if asyncio.iscoroutine(joined):
                await joined
    core.joining = None
    for ready in core.life.joined:
        ready()
    return core
