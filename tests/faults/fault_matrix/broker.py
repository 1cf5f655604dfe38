"""The broker goes away: it is killed, frozen, not there yet, or comes back without what it kept."""

import random
import time

from benchmarks.ear import Ear

from fault_matrix.row import P0, P1, P2, row
from fault_matrix.stand import Stand, dropped
from leadsman.core.introspection.retained import FIRST_AHEAD
from leadsman.core.mqtt import connection_state
from leadsman.core.mqtt.connection_state import ConnectionState

WINDOW = 20
"""Messages that may be in flight when a connection breaks; each may be sent twice. See docs/adr/delivery.md."""
FIVE = "meters(5, 0.1)"


@row("1", P0, "the broker is killed (-9) and started again, 3 times", "reconnects with jitter, resumes the queue")
def killed(stand: Stand) -> None:
    broker = stand.broker()
    proxy = stand.proxy(broker.port)
    stand.listen(broker.port)
    app = stand.app(proxy.url, FIVE)
    waits = []
    for _ in range(3):
        came = stand.tally.came
        stand.until(lambda came=came: stand.tally.came >= came + 20, "20 readings")
        stand.kill_broker(broker, proxy, 0.7)
        came = stand.tally.came
        waits.append(stand.until(lambda came=came: stand.tally.came > came, "a reading"))
    stand.arrive(app)
    stand.figure("first reading after", max(waits), "s", most=10)
    stand.order(duplicates=3 * WINDOW)
    stand.stop(app)


@row("2", P0, "the broker is frozen (SIGSTOP) for 3 s", "rides it out on the same connection")
def frozen_shortly(stand: Stand) -> None:
    _frozen(stand, 3, connections=1)


@row("2b", P0, "the broker is frozen (SIGSTOP) for 13 s", "gives the connection up after 10 s, and connects anew")
def frozen_long(stand: Stand) -> None:
    _frozen(stand, 13, connections=2)


def _frozen(stand: Stand, seconds: float, connections: int) -> None:
    broker = stand.broker()
    stand.listen(broker.port)
    app = stand.app(broker.url, FIVE)
    stand.until(lambda: stand.tally.came >= 20, "20 readings")
    broker.freeze()
    began = time.monotonic()
    if connections > 1:
        stand.until(lambda: "No connection to the broker" in app.log, "the broker is given up")
        stand.figure("given up after", time.monotonic() - began, "s", most=30)
    time.sleep(max(0, began + seconds - time.monotonic()))
    broker.thaw()
    thawed = time.monotonic()
    connected = "connected to the broker"
    stand.until(lambda: app.log.count(connected) >= connections, "a connection")
    stand.arrive(app)
    stand.figure("all came after", time.monotonic() - thawed, "s", most=40)
    if connections == 1:
        stand.figure("connections", app.log.count(connected), most=1)
    stand.order(duplicates=WINDOW)
    stand.stop(app)


@row("30", P1, "the broker is not there at the start", "starts, keeps the readings, and its health shows that")
def late(stand: Stand) -> None:
    broker = stand.broker()
    proxy = stand.proxy(broker.port)
    stand.lead_nowhere(proxy)
    stand.listen(broker.port)
    app = stand.app(proxy.url, FIVE)
    stand.until(lambda: app.readings >= 50, "50 readings are taken")
    stand.expect("No connection to the broker" in app.log, "the log does not say that there is no connection")
    proxy.target = broker.port
    stand.figure("first reading after", stand.until(lambda: stand.tally.came, "a reading"), "s", most=10)
    stand.arrive(app)
    stand.order(duplicates=0)
    stand.stop(app)


@row("36", P1, "the broker comes back without what it had kept", "publishes all that is retained anew, within 5 s")
def forgetful(stand: Stand) -> None:
    broker = stand.broker()
    app = stand.app(broker.url, "meters(5, '1h')")
    stand.until(lambda: len(_lasting(broker.port)) >= 12, "states, availability, status and registry are kept")
    before = _lasting(broker.port)
    broker.kill()
    broker.start()
    stand.until(lambda: app.log.count("connected to the broker") >= 2, "a connection")
    time.sleep(5)
    stand.figure("retained before", len(before), least=12)
    gone = sorted(before - _retained(broker.port))
    stand.figure("missing 5 s after the connection", len(gone), most=0)
    stand.expect(not gone, f"missing: {', '.join(gone[:6])}{' …' if len(gone) > 6 else ''}")
    stand.stop(app)


def _lasting(port: int) -> set[str]:
    """Those without the page of what is about to be published, which goes when the registry is there."""
    return _retained(port) - {f"row/registry/{FIRST_AHEAD}"}


def _retained(port: int) -> set[str]:
    """The topics that the broker has kept a message of."""
    ear = Ear(port, ("#",))
    time.sleep(0.3)
    ear.close()
    return {heard.topic for heard in ear.heard if heard.retained}


@row("56", P2, "50 apps reconnect together", "full jitter: fewer than a fifth within any 100 ms")
def herd(stand: Stand) -> None:
    dice, shares = random.Random(1), []
    for _ in range(100):
        times = []
        for _ in range(50):
            _, wait = connection_state.failed(ConnectionState(connected_at=0.0), 100.0, dice.random())
            times.append(wait)
        shares.append(max(sum(at <= other < at + 0.1 for other in times) for at in times) / len(times))
    shares.sort()
    stand.figure("largest share within 100 ms, median of 100 breaks", shares[50] * 100, "%", most=20)
    stand.figure("worst of 100 breaks", shares[-1] * 100, "%")


@row("43", P1, "more readings wait than the outbox holds", "drops the oldest, and counts each of them")
def full(stand: Stand) -> None:
    broker = stand.broker()
    proxy = stand.proxy(broker.port)
    stand.listen(broker.port)
    app = stand.app(proxy.url, "meters(40, 0.02)", OUTBOX__DURABILITY="memory")
    stand.until(lambda: stand.tally.came >= 40, "readings")
    stand.lead_nowhere(proxy)
    stand.until(lambda: "dropped so far" in app.log, "something is dropped")
    time.sleep(1)
    proxy.target = broker.port
    stand.until(lambda: app.log.count("connected to the broker") >= 2, "a connection")
    expected = app.taken()
    stand.until(lambda: dropped(stand) and _settled(stand, expected), "the heartbeat agrees with what came")
    lost = sum(map(len, stand.tally.lost(expected).values()))
    stand.figure("taken", sum(map(len, expected.values())))
    stand.figure("dropped and counted", dropped(stand), least=1)
    stand.figure("lost and not counted", max(0, lost - dropped(stand)), most=0)
    stand.stop(app)


def _settled(stand: Stand, expected: dict[str, set[int]]) -> bool:
    return sum(map(len, stand.tally.lost(expected).values())) <= dropped(stand)
