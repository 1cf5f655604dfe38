"""Where the CPU of a reading goes, by cause: the stack of the job, looked at at random moments."""

import json
import subprocess

from benchmarks import bare_python, measures
from benchmarks.rows import NONE, Row, note
from leadsman.testing import Mosquitto

RATES = (200, 1000)
DEVICES, SECONDS = 200, 20.0


def causes(_: int) -> list[Row]:
    """The rows: microseconds of CPU of a reading, and their share."""
    rows = []
    for rate in RATES:
        note(f"causes of CPU at {rate:,} readings/s")
        with Mosquitto() as broker:
            words = (str(broker.port), str(DEVICES), str(DEVICES / rate), str(SECONDS))
            command = [bare_python.executable(), "-m", "benchmarks.causes_job", *words]
            done = subprocess.run(
                command, cwd=measures.ROOT, env=measures.with_state(), capture_output=True, text=True, check=True
            )
        found = json.loads(done.stdout)
        readings, cpu = rate * SECONDS, found["cpu"]
        name = f"CPU of a reading, {DEVICES} devices, {rate:,}/s"
        rows.append(Row(name, NONE, _micro(cpu / readings), ratio="100 %"))
        for cause, taken in found["causes"].items():
            rows.append(Row(f"… {cause}", NONE, _micro(taken / readings), ratio=f"{taken / cpu:.0%}"))
        rows.append(Row("… wake-ups of the process", NONE, f"{found['wakeups']:.0f}/s"))
    return rows


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} µs"
