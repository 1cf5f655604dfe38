"""`App`: the decorators, and the wiring, read from top to bottom."""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar, Unpack

from leadsman.adapters.adapter import Adapter, slots_of
from leadsman.clock import system_clock
from leadsman.durations import Duration, positive_seconds
from leadsman.errors import InvalidType, InvalidValue
from leadsman.events import AppFault, Events
from leadsman.health import Ledger
from leadsman.heartbeat import Heartbeat
from leadsman.injection import Handler
from leadsman.mqtt.broker import Broker
from leadsman.mqtt.connection import Connect
from leadsman.mqtt.link import Identity, Link
from leadsman.mqtt.outbox import Outbox
from leadsman.mqtt.topics import Topics, check_name
from leadsman.poll import Poller
from leadsman.reports import Log, Outages
from leadsman.resilience.execution import World
from leadsman.telemetry import Telemetry, Words, register
from leadsman.timers import Timers

_CANCEL_GRACE, _FLUSH, _CLOSE = 0.4, 0.6, 0.3
"""Seconds, of the two that `leadsman.process` allows, for: handlers to end; the broker to take the rest; the parts of
the app, the connection and the adapters to close, each."""
_RESTART = 1.0

logger = logging.getLogger("leadsman")

H = TypeVar("H", bound=Handler)


class App:
    """An app: handlers that poll devices, and publish what they read.

    Args:
        name: of the app; also the prefix of its topics and its MQTT client id.
        version: of the app, told in the heartbeat.
        prefix: of its topics, where not the name.
        mqtt: the broker: a URL such as ``mqtts://user:password@host``, or a `Broker`. None reads ``MQTT__URL``, or
            ``MQTT__HOST`` and its fellows, and falls back to ``mqtt://localhost:1883``.
        adapters: async context managers that handlers ask for by type; a dict of names where several are of one type.
        heartbeat: how often the app tells how it is, when nothing changes.
        instance: tells two processes of one app apart, in the client id. They need different prefixes as well.

    Raises:
        ConfigurationError: something of it is wrong; the message says what to write.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str = "0",
        prefix: str | None = None,
        mqtt: str | Broker | None = None,
        adapters: Sequence[Adapter] | Mapping[str, Adapter] = (),
        heartbeat: Duration = 30,
        instance: str | None = None,
    ) -> None:
        self.name = check_name(name)
        self.version = _text(version, "version")
        self.topics = Topics(name if prefix is None else prefix)
        self.broker = (
            mqtt if isinstance(mqtt, Broker) else Broker.from_environment() if mqtt is None else Broker.from_url(mqtt)
        )
        self.telemetries: dict[str, Telemetry] = {}
        """What is registered, by device name."""
        self._slots = slots_of(adapters)
        self._heartbeat = positive_seconds(heartbeat, "heartbeat")
        self._client_id = self.topics.prefix + ("" if instance is None else f"-{check_name(instance)}")
        self._stopping: asyncio.Event | None = None

    def telemetry(self, name: str, **words: Unpack[Words]) -> Callable[[H], H]:
        """Register the decorated function to be polled; its result is published at ``{prefix}/{name}/state``.

        The words and their defaults are those of `leadsman.telemetry.Words`. The function is ``async def``, or plain
        ``def`` and then runs in a thread; its parameters are filled with the app's adapters by their types; it returns
        a dict, a pydantic model or a dataclass, or None when there is nothing to tell.

        Raises:
            ConfigurationError: at once, with what to write instead.
        """

        if callable(name):  # the decorator without brackets, which would register nothing and say nothing
            raise InvalidType("telemetry takes a name and a schedule; write @app.telemetry('kitchen', interval='60s')")
        check_name(name)

        def decorate(handler: H) -> H:
            self.add_telemetry(name, handler, **words)
            return handler

        return decorate

    def add_telemetry(self, name: str, handler: Handler, **words: Unpack[Words]) -> None:
        """Register a handler, as `telemetry` does."""
        if self._stopping is not None:
            raise InvalidValue(f"telemetry {name!r}: the app is running; register before it starts")
        telemetry = register(name, handler, words, self._slots)
        if telemetry.name in self.telemetries:
            raise InvalidValue(f"telemetry {name!r} is registered already; every device has a name of its own")
        self.telemetries[telemetry.name] = telemetry

    def run(self) -> None:
        """Run until SIGINT or SIGTERM, and end the process within two seconds of it. See `leadsman.process`."""
        from leadsman.process import run  # signals and logging are no business of whoever embeds an app

        run(self.name, self.serve, self.stop)

    def stop(self) -> None:
        """Ask a serving app to stop."""
        if self._stopping is not None:
            self._stopping.set()

    async def serve(self, connect: Connect | None = None) -> int:
        """Poll and publish until `stop`, then end within two seconds. For whoever has an event loop of their own.

        Args:
            connect: how to make a connection; None connects to the app's broker.

        Returns:
            How many calls would not end, and had to be left behind.
        """
        if self._stopping is not None:
            raise InvalidValue(f"the app {self.name!r} is running already")
        self._stopping = asyncio.Event()
        try:
            return await self._serve(connect or self._real_connect(), self._stopping)
        finally:
            self._stopping = None

    def _real_connect(self) -> Connect:
        from leadsman.mqtt import client  # a registration that is only looked at does not pay for it

        if self.broker.insecure:
            logger.warning(
                "Certificates of %s are not verified: whoever sits in between can read and write", self.broker
            )
        return functools.partial(client.connect, self.broker, system_clock(asyncio.get_running_loop()))

    async def _serve(self, connect: Connect, stopping: asyncio.Event) -> int:
        loop = asyncio.get_running_loop()
        clock, topics, events = system_clock(loop), self.topics, Events()
        timers = Timers(loop, clock, events)
        enabled = [telemetry for telemetry in self.telemetries.values() if telemetry.enabled]

        if not enabled:
            logger.warning("%s polls nothing: register handlers with @app.telemetry before it runs", self.name)

        ledger = Ledger()
        for telemetry in enabled:
            ledger.register(telemetry.name, telemetry.stale_after, timers.origin)

        identity = Identity(self._client_id, topics.status, lambda number: heartbeat.will(number), self.broker.protocol)
        link = Link(identity, connect, Outbox(), clock, events)
        poller = Poller(World(timers, clock, events), topics, link.put)
        heartbeat = Heartbeat(topics, self.version, self._heartbeat, ledger, link, clock, look=poller.look)
        for observer in (ledger, heartbeat.observe, Outages(topics, link.put).observe, Log(self.name).observe):
            events.subscribe(observer)

        def kept(where: str, run: Callable[[], Awaitable[Any]]) -> asyncio.Task[None]:
            return loop.create_task(_kept(where, run, timers, events))

        tasks = [kept("the link", link.run), kept("the heartbeat", heartbeat.run)]
        tasks += [loop.create_task(slot.open(timers, clock, events)) for slot in self._slots]
        poller.start(enabled)
        await stopping.wait()

        alive = await poller.stop(_CANCEL_GRACE)
        timers.stop()
        await _cancelled(tasks)
        heartbeat.goodbye()
        closing = [loop.create_task(slot.close()) for slot in self._slots]
        if not await link.flush(_FLUSH):
            logger.warning("%d messages were not delivered, and end with the process", link.outbox.messages)
        await link.close()
        return alive + await _ended(closing, _CLOSE, events, clock.monotonic(), clock.wall())


async def _kept(where: str, run: Callable[[], Awaitable[Any]], timers: Timers, events: Events) -> None:
    """Run a part of the app for as long as the app runs: one that dies is told, and started again."""
    while True:
        try:
            await run()
        except Exception as error:
            loop = asyncio.get_running_loop()
            events.emit(AppFault(loop.time(), system_clock(loop).wall(), where, error))
        await timers.sleep(_RESTART)


async def _cancelled(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=_CLOSE)


async def _ended(tasks: Sequence[asyncio.Task[None]], timeout: float, events: Events, now: float, wall: float) -> int:
    if not tasks:
        return 0
    done, pending = await asyncio.wait(tasks, timeout=timeout)
    for task in done:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            events.emit(AppFault(now, wall, "closing an adapter", error))
    return len(pending)


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise InvalidType(f"{what} is {value!r}; write text")
    return value
