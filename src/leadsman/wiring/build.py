"""The first act: builds the parts of an app, in the order in which they depend on each other."""

import asyncio
import contextlib
import functools
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from leadsman._version import UNVERSIONED
from leadsman.adapters.managed import declared_errors
from leadsman.devices import followers
from leadsman.devices.roster import Follower, Phase, Roster
from leadsman.event_bus import EventBus
from leadsman.event_bus import Phase as EventPhase
from leadsman.log_lines import Lines
from leadsman.monitoring.event_log import Log, on_reading
from leadsman.monitoring.health import HealthRecords
from leadsman.monitoring.heartbeat import Heartbeat, will
from leadsman.monitoring.ledger_reports import LedgerReports
from leadsman.monitoring.outage_reports import OutageReporter
from leadsman.monitoring.statuses import Statuses
from leadsman.mqtt.link import Access, ClientIdentity, Link
from leadsman.mqtt.message import Message
from leadsman.mqtt.outbox import Outbox
from leadsman.resilience import scope
from leadsman.resilience.environment import Environment
from leadsman.runtime.calls import SharedResources
from leadsman.runtime.other_topics import OtherTopics
from leadsman.runtime.publisher import PublisherContext
from leadsman.slices import Slices
from leadsman.text import clean, counted, describe, log_fields
from leadsman.timing.clock import Clock, rfc3339, system_clock
from leadsman.timing.timers import Timers
from leadsman.wiring.core import Core
from leadsman.wiring.doors import Doors
from leadsman.wiring.life import Life
from leadsman.wiring.optional import OptionalParts
from leadsman.wiring.plan import Plan

if TYPE_CHECKING:
    from leadsman.devices.shards import Shards
    from leadsman.discovery.registered import Described
    from leadsman.introspection.watching import Watching
    from leadsman.nodes.document import Brief
    from leadsman.standby.member import Member, Ownership
    from leadsman.wiring.cluster import Cluster
    from leadsman.wiring.discovery import Presence

_HAND_OVER = 0.9
"""Seconds, of the two that `leadsman.process` allows for the end, for a node of a cluster to give its devices up."""

logger = logging.getLogger("leadsman")


class Parts(NamedTuple):
    """The parts of an app that is about to run."""

    core: Core
    optional: OptionalParts
    statuses: Statuses
    heartbeat: Heartbeat
    doors: Doors
    life: Life
    """What they do when the app begins, and when it ends."""
    reports: bool
    """Whether the app reports about itself; see `build`."""
    presence: "Presence | None" = None
    """What tells others about the devices; None where discovery is off."""
    shards: "Shards | None" = None
    """The shards at work on this node of a cluster; None outside one."""


async def build(
    plan: Plan,
    access: Access,
    stopping: asyncio.Event,
    resources: contextlib.ExitStack,
    *,
    reports: bool = True,
    member: "Member | None" = None,
) -> Parts:
    """Make the parts, restore what they knew before a restart, and let them observe each other.

    Args:
        plan: the app.
        access: the brokers, and how a connection to one is made.
        stopping: is set when the app shall end.
        resources: releases what must be released in any case, also if the app is cancelled.
        reports: whether the app reports about itself: the heartbeat, the registry, the ledgers, the error topics, the
            log and the trace. A simulation reports nothing, since nobody would read it.
        member: this node, if it shares the app with others.
    """
    life = Life()
    core = _core(plan, access, stopping, life.fatal, member)
    plan = core.plan
    optional = OptionalParts(core, resources)
    log_lines = Lines()
    outages = OutageReporter(
        plan.topics, core.link.put, core.records, log_lines, functools.partial(_declared_errors, plan), plan.jobs
    )
    core.ledgers.durable = reports and optional.found_readings
    pending = await _restored(core, optional, outages)
    if reports:
        optional.store_readings()
    jobs = frozenset(device.name for device in core.roster.values() if device.job and device.enabled)
    statuses = Statuses(core.records, core.environment.clock.monotonic(), jobs)
    heartbeat = Heartbeat(
        plan.topics,
        _constants(plan, core.ownership),
        plan.heartbeat,
        statuses,
        core.link,
        core.environment.clock,
        core.slices,
        look=optional.runners.look,
    )
    heartbeat.nodes = core.nodes and functools.partial(_states, core.nodes)
    doors = Doors(core, optional, statuses, heartbeat.state_files)
    doors.listen()
    if reports:
        doors.hear_others()
    events, log = core.environment.events, Log(plan.name, plan.topics.prefix, log_lines, core.environment.timers)
    parts = Parts(core, optional, statuses, heartbeat, doors, life, reports)
    if reports:
        _subscribe_reports(events, parts, outages, log)
        parts = _describe_devices(events, parts)
        if logger.isEnabledFor(logging.DEBUG):
            events.subscribe(on_reading)
    _subscribe_optional(events, optional)
    parts = _with_shards(parts, _follow(parts, outages))
    _begin(parts, pending, member)
    _end(parts)
    return parts


def _begin(parts: Parts, pending: Mapping[str, float], member: "Member | None") -> None:
    """What the parts do when the app begins. `pending`: seconds until the next attempt of devices whose retry was
    waited for when the app ended."""
    core, optional, life, doors = parts.core, parts.optional, parts.life, parts.doors
    if parts.reports:
        life.beside["the heartbeat"] = parts.heartbeat.run
    if doors.http is not None:
        life.beside["the HTTP endpoint"] = doors.http.run
    if member is not None:
        life.waits.append(functools.partial(member.owner_or, core.environment.stopping))
    life.starts.append(functools.partial(optional.home.start, pending))
    if parts.reports:
        life.starts.append(core.ledgers.start)
    if core.cluster is not None and parts.shards is not None:
        end = functools.partial(_end_cluster, parts)
        life.starts.append(functools.partial(core.cluster.start, parts.shards, core.link, end))
    if core.cluster_report is not None and parts.reports:
        life.starts.append(core.cluster_report.start)

    def ready() -> None:
        doors.polling = True
        core.plan.live.ask_poll = optional.ask_poll

    def watch() -> None:
        watchdog = optional.watchdog(parts.statuses)
        if watchdog is not None:
            watchdog.start()

            async def end_watch() -> None:
                watchdog.stop(for_good=member is None or member.leaving)

            life.leaves.insert(0, end_watch)

    life.starts += [ready, watch]


def _end(parts: Parts) -> None:
    """What the parts do when the app ends."""
    core, optional, life = parts.core, parts.optional, parts.life
    cluster, cluster_report, presence, store = core.cluster, core.cluster_report, parts.presence, optional.store
    if cluster is not None:
        life.leaves.append(functools.partial(cluster.stop, _HAND_OVER))
    life.stops += [optional.home.stop, *(each.stop for each in optional.subscribers.values())]
    if cluster_report is not None:
        life.goodbyes["the goodbye of the node"] = cluster_report.goodbye
    if parts.reports:
        life.goodbyes["what may be published"] = parts.doors.end
        if presence is not None:
            life.goodbyes["the goodbye of discovery"] = presence.goodbye
        life.goodbyes["the goodbye"] = functools.partial(_say_goodbye, parts)
    if optional.contexts is not None:
        life.closes.append(optional.contexts.finish)
    if store is not None:
        life.goodbyes["the failure state"] = store.publish

    async def end_ledgers(delivered: bool) -> None:
        core.ledgers.durable = parts.reports and optional.keeps_readings
        core.ledgers.stop()

    life.ends += [end_ledgers, lambda _: optional.store_the_rest()]
    if store is not None:
        life.ends.append(lambda _: store.finish())
    if presence is not None:
        life.ends.append(lambda delivered: presence.close(delivered=delivered))


def _say_goodbye(parts: Parts) -> None:
    """Publish that the app is offline, also after a fault of ours."""
    try:
        parts.heartbeat.goodbye()
    except Exception:
        plan, link = parts.core.plan, parts.core.link
        payload = will(plan.version, link.number, dry_run=plan.dry_run)
        link.put(Message(plan.topics.status, payload, 1, retain=True, latest=True))
        raise


def _end_cluster(parts: Parts, reason: str) -> None:
    """End the app, since a person must fix something."""
    parts.life.fatal.append(reason)
    parts.core.environment.stopping.set()


def _follow(parts: Parts, outages: OutageReporter) -> dict[str, float]:
    """Let the parts of the app know of each device that joins or leaves from now on. Health records and ledgers know
    already. Returns seconds until pending retries, which are those of devices that come from another node."""
    core, optional, roster = parts.core, parts.optional, parts.core.roster
    pending: dict[str, float] = {}
    if optional.store is not None:
        saved = followers.SavedState(optional.store, core.snapshots, core.others, core.records, outages)
        roster.follow(Phase.STATE, Follower(saved.join, saved.leave))
        pending = saved.pending
    roster.follow(Phase.STATUS, followers.statuses(parts.statuses, core.environment.clock.monotonic))
    roster.follow(Phase.STATUS, followers.forgetting(outages.forget))
    if core.watching is not None:
        roster.follow(Phase.STATUS, followers.forgetting(core.watching.recent.forget))
    if parts.reports:
        roster.follow(Phase.STATUS, followers.heartbeat(parts.heartbeat))
        roster.follow(Phase.REPORT, Follower(parts.doors.join, parts.doors.leave))
    if parts.presence is not None:
        roster.follow(Phase.REPORT, Follower(parts.presence.join, parts.presence.leave))
    if optional.found is None:
        roster.follow(Phase.REPORT, followers.forgetting(core.others.forget))
    else:
        roster.follow(Phase.REPORT, optional.topic_removal(parts.doors.registry_changed if parts.reports else None))
        roster.follow(Phase.REPORT, followers.forgetting(optional.found.let_go))
    return pending


def _subscribe_reports(events: EventBus, parts: Parts, outages: OutageReporter, log: Log) -> None:
    """Let the reports about the app follow what happens."""
    core, optional, heartbeat, doors = parts.core, parts.optional, parts.heartbeat, parts.doors
    events.subscribe(core.records, EventPhase.HEALTH)
    events.subscribe(heartbeat.observe)
    events.subscribe(outages.observe)
    events.subscribe(log.observe, readings=False)
    events.subscribe(doors.observe, readings=False)
    events.subscribe(core.ledgers.observe, readings=False)
    events.subscribe(optional.trace, EventPhase.TRACE)


def _describe_devices(events: EventBus, parts: Parts) -> Parts:
    """Let discovery follow what happens, if it is on."""
    presence = parts.optional.presence(parts.statuses, parts.heartbeat.announce)
    if presence is None:
        return parts
    presence.listen(lambda: parts.optional.dispatcher, parts.doors.add)
    events.subscribe(presence.observe, readings=False)
    events.subscribe(presence.observe_health)
    return parts._replace(presence=presence)


def _with_shards(parts: Parts, pending: dict[str, float]) -> Parts:
    """In a cluster, let devices come and go with their shards."""
    core, optional = parts.core, parts.optional
    if core.cluster is None:
        return parts
    from leadsman.devices.shards import Shards

    if optional.found is not None:
        core.cluster.finders = optional.found.finders
        if (heard := core.cluster.heard) is not None:
            heard.found, optional.found.owners = optional.found, heard
            core.link.subscriptions.listeners[heard.filter] = heard.received
    if core.plan.discovery is not None:
        from leadsman.wiring.discovery import device_at

        core.cluster.described_at = device_at(core.plan, core.plan.discovery)
    save = _nothing if optional.store is None else optional.store.publish
    surroundings, publisher = optional.surroundings, core.publisher
    return parts._replace(shards=Shards(core.roster, surroundings, publisher, core.link.piled_up, pending, save))


def _nothing() -> None:
    """No state is kept."""


def _constants(plan: Plan, ownership: "Ownership | None") -> dict[str, object]:
    """What each heartbeat of this run says."""
    found: dict[str, object] = {"client_id": plan.client_id, "version": plan.version}
    if plan.dry_run:
        found["dry_run"] = True
    if ownership is not None:
        found["node"] = ownership._asdict()
    return found


def _states(nodes: "Callable[[], list[Brief]]") -> Mapping[str, int]:
    """How many nodes are in each state."""
    return Counter(node["state"] for node in nodes())


def _core(
    plan: Plan,
    access: Access,
    stopping: asyncio.Event,
    fatal: list[str],
    member: "Member | None",
) -> Core:
    """The parts that every app uses."""
    if plan.catalogue is not None:
        from leadsman.resilience.catalogue import CATALOGUE

        CATALOGUE.set(plan.catalogue)
    loop = asyncio.get_running_loop()
    clock = system_clock(loop)
    events = EventBus(clock)
    identity = ClientIdentity(
        plan.client_id,
        plan.topics.status,
        functools.partial(will, plan.version, dry_run=plan.dry_run),
        plan.topics.node,
    )
    cluster = _cluster(plan, clock)
    if cluster is not None:
        plan = plan._replace(adapters=cluster.adapters_here(plan))
    link = access.link(identity, access, _outbox(cluster), clock, events)
    permitted = None if member is None else member.permitted
    timers = scope.handler_context().run(Timers, loop, events.emit, link.piled_up, permitted)
    environment = Environment(timers, clock, events, plan.overrides, stopping)
    watching = _watching(plan, environment)
    on_reading = None if watching is None else watching.on_reading
    others = OtherTopics()
    described = _described(plan, link, clock.wall())
    on_published = None if described is None or described.properties is None else described.properties.on_published
    publisher = PublisherContext(environment, plan.topics, link.put, on_reading, others, on_published)
    shared = SharedResources()
    slices, records, roster = Slices(loop, events.emit), HealthRecords(), Roster()
    ledgers = LedgerReports(plan.topics, link, environment, slices)
    roster.follow(Phase.HEALTH, followers.health(records))
    roster.follow(Phase.HEALTH, followers.ledgers(ledgers))
    end_app = _end_app(fatal, stopping)
    core = Core(
        plan,
        environment,
        records,
        ledgers,
        link,
        publisher,
        shared,
        end_app,
        roster,
        slices,
        watching,
        others,
    )
    core = core._replace(described=described, cluster=cluster)
    if cluster is not None:
        from leadsman.wiring.cluster_report import ClusterReport

        report = ClusterReport(cluster, plan, link, clock)
        snapshots = cluster.share_state(link) if plan.keep_state else None
        return core._replace(nodes=report.briefs, cluster_report=report, snapshots=snapshots)
    if member is None:
        return core
    return core._replace(snapshots=member.observer.snapshots, ownership=member.ownership, nodes=member.report.briefs)


def _end_app(fatal: list[str], stopping: asyncio.Event) -> Callable[[str, BaseException], None]:
    """What ends the app because a device failed that must work."""

    def end_app(name: str, error: BaseException) -> None:
        fatal.append(f"{name} failed for good, and on_failure is 'stop': {type(error).__name__}: {describe(error)}")
        stopping.set()

    return end_app


def _cluster(plan: Plan, clock: Clock) -> "Cluster | None":
    """This node of a cluster; None outside one."""
    if plan.cluster is None:
        return None
    from leadsman.wiring.cluster import Cluster

    return Cluster(plan, clock)


def _outbox(cluster: "Cluster | None") -> Outbox:
    """What waits for the broker."""
    if cluster is None:
        return Outbox()
    from leadsman.mqtt.fenced import FencedOutbox

    return FencedOutbox(cluster)


def _watching(plan: Plan, environment: Environment) -> "Watching | None":
    """What is kept for people who watch; None where nobody can."""
    if plan.endpoint is None:
        return None
    from leadsman.introspection.watching import Watching

    return Watching(environment.clock, environment.timers, environment.events)


def _described(plan: Plan, link: Link, now: float) -> "Described | None":
    """The devices as others are told about them; None where discovery is off."""
    if plan.discovery is None:
        return None
    from leadsman.wiring.discovery import described

    return described(plan, plan.discovery, link, now)


def _declared_errors(plan: Plan, device: str) -> tuple[type[Exception], ...]:
    """The errors that the adapters of a device declare as worth a retry."""
    return declared_errors(next((each.needs for each in plan.readers if each.name == device), ()))


async def _restored(core: Core, optional: OptionalParts, outages: OutageReporter) -> dict[str, float]:
    """Restore the state of an earlier run, and log the start. Returns seconds until pending retries, by device."""
    plan, stopping = core.plan, core.environment.stopping
    if optional.keeps_state:
        await optional.state_directory.claim(stopping)
    pending = {} if optional.store is None else await optional.store.restore(core.records, outages, stopping)
    logger.info("%s", _opening(plan), extra=log_fields("start"))
    for name, health in core.records.entities.items():
        if health.failing_since is not None:
            since, error = rfc3339(health.failing_since), f"{health.trouble.error_type}: {health.trouble.error_message}"
            logger.info("%s: still failing since %s: %s", name, since, error, extra=log_fields("still failing", name))
    if optional.store is not None:
        core.ledgers.save = optional.store.keep_ledger
        optional.store.restore_ledgers(core.ledgers.restore)
    if optional.store is not None and optional.store.outages:
        optional.make_trace().resume(optional.store.outages)
    return pending


def _opening(plan: Plan) -> str:
    """The first line of the log: what is started, and with what."""
    numbers = {
        "source": sum(each.enabled for each in plan.sources.values()),
        "command": sum(each.enabled for each in plan.commands.values()),
        "subscription": len(plan.subscriptions),
    }
    devices = counted(len({each.name for each in plan.handlers}), "device")
    devices += "".join(f", {counted(number, what)}" for what, number in numbers.items() if number)
    settings = f"settings from {plan.settings_file}" if plan.settings_file else "no settings file"
    where = f"{'broker' if len(plan.brokers) == 1 else 'brokers'} {plan.brokers}"
    about = f"{devices}, {where}, topics below {plan.topics.prefix}/, {settings}"
    version = "" if plan.version == UNVERSIONED else f" {clean(plan.version)}"
    return f"{plan.name}{version} starts with leadsman {plan.leadsman}: {about}"


def _subscribe_optional(events: EventBus, optional: OptionalParts) -> None:
    if optional.store is not None:
        events.subscribe(optional.store.observe, EventPhase.SAVE)
    if optional.keeps_state:
        optional.state_directory.announce()
    if (recovery := optional.adapter_recovery()) is not None:
        events.subscribe(recovery.observe, EventPhase.ACT)
