"""Runs the parts of an app until it is asked to stop, and then stops them in order."""

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

from leadsman.core.adapters.managed import REOPENING
from leadsman.core.events import AppFault
from leadsman.core.loop.tasks import outcome_in_own_task
from leadsman.core.mqtt.link import Access
from leadsman.core.mqtt.outbox import Outbox
from leadsman.core.resilience.environment import Environment
from leadsman.core.runtime.supervision import cancel, close_all, keep_running
from leadsman.core.text import count_noun, log_fields
from leadsman.core.wiring.build import Joining, build
from leadsman.core.wiring.core import Core, Node
from leadsman.core.wiring.plan import Plan
from leadsman.errors import ConfigurationError

_LEAVE, _STOPPED = 1.0, 0.5
"""Seconds until a part of the app that leaves, or that ends its handlers, is left behind: what hangs costs no last
message of another one. A node of a cluster ends by itself a tenth of a second before."""
_CANCEL_GRACE, _FLUSH, _CLOSE = 0.4, 0.6, 0.3
"""Seconds, of the two that `leadsman.core.wiring.process` allows, for: handlers to end; the broker to take the
remaining messages; the connection, the lifespan and the adapters to close, each."""
_WRITTEN = 1.8
"""Seconds from the beginning of the end until what the parts of the app have not written to disk is lost. A busy disk
takes longer than `_CLOSE` for a file, and nothing else waits for it."""

Make = Callable[[], AbstractAsyncContextManager[object]]
"""Makes the context manager. It is called for each attempt to enter it."""

logger = logging.getLogger("leadsman")


class Lifespan:
    """Enters and leaves the user's context manager in one task, as many context managers demand. Begins at once.

    Args:
        make: makes it; None if the app has none.
        environment: timers and events.
    """

    def __init__(self, make: Make | None, environment: Environment) -> None:
        self._environment = environment
        self._entered = asyncio.Event()
        self._leave = asyncio.Event()
        self._task = None if make is None else asyncio.get_running_loop().create_task(self._live(make))

    async def entered_or(self, stopping: asyncio.Event) -> None:
        """Wait until it is entered, or the app is to stop.

        Raises:
            ConfigurationError: it raised that. Any other exception is reported, and entering is tried again.
        """
        if self._task is None:
            return
        waits = [asyncio.ensure_future(event.wait()) for event in (self._entered, stopping)]
        await asyncio.wait([*waits, self._task], return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        if self._task.done():
            self._task.result()

    async def leave(self) -> None:
        """Leave it, or give up entering it. Raises what leaving raises."""
        if self._task is None:
            return
        self._leave.set()
        if not self._entered.is_set():
            self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _live(self, make: Make) -> None:
        attempt = 0
        while True:
            attempt += 1
            error = (await outcome_in_own_task(functools.partial(self._once, make))).error
            if error is None:
                return
            if self._entered.is_set() or not isinstance(error, Exception | asyncio.CancelledError | GeneratorExit):
                raise error
            if isinstance(error, ConfigurationError):
                raise error
            self._environment.events.emit(AppFault("entering the lifespan, which is tried again", error))
            await self._environment.timers.sleep(REOPENING.delay(attempt))

    async def _once(self, make: Make) -> None:
        async with make():
            self._entered.set()
            await self._leave.wait()


class Running(NamedTuple):
    """The tasks that run beside the polls, until the goodbyes."""

    tasks: list[asyncio.Task[None]]
    lifespan: Lifespan


async def serve(
    plan: Plan,
    access: Access,
    stopping: asyncio.Event,
    node: Node | None = None,
    joins: Iterable[Joining] | None = None,
) -> int:
    """Run an app until `stopping` is set, then end it within two seconds.

    Args:
        plan: the app.
        access: the brokers, and how a connection to one is made.
        stopping: is set when the app shall end.
        node: this process, if it shares the app with others.
        joins: what joins the app; see `build`.

    Returns:
        The number of calls that did not end and were left behind.

    Raises:
        Stopped: a handler with ``on_failure="stop"`` failed for good. Everything was ended in order before.
    """
    with contextlib.ExitStack() as resources:
        resources.callback(plan.live.end)
        core = await build(plan, access, stopping, resources, node=node, joins=joins)
        return await stop(core, await run(core))


async def run(core: Core) -> Running:
    """Connect, enter the lifespan, open the adapters and poll, until the app is asked to stop.

    Raises:
        ConfigurationError: the lifespan raised it.
    """
    life, environment, loop = core.life, core.environment, asyncio.get_running_loop()
    stopping = environment.stopping
    beside = [("the link", core.link.run), *life.beside]
    tasks = [loop.create_task(keep_running(what, begin, environment)) for what, begin in beside]
    for wait in life.waits:
        await wait()
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
    for start in life.starts:
        start()
    core.plan.live.ask_poll = lambda name: core.own_requests.poll(name)
    await stopping.wait()
    return running


async def stop(core: Core, running: Running) -> int:
    """End the handlers, publish that the app is offline, deliver what is left, and close everything.

    Returns:
        The number of calls that did not end.

    Raises:
        Stopped: the app ended because a device failed that must work.
    """
    loop, life, link, environment = asyncio.get_running_loop(), core.life, core.link, core.environment
    deadline = loop.time() + _WRITTEN

    def begin(call: Callable[[], Awaitable[object]]) -> asyncio.Task[None]:
        return loop.create_task(_done(call))

    left_until, alive = loop.time() + _LEAVE, 0
    for leave in life.before_stop:
        alive += await close_all([begin(leave)], max(_CLOSE, left_until - loop.time()), environment)
    alive += await _end_handlers(core)
    core.shared.stop()
    environment.timers.stop()
    core.slices.stop()
    await cancel(running.tasks, _CLOSE)
    for what, goodbye in life.last_messages:
        try:
            goodbye()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # it must cost neither the stores nor the DISCONNECT
            environment.events.emit(AppFault(what, error))
    closes = [adapter.close for adapter in core.plan.adapters] + [running.lifespan.leave]
    closing = [begin(close) for close in closes]
    writing = [begin(close) for close in life.close]
    delivered = await link.flush(_FLUSH)
    writing += [begin(functools.partial(end, delivered)) for end in life.after_delivery]
    await link.close()
    alive += await close_all(closing, _CLOSE, environment)
    alive += await close_all(writing, max(_CLOSE, deadline - loop.time()), environment)
    _log_undelivered(link.outbox)
    if life.fatal:
        life.fatal[0].left_behind = alive
        raise life.fatal[0]
    return alive


async def _done(call: Callable[[], Awaitable[object]]) -> None:
    await call()


async def _end_handlers(core: Core) -> int:
    """End the calls of handlers, all at once. Returns how many did not end."""
    counts: list[int] = []

    async def end(stop: Callable[[float], Awaitable[int]]) -> None:
        counts.append(await stop(_CANCEL_GRACE))

    ending = [asyncio.get_running_loop().create_task(end(stop)) for stop in core.life.stop_handlers]
    return await close_all(ending, _STOPPED, core.environment) + sum(counts)


def _log_undelivered(outbox: Outbox) -> None:
    """Log which readings the broker does not have as the process ends."""
    if (on_disk := outbox.on_disk) is not None and (kept := on_disk.readings):
        waiting = count_noun(kept, "reading waits", "readings wait")
        about = log_fields("readings kept", readings=kept)
        logger.info("%s on disk for the broker, and the next start sends them", waiting, extra=about)
    if lost := outbox.unkept:  # status and availability are made again by the next life of the app
        one, many = "reading was not delivered, and is lost", "readings were not delivered, and are lost"
        about = log_fields("readings lost", readings=lost)
        logger.warning("%s as the process ends", count_noun(lost, one, many), extra=about)
