"""Where the CPU of a reading goes, by cause: the stack of the job, looked at once in each millisecond of its CPU."""

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
        each, total = found["cpu"] / (rate * SECONDS) * 1e6, sum(found["looks"].values())
        rows.append(Row(f"CPU of a reading, {DEVICES} devices, {rate:,}/s", NONE, f"{each:.0f} µs", ratio="100 %"))
        for cause, looks in sorted(found["looks"].items(), key=lambda item: -item[1]):
            rows.append(Row(f"… {cause}", NONE, f"{each * looks / total:.1f} µs", ratio=f"{looks / total:.0%}"))
        rows.append(Row("… wake-ups of the process", NONE, f"{found['wakeups'] / SECONDS:.0f}/s"))
    return rows
