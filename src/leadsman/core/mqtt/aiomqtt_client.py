"""Connects to real brokers with aiomqtt, and paho below it: with MQTT 3.1.1, through a WebSocket, and where the
codec of MQTT 5 is not installed. Only this file uses these libraries.

It works around what aiomqtt 2.5 does not report, or gets wrong:

* it drops the reason code of a PUBACK, so refused messages look delivered;
* it forgets a disconnection right after CONNACK, and does not notice one before it;
* a client that is reused after a lost connection re-sends what it reported as failed: each connection gets a new
  client;
* a publish costs two tasks and a timer: here it is paho's own call, and the acknowledgement is a callback;
* paho tries the addresses of a name one after the other, and gives each the time of all: it gets a socket that is open
  (`leadsman.core.mqtt.transport`);
* a connection attempt that fails or is given up keeps its socket and its thread;
* return code 1 of MQTT 3.1.1, and the TLS alert of a broker that wants another certificate, look like a lost
  connection;
* it does not name a certificate file that cannot be read, and checks a certificate although the user asked it not to;
* paho receives a packet of any length, keeps a frame of a WebSocket whole, and reads an answer of HTTP without end.
"""

import asyncio
import contextlib
import logging
import math
import socket
import ssl
import struct
import threading
import time
from typing import Any

import aiomqtt
import paho.mqtt.client as paho
from aiomqtt.exceptions import MqttConnectError
from aiomqtt.types import PahoSocket
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from leadsman.core.loop.clock import Clock
from leadsman.core.mqtt import diagnosis, transport
from leadsman.core.mqtt.broker import Broker
from leadsman.core.mqtt.connection import (
    CLOSE_TIMEOUT,
    CONNECT_TIMEOUT,
    KEEPALIVE,
    RECEIVE_MAXIMUM,
    ConnAck,
    Connect,
    Connection,
    ConnectionListener,
    Received,
    adapt,
    seconds_left,
    taken_at,
    user_properties,
)
from leadsman.core.mqtt.connection_state import V5
from leadsman.core.mqtt.diagnosis import V311_REFUSALS
from leadsman.core.mqtt.message import Message
from leadsman.core.text import log_fields
from leadsman.core.text.log_lines import left_out_before, others
from leadsman.errors import BrokerError, ConnackMissing

# Reads the frames of a WebSocket (RFC 6455), as a broker sends them: the bytes of binary messages come out as they
# come in, whatever length a frame claims, so nothing waits but the head of one.

CONTINUATION, BINARY, CLOSE, PING, PONG = 0x0, 0x2, 0x8, 0x9, 0xA
"""Opcodes (§5.2)."""
_FINAL, _MASKED = 0x80, 0x80
_MAX_CONTROL_BYTES = 125
"""Bytes that a control frame may carry (§5.5)."""


class FrameError(Exception):
    """The broker sent no valid frame of MQTT over WebSocket."""


class FrameReader:
    """The reading side of one connection."""

    def __init__(self) -> None:
        self.closed = False
        """Whether the broker has sent CLOSE. Nothing after that counts."""
        self._head = bytearray()
        """The head of a frame that is not complete, or a control frame that is not."""
        self._left = 0
        """Bytes of the present frame that are still to come."""

    def feed(self, data: bytes) -> tuple[bytes, tuple[int, bytes] | None]:
        """Take received bytes. Returns the bytes of messages, and the opcode and the content of the control frame to
        answer with, if any: of several pings the last one may be answered alone (§5.5.3).

        Raises:
            FrameError: the connection is unusable.
        """
        message, answer, rest = bytearray(), None, memoryview(bytes(self._head) + data)
        self._head.clear()
        while len(rest) and not self.closed:
            if self._left:
                message += rest[: self._left]
                taken = min(self._left, len(rest))
                self._left -= taken
                rest = rest[taken:]
                continue
            frame = _head(rest)
            if frame is None:
                self._head += rest
                break
            opcode, at, length = frame
            if opcode in (CONTINUATION, BINARY):
                self._left, rest = length, rest[at:]
            elif len(rest) < at + length:
                self._head += rest
                break
            else:
                self.closed = opcode == CLOSE
                if opcode != PONG:
                    answer = CLOSE if self.closed else PONG, bytes(rest[at : at + length])
                rest = rest[at + length :]
        return bytes(message), answer


def _head(rest: memoryview) -> tuple[int, int, int] | None:
    """The opcode of the frame at the beginning, where its content begins, and its length; None as long as its head is
    not complete."""
    if len(rest) < 2:
        return None
    opcode, length, at = rest[0] & 0x0F, rest[1] & 0x7F, 2
    if rest[1] & _MASKED:
        raise FrameError("the broker sent a WebSocket frame with a mask, which only a client may")
    if opcode not in (CONTINUATION, BINARY, CLOSE, PING, PONG):
        raise FrameError(f"the broker sent a WebSocket frame that is not binary (opcode {opcode})")
    if opcode >= CLOSE and (length > _MAX_CONTROL_BYTES or not rest[0] & _FINAL):
        raise FrameError("the broker sent a WebSocket control frame that is too long")
    if length > _MAX_CONTROL_BYTES:
        kind, at = ("!H", 4) if length == 126 else ("!Q", 10)
        if len(rest) < at:
            return None
        (length,) = struct.unpack(kind, rest[2:at])
    return opcode, at, length


_PIECE = 64 * 1024
"""Bytes that are read at a time of a message that is not kept whole."""
_MAX_GREETING_BYTES = 16 * 1024
"""Bytes of an answer of HTTP that opens a WebSocket."""
_PUBLISH, _QUALITY_2, _CONNACK = 0x30, 0x04, 0x20
_FIRST_BYTES = 16
"""So many bytes of something that is not MQTT are reported: they show what it is."""
_MIN_TIMEOUT = 0.01
"""Seconds: a socket without a timeout would block, or not wait at all."""

logger = logging.getLogger("leadsman")


class _ClosingSocket(ssl.SSLSocket):
    """A socket that closes when its handshake fails, which paho leaves to the garbage collector, and keeps the TLS
    alerts that it receives."""

    alerts: list[ssl.SSLError]

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        try:
            return super().recv(buflen, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
            raise
        except ssl.SSLError as error:  # paho takes it for a lost connection
            self.alerts.append(error)
            raise

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except BaseException:
            self.close()
            raise


class _Greeting:
    """A socket while it is about to become a WebSocket: what it receives is bounded, in bytes and in time."""

    def __init__(self, sock: PahoSocket, ends_at: float) -> None:
        self._socket = sock
        self._left = _MAX_GREETING_BYTES
        self._ends_at = ends_at
        self.send = sock.send

    def recv(self, size: int) -> bytes:
        if not self._left:
            raise ValueError("its answer, in HTTP, does not end; is this a port for WebSockets?")
        if time.monotonic() > self._ends_at:
            raise TimeoutError("timed out")
        data: bytes = self._socket.recv(size)
        self._left -= len(data)
        return data


class _WebSocket(paho._WebsocketWrapper):  # noqa: SLF001  # paho has no other hook here
    """A WebSocket that keeps of what it receives no more than one read of its socket."""

    def __init__(self, sock: PahoSocket, client: paho.Client, broker: Broker, ends_at: float) -> None:
        self._frames = FrameReader()
        self._ends_at = ends_at
        self._decoded = bytearray()
        super().__init__(sock, client.host, client.port, broker.encrypted, broker.path, None)

    def _do_handshake(self, extra_headers: Any) -> None:
        sock = self._socket
        self._socket = _Greeting(sock, self._ends_at)  # type: ignore[assignment]  # it has the used methods
        super()._do_handshake(extra_headers)
        self._socket = sock

    def _recv_impl(self, length: int) -> bytes:
        while not self._decoded:
            try:
                data = b"" if self._frames.closed else self._socket.recv(_PIECE)
            except ConnectionError:
                data = b""
            if not data:
                self.connected = False
                return b""
            message, answer = self._frames.feed(data)
            self._decoded += message
            if answer is not None:
                self._answer(*answer)
        taken = bytes(self._decoded[:length])
        del self._decoded[:length]
        return taken

    def _answer(self, opcode: int, content: bytes) -> None:
        """Send a control frame, unless a packet is half sent, which it would tear, or the socket takes nothing. Then
        the broker asks again, or closes in any case."""
        if not self._sendbuffer:
            with contextlib.suppress(OSError):
                self._socket.send(self._create_frame(opcode, bytearray(content)))

    def pending(self) -> int:
        return len(self._decoded) + super().pending()


class _Client(aiomqtt.Client):
    """An aiomqtt client that reports every event.

    Args:
        broker: where to connect.
        listener: takes what happens.
        largest: bytes of a packet that is received; None for any number.
    """

    def __init__(self, broker: Broker, listener: ConnectionListener, largest: int | None, **options: Any) -> None:
        super().__init__(**options)
        self.broker = broker
        self._listener = listener
        self._largest = largest
        self._passing_over = 0
        """Bytes of the present packet, if it is not kept."""
        self._lines = others()
        self._thread_id = threading.get_ident()
        self._given_up = False
        self._given: socket.socket | None = None
        self._ends_at = math.inf
        self.opened = False
        """Whether TCP, at least, was established."""
        self.closing = False
        """Whether DISCONNECT is about to be sent."""
        self.connack = ConnAck()
        self.reference: str | None = None
        """The broker that a refusal names instead."""
        self.alerts: list[ssl.SSLError] = []
        """The alerts with which the broker refused our certificate, after the handshake."""
        self._client._handle_connack = self._handle_connack  # type: ignore[method-assign]  # noqa: SLF001  # as below
        self._client._sock_recv = self._receive  # type: ignore[method-assign]  # noqa: SLF001  # paho's
        if broker.websocket:
            self._client._create_socket = self._open_websocket  # type: ignore[method-assign]  # noqa: SLF001  # paho's
        self._client._create_socket_connection = self._detach_socket  # type: ignore[method-assign]  # noqa: SLF001  # paho's
        self._client._create_unix_socket_connection = self._detach_socket  # type: ignore[method-assign]  # noqa: SLF001  # paho's
        self._client.disable_logger()

    async def open(self) -> None:
        """Connect, in every sense. Raises what the operating system, TLS or aiomqtt raises."""
        broker, self._ends_at = self.broker, time.monotonic() + CONNECT_TIMEOUT
        opening = transport.open_unix(broker.path) if broker.unix else transport.open_host(broker.host, broker.port)
        self._given = await opening
        self.opened = True
        left = max(self._ends_at - time.monotonic(), _MIN_TIMEOUT)
        self._client.connect_timeout = left  # for the handshakes
        self._given.settimeout(left)
        await self.__aenter__()

    def _detach_socket(self) -> socket.socket:
        sock, self._given = self._given, None
        if sock is None:
            raise OSError("the attempt was cancelled")
        return sock

    def give_up(self) -> None:
        """Close the socket now, or as soon as the thread that still opens it has it."""
        self._given_up = True
        given, self._given = self._given, None
        if given is not None:
            given.close()
        self._client._sock_close()  # noqa: SLF001  # paho has no public way to drop a connection without DISCONNECT
        if self._misc_task is not None:
            self._misc_task.cancel()

    def forget_unsent(self) -> None:
        """Let the close discard what the system has not sent."""
        if (sock := self._client.socket()) is not None:
            transport.forget_unsent(sock)

    def write(self, message: Message, properties: "_Packed | None") -> int:
        """PUBLISH without waiting; returns the packet identifier."""
        given: Any = properties  # paho asks for pack() only
        info = self._client.publish(message.topic, message.payload, message.qos, message.retain, given)
        if info.rc == 0:
            return info.mid
        raise BrokerError(f"the message could not be written: {info.rc!s}")

    def _set_tls_params(self) -> None:
        # aiomqtt calls this from the thread that connects, as it reads files.
        if self.broker.encrypted:
            context = transport.tls_context(self.broker)
            context.sslsocket_class = type("_Socket", (_ClosingSocket,), {"alerts": self.alerts})
            self._client.tls_set_context(context)

    def _open_websocket(self) -> PahoSocket:
        client = self._client
        sock: Any = client._create_socket_connection()  # noqa: SLF001  # as paho does, which closes it in no case
        try:
            if self.broker.encrypted:
                sock = client._ssl_wrap_socket(sock)  # noqa: SLF001  # paho's
            sock.settimeout(client.connect_timeout)
            return _WebSocket(sock, client, self.broker, self._ends_at)
        except BaseException:
            sock.close()
            raise

    def _receive(self, bufsize: int) -> bytes:
        """Bytes of a packet, which paho reads through here: the fixed header a byte at a time, then as much of the rest
        as there is. Of a packet that is too large the first part is kept, which has the topic and the identifier."""
        packet = self._client._in_packet  # noqa: SLF001  # paho's
        if packet["have_remaining"] and packet["to_process"] == packet["remaining_length"]:
            if packet["command"] != _CONNACK and not self._connected.done():
                first = bytes((packet["command"], *packet["remaining_count"]))
                first += paho.Client._sock_recv(self._client, min(bufsize, _FIRST_BYTES - len(first)))  # noqa: SLF001  # paho's
                raise BrokerError(f"the broker sent {first!r} where a CONNACK was due")
            self._passing_over = self._admit(packet["command"], 1 + len(packet["remaining_count"]) + bufsize)
        if not packet["have_remaining"] or not self._passing_over or self._largest is None:
            return paho.Client._sock_recv(self._client, bufsize)  # noqa: SLF001  # paho's
        data = paho.Client._sock_recv(self._client, min(bufsize, _PIECE))  # noqa: SLF001  # paho's
        room = self._largest - len(packet["packet"])
        if len(data) <= room:
            return data
        packet["to_process"] -= len(data) - 1  # paho takes off what it gets, and must get something
        del packet["packet"][self._largest - 1 :]
        return data[:1]

    def _admit(self, command: int, size: int) -> int:
        """Whether a packet may come: 0 if it is kept, its size if it is passed over.

        With MQTT 3.1.1 a broker is not sent our limit, and a large message may be one that it keeps for us: if
        that ended the connection, the next one would end likewise.
        """
        quality_2 = command & 0xF0 == _PUBLISH and command & _QUALITY_2  # paho would keep it until PUBREL
        if quality_2:
            raise BrokerError("the broker sent a message with QoS 2, which was not asked for")
        if self._largest is None or size <= self._largest:
            return 0
        if self._client.protocol == paho.MQTTv5 or command & 0xF0 != _PUBLISH:
            raise BrokerError(f"the broker sent a packet of {size} bytes, and {self._largest} are allowed")
        return size

    def _handle_connack(self) -> MQTTErrorCode:
        # paho hides return code 1 of MQTT 3.1.1 behind a protocol error, which has other causes too.
        packet = self._client._in_packet["packet"]  # noqa: SLF001  # paho's
        if self._client.protocol == paho.MQTTv311 and packet[1:2] == b"\x01" and not self._connected.done():
            self._connected.set_exception(MqttConnectError(1))
        return paho.Client._handle_connack(self._client)  # noqa: SLF001  # paho's

    def _on_connect(
        self,
        client: paho.Client,
        userdata: object,
        flags: paho.ConnectFlags,
        reason_code: ReasonCode,
        properties: Properties | None = None,
    ) -> None:
        self.reference = getattr(properties, "ServerReference", None)
        self.connack = ConnAck(
            getattr(properties, "ReceiveMaximum", 65_535),
            getattr(properties, "MaximumPacketSize", None),
            getattr(properties, "MaximumQoS", 2),
            bool(getattr(properties, "RetainAvailable", True)),
            getattr(properties, "SessionExpiryInterval", None),
            getattr(properties, "ServerKeepAlive", None),
            getattr(properties, "TopicAliasMaximum", 0),
            bool(flags.session_present),
        )
        super()._on_connect(client, userdata, flags, reason_code, properties)

    def _on_disconnect(
        self,
        client: paho.Client,
        userdata: object,
        flags: paho.DisconnectFlags,
        reason_code: ReasonCode,
        properties: Properties | None = None,
    ) -> None:
        if self.closing:  # aiomqtt waits for it; otherwise it would keep an exception that is never retrieved
            super()._on_disconnect(client, userdata, flags, reason_code, properties)
        elif flags.is_disconnect_packet_from_server:
            reference, reason = (getattr(properties, name, None) for name in ("ServerReference", "ReasonString"))
            self._broken(diagnosis.disconnected(reason_code.value, reference, reason), reason_code.value)
        else:
            self._broken("the connection was lost")

    def _broken(self, reason: str, code: int = 0) -> None:
        if self._given_up:
            return
        if not self._connected.done():
            self._connected.set_exception(ConnackMissing(reason))
        elif self._connected.exception() is None:
            self._listener.lost(reason, code)

    def _on_publish(
        self, client: paho.Client, userdata: object, mid: int, reason_code: ReasonCode, properties: Properties
    ) -> None:
        self._listener.acknowledged(mid, reason_code.value)

    def _on_unsubscribe(
        self,
        client: paho.Client,
        userdata: object,
        mid: int,
        reason_codes: list[ReasonCode],
        properties: Properties | None = None,
    ) -> None:
        if not any(each.value >= 0x80 for each in reason_codes):  # aiomqtt drops them; without an answer it is an error
            super()._on_unsubscribe(client, userdata, mid, reason_codes, properties)

    def _on_message(self, client: paho.Client, userdata: object, message: paho.MQTTMessage) -> None:
        if self._passing_over:  # what there is of it is cut
            self._name_passed_over()
            return
        properties = getattr(message, "properties", None)
        response_topic, correlation = (getattr(properties, name, None) for name in ("ResponseTopic", "CorrelationData"))
        at = taken_at(getattr(properties, "UserProperty", None))
        given = bytes(message.payload), bool(message.retain), response_topic, correlation, at
        packet_id = message.mid if message.qos else None
        self._listener.received(Received(message.topic, *given, packet_id, bool(message.dup)))

    def _name_passed_over(self) -> None:
        size, self._passing_over = self._passing_over, 0
        if (before := self._lines.left_out("", time.monotonic())) is not None:
            what = "a message of %d bytes from the broker was passed over: %d are allowed%s"
            about = log_fields("message too large", size=size)
            logger.warning(what, size, self._largest, left_out_before(before), extra=about)

    def _on_socket_open(self, client: paho.Client, userdata: object, sock: PahoSocket) -> None:
        # paho calls this from the thread that connects.
        self._loop.call_soon_threadsafe(self._adopt, sock)

    def _adopt(self, sock: PahoSocket) -> None:
        if self._given_up:
            self._client._sock_close()  # noqa: SLF001  # as in give_up
        elif sock.fileno() >= 0:
            self._loop.add_reader(sock.fileno(), self._read)
            self._misc_task = self._loop.create_task(self._misc_loop())

    def _read(self) -> None:
        try:
            self._client.loop_read()
            sock = self._client.socket()
            while sock is not None and hasattr(sock, "pending") and sock.pending() > 0:
                self._client.loop_read()  # decoded bytes that a TLS socket or a WebSocket holds back
                sock = self._client.socket()
        except Exception as error:  # a packet that paho cannot parse, or a socket that broke
            self._fail(error)

    def _write(self) -> None:
        try:
            self._client.loop_write()
            sock = self._client.socket()
            if sock is not None and self._client.want_write():  # the kernel's buffer is full
                self._loop.add_writer(sock.fileno(), self._write)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        named = isinstance(error, BrokerError | FrameError)
        self._broken(str(error) if named else f"{type(error).__name__}: {error}")
        self.give_up()

    def _on_socket_register_write(self, client: paho.Client, userdata: object, sock: PahoSocket) -> None:
        # Without a turn of the selector: the socket can nearly always be written, and `_write` waits if it cannot.
        if threading.get_ident() == self._thread_id:
            self._loop.call_soon(self._write)
        else:
            self._loop.call_soon_threadsafe(self._write)

    def _on_socket_unregister_write(self, client: paho.Client, userdata: object, sock: PahoSocket) -> None:
        if sock.fileno() >= 0:
            self._loop.remove_writer(sock.fileno())


class _Packed:
    """Properties of a PUBLISH, packed. paho builds three dicts for each `Properties`; it only ever asks for `pack`."""

    __slots__ = ("_bytes",)

    def __init__(self, data: bytes) -> None:
        length, head = len(data), bytearray()
        while length > 0x7F:  # Variable Byte Integer, MQTT 5 §1.5.5
            head.append(length & 0x7F | 0x80)
            length >>= 7
        head.append(length)
        self._bytes = bytes(head) + data

    def pack(self) -> bytes:
        return self._bytes


def _with_length(data: bytes) -> bytes:
    """Text or binary data (MQTT 5 §1.5.4, §1.5.6)."""
    return struct.pack("!H", len(data)) + data


class BrokerConnection:
    """One connection through aiomqtt."""

    client = "aiomqtt"

    def __init__(self, client: _Client, *, v5: bool, clock: Clock) -> None:
        self._client = client
        self._v5 = v5
        self._clock = clock
        self.connack = client.connack
        self.urgent = False  # paho reads what there is, each time

    def publish(self, message: Message) -> int:
        message = adapt(message, self.connack)
        return self._client.write(message, self._properties(message) if self._v5 else None)

    def _properties(self, message: Message) -> _Packed | None:
        data = b""
        if message.expires is not None:  # Message Expiry Interval, four bytes
            data = struct.pack("!BI", 0x02, seconds_left(message.expires, self._clock.monotonic()))
        if message.content_type is not None:
            data += b"\x03" + _with_length(message.content_type.encode())
        for name, value in user_properties(message):
            data += b"\x26" + _with_length(name.encode()) + _with_length(value.encode())
        if message.correlation is not None:
            data += b"\x09" + _with_length(message.correlation)
        return _Packed(data) if data else None

    async def subscribe(self, topic_filter: str, qos: int = 1) -> None:
        try:
            codes = await self._client.subscribe(topic_filter, qos)
        except (aiomqtt.MqttError, ValueError) as error:
            raise BrokerError(f"cannot subscribe to {topic_filter!r}: {error}") from error
        for code in codes:
            value = code if isinstance(code, int) else code.value
            if value >= 0x80:
                raise diagnosis.not_subscribed(topic_filter, value)

    async def unsubscribe(self, topic_filter: str) -> None:
        try:
            await self._client.unsubscribe(topic_filter)
        except (aiomqtt.MqttError, ValueError) as error:
            raise BrokerError(f"cannot end the subscription to {topic_filter!r}: {error}") from error

    async def close(self) -> None:
        self._client.closing = True
        try:
            with contextlib.suppress(aiomqtt.MqttError, TimeoutError):  # it goes away either way
                async with asyncio.timeout(CLOSE_TIMEOUT):
                    await self._client.__aexit__(None, None, None)
        finally:
            self.abort()

    def abort(self) -> None:
        self._client.give_up()

    def reset(self) -> None:
        self._client.forget_unsent()
        self.abort()


async def connect(broker: Broker, clock: Clock, packet: Connect, listener: ConnectionListener) -> Connection:
    """Make one connection to `broker`; see `leadsman.core.mqtt.connection.Connect`."""
    v5 = packet.protocol == V5
    try:
        client = _Client(broker, listener, packet.largest, **_options(broker, packet, v5=v5))
    except ValueError as error:
        raise BrokerError(f"cannot connect to {broker}: {error}") from error
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            await client.open()
    except BaseException as error:
        client.give_up()
        translated = _translate(client, error, v5=v5)
        if translated is error:
            raise
        raise translated from error
    return BrokerConnection(client, v5=v5, clock=clock)


def _translate(client: _Client, error: BaseException, *, v5: bool) -> BaseException:
    broker = client.broker
    match error:
        case ConnackMissing() if client.alerts:
            return diagnosis.alert(broker, client.alerts[0])
        case ConnackMissing():
            return diagnosis.no_connack(broker, str(error))
        case MqttConnectError():
            code = error.rc if isinstance(error.rc, int) else getattr(error.rc, "value", 0x80)
            code = code if v5 or code >= 0x80 else V311_REFUSALS.get(code, 0x80)
            return diagnosis.refused(broker, code, client.reference)
        case aiomqtt.MqttError():
            cause = error.__context__  # aiomqtt keeps the text only
            if not isinstance(cause, OSError | ValueError):
                return diagnosis.unreachable(broker, str(error), cause)
            error = cause
    return diagnosis.not_connected(broker, error, CONNECT_TIMEOUT, opened=client.opened)


def _options(broker: Broker, packet: Connect, *, v5: bool) -> dict[str, Any]:
    will_properties = connect_properties = None
    if v5:
        will_properties = _properties(PacketTypes.WILLMESSAGE)
        will_properties.WillDelayInterval = packet.will_delay
        connect_properties = _properties(PacketTypes.CONNECT)
        connect_properties.SessionExpiryInterval = packet.session_expiry
        connect_properties.ReceiveMaximum = RECEIVE_MAXIMUM
        if packet.largest is not None:
            connect_properties.MaximumPacketSize = packet.largest
    options: dict[str, Any] = {
        "hostname": broker.host,
        "port": broker.port,
        "username": broker.username,
        "password": broker.password,
        "identifier": packet.client_id,
        "protocol": aiomqtt.ProtocolVersion.V5 if v5 else aiomqtt.ProtocolVersion.V311,
        "will": None
        if packet.will_topic is None
        else aiomqtt.Will(
            packet.will_topic, packet.will_payload, packet.will_qos, packet.will_retained, properties=will_properties
        ),
        "keepalive": KEEPALIVE,
        "timeout": CONNECT_TIMEOUT,
        "properties": connect_properties,
        "max_inflight_messages": 0,  # the link keeps the window; 0 is "no second one below it"
        "logger": logging.Logger("aiomqtt", 99),  # above all levels: faults go to the listener
    }
    if v5:
        options["clean_start"] = packet.clean
    else:
        options["clean_session"] = True  # 3.1.1 sessions never expire; a clean one still takes the old one over
    if broker.unix:
        options |= {"hostname": broker.path, "transport": "unix", "port": 1}  # paho wants one, and does not use it
    if broker.websocket:
        options |= {"transport": "websockets", "websocket_path": broker.path}
    return options


def _properties(packet_type: int) -> Properties:
    return Properties(packet_type)  # type: ignore[no-untyped-call]  # paho leaves it untyped
