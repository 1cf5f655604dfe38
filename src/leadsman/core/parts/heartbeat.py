"""The health of the devices, and the heartbeat that reports it."""

from typing import TYPE_CHECKING

from leadsman.core.devices.roster import Departure, Device, Follower, RosterPhase
from leadsman.core.event_bus import Phase
from leadsman.core.events import ReadingTaken
from leadsman.core.monitoring.heartbeat import Heartbeat, offline, will
from leadsman.core.monitoring.statuses import Statuses
from leadsman.core.mqtt.message import Message
from leadsman.core.parts.kinds import HEARTBEAT, STATUSES
from leadsman.core.wiring.core import Core

if TYPE_CHECKING:
    from leadsman.core.monitoring.document import Status


def join(core: Core) -> None:
    """Follow how the devices are, and publish it. Outages are reported as they begin and end."""
    plan, roster, events, clock = core.plan, core.roster, core.environment.events, core.environment.clock
    jobs = frozenset(device.name for device in roster.values() if device.job and device.enabled)
    statuses = Statuses(core.records, clock.monotonic(), events.emit, jobs)
    heartbeat = Heartbeat(
        plan.topics,
        _common(core),
        plan.heartbeat,
        statuses,
        core.link,
        core.environment,
        core.slices,
        snapshot=core.runners.snapshot,
    )
    core.offer(STATUSES, statuses)
    core.offer(HEARTBEAT, heartbeat)
    events.subscribe(core.records, Phase.HEALTH, readings=False)
    events.subscribe_to(ReadingTaken, core.records.on_reading, Phase.HEALTH)
    events.subscribe(heartbeat.observe, readings=False)
    events.subscribe_to(ReadingTaken, heartbeat.on_reading)
    events.subscribe(core.outages.observe)
    roster.follow(RosterPhase.STATUS, _follower(core, statuses, heartbeat))
    core.life.beside.append(("the heartbeat", heartbeat.run))
    core.life.joined.append(lambda: _publish_offline(core, heartbeat))


def _publish_offline(core: Core, heartbeat: Heartbeat) -> None:
    """Publish at the end that the app is offline, after all other goodbyes: all parts have added theirs."""

    def goodbye() -> None:
        try:
            heartbeat.goodbye()
        except Exception:  # a fault of ours
            plan, link = core.plan, core.link
            payload = will(plan.identity.version, link.number, dry_run=plan.dry_run)
            link.put(Message(plan.topics.status, payload, 1, retain=True, latest=True))
            raise

    core.life.last_messages.append(("the last status", goodbye))


def _common(core: Core) -> "Status":
    """The fields that each heartbeat of this run contains."""
    found = offline(core.plan.identity.version, 0, dry_run=core.plan.dry_run)
    found["client_id"] = core.plan.identity.client_id
    return found


def _follower(core: Core, statuses: Statuses, heartbeat: Heartbeat) -> Follower:
    """The statuses, the availability topics and the heartbeat."""
    clock = core.environment.clock

    def join(device: Device) -> None:
        if device.enabled:
            if device.job:
                statuses.jobs |= {device.name}
            statuses.add(device.name, clock.monotonic())
            heartbeat.changed(device.name)

    def leave(device: Device, why: Departure) -> None:
        heartbeat.changed()
        core.outages.forget(device.name)
        if device.enabled:
            statuses.remove(device.name)
            statuses.jobs -= {device.name}

    return Follower(join, leave)
