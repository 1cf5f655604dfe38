"""The interface between the link and a connection. `leadsman.mqtt.client` implements it for real brokers,
`leadsman.testing` for one in memory."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from leadsman.mqtt.message import Message

LARGEST_PACKET = 256 * 1024
"""Bytes: more than any command may have. The broker discards what is larger."""


class Connect(NamedTuple):
    """The contents of CONNECT: the client id, the MQTT version (``"5.0"`` or ``"3.1.1"``), and the will, with QoS
    1. Without a topic there is no will."""

    client_id: str
    protocol: str
    will_topic: str | None
    will_payload: bytes
    largest: int | None = LARGEST_PACKET
    """Bytes that the broker may send us in one packet (MQTT 5 §3.1.2.11.4); None for any number."""
    will_retained: bool = True
    """Whether the broker keeps the will for later subscribers."""


class ConnAck(NamedTuple):
    """The contents of CONNACK."""

    receive_maximum: int = 65_535
    """QoS 1 messages that may be unacknowledged at a time (MQTT 5 §3.2.2.3.3)."""
    maximum_packet_size: int | None = None
    """Bytes (§3.2.2.3.6)."""


class Received(NamedTuple):
    """A received message."""

    topic: str
    payload: bytes
    retain: bool
    response_topic: str | None = None
    """Where the sender wants the answer (MQTT 5 §3.3.2.3.5)."""
    correlation: bytes | None = None
    """What the answer must carry so that the sender knows it (§3.3.2.3.6)."""


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

    def publish(self, message: Message) -> int:
        """Hand a message over and return its packet identifier. Raises `BrokerError` when it cannot be written."""
        ...

    async def subscribe(self, topic_filter: str, qos: int = 1) -> None:
        """Subscribe. Raises `SubscriptionRefused`, `BrokerError`."""
        ...

    async def close(self) -> None:
        """Send DISCONNECT, so that the broker discards the will, and wait until it is written."""
        ...

    def abort(self) -> None:
        """Close the socket at once; the broker will publish the will."""
        ...


Connector = Callable[[Connect, ConnectionListener], Awaitable[Connection]]
"""Make one connection. Raises `ConnectionRefused` for a negative CONNACK, `ConnackMissing` when none came, `TlsRefused`
for faults that a person has to mend, and `BrokerError`."""
