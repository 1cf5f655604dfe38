"""Which policy for which device: how soon it is read again after an outage, and what the outage costs. In virtual time.

A device fails again and again, each time just before a poll and for a random while, and recovers for three intervals.
The whole app is simulated, with the broker in memory; dice are seeded, so the numbers are the same on every machine.
"""

import itertools
import random
import statistics
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, NamedTuple

from leadsman import UNTIL_NEXT_POLL, App, CircuitBreaker
from leadsman.core.loop.durations import human
from leadsman.core.resilience.policy import exponential
from leadsman.testing import Harness, Outages

INTERVALS = (30.0, 60.0, 1500.0, 7200.0)
OUTAGES = 60
SEED = 20
POLICIES: Mapping[str, dict[str, Any]] = {
    "no retry": {},
    "`retry=3`": {"retry": 3},
    '`retry=3, overrun="finish"`': {"retry": 3, "overrun": "finish"},
    "`retry=UNTIL_NEXT_POLL`": {"retry": UNTIL_NEXT_POLL},
    "until the next poll, cap 5 min": {"policy": exponential("2s", cap="5m").jitter(0.2)},
    "`retry=UNTIL_NEXT_POLL`, breaker": {"retry": UNTIL_NEXT_POLL, "circuit_breaker": CircuitBreaker(3)},
    "`retry=3`, breaker": {"retry": 3, "circuit_breaker": CircuitBreaker(3)},
    "`retry=3`, breaker, `recovery=0`": {"retry": 3, "circuit_breaker": CircuitBreaker(3, recovery=0)},
}


class Recovery(NamedTuple):
    """Seconds from the end of an outage to the first reading; calls per hour of outage; the largest gap between two
    calls."""

    mean: float
    p95: float
    longest: float
    calls_per_hour: float
    gap: float


def measured(interval: float, words: Mapping[str, Any], longest: float, outages: int = OUTAGES) -> Recovery:
    """Simulate one device and policy through outages of up to `longest` seconds."""
    dice, spans, at = random.Random(SEED), [], 3 * interval
    for _ in range(outages):
        begin = at - 0.5  # just before a poll: an outage that nobody notices costs nothing
        end = begin + dice.uniform(0, longest)
        spans.append((begin, end))
        at = (end // interval + 4) * interval
    device = Outages({"t": 21.5}, spans)
    random.seed(SEED)
    app = App("bench")
    app.add_telemetry("d", device, interval=interval, stale_after=1e9, **words)
    with Harness(app) as harness:
        harness.run(at)
    calls, answered = device.calls, device.answered
    waits = [answered[bisect_left(answered, end)] - end for _, end in spans]
    inside = [calls[bisect_left(calls, begin) : bisect_left(calls, end)] for begin, end in spans]
    gaps = [later - earlier for each in inside for earlier, later in itertools.pairwise(each)]
    hours = sum(end - begin for begin, end in spans) / 3600
    return Recovery(
        statistics.fmean(waits),
        statistics.quantiles(waits, n=20)[-1],
        max(waits),
        sum(map(len, inside)) / hours,
        max(gaps, default=0.0),
    )


def table(longest: Mapping[float, float]) -> list[str]:
    """A table in Markdown: for each interval the longest outage in seconds."""
    lines = [
        "| policy | " + " | ".join(f"every {human(interval)}" for interval in longest) + " |",
        "|---|" + "---|" * len(longest),
    ]
    for name, words in POLICIES.items():
        cells = []
        for interval, most in longest.items():
            found = measured(interval, words, most)
            waits = " / ".join(_short(value) for value in (found.mean, found.p95, found.longest))
            cells.append(f"{waits} · {found.calls_per_hour:.3g} · {_short(found.gap)}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def report() -> str:
    """Both tables, as they stand in benchmarks/recovery.md."""
    short = table(dict.fromkeys(INTERVALS, 14.0))
    long = table({interval: 3 * interval for interval in INTERVALS})
    return "\n".join(["Outages of up to 14 s:", "", *short, "", "Outages of up to three intervals:", "", *long])


def _short(seconds: float) -> str:
    return f"{seconds:.3g}" if seconds < 1000 else f"{seconds:.0f}"


if __name__ == "__main__":
    print(report())
