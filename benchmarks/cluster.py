"""Clusters in virtual time: how long devices wait for a node that works, and how evenly they lie. The nodes are the
real ones, on leases in memory."""

import random
import time

from benchmarks.rows import NONE, Row, note
from leadsman.extensions.nodes.lease.lease import Terms
from leadsman_rigs.memory_engine import Partition
from leadsman_rigs.virtual_cluster import Drain, History, Run, simulate

DEVICES: dict[str, tuple[str, ...]] = {f"meter-{number}": () for number in range(10_000)}
SHARDS = 256
HOUR, DAY = 3600.0, 86_400.0


def one_dies() -> list[Row]:
    """10,000 devices on four nodes, one of which is killed; at the default TTL."""
    note("10,000 devices on four nodes, one of which dies")
    terms = Terms("farm", ttl=15.0, shards=SHARDS)
    gaps, rounds, parts = [], 20, []
    for number in range(rounds):
        end = 60.0 + number * terms.ttl / 4 / rounds  # at each phase of the renewals
        runs = [Run("n0", 0.0, end), *(Run(f"n{other}", 0.2 * other) for other in (1, 2, 3))]
        history = simulate(DEVICES, runs, terms, 120.0)
        gaps.append(max(history.gaps(30.0).values()))
        parts = [len(keys) for keys in history.at_work(119.0).values()]
    name = "10,000 devices on 4 nodes, one is killed: all have a node again"
    return [
        Row(name, NONE, f"{min(gaps):.1f} to {max(gaps):.1f} s", wanted="≤ 22.5 s (1.5 TTL)"),
        Row("… shards of the other three", NONE, " ".join(map(str, sorted(parts))), wanted="within 10 %"),
    ]


def one_drains() -> list[Row]:
    """10,000 devices on four nodes, one of which drains for half a minute."""
    note("10,000 devices on four nodes, one of which drains")
    runs = [Run(f"n{number}", 0.2 * number) for number in range(4)]
    history = simulate(DEVICES, runs, Terms("farm", ttl=15.0, shards=SHARDS), 120.0, [Drain("n1", 60.0, 90.0)])
    longest = max(history.gaps(30.0).values())
    return [
        Row(
            "… one is drained, and takes part again: longest without a node", NONE, f"{longest:.2f} s", wanted="≤ 0.1 s"
        )
    ]


def a_day() -> list[Row]:
    """A day of 50 nodes: each hour one is killed and comes back, one is cut off; at noon all are restarted in turn."""
    note("a day of 50 nodes, 10,000 devices")
    terms = Terms("farm", ttl=60.0, shards=SHARDS)
    runs, faults = schedule(random.Random(7))
    before = time.process_time()
    history = simulate(DEVICES, runs, terms, DAY, faults)
    took = time.process_time() - before
    gaps = sorted(history.gaps(terms.ttl).values())
    return [
        Row("a day of 50 nodes with 24 kills, 24 partitions and a rolling restart: to simulate", NONE, f"{took:.0f} s"),
        Row("… two nodes at one device", NONE, f"{len(history.overlaps())} times", wanted="0"),
        Row(
            "… longest time without a node, median of shards, most",
            NONE,
            f"{gaps[128]:.1f}, {gaps[-1]:.1f} s",
            wanted="≤ 90 s",
        ),
        Row("… without a node, of all the time", NONE, f"{idle(history, terms.ttl):.4%}"),
    ]


def schedule(dice: random.Random) -> tuple[list[Run], list[Partition]]:
    """What happens in the day."""
    nodes = [f"n{number}" for number in range(50)]
    starts = dict.fromkeys(nodes, 0.0)
    runs: list[Run] = []
    faults: list[Partition] = []
    for hour in range(24):
        killed, cut = dice.sample(nodes, 2)
        at = hour * HOUR + dice.uniform(600.0, 1200.0)
        runs.append(Run(killed, starts[killed], at))
        starts[killed] = at + dice.uniform(10.0, 600.0)
        begin = hour * HOUR + dice.uniform(1900.0, 2500.0)
        faults.append(Partition(cut, begin, begin + dice.uniform(5.0, 300.0)))
        if hour == 12:
            for number, node in enumerate(nodes):
                end = hour * HOUR + 2850.0 + 10.0 * number
                runs.append(Run(node, starts[node], end, killed=False))
                starts[node] = end + 5.0
    return [*runs, *(Run(node, start) for node, start in starts.items())], faults


def idle(history: History, start: float) -> float:
    """Which part of the time of all shards nobody worked."""
    worked = sum(max(0.0, work.end - max(work.start, start)) for work in history.works)
    return float(1.0 - worked / (SHARDS * (history.seconds - start)))


def clusters(_: int) -> list[Row]:
    """The rows of the table."""
    return [*one_dies(), *one_drains(), *a_day()]
