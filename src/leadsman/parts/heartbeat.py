"""The health of the devices, and the heartbeat that reports it."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from leadsman.devices.roster import Departure, Device, Follower, Phase, forgetting
from leadsman.event_bus import Phase as EventPhase
from leadsman.monitoring.heartbeat import Heartbeat, will
from leadsman.monitoring.statuses import Statuses
from leadsman.mqtt.message import Message
from leadsman.wiring.core import Core

if TYPE_CHECKING:
    from leadsman.monitoring.document import Constants
    from leadsman.nodes.brief import State


def join(core: Core) -> None:
    """Follow how the devices are, and publish it. Outages are reported as they begin and end."""
    plan, roster, events, clock = core.plan, core.roster, core.environment.events, core.environment.clock
    jobs = frozenset(device.name for device in roster.values() if device.job and device.enabled)
    core.statuses = Statuses(core.records, clock.monotonic(), jobs)
    core.heartbeat = Heartbeat(
        plan.topics,
        _constants(core),
        plan.heartbeat,
        core.statuses,
        core.link,
        clock,
        core.slices,
        look=core.runners.look,
    )
    core.heartbeat.nodes = None if core.node.states is None else _counts(core.node.states)
    events.subscribe(core.records, EventPhase.HEALTH)
    events.subscribe(core.heartbeat.observe)
    events.subscribe(core.outages.observe)
    roster.follow(Phase.STATUS, _status_follower(core.statuses, clock.monotonic))
    roster.follow(Phase.STATUS, forgetting(core.outages.forget))
    roster.follow(Phase.STATUS, _heartbeat_follower(core.heartbeat))
    core.life.beside["the heartbeat"] = core.heartbeat.run


def say_goodbye(core: Core) -> None:
    """Publish at the end that the app is offline, after all other goodbyes."""

    def goodbye() -> None:
        try:
            core.heartbeat.goodbye()
        except Exception:  # a fault of ours
            plan, link = core.plan, core.link
            payload = will(plan.version, link.number, dry_run=plan.dry_run)
            link.put(Message(plan.topics.status, payload, 1, retain=True, latest=True))
            raise

    core.life.goodbyes["the goodbye"] = goodbye


def _constants(core: Core) -> "Constants":
    """What each heartbeat of this run contains."""
    found: Constants = {"client_id": core.plan.client_id, "version": core.plan.version}
    if core.plan.dry_run:
        found["dry_run"] = True
    if core.node.ownership is not None:
        found["node"] = core.node.ownership.section()
    return found


def _counts(states: "Callable[[], Mapping[str, State]]") -> Callable[[], Mapping[str, int]]:
    """Counts how many nodes are in each state."""
    return lambda: Counter(states().values())


def _status_follower(found: Statuses, now: Callable[[], float]) -> Follower:
    """The statuses."""

    def join(device: Device) -> None:
        if device.enabled:
            if device.job:
                found.jobs |= {device.name}
            found.add(device.name, now())

    def leave(device: Device, why: Departure) -> None:
        if device.enabled:
            found.remove(device.name)
            found.jobs -= {device.name}

    return Follower(join, leave)


def _heartbeat_follower(sent: Heartbeat) -> Follower:
    """The heartbeat, and the availability topics."""

    def join(device: Device) -> None:
        if device.enabled:
            sent.changed(device.name)

    def leave(device: Device, why: Departure) -> None:
        sent.changed()

    return Follower(join, leave)
