"""Random faults of a cluster: nodes are killed, stopped, cut off and restarted, clocks are set, and the engine is
away. A schedule is a function of its dice, so that a bad one can be run again."""

from leadsman.extensions.nodes.lease.lease import Terms
from leadsman_rigs.memory_engine import ClockStep, EngineAway, Partition, Pause
from leadsman_rigs.virtual_cluster import Run

TERMS = Terms("house", ttl=15.0, shards=32)
DEVICES = {f"meter-{number}": () for number in range(200)}
NODES = ("a", "b", "c", "d")
AWAY = 600.0
"""Seconds that the engine may be away."""
BETWEEN = (1.0, 60.0)
"""Seconds from one fault to the next, so that many of them meet."""
QUIET = 4 * TERMS.ttl
"""Seconds before the first fault, and after the last one."""
KINDS = ("kill", "end", "pause", "cut", "cut answers", "clock", "engine away", "rolling restart")


def schedule(dice):
    """The runs of the nodes, what goes wrong besides, and the seconds that it takes, as `simulate` wants them."""
    at, end, runs, faults = QUIET, QUIET, [], []
    starts = dict.fromkeys(NODES, 0.0)

    def restart(node, at, pause, *, killed):
        """End a node that runs by then, and start it again. Returns when."""
        if at <= starts[node]:
            return at
        runs.append(Run(node, starts[node], at, killed=killed))
        starts[node] = at + pause
        return starts[node]

    for _ in range(dice.randint(1, 10)):
        kind, node, length = dice.choice(KINDS), dice.choice(NODES), dice.uniform(0.1, 4 * TERMS.ttl)
        until = at + length
        if kind in ("kill", "end"):
            until = restart(node, at, length, killed=kind == "kill")
        elif kind == "pause":
            faults.append(Pause(node, at, until))
        elif kind in ("cut", "cut answers"):
            faults.append(Partition(node, at, until, answers_only=kind == "cut answers"))
        elif kind == "clock":
            faults.append(ClockStep(at, dice.choice((-3600.0, 3600.0)), node))
        elif kind == "engine away":
            until = at + dice.choice((length, AWAY))
            faults.append(EngineAway(at, until))
        else:
            for number, each in enumerate(NODES):
                until = restart(each, at + 10.0 * number, 5.0, killed=False)
        end = max(end, until)
        at += dice.uniform(*BETWEEN)
    runs += [Run(node, start) for node, start in starts.items()]
    return runs, faults, max(end, at) + QUIET
