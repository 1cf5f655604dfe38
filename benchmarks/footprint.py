"""``python -m benchmarks footprint``: where the bytes of a further device are, by the lines that allocate them.

An app with 10 devices and one with 1,010 run for six seconds under tracemalloc, which counts the bytes that were asked
for. The difference of what lives then is divided by 1,000. The allocator of Python rounds up to 16 bytes, and keeps
pools that are not full: so the resident memory of a process grows by more.
"""

import asyncio
import gc
import json
import linecache
import subprocess
import sys
import tracemalloc
from collections import defaultdict
from pathlib import Path

FEW, MORE = 10, 1000
INTERVAL, SECONDS = 2.0, 6.0
MIN_BYTES = 8.0
"""Bytes per device of a line that is shown."""


def report() -> str:
    """The table, as Markdown."""
    from benchmarks import bare_python
    from benchmarks.measures import ROOT
    from leadsman.testing import Mosquitto

    found = []
    for devices in (FEW, FEW + MORE):
        with Mosquitto() as broker:
            command = [bare_python.executable(), "-m", "benchmarks.footprint", str(broker.port), str(devices)]
            said = subprocess.run(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, check=True).stdout
        found.append(json.loads(said))
    few, many = found
    grown = {line: (size - few.get(line, 0)) / MORE for line, size in many.items()}
    lines = [
        f"| {size:.0f} | {line} |"
        for line, size in sorted(grown.items(), key=lambda each: -each[1])
        if size >= MIN_BYTES
    ]
    rest = sum(size for size in grown.values() if size < MIN_BYTES)
    total = sum(grown.values())
    return "\n".join(
        ["| bytes | line |", "|---|---|", *lines, f"| {rest:.0f} | all others |", f"| **{total:.0f}** | all |"]
    )


async def _serve(port: int, devices: int) -> None:
    from leadsman import App

    app = App("job", mqtt=f"mqtt://127.0.0.1:{port}")

    async def read() -> dict[str, float]:
        return {"temperature": 21.5, "humidity": 45.0}

    for number in range(devices):
        app.add_telemetry(f"d{number}", read, interval=INTERVAL, retry=3)
    serving = asyncio.create_task(app.serve())
    await asyncio.sleep(SECONDS)
    gc.collect()
    snapshot = tracemalloc.take_snapshot()
    sizes = defaultdict[str, int](int)
    for each in snapshot.statistics("lineno"):
        frame = each.traceback[0]
        name = "/".join(Path(frame.filename).parts[-2:])
        text = linecache.getline(frame.filename, frame.lineno).strip().replace("|", "\\|")
        sizes[f"`{name}`: `{text}`"] += each.size
    print(json.dumps(sizes), flush=True)
    serving.cancel()


if __name__ == "__main__":
    tracemalloc.start()
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2])))
