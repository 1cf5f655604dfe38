"""The interface between the link and a connection, and what both clients agree on. `leadsman.core.mqtt.client` connects
to real brokers, `leadsman.testing` to one in memory."""

import math
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple, Protocol

from leadsman.core.loop.clock import rfc3339
from leadsman.core.mqtt.message import Message

MAX_PACKET_BYTES = 256 * 1024
"""Bytes: more than any command may have. The broker discards larger ones."""
CONNECT_TIMEOUT = 5.0
"""Seconds for the name, TCP, TLS and CONNACK together; also for the answer to a SUBSCRIBE."""
KEEPALIVE = 15
"""Seconds; a half-open link is noticed within twice this (MQTT 5 §3.1.2.10)."""
WILL_DELAY = 10
"""Seconds the broker holds the will back, so that a quick reconnect does not flap (§3.1.3.2.2)."""
SESSION_EXPIRY = 60
"""Seconds the broker keeps the session: longer than the will delay, too short for a command to go stale in it."""
RECEIVE_MAXIMUM = 1000
"""Messages that the broker may send before we have acknowledged the first of them (MQTT 5 §3.1.2.11.3): so many may
come again after a broken connection, and so many are remembered."""
CLOSE_TIMEOUT = 0.3
"""Seconds for DISCONNECT to be written; the process has two in all to end."""


class Connect(NamedTuple):
    """The contents of CONNECT: the client id, the MQTT version (``"5.0"`` or ``"3.1.1"``), and the will. Without a
    topic there is no will."""

    client_id: str
    protocol: str
    will_topic: str | None
    will_payload: bytes
    largest: int | None = MAX_PACKET_BYTES
    """Bytes that the broker may send us in one packet (MQTT 5 §3.1.2.11.4); None for any number."""
    will_retained: bool = True
    """Whether the broker keeps the will for later subscribers."""
    will_qos: int = 1
    will_delay: int = WILL_DELAY
    """Seconds; see `WILL_DELAY`. MQTT 3.1.1 has none."""
    session_expiry: int = SESSION_EXPIRY
    """Seconds; see `SESSION_EXPIRY`. With 0 the session ends with the connection."""
    clean: bool = False
    """Whether the broker is to drop the session that it has (Clean Start, §3.1.2.4). With MQTT 3.1.1 each is dropped.
    """


class ConnAck(NamedTuple):
    """The contents of CONNACK."""

    receive_maximum: int = 65_535
    """QoS 1 messages that may be unacknowledged at a time (MQTT 5 §3.2.2.3.3)."""
    maximum_packet_size: int | None = None
    """Bytes (§3.2.2.3.6)."""
    maximum_qos: int = 2
    """0, 1 or 2 (§3.2.2.3.4). A message of a higher quality is sent with this one."""
    retain_available: bool = True
    """Whether the broker keeps messages (§3.2.2.3.5). Where it does not, messages are sent without RETAIN."""
    session_expiry: int | None = None
    """Seconds that the broker keeps the session, if that is not the requested time (§3.2.2.3.2)."""
    keepalive: int | None = None
    """Seconds that the broker demands instead of ours (§3.2.2.3.14)."""
    topic_alias_maximum: int = 0
    """Topic aliases that the broker accepts (§3.2.2.3.8). We use none."""
    session_present: bool = False
    """Whether the broker still has the session of the last connection (§3.2.2.1.1). One that lost it may have lost
    what it retained."""
    will_refused: str | None = None
    """Why the connection has no will, although one was offered: the refusal of an earlier CONNECT; None if it has."""


class Received(NamedTuple):
    """A received message."""

    topic: str
    """Where it was published."""
    payload: bytes
    """The published bytes."""
    retain: bool
    """Whether the broker kept it from before; false for a message that is published now (§3.3.1.3)."""
    response_topic: str | None = None
    """Where the sender wants the answer (MQTT 5 §3.3.2.3.5)."""
    correlation: bytes | None = None
    """Correlation Data: the answer carries it, and the sender recognises it by that (§3.3.2.3.6)."""
    taken_at: str | None = None
    """When a reading was taken, RFC 3339; a user property (§3.3.2.3.7)."""
    packet_id: int | None = None
    """Its packet identifier; None for QoS 0 (§2.2.1)."""
    redelivered: bool = False
    """Whether the broker has sent it before, and got no acknowledgement (DUP, §3.3.1.1). What a handler gets with this
    mark, an earlier run of the app may have handled."""


def taken_at(properties: Iterable[tuple[str, str]] | None) -> str | None:
    """When the reading of a message was taken, from its user properties; None without this one."""
    return next((value for name, value in properties or () if name == "taken_at"), None)


class ConnectionListener(Protocol):
    """The callbacks of a connection, always called on the event loop."""

    def acknowledged(self, packet_id: int, code: int) -> None:
        """PUBACK, with its reason code; 0x80 and above are refusals, which MQTT 3.1.1 cannot express."""
        ...

    def lost(self, reason: str, code: int = 0) -> None:
        """The connection was lost. `code` is the reason code of the broker's DISCONNECT."""
        ...

    def received(self, message: Received) -> None:
        """A message of a subscription arrived."""
        ...


class Connection(Protocol):
    """One connection, from CONNACK to its end."""

    connack: ConnAck
    client: str
    """The library that speaks MQTT: ``"mqtt5"``, ``"aiomqtt"``, or ``"memory"`` in tests."""
    urgent: bool
    """Set while messages wait until others are acknowledged: then acknowledgements are read as soon as they come."""

    def publish(self, message: Message) -> int:
        """Hand a message over and return its packet identifier. Raises `BrokerError` when it cannot be written."""
        ...

    async def subscribe(self, topic_filter: str, qos: int = 1) -> None:
        """Subscribe. Raises `SubscriptionRefused`, `BrokerError`."""
        ...

    async def unsubscribe(self, topic_filter: str) -> None:
        """End a subscription. Raises `BrokerError`: it may go on."""
        ...

    async def close(self) -> None:
        """Send DISCONNECT, so that the broker discards the will, and wait until it is written."""
        ...

    def abort(self) -> None:
        """Close the socket at once; the broker will publish the will."""
        ...

    def reset(self) -> None:
        """As `abort`, and the system forgets what it has not sent, where the client has the socket: else it goes on to
        send that when the network is back."""
        ...


class WrappedConnection:
    """A connection that passes everything on to another one; a subclass changes some of it."""

    def __init__(self, connection: Connection) -> None:
        self.connack = connection.connack
        self.client = connection.client
        self.subscribe = connection.subscribe
        self.unsubscribe = connection.unsubscribe
        self._connection = connection

    @property
    def urgent(self) -> bool:
        """See `Connection`."""
        return self._connection.urgent

    @urgent.setter
    def urgent(self, urgent: bool) -> None:
        self._connection.urgent = urgent

    def publish(self, message: Message) -> int:
        """See `Connection`."""
        return self._connection.publish(message)

    async def close(self) -> None:
        """See `Connection`."""
        await self._connection.close()

    def abort(self) -> None:
        """See `Connection`."""
        self._connection.abort()

    def reset(self) -> None:
        """See `Connection`."""
        self._connection.reset()


Connector = Callable[[Connect, ConnectionListener], Awaitable[Connection]]
"""Make one connection. Raises `ConnectionRefused` for a negative CONNACK, `ConnackMissing` when none came, `TlsRefused`
for faults that a person has to fix, `NotListening` where the host refused at once and an attempt costs next to
nothing, and `BrokerError`."""


def user_properties(message: Message) -> list[tuple[str, str]]:
    """The user properties of a message: those of a reading, and the fencing token (MQTT 5 §3.3.2.3.7)."""
    found = []
    if message.taken_at is not None:
        found.append(("taken_at", rfc3339(message.taken_at)))
        if message.replayed:
            found.append(("replayed", "1"))
    if message.fence is not None:
        found.append(("fence", str(message.fence)))
    return found


def seconds_left(expires: float, now: float) -> int:
    """The Message Expiry Interval: one second at least, and what four bytes can have at most (MQTT 5 §3.3.2.3.3)."""
    return min(max(1, math.ceil(expires - now)), 0xFFFF_FFFF)


def adapt(message: Message, connack: ConnAck) -> Message:
    """The message as the broker takes it: with a lower quality, or not retained, where CONNACK requires it."""
    if message.qos > connack.maximum_qos:
        message = message._replace(qos=connack.maximum_qos)
    if message.retain and not connack.retain_available:
        message = message._replace(retain=False)
    return message
