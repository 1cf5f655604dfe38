"""Brokers that break the rules of MQTT, or go away at the worst moment, with both clients: the reason is named, no
reading is lost, and nothing grows."""

import asyncio
import contextlib
import json
import time

import mqtt5
import psutil
import pytest

from leadsman import Broker
from leadsman.core.loop.clock import system_clock
from leadsman.core.mqtt.client import connect
from leadsman.core.mqtt.connection import Connect
from leadsman.core.mqtt.message import Message
from leadsman.errors import BrokerError
from leadsman_rigs.byte_broker import ByteBroker
from leadsman_rigs.one_connection import Hooks, connected, publish_one
from leadsman_rigs.proxy import Proxy, Way

pytestmark = pytest.mark.usefixtures("client")
COUNTER = """
n = 0
@app.telemetry("counter", interval=0.05)
async def counter():
    global n
    n += 1
    return {"n": n}
"""
CLIENTS = "mqtt5", "aiomqtt"
MOVED = mqtt5.DisconnectReasonCode.SERVER_MOVED


def closes_at_connect(peer):
    peer.packet()


def answers_in_http(peer):
    peer.packet()
    peer.send(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
    peer.hang()


def sends_garbage_later(peer):
    peer.greet()
    peer.serve(20)
    peer.send(b"\x00\x00\xff\xff")
    peer.hang()


def sends_a_packet_without_end(peer):
    peer.greet()
    peer.serve(20)
    peer.send(b"\x30\xff\xff\xff\x7f\x00\x01a\x00")
    for _ in range(1000):
        peer.send(bytes(100_000))


def sends_half_a_packet(peer):
    peer.greet()
    peer.serve(20)
    peer.send(mqtt5.PublishPacket("a", b"x" * 100).write()[:50])
    peer.hang()


def acknowledges_what_was_never_sent(peer):
    peer.greet()
    for _ in range(40):
        peer.send(*(mqtt5.PubAckPacket(number) for number in range(60_000, 60_010)))
        peer.serve(1)


def acknowledges_backwards(peer):
    peer.greet(receive_max=5)
    waiting = []
    for _ in range(60):
        packet = peer.packet()
        if isinstance(packet, mqtt5.PublishPacket):
            peer.messages.append((packet.topic, packet.payload))
            waiting.append(packet.packet_id)
            if len(waiting) == 2:
                peer.send(*(mqtt5.PubAckPacket(each) for each in reversed(waiting)))
                waiting.clear()
        else:
            peer.answer(packet)


def floods(peer):
    peer.greet()
    peer.serve(20)
    peer.sock.settimeout(30)
    peer.send(mqtt5.PublishPacket("sys/nobody", b"x" * 50).write() * 100_000)
    peer.serve(20)


def names_another_broker(peer):
    peer.greet()
    peer.serve(20)
    peer.send(mqtt5.DisconnectPacket(reason_code=MOVED, server_reference="new.lan:1883", reason_str="we moved"))


def resets(peer):
    peer.greet()
    peer.serve(20)
    peer.reset()


LOST = "the connection was lost"
ELSEWHERE = "it has moved (0x9d); it names 'new.lan:1883' as the broker to use; it says: we moved"
FAULTS = {  # what the broker does, and what the log says with the codec and with aiomqtt
    closes_at_connect: ("sent no CONNACK", "sent no CONNACK"),
    answers_in_http: ("b'HTTP/1.1 400 Bad' where a CONNACK was due", "b'HTTP/1.1 400 Bad' where a CONNACK was due"),
    sends_garbage_later: ("the broker sent a malformed packet", LOST),
    sends_half_a_packet: ("no acknowledgement within 10 s", "no acknowledgement within 10 s"),
    acknowledges_what_was_never_sent: (LOST, LOST),
    acknowledges_backwards: (LOST, LOST),
    # a machine that does much else may take longer than the 10 s that an acknowledgement has
    floods: ("No connection to the broker", "No connection to the broker"),
    names_another_broker: (ELSEWHERE, ELSEWHERE),
    resets: (f"{LOST}: [Errno 104] Connection reset by peer", LOST),
}
CASES = [
    (client, fault, reason) for fault, both in FAULTS.items() for client, reason in zip(CLIENTS, both, strict=True)
]
CASES += [
    (client, sends_a_packet_without_end, "packet of 268435460 bytes, and 262144 are allowed") for client in CLIENTS
]
NAMES = [f"{client}-{fault.__name__}" for client, fault, _ in CASES]


def numbers(broker):
    return [json.loads(payload)["n"] for topic, payload in broker.messages if topic == "sys/counter/state"]


def memory(app):
    return psutil.Process(app.process.pid).memory_info().rss


@pytest.mark.parametrize(("client", "fault", "reason"), CASES, ids=NAMES, indirect=["client"])
def test_the_reason_is_named_no_reading_is_lost_and_nothing_grows(fault, reason, start_app):
    def good(peer):
        peer.greet()
        peer.serve()

    with ByteBroker(fault, good) as broker:
        app = start_app(COUNTER, broker.url)
        before = time.monotonic()
        while broker.connections < 2:
            assert time.monotonic() - before < 100, app.log
            time.sleep(0.02)
        seen = len(numbers(broker))
        broker.wait_for(lambda messages: len(numbers(broker)) >= seen + 40)
        size = memory(app)
        app.end()
        distinct = list(dict.fromkeys(numbers(broker)))

    assert reason in app.log, app.log
    assert sorted(distinct) == list(range(1, max(distinct) + 1))
    assert size < 80 * 2**20


def tls(url):
    return url.replace("mqtt://", "mqtts://") + "?insecure=true"


def resets_the_handshake(peer):
    peer.sock.recv(100)
    peer.reset()


def closes_in_the_handshake(peer):
    peer.sock.recv(100)


def hangs_in_the_handshake(peer):
    peer.hang()


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (resets_the_handshake, "cannot connect to mqtts://.*is this a TLS port"),
        (closes_in_the_handshake, "cannot connect to mqtts://.*is this a TLS port"),
        (hangs_in_the_handshake, "did not answer within 5 s|timed out"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_handshake_of_tls_that_does_not_end_well_is_a_named_error(fault, reason):
    with ByteBroker(fault) as broker, pytest.raises(BrokerError, match=reason):
        connected(tls(broker.url), publish_one)


def test_a_will_that_may_not_be_kept_is_offered_again():
    refused = mqtt5.ConnAckReasonCode.RETAIN_NOT_SUPPORTED

    def refuse(peer):
        peer.greet(reason_code=refused)

    def take(peer):
        packet = peer.greet(retain_available=False)
        peer.messages.append(("will retained", packet.will.retain))
        peer.serve()

    with ByteBroker(refuse, take) as broker:
        connected(broker.url, publish_one)

        assert broker.messages == [("will retained", False), ("t/x", b"1")]


def test_an_app_whose_will_is_refused_connects_without_one_and_says_so_once(start_app):
    def refuse(peer):
        packet = peer.packet()
        will_is_refused = packet.will is not None
        peer.messages.append(("will", will_is_refused))
        reason = mqtt5.ConnAckReasonCode.TOPIC_NAME_INVALID if will_is_refused else mqtt5.ConnAckReasonCode.SUCCESS
        peer.send(mqtt5.ConnAckPacket(reason_code=reason))
        peer.serve(None if broker.connections > 4 else 3)

    with ByteBroker(refuse) as broker:
        app = start_app(COUNTER, broker.url)
        broker.wait_for(lambda messages: sum(each == ("will", False) for each in messages) == 2)
        broker.wait_for(lambda messages: any(topic == "sys/status" for topic, _ in messages[-20:]))
        heartbeats = [json.loads(payload) for topic, payload in broker.messages if topic == "sys/status"]

    assert app.log.count("connected without a will") == 1
    assert {each["health"] for each in heartbeats} == {"degraded"}
    assert "connected without a will" in heartbeats[0]["mqtt"]["last_error"]


def test_the_limits_of_the_broker_are_kept():
    def limited(peer):
        peer.greet(max_qos=mqtt5.QoS.AT_MOST_ONCE, retain_available=False, server_keep_alive=1)
        while True:
            packet = peer.packet()
            peer.messages.append(packet)
            peer.answer(packet)

    async def scenario(connection, hooks):
        connection.publish(Message("t/x", b"1", qos=1, retain=True))
        async with asyncio.timeout(60):
            while not any(isinstance(each, mqtt5.PingReqPacket) for each in broker.messages):
                await asyncio.sleep(0.05)
        assert hooks.acknowledgements == [0]
        assert hooks.reasons == []

    with ByteBroker(limited) as broker:
        connected(broker.url, scenario)
        packets = [each for each in broker.messages if not isinstance(each, tuple)]

    assert [(each.qos, each.retain) for each in packets if isinstance(each, mqtt5.PublishPacket)] == [(0, False)]


def test_a_network_that_flips_and_cuts_bytes_ends_connections_and_never_the_app(mosquitto, listen, start_app, client):
    listener = listen(mosquitto.port)
    with Proxy(mosquitto.port, Way(delay=0.01), seed=1) as proxy:
        app = start_app(COUNTER, proxy.url)
        listener.wait_for("sys/counter/state", 20)
        proxy.down.flip_every, proxy.up.cut_every = 60, 3000
        deadline = time.monotonic() + 60
        while proxy.done.flipped < 6 or proxy.done.accepted < 4:
            assert time.monotonic() < deadline, app.log
            time.sleep(0.1)
        proxy.down.flip_every = proxy.up.cut_every = None
        seen = len(listener.on("sys/counter/state"))
        listener.wait_for("sys/counter/state", seen + 40)

        assert app.process.poll() is None
        assert "blocked" not in app.log


SILENT_NAMES = """
import socket
look_up = socket.getaddrinfo
def silent(host, *arguments, **options):
    if host == "broker.lan" and not options.get("flags"):
        time.sleep(60)
    return look_up(host, *arguments, **options)
socket.getaddrinfo = silent
"""


def test_a_name_server_that_keeps_silent_holds_up_neither_the_polls_nor_the_stop(start_app):
    app = start_app(
        SILENT_NAMES + COUNTER.replace("    return", "    print('polled', flush=True)\n    return"), "mqtt://broker.lan"
    )
    deadline = time.monotonic() + 60
    while app.log.count("polled") < 3 or "did not answer within 5 s" not in app.log:
        assert time.monotonic() < deadline, app.log
        time.sleep(0.05)

    code, seconds = app.end()

    assert code == 0
    assert seconds < 15


async def garbled(port):
    """Connect to the broker at this port through a relay that sends the client malformed bytes after the CONNACK, until
    the client has given up."""

    async def relay(reader, writer):
        from_broker, to_broker = await asyncio.open_connection("127.0.0.1", port)
        to_broker.write(await reader.read(65536))
        writer.write(await from_broker.read(65536) + b"\x00\x00")
        with contextlib.suppress(ConnectionResetError):
            while data := await reader.read(65536):
                to_broker.write(data)
        for each in (writer, to_broker):
            each.close()
            with contextlib.suppress(ConnectionResetError):
                await each.wait_closed()
        relayed.set()

    relayed, hooks, clock = asyncio.Event(), Hooks(), system_clock(asyncio.get_running_loop())
    async with await asyncio.start_server(relay, "127.0.0.1", 0) as server:
        url = f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await connect(Broker.from_url(url), clock, Connect("tester", "5.0", "t/status", b"{}"), hooks)
        await relayed.wait()
    return hooks


def test_the_broker_keeps_the_will_of_an_app_that_gives_a_garbled_connection_up(mosquitto, listen):
    """It discards the will after a DISCONNECT with any reason code but 0x04, as mosquitto 2.0.11 does."""
    listener = listen(mosquitto.port)

    hooks = asyncio.run(garbled(mosquitto.port))

    assert len(hooks.reasons) == 1
    assert listener.wait_for("t/status")[0].payload == b"{}"
