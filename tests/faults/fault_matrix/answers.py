"""The broker answers otherwise than with "accepted": it refuses messages or connections, or hangs up on a message."""

import json
import time
from collections import Counter
from collections.abc import Callable

import mqtt5

from fault_matrix.broker import WINDOW
from fault_matrix.network import BUSY, CONNECTED
from fault_matrix.row import P0, P1, row
from fault_matrix.stand import Stand, dropped, good, greet
from leadsman.core.mqtt import connection_state
from leadsman.core.mqtt.connection_state import ConnectionState
from leadsman_rigs.byte_broker import Peer

CLOSE = -1
"""A judge's answer: close the connection."""
SILENCE = -2
"""A judge's answer: take the message, and do not acknowledge it."""
Judge = Callable[[mqtt5.PublishPacket], int]


def judging(judge: Judge, **connack: object) -> Callable[[Peer], None]:
    """A broker that answers each message as `judge` says: with a reason code, `CLOSE` or `SILENCE`."""

    def behave(peer: Peer) -> None:
        greet(peer, **connack)
        while True:
            packet = peer.packet()
            if not isinstance(packet, mqtt5.PublishPacket):
                peer.answer(packet)
                continue
            code = judge(packet)
            if code == CLOSE:
                return
            if code < 0x80:
                peer.messages.append((packet.topic, packet.payload))
            if packet.packet_id is not None and code != SILENCE:
                peer.send(b"\x40\x03" + packet.packet_id.to_bytes(2, "big") + bytes([code]))

    return behave


def refusing(code: int, times: list[float], **connack: object) -> Callable[[Peer], None]:
    """A broker that answers CONNECT with a refusal, and notes when."""

    def behave(peer: Peer) -> None:
        peer.sock.recv(1000)
        times.append(time.monotonic())
        peer.send(mqtt5.ConnAckPacket(reason_code=mqtt5.ConnAckReasonCode(code), **connack))

    return behave


def reading(packet: mqtt5.PublishPacket) -> tuple[str, int]:
    """The device and the number of a reading; ``("", 0)`` for other messages."""
    levels = packet.topic.split("/")
    return (levels[1], json.loads(packet.payload)["n"]) if levels[-1] == "state" else ("", 0)


@row("5", P0, "the broker takes messages, and its PUBACKs are lost", "sends them again, with the same time and number")
def lost_acknowledgements(stand: Stand) -> None:
    packets: list[mqtt5.PublishPacket] = []
    unanswered = 0

    def mute(packet: mqtt5.PublishPacket) -> int:
        nonlocal unanswered
        packets.append(packet)
        unanswered += len(packets) > 15
        return (CLOSE if unanswered > 5 else SILENCE) if unanswered else 0

    def answer(packet: mqtt5.PublishPacket) -> int:
        packets.append(packet)
        return 0

    broker = stand.faulty(judging(mute), judging(answer))
    app = stand.app(broker.url, "meters(5, 0.1)")
    stand.until(lambda: broker.connections >= 2 and stand.tally.came >= 50, "50 readings")
    stand.arrive(app)
    stand.order(duplicates=WINDOW)
    versions: dict[tuple[str, int], set[tuple[bytes, tuple[tuple[str, str], ...]]]] = {}
    for packet in packets:
        if reading(packet)[0]:
            properties = tuple(each for each in packet.user_properties if each[0] != "replayed")
            versions.setdefault(reading(packet), set()).add((packet.payload, properties))
    stand.figure("duplicates that differ", sum(len(each) > 1 for each in versions.values()), most=0)
    stand.expect(stand.tally.duplicates, "nothing was sent twice, so nothing was tested")
    stand.stop(app)


@row("6", P0, "PUBACK 0x80, 0x83, 0x91, 0x97: refused for now", "keeps the message; other topics go on")
def refused_for_now(stand: Stand) -> None:
    codes, refused = {"d0": 0x80, "d1": 0x83, "d2": 0x91, "d3": 0x97}, Counter[str]()

    def judge(packet: mqtt5.PublishPacket) -> int:
        device, number = reading(packet)
        if device in codes and number >= 3 and refused[device] < 2:
            refused[device] += 1
            return codes[device]
        return 0

    app = stand.app(stand.faulty(judging(judge)).url, "meters(6, 0.5)")
    stand.until(lambda: min(refused[each] for each in codes) == 2, "two refusals of each topic")
    stand.until(lambda: all(len(stand.tally.numbers[f"d{n}"]) >= 8 for n in range(6)), "8 readings of each device")
    stand.arrive(app)
    stand.figure("refusals", refused.total())
    stand.figure("connections", app.log.count(CONNECTED), most=1)
    stand.order(duplicates=0)
    stand.stop(app)


@row("7", P0, "PUBACK 0x90, 0x95, 0x99: refused for good", "drops that message and reports it; the queue moves on")
def refused_for_good(stand: Stand) -> None:
    codes = {"d0": 0x90, "d1": 0x95, "d2": 0x99}

    def judge(packet: mqtt5.PublishPacket) -> int:
        device, number = reading(packet)
        return codes[device] if number == 3 and device in codes else 0

    app = stand.app(stand.faulty(judging(judge)).url, "meters(5, 0.2)")
    stand.until(lambda: all(len(stand.tally.numbers[f"d{n}"]) >= 8 for n in range(5)), "8 readings of each device")
    stand.until(lambda: dropped(stand) >= 3, "the heartbeat counts them")
    taken, refused = app.taken(time.time() - 1), {"d0": {3}, "d1": {3}, "d2": {3}}
    began = time.monotonic()
    while (missing := stand.tally.lost(taken)) != refused and time.monotonic() - began < BUSY:
        time.sleep(0.05)
    stand.figure("lost", sum(map(len, missing.values())), most=3, least=3)
    stand.expect(missing == refused, f"lost: {missing}")
    stand.figure("counted in the heartbeat", dropped(stand), most=3, least=3)
    stand.expect("refused it for good" in app.log, "the log does not say that the broker refused it")
    stand.stop(app)


@row("8", P0, "PUBACK 0x87: not authorised, for 5 s", "keeps the messages, names the topic, delivers them later")
def not_authorised(stand: Stand) -> None:
    since: list[float] = []
    refusals = 0

    def judge(packet: mqtt5.PublishPacket) -> int:
        nonlocal refusals
        if reading(packet)[0] != "d0" or (since and time.monotonic() - since[0] > 5):
            return 0
        since.append(time.monotonic())
        refusals += 1
        return 0x87

    app = stand.app(stand.faulty(judging(judge)).url, "meters(4, 0.2)")
    stand.until(lambda: since and time.monotonic() - since[0] > 4, "four seconds of refusals")
    stand.expect("The broker refuses messages to row/d0/state" in app.log, "the log does not name the topic")
    last = [json.loads(payload) for topic, payload in stand.heard if topic == "row/status"][-1]
    stand.expect(last["health"] == "degraded", f"the health is {last['health']}")
    others = len(stand.tally.numbers["d1"])
    stand.figure("readings of another device meanwhile", others, least=10)
    stand.figure("refusals", refusals, most=20)
    stand.until(lambda: stand.tally.numbers["d0"], "a reading of d0")
    stand.arrive(app)
    stand.figure("connections", app.log.count(CONNECTED), most=1)
    stand.stop(app)


@row("9", P0, "the broker closes the connection on one message", "drops it after 3 breaks, delivers the others")
def closed_on_one(stand: Stand) -> None:
    closed: list[float] = []

    def judge(packet: mqtt5.PublishPacket) -> int:
        if reading(packet) != ("d0", 5):
            return 0
        closed.append(time.monotonic())
        return CLOSE

    app = stand.app(stand.faulty(judging(judge)).url, "meters(6, 0.2)")
    stand.until(lambda: closed, "a break")
    stand.until(lambda: len(stand.tally.numbers["d0"]) >= 10, "the readings of d0 go on")
    stand.figure("breaks", len(closed), most=5)
    stand.figure("until it was dropped", time.monotonic() - closed[0], "s", most=40)
    stand.until(lambda: dropped(stand) >= 1, "the heartbeat counts it")
    expected = app.taken(time.time() - 1)
    stand.until(lambda: not stand.tally.lost({**expected, "d0": expected["d0"] - {5}}), "all others")
    stand.figure("lost", sum(map(len, stand.tally.lost(expected).values())), most=1, least=1)
    stand.figure("counted in the heartbeat", dropped(stand), most=1, least=1)
    stand.expect("row/d0/state" in app.log, "the log does not name the topic")
    stand.expect("another client" not in app.log, "the log blames another client")
    stand.stop(app)


@row("10", P0, "a message is larger than the broker's Maximum Packet Size", "is not sent, and is reported")
def too_large(stand: Stand) -> None:
    largest = 0

    def judge(packet: mqtt5.PublishPacket) -> int:
        nonlocal largest
        largest = max(largest, len(packet.payload))
        return 0

    code = "app.add_telemetry('d0', Meter('d0', lambda n: 6000 * (n % 5 == 0)), interval=0.1)\n"
    code += "for n in range(1, 4): app.add_telemetry(f'd{n}', Meter(f'd{n}'), interval=0.1)"
    broker = stand.faulty(judging(judge, max_packet_size=5000))
    app = stand.app(broker.url, code)
    stand.until(lambda: len(stand.tally.numbers["d0"]) >= 24, "24 readings of d0")
    time.sleep(2)
    expected = app.taken(time.time() - 1.5)
    wanted = {each for each in expected["d0"] if each % 5 == 0}
    found = stand.tally.lost(expected)
    stand.expect(found == {"d0": wanted}, f"{found} were lost, and {wanted} were too large")
    stand.figure("lost and not counted", max(0, len(wanted) - dropped(stand)), most=0)
    stand.figure("counted in the heartbeat", dropped(stand), least=4)
    stand.figure("largest payload that was sent", largest, "bytes", most=5000)
    stand.figure("connections", broker.connections, most=1)
    stand.stop(app)


@row("25", P0, "CONNECT is refused: bad user name or password", "tries again after 5, 10, 20 s, and says why")
def bad_password(stand: Stand) -> None:
    times: list[float] = []
    app = stand.app(stand.faulty(refusing(0x86, times), refusing(0x87, times), good).url, "meters(3, 0.5)")
    stand.until(lambda: stand.tally.came, "a reading")
    gaps = [times[1] - times[0], time.monotonic() - times[1]]
    stand.figure("first wait", gaps[0], "s", least=3.5)
    stand.figure("second wait", gaps[1], "s", least=7)
    stand.expect("bad user name or password" in app.log, "the log does not say why")
    stand.arrive(app)
    stand.order(duplicates=0)
    stand.stop(app)


@row("26", P0, "CONNECT is refused: busy, quota, rate, another server", "backs off with jitter; does not follow it")
def busy(stand: Stand) -> None:
    times: list[float] = []
    other = stand.faulty(good)
    elsewhere = refusing(0x9C, times, server_reference=other.address)
    refusals = [refusing(code, times) for code in (0x89, 0x97, 0x9F)]
    app = stand.app(stand.faulty(*refusals, elsewhere, *refusals, good).url, "meters(5, 0.2)")
    stand.until(lambda: stand.tally.came >= 30, "30 readings")
    stand.figure("attempts a second", (len(times) - 1) / max(0.1, times[-1] - times[0]), most=10)
    stand.figure("connections to the other server", other.connections, most=0)
    stand.arrive(app)
    stand.order(duplicates=0)
    stand.stop(app)
    session, now, waits = ConnectionState(), 0.0, []
    while now < 3600:
        session, wait = connection_state.refused(session, 0x89, now, 1.0)
        waits.append(wait)
        now += wait
    stand.figure("attempts in an hour", len(waits), most=240)
    stand.figure("longest wait", max(waits), "s", least=20)


@row("35", P1, "a small Receive Maximum", "never has more messages in flight")
def receive_maximum(stand: Stand) -> None:
    in_flight: list[int] = []
    most = 0

    def slow(peer: Peer) -> None:
        nonlocal most
        greet(peer, receive_max=3)
        peer.sock.settimeout(0.05)
        while True:
            try:
                packet = peer.packet()
            except TimeoutError:
                for number in in_flight:
                    peer.send(mqtt5.PubAckPacket(number))
                in_flight.clear()
                continue
            if isinstance(packet, mqtt5.PublishPacket) and packet.packet_id is not None:
                peer.messages.append((packet.topic, packet.payload))
                in_flight.append(packet.packet_id)
                most = max(most, len(in_flight))
            else:
                peer.answer(packet)

    app = stand.app(stand.faulty(slow).url, "meters(5, 0.2)")
    stand.until(lambda: stand.tally.came >= 60, "60 readings")
    stand.figure("in flight at most", most, most=3, least=2)
    stand.arrive(app, BUSY + 20)
    stand.stop(app)
