"""What plain ``def`` handlers that block cost each other: 50 of them, 5 of which hang for good."""

import json
import signal
import statistics
import subprocess
import time

from benchmarks import bare_python
from benchmarks.measures import ROOT, with_state
from benchmarks.plain_job import HANDLERS
from benchmarks.rows import NONE, Row, note, written
from leadsman.testing import Mosquitto

HANGING = 5
MEASURED = 20.0
"""Seconds."""


def plain(times: int) -> list[Row]:
    """The rows of plain handlers, with those of ``async def`` beside them."""
    note(f"{HANDLERS} plain handlers: {3 * times} times {MEASURED:.0f} s")
    runs = {
        name: [_run(*words) for _ in range(times)]
        for name, words in {
            "async": ("async", 0),
            "def": ("def", 0),
            "hanging": ("def", HANGING),
        }.items()
    }
    found = {name: {key: statistics.median(run[key] for run in each) for key in each[0]} for name, each in runs.items()}
    beside, quick, others = found["async"], found["def"], found["hanging"]
    more = quick["memory"] - beside["memory"]
    each = (others["memory"] - quick["memory"]) / HANGING * 1024
    kept = HANDLERS - HANGING
    return [
        Row(f"{HANDLERS} `def` handlers at 1 s that block 5 ms: threads", NONE, written(quick["threads"], "")),
        Row("… memory more than with `async def`", NONE, written(more, "MiB")),
        Row("… p99 lateness", NONE, written(quick["p99"] * 1e3, "ms")),
        Row(f"… {HANGING} of them hang: polls lost by the {kept} others", NONE, f"{others['lost']:.1%}", wanted="0"),
        Row(f"… p99 lateness of the {kept} others", NONE, written(others["p99"] * 1e3, "ms"), wanted="≤ 20 ms"),
        Row("… threads", NONE, written(others["threads"], "")),
        Row("… memory more for each that hangs", NONE, written(each, "KiB")),
    ]


def _run(kind: str, hanging: int) -> dict[str, float]:
    with Mosquitto() as broker:
        words = map(str, (broker.port, kind, hanging))
        process = subprocess.Popen(
            [bare_python.executable(), "-m", "benchmarks.plain_job", *words],
            cwd=ROOT,
            env=with_state(),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(MEASURED)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=10)
        measured: dict[str, float] = json.loads(output)
        return measured
