"""Connects to real brokers with MQTT 5 on asyncio's transports: TCP, TLS and unix sockets.

Packets that are written in one turn of the event loop are handed to the socket at once, at the end of the turn. Where
the socket does not take them all, the others wait here until it does. Packets are read in bounded batches, so a flood
of them does not keep the loop from its other work.
"""

import asyncio
import contextlib
import functools
import ssl
from typing import cast

from leadsman.core.loop.clock import Clock
from leadsman.core.mqtt import codec, diagnosis, transport
from leadsman.core.mqtt.broker import Broker
from leadsman.core.mqtt.codec import PacketError
from leadsman.core.mqtt.connection import (
    CLOSE_TIMEOUT,
    CONNECT_TIMEOUT,
    KEEPALIVE,
    ConnAck,
    Connect,
    Connection,
    ConnectionListener,
    Received,
    adapt,
)
from leadsman.core.mqtt.connection_state import ADMINISTRATIVE
from leadsman.core.mqtt.message import Message
from leadsman.errors import BrokerError

GATHER = 0.001
"""Seconds in which acknowledgements gather before more of them are read, while `SEVERAL` messages or more are
unacknowledged, and none waits for them. A broker that is near writes each by itself, and each would wake the
process."""
SEVERAL = 3
BATCH = 500
"""Packets that one turn of the loop reads at most."""
STEP = 20
"""Packets between two looks at the clock."""
MAX_TURN_SECONDS = 0.005
"""Seconds after which a turn of the loop reads no further step. On a busy machine, what 500 requests cause takes a
second."""
READ = 16 * 1024
"""Bytes that are read from the socket at a time, into one buffer: asyncio would make another of 256 KiB for each time,
which takes three calls of the system."""
FAREWELL = 0.1
"""Seconds for the broker to close the connection after our DISCONNECT. If we closed first with data unread, the system
would reset the connection, and the broker might miss the DISCONNECT."""
UNSENT_ACKNOWLEDGEMENTS = 1000
"""Acknowledgements that wait for the socket before no more is read from a broker that sends and does not read."""
_PACKET_IDS = 65_535


class KeepAlive:
    """The quiet of one connection. All times are monotonic seconds.

    A PINGREQ is due when nothing was sent, or no packet was received, for `interval` seconds: the broker demands the
    first (MQTT 5 §3.1.2.10), and the second finds a half-open link.

    Args:
        interval: seconds that the broker demands; with None or 0 it demands nothing, and `KEEPALIVE` is used.
        now: when the connection was accepted.
    """

    def __init__(self, interval: int | None, now: float) -> None:
        self.interval = interval or KEEPALIVE
        self.patience = min(self.interval, KEEPALIVE)
        """Seconds to wait for an answer."""
        self._sent = self._received = now
        self._asked: float | None = None

    def sent(self, now: float) -> None:
        """Bytes were handed to the socket."""
        self._sent = now

    def received(self, now: float) -> None:
        """A complete packet was received."""
        self._received = now
        self._asked = None

    def asked(self, now: float) -> None:
        """PINGREQ was sent."""
        self._asked = now

    def ping_due(self, now: float) -> bool:
        """Whether to send PINGREQ."""
        return self._asked is None and now >= min(self._sent, self._received) + self.interval

    def dead(self, now: float) -> bool:
        """Whether the broker left a PINGREQ unanswered."""
        return self._asked is not None and now >= self._asked + self.patience

    def next(self) -> float:
        """When to check again."""
        if self._asked is not None:
            return self._asked + self.patience
        return min(self._sent, self._received) + self.interval


class CodecConnection(asyncio.BufferedProtocol):
    """One connection; `connect` makes it. It takes bytes from asyncio and, as `PacketHandler`, the packets in them."""

    client = codec.LIBRARY

    def __init__(self, broker: Broker, packet: Connect, clock: Clock, listener: ConnectionListener) -> None:
        self.connack = ConnAck()
        self.urgent = False
        self._loop = asyncio.get_running_loop()
        self._broker = broker
        self._clock = clock
        self._listener = listener
        self._reader = codec.PacketReader(self, packet.largest)
        self._buffer = memoryview(bytearray(READ))
        self._accepted: asyncio.Future[None] = self._loop.create_future()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._over = False
        self._out: list[bytes] = []
        self._flush_due = self._paused = self._deaf = False
        self._owed = 0
        self._packet_id = 0
        self._unanswered: set[int] = set()
        self._unsent: list[int] = []
        """Messages of QoS 0, which nobody acknowledges; they are done when the socket has taken them."""
        self._subscriptions: dict[int, asyncio.Future[list[int]]] = {}
        self._keepalive = KeepAlive(None, 0.0)
        self._timer: asyncio.TimerHandle | None = None

    async def accepted(self) -> None:
        """Wait for CONNACK.

        Raises:
            ConnectionRefused, ConnackMissing, TlsRefused: the broker does not accept the connection.
        """
        await self._accepted

    def publish(self, message: Message) -> int:
        """See `Connection`."""
        if self._over:
            raise BrokerError("the connection is closed")
        message = adapt(message, self.connack)
        packet_id = self._next_id()
        try:
            data = codec.publish(message, packet_id, 0.0 if message.expires is None else self._clock.monotonic())
        except (ValueError, OverflowError) as error:
            raise BrokerError(f"the message to {message.topic!r} could not be written: {error}") from error
        if message.qos:
            self._unanswered.add(packet_id)
        else:
            self._unsent.append(packet_id)
        self.write(data)
        return packet_id

    async def subscribe(self, topic_filter: str, qos: int = 1) -> None:
        """See `Connection`."""
        packet_id = self._next_id()
        try:
            data = codec.subscribe(packet_id, topic_filter, qos)
        except ValueError as error:
            raise BrokerError(f"cannot subscribe to {topic_filter!r}: {error}") from error
        for code in await self._answer_to(data, packet_id, f"cannot subscribe to {topic_filter!r}"):
            if code >= 0x80:
                raise diagnosis.not_subscribed(topic_filter, code)

    async def unsubscribe(self, topic_filter: str) -> None:
        """See `Connection`."""
        packet_id, fault = self._next_id(), f"cannot end the subscription to {topic_filter!r}"
        for code in await self._answer_to(codec.unsubscribe(packet_id, topic_filter), packet_id, fault):
            if code >= 0x80:
                raise BrokerError(f"{fault}: the broker refuses that (0x{code:02x})")

    async def _answer_to(self, data: bytes, packet_id: int, fault: str) -> list[int]:
        """Send a packet, and wait for the reason codes that answer it. Raises `BrokerError`, beginning with `fault`."""
        answer: asyncio.Future[list[int]] = self._loop.create_future()
        self._subscriptions[packet_id] = answer
        self._unanswered.add(packet_id)
        self.write(data)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                return await answer
        except TimeoutError:
            raise BrokerError(f"{fault}: no answer within {CONNECT_TIMEOUT:g} s") from None
        finally:
            del self._subscriptions[packet_id]
            self._unanswered.discard(packet_id)

    async def close(self) -> None:
        """See `Connection`."""
        if not self._over:
            self._over = True
            self._reader.stop()
            self._out.append(codec.disconnect())
            self._flush()
            if self._deaf and self._transport is not None:
                self._transport.resume_reading()  # else nobody sees that the broker closes the connection
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT if self._paused else FAREWELL):
                    await self._closed
        self.abort()

    def abort(self) -> None:
        """See `Connection`."""
        self._over = True
        self._reader.stop()
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()

    def reset(self) -> None:
        """See `Connection`."""
        if self._transport is not None:
            transport.forget_unsent(self._transport.get_extra_info("socket"))
        self.abort()

    def write(self, data: bytes) -> None:
        """Hand a packet to the socket at the end of this turn of the loop, with all others of the turn."""
        self._out.append(data)
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=1, low=0)  # what does not fit waits here

    def get_buffer(self, sizehint: int) -> memoryview:
        """See `asyncio.BufferedProtocol`. TLS fills slices of it, record by record: those of a `bytearray` would be
        copies, in which all records but the first of a read are lost."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """See `asyncio.BufferedProtocol`."""
        if not self._over:
            self._reader.feed(bytes(self._buffer[:nbytes]))
            if not self._deaf:
                self._read()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        if not self._closed.done():
            self._closed.set_result(None)
        if isinstance(exc, ssl.SSLError):
            self._end(f"TLS ended: {exc}", error=diagnosis.alert(self._broker, exc))
        else:
            self._end("the connection was lost" if exc is None else f"the connection was lost: {exc}")

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._paused = True

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._paused, self._owed = False, 0
        self._flush()
        self._listen()

    def answered(self, code: int, connack: ConnAck, reference: str | None, reason: str | None) -> None:
        """See `PacketHandler`."""
        if code >= 0x80:
            error = diagnosis.refused(self._broker, code, reference, reason)
            self._end(str(error), error=error)
            return
        self.connack = connack
        self._keepalive = KeepAlive(connack.keepalive, self._loop.time())
        self._watch()
        if not self._accepted.done():
            self._accepted.set_result(None)

    def acknowledged(self, packet_id: int, code: int) -> None:
        """See `PacketHandler`. An identifier that is not ours is ignored."""
        if packet_id in self._unanswered:
            self._unanswered.remove(packet_id)
            self._listener.acknowledged(packet_id, code)

    def arrived(self, message: Received) -> None:
        """See `PacketHandler`."""
        self._listener.received(message)
        if message.packet_id is not None:
            self.write(codec.puback(message.packet_id))
            if self._paused:
                self._owed += 1
                if self._owed == UNSENT_ACKNOWLEDGEMENTS:
                    self._stop_listening()

    def subscribed(self, packet_id: int, codes: list[int]) -> None:
        """See `PacketHandler`."""
        answer = self._subscriptions.get(packet_id)
        if answer is not None and not answer.done():
            answer.set_result(codes)

    def disconnected(self, code: int, reference: str | None, reason: str | None) -> None:
        """See `PacketHandler`."""
        self._end(diagnosis.disconnected(code, reference, reason), code)

    def _next_id(self) -> int:
        """A packet identifier that no unanswered packet has."""
        while True:
            self._packet_id = self._packet_id % _PACKET_IDS + 1
            if self._packet_id not in self._unanswered:
                return self._packet_id
            if len(self._unanswered) >= _PACKET_IDS:
                raise BrokerError(f"{_PACKET_IDS} packets are unanswered")

    def _flush(self) -> None:
        self._flush_due = False
        if self._paused or self._transport is None or self._transport.is_closing():
            return
        if self._out:
            out, self._out = self._out, []
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))
            self._keepalive.sent(self._loop.time())
        if self._unsent and not self._paused:
            self._settle_unsent()

    def _settle_unsent(self) -> None:
        """Report the messages of QoS 0, which the socket has taken."""
        unsent, self._unsent = self._unsent, []
        for packet_id in unsent:
            if not self._over:
                self._listener.acknowledged(packet_id, 0)

    def _read(self) -> None:
        """Read a batch; where there is more, let the loop do its other work first."""
        before = self._reader.packets
        try:
            more = self._read_batch()
        except PacketError as error:
            self._refuse(error)
            return
        except Exception as error:  # a fault of the listener
            self._end(f"{type(error).__name__}: {error}")
            return
        if self._reader.packets > before and not self._over:
            self._keepalive.received(self._loop.time())
            if more:
                self._stop_listening()
                self._loop.call_soon(self._listen)
            elif len(self._unanswered) >= SEVERAL and not self.urgent:
                self._stop_listening()
                self._loop.call_later(GATHER, self._listen)

    def _read_batch(self) -> bool:
        """Read what one turn of the loop reads. Returns whether there is more."""
        deadline = self._loop.time() + MAX_TURN_SECONDS
        for _ in range(BATCH // STEP):
            if not self._reader.read(STEP):
                return False
            if self._loop.time() >= deadline:
                break
        return True

    def _stop_listening(self) -> None:
        if not self._deaf and self._transport is not None:
            self._deaf = True
            self._transport.pause_reading()

    def _listen(self) -> None:
        """Read on, unless the broker must first take the acknowledgements that wait for it."""
        blocked = self._paused and self._owed >= UNSENT_ACKNOWLEDGEMENTS
        if self._deaf and not blocked and not self._over and self._transport is not None:
            self._deaf = False
            self._transport.resume_reading()
            self._read()

    def _watch(self) -> None:
        """Send a PINGREQ when it is due, and give up a broker that leaves one unanswered."""
        now, keepalive = self._loop.time(), self._keepalive
        if keepalive.dead(now):
            self._end(f"the broker did not answer a ping within {keepalive.patience:g} s")
            return
        if keepalive.ping_due(now):
            keepalive.asked(now)
            self.write(codec.PINGREQ)
        self._timer = self._loop.call_at(keepalive.next(), self._watch)

    def _refuse(self, error: PacketError) -> None:
        """End the connection without DISCONNECT. After one with a reason code (MQTT 5 §4.13.1), mosquitto discards the
        will, and an app that ends before it is connected again would stay online."""
        # For a wrong text or topic no message of ours is to blame, and no other client. Other packets may be malformed
        # because of a message: mosquitto 2.0.11 acknowledges a large one with a code that a PUBACK cannot have.
        self._end(str(error), ADMINISTRATIVE if isinstance(error, codec.TextError) else 0)

    def _end(self, reason: str, code: int = 0, error: BrokerError | None = None) -> None:
        """The connection is unusable. This is reported once, and the socket is closed."""
        if self._over:
            return
        self.abort()
        if not self._accepted.done():
            self._accepted.set_exception(error or diagnosis.no_connack(self._broker, reason))
            self._accepted.exception()  # nobody may wait for it any more
        elif not self._accepted.cancelled():
            self._listener.lost(reason, code)


async def connect(broker: Broker, clock: Clock, packet: Connect, listener: ConnectionListener) -> Connection:
    """Make one connection to `broker`; see `leadsman.core.mqtt.connection.Connector`."""
    connection = CodecConnection(broker, packet, clock, listener)
    attempt = _Attempt(broker)
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            greeting = codec.connect(broker, packet)
            await attempt.open(connection)
            connection.write(greeting)
            await connection.accepted()
    except BaseException as error:
        connection.abort()
        translated = diagnosis.not_connected(broker, error, CONNECT_TIMEOUT, opened=attempt.opened)
        if translated is error:
            raise
        raise translated from error
    return connection


class _Attempt:
    """One attempt to open the transport."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.opened = False
        """Whether TCP, at least, was established."""

    async def open(self, protocol: asyncio.BaseProtocol) -> None:
        broker, context = self._broker, None
        if broker.unix:
            sock = await transport.open_unix(broker.path)
        else:
            sock = await transport.open_host(broker.host, broker.port)
        if broker.encrypted:  # reads certificates, some 25 ms of CPU: not where nothing listens
            try:
                context = await transport.in_thread(functools.partial(transport.tls_context, broker))
            except BaseException:
                sock.close()
                raise
        self.opened = True
        name = broker.host if context is not None else None
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: protocol, sock=sock, ssl=context, server_hostname=name)
