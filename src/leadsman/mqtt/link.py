"""The link: keeps one connection to the broker, renews it when it breaks, and sends the outbox through it."""

import asyncio
import random
from collections.abc import Callable
from typing import Literal, NamedTuple

from leadsman.errors import BrokerError, ConnackMissing, ConnectionRefused, TlsRefused
from leadsman.event_bus import EventBus
from leadsman.events import LinkDown, LinkSettled, LinkUp
from leadsman.mqtt import connection_state
from leadsman.mqtt.connection import Connect, Connection, Connector, Received
from leadsman.mqtt.connection_state import V5, ConnectionState
from leadsman.mqtt.diagnosis import client_id_in_use
from leadsman.mqtt.message import Message
from leadsman.mqtt.outbox import Outbox
from leadsman.mqtt.send_window import BATCH, SendWindow
from leadsman.mqtt.subscriptions import Subscriptions
from leadsman.mqtt.suspects import Broken
from leadsman.text import clean
from leadsman.timing.clock import Clock

GOODBYE_TO_FROZEN = 0.02
"""Seconds for DISCONNECT to a broker that acknowledges nothing: enough to hand it to the socket."""


class ClientIdentity(NamedTuple):
    """The client id, the topic of the will, the will of a session (its number given), and the MQTT version to try
    first."""

    client_id: str
    will_topic: str
    will: Callable[[int], bytes]
    protocol: str = V5


class _End(NamedTuple):
    """Why a connection ended, and `wait` seconds until the next one; the topic that it broke on."""

    reason: str
    wait: float
    topic: str | None = None


class Link:
    """Keeps the connection until it is cancelled. `put` may be called at any time, connected or not."""

    def __init__(
        self, identity: ClientIdentity, connect: Connector, outbox: Outbox, clock: Clock, events: EventBus
    ) -> None:
        self.outbox = outbox
        self.subscriptions = Subscriptions(clock, events)
        self.session = ConnectionState(identity.protocol, identity.protocol)
        self.number = 0
        """Milliseconds of the latest CONNECT: births and wills of one session carry the same."""
        self.connects = 0
        """Connections made since the start."""
        self.client: str | None = None
        """The library of the latest connection; None before the first one."""
        self._window = SendWindow(outbox, clock, events, self.lost, lambda: self.subscriptions.first)
        self._error: str | None = None
        self._identity = identity
        self._connect = connect
        self._clock = clock
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._lost: asyncio.Future[tuple[str, int]] = self._loop.create_future()
        self._subscribing: asyncio.Task[None] | None = None
        self._settling: asyncio.TimerHandle | None = None

    @property
    def up(self) -> bool:
        """Whether there is a connection."""
        return self._window.connection is not None

    @property
    def maximum_packet_size(self) -> int | None:
        """Bytes of the largest packet that the broker takes; None without a connection, or if there is no limit."""
        connection = self._window.connection
        return None if connection is None else connection.connack.maximum_packet_size

    @property
    def last_error(self) -> str | None:
        """What is wrong with the connection, a subscription, or a topic whose messages the broker does not take."""
        return self._error or self.subscriptions.error or self._window.fault

    def fault_of(self, topic: str) -> str | None:
        """What is wrong with the messages of a topic; None since the broker took one."""
        return self._window.fault_of(topic)

    @property
    def window(self) -> int:
        """How many messages may be in flight on this connection."""
        return self._window.size

    @property
    def limited_by(self) -> Literal["receive_maximum"] | None:
        """``"receive_maximum"`` while readings wait because the broker allows no more messages in flight, else None."""
        return self._window.limited_by

    def piled_up(self) -> bool:
        """Whether more than one batch of messages waits for its turn on a connection that works."""
        return self.up and self.outbox.messages - self.outbox.in_flight > BATCH

    def put(self, message: Message) -> None:
        """Send `message` as soon as possible; see `SendWindow.put`."""
        self._window.put(message)

    def store(self, after: float, write: Callable[[int], None]) -> None:
        """Have readings written that were not acknowledged `after` seconds; see `SendWindow.store`."""
        self._window.store(after, write)

    def pump(self) -> None:
        """Send what waits, as far as the connection takes it."""
        self._window.pump()

    async def run(self) -> None:
        """Connect, wait for the end of the connection, and connect again."""
        while True:
            try:
                end = await self._live()
            except Exception:  # a fault of ours; the caller of `run` reports it, and calls it again
                if self._window.connection is not None:
                    self._end(self._window.connection)
                raise
            self._error = None if end.topic is not None else end.reason
            in_use = connection_state.client_id_in_use(self.session)
            self._events.emit(LinkDown(end.reason, end.wait, in_use, end.topic))
            await asyncio.sleep(end.wait)

    async def flush(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds until the broker has all that it takes. Whether it has everything."""
        return await self._window.flush(timeout)

    async def close(self) -> None:
        """Disconnect. `run` must have been cancelled."""
        connection = self._window.connection
        self._window.close()
        for handle in (self._subscribing, self._settling):
            if handle is not None:
                handle.cancel()
        if connection is None:
            return
        try:
            async with asyncio.timeout(GOODBYE_TO_FROZEN if self._window.frozen else None):
                await connection.close()
        except TimeoutError:
            connection.abort()

    def acknowledged(self, packet_id: int, code: int) -> None:
        """See `ConnectionListener`."""
        self._window.acknowledged(packet_id, code)

    def lost(self, reason: str, code: int = 0) -> None:
        """See `ConnectionListener`."""
        if not self._lost.done():
            self._lost.set_result((reason, code))

    def received(self, message: Received) -> None:
        """See `ConnectionListener`."""
        self.subscriptions.received(message)

    async def _live(self) -> _End:
        """One connection, from CONNECT to its end."""
        connection = await self._connected()
        if isinstance(connection, _End):
            return connection
        delivered = self.outbox.delivered
        self._begin(connection)
        reason, code = await self._lost
        subscribing = self.subscriptions.broke()
        broken = self._end(connection, code)
        now, draw = self._clock.monotonic(), random.random()
        if code == connection_state.SESSION_TAKEN_OVER:
            self.session, wait = connection_state.taken_over(self.session, now, draw)
        elif broken.in_flight or subscribing or code:
            useful = self.outbox.delivered > delivered and not subscribing
            self.session, wait = connection_state.interrupted(self.session, now, draw, useful=useful)
        else:
            self.session, wait = connection_state.failed(self.session, now, draw)
        return self._explained(clean(reason), code, wait, broken)

    async def _connected(self) -> Connection | _End:
        """Connect, with the MQTT version that the broker probably speaks."""
        now, draw = self._clock.monotonic, random.random
        while True:
            self.number = max(self.number + 1, round(self._clock.wall() * 1000))
            will = self._identity.will(self.number)
            packet = Connect(self._identity.client_id, self.session.protocol, self._identity.will_topic, will)
            self._lost = self._loop.create_future()
            try:
                connection = await self._connect(packet, self)
            except ConnectionRefused as error:
                self.session, wait = connection_state.refused(self.session, error.code, now(), draw())
                return _End(self._reason(error), wait)
            except TlsRefused as error:
                self.session, wait = connection_state.misconfigured(self.session, draw())
                return _End(self._reason(error), wait)
            except BrokerError as error:
                no_connack = isinstance(error, ConnackMissing)
                self.session, wait = connection_state.failed(self.session, now(), draw(), no_connack=no_connack)
                return _End(self._reason(error), wait)
            self.session = connection_state.connected(self.session, now())
            if not connection_state.doubtful(self.session):
                return connection
            self.session = connection_state.doubted(self.session)
            await connection.close()

    def _reason(self, error: BrokerError) -> str:
        """The reason of a failed attempt. A hint at a wrong URL is left out once the URL has worked."""
        text = str(error)
        return clean(text.removesuffix(error.hint) if self.connects else text)

    def _explained(self, reason: str, code: int, wait: float, broken: Broken) -> _End:
        """Why the connection ended, as far as it is known."""
        if connection_state.client_id_in_use(self.session):
            certain = code == connection_state.SESSION_TAKEN_OVER
            return _End(client_id_in_use(self._identity.client_id, certain=certain), wait)
        if broken.fault is not None:
            return _End(broken.fault, wait, broken.topic)
        return _End(reason, wait)

    def _begin(self, connection: Connection) -> None:
        self.connects += 1
        self.client = connection.client
        if connection_state.client_id_in_use(self.session):
            self._settling = self._loop.call_later(connection_state.SETTLED, self._settled)
        else:
            self._error = None
        self._window.connection = connection
        self._events.emit(LinkUp(self.number, self.session.protocol, connection.client))
        self._window.start(connection, timed=self.session.protocol == V5)
        if self.subscriptions.listeners:
            self._subscribing = self._loop.create_task(self._subscribe(connection))

    def _settled(self) -> None:
        """The connection holds; no other client takes it over any more."""
        self._error = None
        self._events.emit(LinkSettled())

    async def _subscribe(self, connection: Connection) -> None:
        try:
            await self.subscriptions.subscribe(connection)
        except BrokerError as error:
            if self._window.connection is connection:  # else it is lost already, and the next one subscribes again
                self.lost(str(error))
        else:
            self._window.pump()

    def _end(self, connection: Connection, code: int = 0) -> Broken:
        """Clear up after a connection."""
        connection.abort()
        for handle in (self._subscribing, self._settling):
            if handle is not None:
                handle.cancel()
        return self._window.stop(code)
