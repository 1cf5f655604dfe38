"""A broker that sends more than an app takes, to the client for MQTT 3.1.1 and WebSockets: nothing of it is kept."""

import asyncio

import pytest

from leadsman import Broker
from leadsman.core.loop.clock import system_clock
from leadsman.core.mqtt import aiomqtt_client
from leadsman.core.mqtt.connection import MAX_PACKET_BYTES, Connect
from leadsman.errors import BrokerError
from leadsman_rigs.byte_broker import CONNACK, ByteBroker, Line
from leadsman_rigs.one_connection import Hooks

HUGE = 100 * 2**20
"""Bytes that a broker tries to send."""
MAX_BYTES = 16 * 2**20
"""Bytes that it may get rid of until it notices: what two systems keep on the way."""
WAYS = [("mqtt", "3.1.1"), ("mqtt", "5.0"), ("ws", "3.1.1"), ("ws", "5.0")]


def fixed(kind, length):
    """A fixed header, with the length of what follows."""
    head = bytearray([kind])
    for place in range(4):
        head.append(length >> 7 * place & 0x7F | 0x80 * (place < 3))
    return bytes(head)


def published(length, quality=1):
    """The beginning of a message at ``house/x``, with the packet identifier 7."""
    return fixed(0x30 | quality << 1, length) + b"\x00\x07house/x" + b"\x00\x07"


def connecting(broker, scheme, protocol, scenario=None, largest=MAX_PACKET_BYTES):
    """Connect, run `scenario(hooks)`, and return what was heard."""

    async def run():
        hooks, clock = Hooks(), system_clock(asyncio.get_running_loop())
        address = Broker.from_url(broker.url.replace("mqtt", scheme))
        packet = Connect("tester", protocol, None, b"", largest)
        connection = await aiomqtt_client.connect(address, clock, packet, hooks)
        try:
            await scenario(hooks)
        finally:
            connection.abort()
        return hooks

    return asyncio.run(asyncio.wait_for(run(), 30))


async def until_lost(hooks):
    while not hooks.reasons:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(("scheme", "protocol"), WAYS)
def test_a_connack_without_end_is_given_up_as_soon_as_its_length_is_known(scheme, protocol):
    lines = []

    def broker(peer):
        lines.append(line := Line(peer, scheme))
        line.send(fixed(0x20, HUGE), HUGE)

    with ByteBroker(broker) as server, pytest.raises(BrokerError, match=f"and {MAX_PACKET_BYTES} are allowed"):
        connecting(server, scheme, protocol)

    assert all(line.sent < MAX_BYTES for line in lines)


@pytest.mark.parametrize("scheme", ["mqtt", "ws"])
def test_a_message_of_mqtt_5_that_is_too_large_ends_the_connection(scheme):
    lines = []

    def broker(peer):
        lines.append(line := Line(peer, scheme, CONNACK["5.0"]))
        line.send(published(HUGE), HUGE)

    with ByteBroker(broker) as server:
        hooks = connecting(server, scheme, "5.0", until_lost)

    assert "packet of 104857605 bytes, and 262144 are allowed" in hooks.reasons[0]
    assert lines[0].sent < MAX_BYTES


@pytest.mark.parametrize("scheme", ["mqtt", "ws"])
@pytest.mark.parametrize("quality", [0, 1])
def test_a_message_of_mqtt_3_1_1_that_is_too_large_is_passed_over_and_acknowledged(scheme, quality, caplog):
    answers = []

    def broker(peer):
        line = Line(peer, scheme, CONNACK["3.1.1"])
        line.send(published(5 * MAX_PACKET_BYTES, quality), 5 * MAX_PACKET_BYTES + 5)
        line.send(published(12) + b"x")
        answers.append(peer.sock.recv(1000))
        peer.hang()

    async def until_heard(hooks):
        while not hooks.messages:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)

    with ByteBroker(broker) as server:
        hooks = connecting(server, scheme, "3.1.1", until_heard)

    assert [message.payload for message in hooks.messages] == [b"x"]
    assert hooks.reasons == []
    assert answers[0]
    assert [record.getMessage() for record in caplog.records] == [
        f"a message of {5 * MAX_PACKET_BYTES + 5} bytes from the broker was passed over: {MAX_PACKET_BYTES} are allowed"
    ]


@pytest.mark.parametrize(("scheme", "protocol"), WAYS)
def test_who_asks_for_messages_of_any_size_gets_them(scheme, protocol):
    content = bytes(range(256)) * 4096

    def broker(peer):
        line = Line(peer, scheme, CONNACK[protocol])
        body = b"\x00" * (protocol == "5.0") + content
        line.send(published(11 + len(body)) + body)
        peer.hang()

    async def until_heard(hooks):
        while not hooks.messages:
            await asyncio.sleep(0.01)

    with ByteBroker(broker) as server:
        hooks = connecting(server, scheme, protocol, until_heard, largest=None)

    assert hooks.messages[0].payload == content


@pytest.mark.parametrize(("scheme", "protocol"), WAYS)
def test_a_message_of_a_quality_that_nobody_asked_for_ends_the_connection(scheme, protocol):
    def broker(peer):
        Line(peer, scheme, CONNACK[protocol]).send(published(20, 2) + bytes(9))
        peer.hang()

    with ByteBroker(broker) as server:
        hooks = connecting(server, scheme, protocol, until_lost)

    assert hooks.reasons == ["the broker sent a message with QoS 2, which was not asked for"]


@pytest.mark.parametrize("ending", [b"", b"\n"])
def test_an_answer_of_http_without_end_is_given_up(ending):
    sent = []

    def broker(peer):
        while True:
            sent.append(peer.sock.send(b"x: " + b"y" * 1000 + ending))

    with ByteBroker(broker) as server, pytest.raises(BrokerError, match="does not end"):
        connecting(server, "ws", "5.0")

    assert sum(sent) < MAX_BYTES


def test_a_ping_of_a_websocket_is_answered_masked():
    answers = []

    def broker(peer):
        Line(peer, "ws", CONNACK["5.0"])
        peer.send(b"\x89\x06alive?")
        answers.append(peer.sock.recv(100))
        peer.reset()

    with ByteBroker(broker) as server:
        connecting(server, "ws", "5.0", until_lost)

    (pong,) = answers
    assert pong[:2] == b"\x8a\x86"
    assert bytes(byte ^ pong[2 + place % 4] for place, byte in enumerate(pong[6:])) == b"alive?"
