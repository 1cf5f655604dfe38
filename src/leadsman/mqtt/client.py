"""Connects to real brokers with one of two clients:

* `leadsman.mqtt.codec_client`: MQTT 5 over TCP, TLS and unix sockets, with the codec `mqtt5` on asyncio's transports.
  It needs a third of the CPU of the other one, and its import a third of the time;
* `leadsman.mqtt.aiomqtt_client`: MQTT 3.1.1, WebSocket, and machines for which there is no codec.

A library is imported when a connection needs it, and never the other one.
"""

import importlib
import sys
from types import ModuleType

from leadsman.errors import ConnectionRefused
from leadsman.mqtt import transport
from leadsman.mqtt.broker import Broker
from leadsman.mqtt.connection import Connect, Connection, ConnectionListener
from leadsman.mqtt.connection_state import V5
from leadsman.mqtt.diagnosis import QOS_NOT_SUPPORTED, RETAIN_NOT_SUPPORTED
from leadsman.timing.clock import Clock

_AIOMQTT, _CODEC = "leadsman.mqtt.aiomqtt_client", "leadsman.mqtt.codec_client"


async def connect(broker: Broker, clock: Clock, packet: Connect, listener: ConnectionListener) -> Connection:
    """Make one connection to `broker`; see `leadsman.mqtt.connection.Connector`. A will that the broker does not take
    is offered again without what it does not support."""
    client = await _loaded(broker, packet.protocol)
    try:
        connection: Connection = await client.connect(broker, clock, packet, listener)
    except ConnectionRefused as error:
        if error.code == RETAIN_NOT_SUPPORTED and packet.will_retained:
            packet = packet._replace(will_retained=False)
        elif error.code == QOS_NOT_SUPPORTED and packet.will_qos:
            packet = packet._replace(will_qos=0)
        else:
            raise
    else:
        return connection
    return await connect(broker, clock, packet, listener)


async def _loaded(broker: Broker, protocol: str) -> ModuleType:
    """The client, imported in a thread unless it is there: on a small machine that takes seconds."""
    loaded = sys.modules.get(_CODEC if _codec_suits(broker, protocol) else _AIOMQTT)
    return await transport.in_thread(lambda: chosen(broker, protocol)) if loaded is None else loaded


def _codec_suits(broker: Broker, protocol: str) -> bool:
    return protocol == V5 and not broker.websocket


def chosen(broker: Broker, protocol: str) -> ModuleType:
    """The client for this version of MQTT. Imports it.

    Args:
        broker: its scheme says what the packets travel in.
        protocol: ``5.0`` or ``3.1.1``.
    """
    if _codec_suits(broker, protocol):
        try:
            return importlib.import_module(_CODEC)
        except ImportError as error:
            if (error.name or "").partition(".")[0] != "mqtt5":
                raise
    return importlib.import_module(_AIOMQTT)
