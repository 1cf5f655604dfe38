"""Nodes in a network of their own, which is cut off from the engine and the broker, and joined again."""

import json
import time
from contextlib import ExitStack

from fault_matrix.cluster import FENCED, INTERVAL, LATE, LEASE, METERS, House
from fault_matrix.network import lossy
from fault_matrix.row import NETWORK, P1, row
from fault_matrix.stand import Stand
from fault_matrix.standby import ACTIVE, node, polls, publishes, takes_over
from leadsman.testing.mosquitto import free_port
from leadsman_rigs.lossy_road import LossyRoad
from leadsman_rigs.nats_server import NatsServer

CUT = 3 * LEASE
"""Seconds for which the network is cut."""
AFTER = 10.0
"""Seconds after it is joined again, in which what the node had under way would arrive."""


class DividedHouse(House):
    """The second node is at the other end of a road; engine, broker and the other nodes are at this one."""

    def __init__(self, stand: Stand, parts: ExitStack, road: LossyRoad) -> None:
        self.road, self.port = road, free_port()
        engine = parts.enter_context(NatsServer(host="0.0.0.0"))
        self.engine = f"nats://{road.here}:{engine.port}"
        super().__init__(stand, parts, engine.url)

    def _broker(self, stand):
        return stand.broker(f"listener {self.port} {self.road.here}\n")

    def _node(self, name, engine, **cluster):
        if name != "two":
            return super()._node(name, engine, **cluster)
        url = f"mqtt://{self.road.here}:{self.port}"
        return self.road.there(lambda: self.stand.app(url, METERS, name, CLUSTER__ENGINE=self.engine, **cluster))


@row(
    "62g",
    P1,
    f"of three nodes of a cluster, one is cut off from engine and broker for {CUT:g} s",
    "it stops at 0.8 TTL of 3 s, the others take over, and nothing of it comes with an old token",
    NETWORK,
)
def node_cut_off(stand: Stand) -> None:
    with lossy(0.0) as road, ExitStack() as parts:
        house = DividedHouse(stand, parts, road)
        victim = house.jobs["two"]
        devices = house.read_by(victim, time.time() - 4 * INTERVAL)
        cut, road.loss = time.time(), 1.0
        taken_over = house.takes_over(house.others("two"), devices, cut)
        time.sleep(max(0.0, cut + CUT - time.time()))
        stand.figure("its devices", len(devices), least=1)
        stand.figure("its last poll after", max(at for _, at in house.polls(victim)) - cut, "s", most=FENCED)
        stand.figure("all are read after", taken_over, "s", most=LATE)
        before = len(house.heard)
        road.loss = 0.0
        stand.figure("it has devices again after", stand.until(house.shared, "it has its part again"), "s")
        time.sleep(AFTER)
        stand.figure(
            "of what came then, read before", sum(at < cut + FENCED for _, _, at, _ in house.heard[before:]), most=0
        )
        house.account()


@row(
    "61d",
    P1,
    f"of two nodes, the active one is cut off from the broker for {CUT:g} s",
    "it stops at 0.8 TTL of 3 s, the other one takes over, and nothing of the first one comes",
    NETWORK,
)
def active_cut_off(stand: Stand) -> None:
    with lossy(0.0) as road:
        port = free_port()
        broker = stand.broker(f"listener {port} {road.here}\n")
        stand.listen(broker.port)
        active = road.there(lambda: node(stand, f"mqtt://{road.here}:{port}", "one"))
        stand.until(lambda: ACTIVE in active.log and publishes(stand, active), "a node is active")
        standby = node(stand, broker.url, "two")
        stand.until(lambda: "stands by for" in standby.log, "a node stands by")
        cut, road.loss = time.time(), 1.0
        takes_over(stand, standby, cut)
        time.sleep(max(0.0, cut + CUT - time.time()))
        stand.figure("its last poll after", max(polls(active)) - cut, "s", most=FENCED)
        stand.expect(max(polls(active)) <= min(polls(standby, cut)), "both polled at once")
        known, before = len(polls(active)), len(stand.heard)
        road.loss = 0.0
        stand.until(lambda: "stands by for" in active.log, "it stands by")
        time.sleep(AFTER)
        came = [json.loads(payload)["at"] for topic, payload in stand.heard[before:] if topic.endswith("/state")]
        stand.figure("its polls after it was joined", len(polls(active)) - known, most=0)
        stand.figure("readings then", len(came), least=20)
        stand.figure("of these, read before", sum(at < cut + FENCED for at in came), most=0)
        for job in (active, standby):
            stand.stop(job)
