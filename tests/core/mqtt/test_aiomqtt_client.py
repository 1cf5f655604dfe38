import asyncio
import contextlib
import threading
import time

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from leadsman import Broker
from leadsman.core.loop.clock import Clock
from leadsman.core.mqtt.aiomqtt_client import BrokerConnection, _Client, _options, connect
from leadsman.core.mqtt.connection import ConnAck, Connect
from leadsman.core.mqtt.message import Message
from leadsman_rigs.byte_broker import CONNACK, ByteBroker, Line


class Client:
    connack = ConnAck()


class Listener:
    def acknowledged(self, packet_id, code):
        """No message is."""

    def lost(self, reason, code=0):
        """As was asked for."""


@pytest.mark.parametrize("fence", [None, 7, 123_456])
@pytest.mark.parametrize("replayed", [False, True])
@pytest.mark.parametrize("length", [0, 1, 126, 127, 128, 300, 1024])
def test_properties_are_packed_as_the_library_packs_them(length, replayed, fence):
    connection = BrokerConnection(Client(), v5=True, clock=Clock(lambda: 100.0, lambda: 0.0))
    message = Message("a", b"", taken_at=1_767_225_600.25, expires=160.0, correlation=b"x" * length)
    message = message._replace(replayed=replayed, fence=fence)
    expected = Properties(PacketTypes.PUBLISH)
    expected.MessageExpiryInterval = 60
    expected.UserProperty = ("taken_at", "2026-01-01T00:00:00.250Z")
    if replayed:
        expected.UserProperty = ("replayed", "1")
    if fence is not None:
        expected.UserProperty = ("fence", str(fence))
    expected.CorrelationData = b"x" * length

    packed = connection._properties(message).pack()
    read = Properties(PacketTypes.PUBLISH)
    _, used = read.unpack(packed)

    assert len(packed) == len(expected.pack())
    assert used == len(packed)
    assert read.json() == expected.json()


def test_an_acknowledgement_that_nothing_asked_for_puts_no_traceback_into_the_log(caplog):
    async def run():
        broker = Broker("127.0.0.1")
        client = _Client(broker, None, None, **_options(broker, Connect("me", "3.1.1", None, b""), v5=False))
        client._on_subscribe(client._client, None, 133, [])

    asyncio.run(run())

    assert caplog.records == []


@pytest.mark.parametrize("scheme", ["mqtt", "ws"])
@pytest.mark.parametrize("protocol", ["3.1.1", "5.0"])
@pytest.mark.parametrize("forgotten", [False, True])
def test_what_is_unsent_at_a_reset_is_not_sent(scheme, protocol, forgotten):
    over, read, received = threading.Event(), threading.Event(), []

    def serve(peer):
        Line(peer, scheme, CONNACK[protocol])
        over.wait(30)
        with contextlib.suppress(ConnectionResetError):
            while data := peer.sock.recv(1 << 20):
                received.append(len(data))
        read.set()

    async def publish(url):
        connection = await connect(
            Broker.from_url(url.replace("mqtt", scheme)),
            Clock(time.monotonic, time.time),
            Connect("me", protocol, None, b""),
            Listener(),
        )
        written = 0
        for _ in range(20):
            connection.publish(Message("a", bytes(1 << 20), qos=1))
            written += 1 << 20
            await asyncio.sleep(0.01)
        connection.reset() if forgotten else connection.abort()
        return written

    with ByteBroker(serve) as server:
        written = asyncio.run(publish(server.url))
        over.set()
        assert read.wait(30)

    assert sum(received) < written
    assert (sum(received) < 1 << 20) is forgotten  # what had left this side before is with the other one
