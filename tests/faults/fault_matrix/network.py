"""The network between the app and the broker: half-open, flapping, slow, silent."""

import contextlib
import json
import time
from collections.abc import Iterator

import psutil

from fault_matrix.broker import FIVE, WINDOW
from fault_matrix.row import NETWORK, P0, P1, Absent, row
from fault_matrix.stand import Stand, good, greet
from leadsman.core.mqtt.send_window import PUBACK_TIMEOUT
from leadsman.testing.mosquitto import free_port
from leadsman_rigs.byte_broker import Peer
from leadsman_rigs.lossy_road import LossyRoad, NoRoad

LOST = "No connection to the broker"
CONNECTED = "connected to the broker"
SOON = 5
"""Seconds of keep-alive that a broker asks for; by itself the app takes 15."""
LOSING = 20.0
"""Seconds for which packets are lost."""
BUSY = 20.0
"""Seconds that a busy machine may add to a timeout before it counts as missed."""


@row("3", P0, "a half-open connection while readings are published", "gives it up at the timeout of the PUBACK, 10 s")
def half_open(stand: Stand) -> None:
    broker = stand.broker()
    proxy = stand.proxy(broker.port)
    stand.listen(broker.port)
    app = stand.app(proxy.url, FIVE)
    stand.until(lambda: stand.tally.came >= 20, "20 readings")
    proxy.stall()
    noticed = stand.until(lambda: LOST in app.log, "the loss is noticed")
    stand.figure("noticed after", noticed, "s", most=PUBACK_TIMEOUT + BUSY)
    proxy.cut()
    proxy.resume()
    stand.until(lambda: app.log.count(CONNECTED) >= 2, "a connection")
    stand.arrive(app)
    stand.order(duplicates=WINDOW)
    stand.stop(app)


@row("4", P0, "a half-open connection on which nothing is published", "notices it within twice the keep-alive")
def half_open_and_idle(stand: Stand) -> None:
    def asks_for_signs_of_life(peer: Peer) -> None:
        greet(peer, server_keep_alive=SOON)
        peer.serve()

    proxy = stand.proxy(int(stand.faulty(asks_for_signs_of_life).address.split(":")[1]))
    app = stand.app(proxy.url, "app = App('row', mqtt=os.environ['URL'], heartbeat=3600)\nmeters(1, '1h')")
    stand.until(lambda: stand.tally.came, "a reading")
    time.sleep(1)
    proxy.stall()
    noticed = stand.until(lambda: LOST in app.log, "the loss is noticed")
    stand.figure(f"with a keep-alive of {SOON} s noticed after", noticed, "s", most=2 * SOON + BUSY)
    proxy.cut()
    proxy.resume()
    stand.figure("connected after", stand.until(lambda: app.log.count(CONNECTED) >= 2, "a connection"), "s")
    stand.arrive(app)
    stand.stop(app)


@row("12", P0, "the broker disconnects right after CONNACK", "notices it at once and connects again")
def cut_after_connack(stand: Stand) -> None:
    times: list[float] = []

    def greet_and_leave(peer: Peer) -> None:
        times.append(time.monotonic())
        greet(peer)

    def stay(peer: Peer) -> None:
        times.append(time.monotonic())
        good(peer)

    broker = stand.faulty(greet_and_leave, stay)
    app = stand.app(broker.url, FIVE)
    stand.until(lambda: len(times) >= 2, "a second connection")
    stand.figure("connected again after", times[1] - times[0], "s", most=5)
    stand.until(lambda: stand.tally.came >= 20, "20 readings")
    stand.arrive(app)
    stand.stop(app)


@row("27", P1, "no CONNACK, or garbage instead of one, 15 times", "closes each socket; nothing grows")
def no_connack(stand: Stand) -> None:
    def garbage(peer: Peer) -> None:
        peer.sock.recv(1000)
        peer.send(b"\x00\xff garbage")
        peer.hang()

    def silent(peer: Peer) -> None:
        peer.hang()

    broker = stand.faulty(*[garbage] * 8, silent, *[garbage] * 6, good)
    app = stand.app(broker.url, FIVE)
    stand.until(lambda: broker.connections >= 3, "3 connections")
    process = psutil.Process(app.process.pid)
    before = process.num_fds(), process.num_threads()
    stand.until(lambda: broker.connections >= 15, "15 connections")
    stand.figure("more descriptors", process.num_fds() - before[0], most=5)
    stand.figure("more threads", process.num_threads() - before[1], most=5)
    stand.until(lambda: stand.tally.came >= 50, "50 readings")
    stand.arrive(app)
    stand.stop(app)


@row("31", P1, "the connection is reset each half second, for 15 s", "fewer than 2 attempts a second")
def flapping(stand: Stand) -> None:
    broker = stand.broker()
    proxy = stand.proxy(broker.port)
    stand.listen(broker.port)
    app = stand.app(proxy.url, FIVE)
    stand.until(lambda: stand.tally.came >= 20, "20 readings")
    accepted, began = proxy.done.accepted, time.monotonic()
    while time.monotonic() - began < 15:
        time.sleep(0.5)
        proxy.cut()
    stand.figure("attempts a second", (proxy.done.accepted - accepted) / 15, most=2)
    stand.arrive(app)
    stand.order(duplicates=40 * WINDOW)
    stand.stop(app)


@contextlib.contextmanager
def lossy(loss: float) -> Iterator[LossyRoad]:
    """A road that loses packets."""
    with contextlib.ExitStack() as stack:
        try:
            road = stack.enter_context(LossyRoad(loss))
        except NoRoad as error:
            raise Absent(str(error)) from error
        yield road


@row(
    "33b",
    P1,
    "a network that loses 5 % of the packets, for 20 s",
    "all arrives, in order; live readings are late",
    NETWORK,
)
def loses_a_few(stand: Stand) -> None:
    _over_a_lossy_road(stand, 0.05)
    stand.order(duplicates=WINDOW)


@row("33c", P1, "a network that loses 20 % of the packets, for 20 s", "all arrives; live readings are late", NETWORK)
def loses_many(stand: Stand) -> None:
    _over_a_lossy_road(stand, 0.2)
    stand.figure("out of order", stand.tally.disordered)
    stand.figure("duplicates", stand.tally.duplicates)


def _over_a_lossy_road(stand: Stand, loss: float) -> None:
    """Five devices, and a broker at the other end of the road; the subscriber is there, too."""
    with lossy(loss) as road:
        port = free_port()
        broker = road.there(lambda: stand.broker(f"listener {port} {road.address}\n"))
        road.there(lambda: stand.listen(broker.port))
        app = stand.app(f"mqtt://{road.address}:{port}", FIVE)
        stand.until(lambda: stand.tally.came, "a reading")
        time.sleep(LOSING)
        stand.figure("age of the newest reading, on average", _age(stand), "s")
        stand.arrive(app)
        stand.figure("connections", app.log.count(CONNECTED))
        stand.figure("packets lost", road.lost, least=1)
        stand.stop(app)


def _age(stand: Stand) -> float:
    """Seconds since the newest readings of each device were taken that have come, over a second."""
    ages = []
    for _ in range(10):
        newest = {topic: json.loads(payload)["at"] for topic, payload in list(stand.heard) if topic.endswith("/state")}
        ages += [time.time() - at for at in newest.values()]
        time.sleep(0.1)
    return sum(ages) / len(ages)
