"""Random faults of the nodes of a cluster and of its engine, in virtual time.

``make faults ARGS="62f --schedules 2000 --seed 7"`` tries more of them.
"""

import random

from tests.extensions.nodes.cluster.schedules import DEVICES, NODES, TERMS, schedule

from fault_matrix.row import P1, row
from fault_matrix.stand import Stand
from fault_matrix.standby import SCHEDULES, SEED
from leadsman_rigs.virtual_cluster import simulate

BEAT = 1.0
"""Seconds between two messages of a node for each of its shards."""


@row(
    "62f",
    P1,
    f"{SCHEDULES} random schedules of faults of four nodes and their engine",
    "no device has two nodes, and a node that was fenced publishes nothing",
)
def cluster_schedules(stand: Stand) -> None:
    dice = random.Random(SEED)
    overlaps, late, sent, faults, falls, alone = 0, 0, 0, 0, 0, 0
    for _ in range(SCHEDULES):
        runs, others, seconds = schedule(dice)
        history = simulate(DEVICES, runs, TERMS, seconds, others, BEAT)
        faults += len(runs) - len(NODES) + len(others)
        overlaps += len(history.overlaps())
        falls += len(history.token_falls())
        late += len(history.sent_late())
        sent += len(history.sent)
        alone += TERMS.shards - sum(map(len, history.at_work(seconds - 0.01).values()))
    stand.figure("faults", faults, least=SCHEDULES)
    stand.figure("messages", sent, least=SCHEDULES)
    stand.figure("two nodes at one device", overlaps, "times", most=0)
    stand.figure("tokens that fell", falls, most=0)
    stand.figure("messages of a node that was fenced", late, most=0)
    stand.figure("shards without a node at the end", alone, most=0)
