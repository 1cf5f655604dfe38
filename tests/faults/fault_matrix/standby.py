"""One of two nodes that share an app dies or freezes; and random faults of nodes and broker in virtual time.

``make faults ARGS="61c --schedules 2000 --seed 7"`` tries more of them.
"""

import json
import os
import random
import signal
import time

from paho.mqtt import publish
from tests.extensions.nodes.standby.model import FAULTS, TTL, World, apply

from fault_matrix.row import P1, row
from fault_matrix.stand import Job, Stand

SCHEDULES = int(os.environ.get("FAULTS_SCHEDULES", "200"))
SEED = int(os.environ.get("FAULTS_SEED", "61"))
LEASE = 3.0
"""Seconds: the shortest TTL that an app accepts."""
LATE = 1.5 * LEASE + 2.0
"""Seconds until the other node polls; a busy machine may need two more."""
WAITS = (0.5, 1.0, 2.5, 5.0, 7.0, 12.0, 20.0)
"""Seconds between two faults of a schedule."""
ACTIVE = ", is active"


def node(stand: Stand, url: str, name: str) -> Job:
    """Start one of two nodes."""
    return stand.app(url, "meters(3, 0.1)", name, STANDBY__ENABLED="true", STANDBY__TTL=f"{LEASE:g}s")


def polls(job: Job, since: float = 0.0) -> list[float]:
    """When its devices were read from then on, seconds of `time.time`."""
    lines = job.ledger.read_text().splitlines() if job.ledger.exists() else []
    return [at for line in lines if (at := float(line.split()[2])) >= since]


def _pair(stand: Stand) -> tuple[Job, Job]:
    """One node that is active, and one that stands by."""
    broker = stand.broker()
    stand.listen(broker.port)
    active = node(stand, broker.url, "one")
    stand.until(lambda: ACTIVE in active.log and polls(active), "a node is active")
    standby = node(stand, broker.url, "two")
    stand.until(lambda: "stands by for" in standby.log, "a node stands by")
    return active, standby


def takes_over(stand: Stand, standby: Job, since: float) -> None:
    """Note the seconds from then on until this node polls."""
    stand.until(lambda: polls(standby, since), "the other node polls", 30)
    stand.figure("the other node polls after", min(polls(standby, since)) - since, "s", most=LATE)


@row("61", P1, "of two nodes, the active one is killed (-9), 3 times", "the other one polls within 1.5 TTL of 3 s")
def killed_node(stand: Stand) -> None:
    active, standby = _pair(stand)
    for _ in range(3):
        since = time.time()
        active.kill()
        takes_over(stand, standby, since)
        stand.expect(max(polls(active)) <= min(polls(standby, since)), "both polled at once")
        before = active.log.count("stands by for")
        active.start()
        stand.until(lambda active=active, before=before: active.log.count("stands by for") > before, "it stands by")
        active, standby = standby, active
    for job in (active, standby):
        stand.stop(job)


@row("61b", P1, "of two nodes, the active one is frozen (SIGSTOP), and goes on", "it neither polls nor publishes then")
def frozen_node(stand: Stand) -> None:
    active, standby = _pair(stand)
    active.process.send_signal(signal.SIGSTOP)
    since = time.time()
    takes_over(stand, standby, since)
    stand.until(lambda: publishes(stand, standby), "the other node publishes")
    frozen, heard = len(polls(active)), len(stand.heard)
    active.process.send_signal(signal.SIGCONT)
    stand.until(lambda: "stops polling, and stands by" in active.log, "it stands by")
    time.sleep(2 * LEASE)
    stand.figure("its polls after it went on", len(polls(active)) - frozen, most=0)
    late = [json.loads(payload)["at"] for topic, payload in stand.heard[heard:] if topic.endswith("/state")]
    stand.figure("readings meanwhile", len(late), least=20)
    stand.figure("its readings among them", sum(at <= since for at in late), most=0)
    stand.figure("takeovers", active.log.count(ACTIVE) + standby.log.count(ACTIVE), most=2)
    for job in (active, standby):
        stand.stop(job)


FORGED = (
    {"owner": "evil", "token": 2**53, "ttl_s": LEASE, "sent": 1},
    {"owner": "evil", "token": 2**53 - 1, "ttl_s": LEASE, "sent": 1},
    {"owner": "evil", "token": 10**400, "ttl_s": 1e300, "sent": float("nan")},
    [[]],
)
"""What anybody may publish as the lease."""


@row(
    "61e",
    P1,
    f"somebody else publishes a lease of a standby pair, {len(FORGED)} times",
    "one of the two goes on within two TTLs of 3 s",
)
def forged_lease(stand: Stand) -> None:
    broker = stand.broker()
    stand.listen(broker.port)
    nodes = [node(stand, broker.url, name) for name in ("one", "two")]
    stand.until(lambda: any(map(polls, nodes)), "a node is active")
    for lease in FORGED:
        time.sleep(LEASE)
        publish.single("row/lease", json.dumps(lease), 1, True, port=broker.port)
        since = time.time()
        time.sleep(0.5)
        stand.until(lambda since=since: any(polls(each, since + 0.5) for each in nodes), "one of them polls", 30)
        first = min(at for each in nodes for at in polls(each, since + 0.5))
        stand.figure("polled again after", first - since, "s", most=2 * LEASE + 2.0)
    for job in nodes:
        stand.stop(job)


def publishes(stand: Stand, job: Job) -> bool:
    """Whether a reading of this node came."""
    since = min(polls(job), default=time.time())
    states = [payload for topic, payload in list(stand.heard) if topic.endswith("/state")]
    return any(json.loads(payload)["at"] >= since for payload in states)


@row("61c", P1, f"{SCHEDULES} random schedules of faults of nodes and broker", "two nodes never act at the same time")
def schedules(stand: Stand) -> None:
    dice = random.Random(SEED)
    overlap, faults, handovers, idle = 0.0, 0, 0, 0
    for _ in range(SCHEDULES):
        codes, expires, timers_first = (dice.random() < 0.5 for _ in range(3))
        offsets = tuple(dice.uniform(-1e6, 1e6) for _ in range(3))
        world = World(dice.choice((2, 3)), codes=codes, expires=expires, timers_first=timers_first, offsets=offsets)
        world.run(20)
        for _ in range(dice.randint(1, 10)):
            apply(world, dice.choice(FAULTS), dice.randrange(3))
            world.run(dice.choice(WAITS))
            faults += 1
        world.fix()
        world.run(8 * TTL)
        overlap += world.overlap
        handovers += len(world.sessions)
        idle += len(world.acting) != 1
    stand.figure("faults", faults, least=SCHEDULES)
    stand.figure("sessions of the app", handovers, least=SCHEDULES)
    stand.figure("polls of two nodes at once", overlap, "s", most=0)
    stand.figure("schedules after which not exactly one node acts", idle, most=0)
