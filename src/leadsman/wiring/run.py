"""The second and the third act: runs the parts of an app until it is asked to stop, and then stops them in order."""

import asyncio
import contextlib
import functools
import logging
from typing import TYPE_CHECKING, NamedTuple

from leadsman.errors import ConfigurationError, Stopped
from leadsman.events import AppFault
from leadsman.monitoring.heartbeat import will
from leadsman.mqtt.link import Access
from leadsman.mqtt.message import Message
from leadsman.runtime.lifespan import Lifespan
from leadsman.runtime.supervision import cancel, close_all, keep_running
from leadsman.text import counted, log_fields
from leadsman.wiring.build import Parts, build
from leadsman.wiring.plan import Plan

if TYPE_CHECKING:
    from leadsman.standby.member import Member

_CANCEL_GRACE, _FLUSH, _CLOSE = 0.4, 0.6, 0.3
"""Seconds, of the two that `leadsman.process` allows, for: handlers to end; the broker to take the remaining messages;
the parts of the app, the connection and the adapters to close, each."""

_HAND_OVER = 0.9
"""Seconds, of the same two, for a node of a cluster to give its devices up."""

logger = logging.getLogger("leadsman")


class Running(NamedTuple):
    """The tasks of a running app."""

    tasks: list[asyncio.Task[None]]
    """The connection, the heartbeat and the adapters. They run until the last message is sent."""
    lifespan: Lifespan


async def serve(plan: Plan, access: Access, stopping: asyncio.Event, member: "Member | None" = None) -> int:
    """Run an app until `stopping` is set, then end it within two seconds.

    Args:
        plan: the app.
        access: the brokers, and how a connection to one is made.
        stopping: is set when the app shall end.
        member: this node, if it shares the app with others: nothing touches a device before it owns the app.

    Returns:
        The number of calls that did not end and were left behind.

    Raises:
        Stopped: a handler with ``on_failure="stop"`` failed for good. Everything was ended in order before.
    """
    with contextlib.ExitStack() as resources:
        parts = await build(plan, access, stopping, resources, member=member)
        running = await run(parts, member)
        return await stop(parts, running)


async def run(parts: Parts, member: "Member | None" = None) -> Running:
    """Connect, enter the lifespan, open the adapters and poll, until the app is asked to stop.

    Raises:
        ConfigurationError: the lifespan raised it.
    """
    core, optional = parts.core, parts.optional
    environment, stopping = core.environment, core.environment.stopping
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(keep_running("the link", core.link.run, environment))]
    if parts.reports:
        tasks.append(loop.create_task(keep_running("the heartbeat", parts.heartbeat.run, environment)))
    if (http := parts.doors.http) is not None:
        tasks.append(loop.create_task(keep_running("the HTTP endpoint", http.run, environment)))
    if member is not None:
        await member.owner_or(stopping)
    running = Running(tasks, Lifespan(None if stopping.is_set() else core.plan.lifespan, environment))
    try:
        await running.lifespan.entered_or(stopping)
    except ConfigurationError:
        environment.timers.stop()
        await cancel(tasks, _CLOSE)
        await core.link.close()
        raise
    if stopping.is_set():
        return running
    tasks += [loop.create_task(adapter.keep(environment)) for adapter in core.plan.adapters]
    await asyncio.sleep(0)  # the connection and the adapters begin before the first poll, which may be done at once
    optional.home.start(parts.pending)
    if parts.reports:
        core.ledgers.start()
    if core.cluster is not None and parts.shards is not None:
        core.cluster.start(parts.shards, core.link, functools.partial(_end, parts))
    if core.cluster_report is not None and parts.reports:
        core.cluster_report.start()
    parts.doors.polling = True
    core.plan.live.ask_poll = optional.ask_poll
    watchdog = optional.watchdog(parts.statuses)
    if watchdog is not None:
        watchdog.start()
    await stopping.wait()
    if watchdog is not None:
        watchdog.stop(for_good=member is None or member.leaving)
    return running


async def stop(parts: Parts, running: Running) -> int:
    """End the handlers, say that the app is offline, deliver what is left, and close everything.

    Returns:
        The number of calls that did not end.

    Raises:
        Stopped: the app ended because a device failed that must work.
    """
    core, optional = parts.core, parts.optional
    loop, link, environment = asyncio.get_running_loop(), core.link, core.environment
    if core.cluster is not None:
        await core.cluster.stop(_HAND_OVER)
    if core.cluster_report is not None:
        core.cluster_report.goodbye()
    ends = [optional.home.stop(_CANCEL_GRACE)]
    ends += [subscriber.stop(_CANCEL_GRACE) for subscriber in optional.subscribers.values()]
    alive = sum(await asyncio.gather(*ends))
    core.shared.stop()
    environment.timers.stop()
    core.slices.stop()
    await cancel(running.tasks, _CLOSE)
    if parts.reports:
        parts.doors.end()
        _say_goodbye(parts)
    closing = [loop.create_task(adapter.close()) for adapter in core.plan.adapters]
    closing.append(loop.create_task(running.lifespan.leave()))
    if optional.contexts is not None:
        closing.append(loop.create_task(optional.contexts.finish()))
    if optional.store is not None:
        optional.store.publish()
    delivered = await link.flush(_FLUSH)
    core.ledgers.durable = parts.reports and optional.keeps_readings
    core.ledgers.stop()
    closing.append(loop.create_task(optional.store_the_rest()))
    if optional.store is not None:
        closing.append(loop.create_task(optional.store.finish()))
    if parts.presence is not None:
        closing.append(loop.create_task(parts.presence.close(delivered=delivered)))
    await link.close()
    alive += await close_all(closing, _CLOSE, environment)
    _say_what_is_left(parts)
    if parts.fatal:
        raise Stopped(parts.fatal[0], alive)
    return alive


def _end(parts: Parts, reason: str) -> None:
    """End the app, since a person must fix something."""
    parts.fatal.append(reason)
    parts.core.environment.stopping.set()


def _say_what_is_left(parts: Parts) -> None:
    """Log which readings the broker does not have as the process ends."""
    outbox = parts.core.link.outbox
    if (on_disk := outbox.on_disk) is not None and (kept := on_disk.readings):
        waiting = counted(kept, "reading waits", "readings wait")
        about = log_fields("readings kept", readings=kept)
        logger.info("%s on disk for the broker, and the next start sends them", waiting, extra=about)
    if lost := outbox.unkept:  # status and availability are made again by the next life of the app
        one, many = "reading was not delivered, and is lost", "readings were not delivered, and are lost"
        about = log_fields("readings lost", readings=lost)
        logger.warning("%s as the process ends", counted(lost, one, many), extra=about)


def _say_goodbye(parts: Parts) -> None:
    """Publish that the app is offline. A fault of ours there must cost neither the stores nor the DISCONNECT."""
    events = parts.core.environment.events
    try:
        if parts.presence is not None:
            parts.presence.goodbye()
    except Exception as error:
        events.emit(AppFault("the goodbye of discovery", error))
    try:
        parts.heartbeat.goodbye()
    except Exception as error:
        plan, link = parts.core.plan, parts.core.link
        events.emit(AppFault("the goodbye", error))
        payload = will(plan.version, link.number, dry_run=plan.dry_run)
        link.put(Message(plan.topics.status, payload, 1, retain=True, latest=True))
