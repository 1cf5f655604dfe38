"""Connects to real brokers with one of two clients:

* `leadsman.core.mqtt.codec_client`: MQTT 5 over TCP, TLS and unix sockets, with the codec `mqtt5` on asyncio's
transports.
  It needs a fifth of the CPU of the other one, and a twentieth of its import time;
* `leadsman.core.mqtt.aiomqtt_client`: MQTT 3.1.1, WebSocket, machines for which there is no codec,
  and brokers whose URL asks for it.

A library is imported when a connection needs it, and never the other one.
"""

import importlib
import re
import sys
from types import ModuleType

from leadsman.core.loop.clock import Clock
from leadsman.core.mqtt import transport
from leadsman.core.mqtt.broker import Broker
from leadsman.core.mqtt.connection import (
    Connect,
    Connection,
    ConnectionListener,
    Connector,
    Received,
    WrappedConnection,
)
from leadsman.core.mqtt.connection_state import V5
from leadsman.core.mqtt.diagnosis import NOT_AUTHORIZED, QOS_NOT_SUPPORTED, RETAIN_NOT_SUPPORTED, TOPIC_INVALID
from leadsman.core.mqtt.message import Message
from leadsman.errors import BrokerError, ConnackMissing, ConnectionRefused

_AIOMQTT, _CODEC = "leadsman.core.mqtt.aiomqtt_client", "leadsman.core.mqtt.codec_client"
_WILLS = ((1, True), (1, False), (0, True))
"""The QoS of a will, and whether it is kept: more than the least, the most first."""
_imported: set[str] = set()
"""The clients whose import has ended."""
_WILL = r"(?i)\bwill\b(?! (?:be|not|restart|shut|close|expire|retry)\b)"
"""The will, and not the verb."""


async def connect(broker: Broker, clock: Clock, packet: Connect, listener: ConnectionListener) -> Connection:
    """Make one connection to `broker`; see `leadsman.core.mqtt.connection.Connector`. A will that the broker does not
    take is offered again without what it does not support. If its topic is refused, the connection is made without a
    will, and `ConnAck.will_refused` is set."""
    client = await _load(broker, packet.protocol)
    try:
        connection: Connection = await client.connect(broker, clock, packet, listener)
    except ConnackMissing as error:
        if error.silent or packet.protocol == V5 or packet.will_topic is None:
            raise
        return await _connect_with_less(client, broker, clock, packet, listener)
    except ConnectionRefused as error:
        if error.code == RETAIN_NOT_SUPPORTED and packet.will_retained:
            packet = packet._replace(will_retained=False)
        elif error.code == QOS_NOT_SUPPORTED and packet.will_qos:
            packet = packet._replace(will_qos=0)
        elif packet.will_topic is not None and _is_about_will(error):
            connection = await connect(broker, clock, packet._replace(will_topic=None, will_payload=b""), listener)
            connection.connack = connection.connack._replace(will_refused=str(error))
            return connection
        else:
            raise
    else:
        return connection
    return await connect(broker, clock, packet, listener)


async def _connect_with_less(
    client: ModuleType, broker: Broker, clock: Clock, packet: Connect, listener: ConnectionListener
) -> Connection:
    """Connect to a broker of MQTT 3.1.1 that has closed the connection on a CONNECT. It has no code for a will of a
    QoS that it does not have, nor for one that it cannot keep (MQTT 3.1.1 §3.2.2.3), and closes the connection on
    such messages, too. It may only have been away before: what it takes is found with another client id, beside the
    connection with the least will.

    Raises:
        ConnackMissing: it closes the connection on the least will, too.
    """
    least = packet._replace(will_qos=0, will_retained=False)
    connection: Connection = await client.connect(broker, clock, least, listener)
    try:
        for qos, retained in _WILLS:
            offer = packet._replace(will_qos=qos, will_retained=retained and packet.will_retained)
            try:
                trial = await client.connect(
                    broker, clock, offer._replace(client_id=f"{packet.client_id}-will"), _Unheard()
                )
            except BrokerError:
                continue
            await trial.close()
            await connection.close()
            connection = await client.connect(broker, clock, offer, listener)
            break
        else:
            qos, retained = 0, False
    except BaseException:  # the app may stop meanwhile
        connection.abort()
        raise
    connack = connection.connack
    connection.connack = connack._replace(maximum_qos=connack.maximum_qos if qos else 0, retain_available=retained)
    return connection


class _Unheard:
    """Listens to nothing."""

    def acknowledged(self, packet_id: int, code: int) -> None:
        """See `ConnectionListener`."""

    def lost(self, reason: str, code: int = 0) -> None:
        """See `ConnectionListener`."""

    def received(self, message: Received) -> None:
        """See `ConnectionListener`."""


def _is_about_will(error: ConnectionRefused) -> bool:
    """Whether the broker refuses the will, and not the client: its topic (MQTT 5 §3.2.2.2), or, by its Reason
    String, its publication, for which there is no reason code."""
    return error.code == TOPIC_INVALID or (
        error.code == NOT_AUTHORIZED and re.search(_WILL, error.reason_string or "") is not None
    )


async def _load(broker: Broker, protocol: str) -> ModuleType:
    """The client, imported in a thread unless it is there: on a small machine that takes seconds."""
    name = _CODEC if _codec_suits(broker, protocol) else _AIOMQTT
    loaded = sys.modules.get(name) if name in _imported else None  # in sys.modules it may be half imported
    return await transport.in_thread(lambda: choose(broker, protocol)) if loaded is None else loaded


def _codec_suits(broker: Broker, protocol: str) -> bool:
    return protocol == V5 and not broker.websocket and broker.client is None


def choose(broker: Broker, protocol: str) -> ModuleType:
    """The client for this version of MQTT. Imports it.

    Args:
        broker: its scheme names what the packets travel in; it may name the client.
        protocol: ``5.0`` or ``3.1.1``.
    """
    if _codec_suits(broker, protocol):
        try:
            return _import(_CODEC)
        except ImportError as error:
            if (error.name or "").partition(".")[0] != "mqtt5":
                raise
    return _import(_AIOMQTT)


def _import(name: str) -> ModuleType:
    """Import a client. Waits for another thread that imports it at the moment."""
    module = importlib.import_module(name)
    _imported.add(name)
    return module


# Connections that retain nothing, for dry runs: their messages are gone when they end.


def without_retained(connect: Connector) -> Connector:
    """As `connect`, but the broker keeps neither messages nor the will."""

    async def connected(packet: Connect, listener: ConnectionListener) -> Connection:
        return _Unretained(await connect(packet._replace(will_retained=False), listener))

    return connected


class _Unretained(WrappedConnection):
    def publish(self, message: Message) -> int:
        return super().publish(message._replace(retain=False))
