"""The first act: builds the parts of an app, in the order in which they depend on each other."""

import asyncio
import contextlib
import functools
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from leadsman.adapters.managed import declared_errors
from leadsman.event_bus import EventBus, Phase
from leadsman.log_lines import Lines
from leadsman.monitoring.event_log import Log, on_reading
from leadsman.monitoring.health import HealthRecords
from leadsman.monitoring.heartbeat import Heartbeat, will
from leadsman.monitoring.ledger_reports import LedgerReports, Schedule
from leadsman.monitoring.outage_reports import OutageReporter
from leadsman.monitoring.statuses import Statuses
from leadsman.mqtt.link import Access, ClientIdentity, Link
from leadsman.mqtt.outbox import Outbox
from leadsman.resilience import scope
from leadsman.resilience.environment import Environment
from leadsman.runtime.calls import SharedResources
from leadsman.runtime.other_topics import OtherTopics
from leadsman.runtime.poller import Poller
from leadsman.runtime.publisher import PublisherContext
from leadsman.slices import Slices
from leadsman.text import clean, counted, describe, log_fields
from leadsman.timing.clock import Clock, rfc3339, system_clock
from leadsman.timing.timers import Timers
from leadsman.wiring.doors import Doors
from leadsman.wiring.optional import Core, OptionalParts
from leadsman.wiring.plan import Plan
from leadsman.wiring.reports import Reports

if TYPE_CHECKING:
    from leadsman.introspection.watching import Watching
    from leadsman.nodes.document import Brief
    from leadsman.standby.member import Member, Ownership
    from leadsman.wiring.cluster import Cluster
    from leadsman.wiring.discovery import Described, Presence
    from leadsman.wiring.moving import MovingDevices

logger = logging.getLogger("leadsman")


class Parts(NamedTuple):
    """The parts of an app that is about to run."""

    core: Core
    optional: OptionalParts
    statuses: Statuses
    heartbeat: Heartbeat
    doors: Doors
    pending: Mapping[str, float]
    """Seconds until the next attempt of devices whose retry was waited for when the app ended."""
    fatal: list[str]
    """Why the app must end, if a device failed that must work."""
    reports: bool
    """Whether the app reports about itself; see `build`."""
    presence: "Presence | None" = None
    """What tells others about the devices; None where discovery is off."""
    moving: "MovingDevices | None" = None
    """The devices of this node in a cluster; None outside one."""


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
    fatal: list[str] = []
    core = _core(plan, access, stopping, fatal, member)
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
    statuses = Statuses(core.records, core.environment.clock.monotonic(), plan.settled.jobs)
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
    parts = Parts(core, optional, statuses, heartbeat, doors, pending, fatal, reports)
    if reports:
        _subscribe_reports(events, parts, outages, log)
        parts = _with_moving(_describe_devices(events, parts), outages)
        if logger.isEnabledFor(logging.DEBUG):
            events.subscribe(on_reading)
    _subscribe_optional(events, optional)
    return parts


def _subscribe_reports(events: EventBus, parts: Parts, outages: OutageReporter, log: Log) -> None:
    """Let the reports about the app follow what happens."""
    core, optional, heartbeat, doors = parts.core, parts.optional, parts.heartbeat, parts.doors
    events.subscribe(core.records, Phase.HEALTH)
    events.subscribe(heartbeat.observe)
    events.subscribe(outages.observe)
    events.subscribe(log.observe, readings=False)
    events.subscribe(doors.observe, readings=False)
    events.subscribe(core.ledgers.observe, readings=False)
    events.subscribe(optional.trace, Phase.TRACE)
    if optional.found is not None:
        optional.found.begin(Reports(parts.statuses, heartbeat, outages, doors))


def _describe_devices(events: EventBus, parts: Parts) -> Parts:
    """Let discovery follow what happens, if it is on."""
    presence = parts.optional.presence(parts.statuses, parts.heartbeat.announce)
    if presence is None:
        return parts
    presence.listen(parts.optional, parts.doors.add)
    events.subscribe(presence.observe, readings=False)
    events.subscribe(presence.observe_health)
    return parts._replace(presence=presence)


def _with_moving(parts: Parts, outages: OutageReporter) -> Parts:
    """In a cluster, let devices come and go with their shards."""
    core, optional = parts.core, parts.optional
    if core.cluster is None:
        return parts
    from leadsman.wiring.moving import MovingDevices

    if optional.found is not None:
        core.cluster.finders = optional.found.devices.finders
        if (heard := core.cluster.heard) is not None:
            heard.found, optional.found.devices.owners = optional.found.devices, heard
            core.link.subscriptions.listeners[heard.filter] = heard.received
    if core.plan.discovery is not None:
        from leadsman.wiring.discovery import device_at

        core.cluster.described_at = device_at(core.plan, core.plan.discovery)
    reports = Reports(parts.statuses, parts.heartbeat, outages, parts.doors)
    end_app = _end_app(parts.fatal, core.environment.stopping)
    return parts._replace(moving=MovingDevices(core, optional, reports, parts.presence, end_app))


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
    poller, slices = Poller(publisher, shared, _end_app(fatal, stopping)), Slices(loop, events.emit)
    ledgers = _ledgers(plan, LedgerReports(plan.topics, link, environment, slices), poller)
    records = _records(plan, timers.origin)
    core = Core(plan, environment, records, ledgers, link, publisher, shared, poller, slices, watching, others)
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


def _ledgers(plan: Plan, ledgers: LedgerReports, poller: Poller) -> LedgerReports:
    """Make all handlers ready to be polled, and account for their slots."""
    for telemetry in plan.settled.telemetries.values():
        schedule = Schedule(telemetry.interval, telemetry.cron)
        if telemetry.enabled:
            ledgers.add(telemetry.name, poller.add(telemetry).ledger, schedule, job=telemetry.job)
        else:
            ledgers.add_disabled(telemetry.name, schedule, job=telemetry.job)
    return ledgers


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


def _records(plan: Plan, origin: float) -> HealthRecords:
    """The health records of all devices, none of which has been polled."""
    records = HealthRecords()
    plan = plan.settled
    for telemetry in plan.polled:
        due = origin + telemetry.offset
        records.register(telemetry.name, telemetry.stale_after, due, offline_on_error=telemetry.offline_on_error)
    for source in plan.sources.values():
        if source.enabled:
            records.register(source.name, source.stale_after, origin, offline_on_error=source.offline_on_error)
    for command in plan.commands.values():
        if command.enabled:
            records.register_idle(command.name, origin)
    return records


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
    return f"{plan.name} {clean(plan.version)} starts with leadsman {plan.leadsman}: {about}"


def _subscribe_optional(events: EventBus, optional: OptionalParts) -> None:
    if optional.store is not None:
        events.subscribe(optional.store.observe, Phase.SAVE)
    if optional.keeps_state:
        optional.state_directory.announce()
    if (recovery := optional.adapter_recovery()) is not None:
        events.subscribe(recovery.observe, Phase.ACT)
