"""The app of `benchmarks.plain`: handlers that block, some of which hang for good.

``python -m benchmarks.plain_job PORT KIND HANGING`` runs until SIGTERM, and then prints what the others did, as one
JSON. KIND is ``def`` or ``async``; only the first can hang.
"""

import asyncio
import json
import sys
import threading
import time
from pathlib import Path

from benchmarks.rows import percentile
from leadsman import App

HANDLERS, INTERVAL = 50, 1.0
TAKEN = 0.005
"""Seconds that a call blocks."""


def run(port: int, kind: str, hanging: int) -> None:
    """Run the app, and print the measured values."""
    app, calls = App("job", mqtt=f"mqtt://127.0.0.1:{port}"), dict[str, list[float]]()
    for number in range(hanging):
        app.add_telemetry(f"hangs{number}", _hang, interval=60.0)
    for number in range(HANDLERS - hanging):
        name = f"d{number}"
        calls[name] = []
        app.add_telemetry(name, (_blocking if kind == "def" else _waiting)(calls[name]), interval=INTERVAL)
    began = time.monotonic()
    most = [0]
    watch = threading.Thread(target=_watch, args=(most,), daemon=True)
    watch.start()
    try:
        app.run()
    finally:
        print(json.dumps(_measured(calls, time.monotonic() - began) | {"threads": most[0]}), flush=True)


def _hang() -> dict[str, int]:
    threading.Event().wait()
    return {}


def _blocking(times: list[float]):  # type: ignore[no-untyped-def]  # a handler, of whatever kind
    def handler() -> dict[str, float]:
        times.append(time.monotonic())
        time.sleep(TAKEN)
        return {"v": times[-1]}

    return handler


def _waiting(times: list[float]):  # type: ignore[no-untyped-def]  # as above
    async def handler() -> dict[str, float]:
        times.append(time.monotonic())
        await asyncio.sleep(TAKEN)
        return {"v": times[-1]}

    return handler


def _watch(most: list[int]) -> None:
    """Count the threads of the process, but this one."""
    while True:
        most[0] = max(most[0], threading.active_count() - 1)
        time.sleep(0.05)


def _measured(calls: dict[str, list[float]], ran: float) -> dict[str, float]:
    late, polls = [], 0
    for times in calls.values():
        settled = times[2:]  # the grid is that of the later polls
        polls += len(times)
        if settled:
            first = min(time % INTERVAL for time in settled)
            late += [time % INTERVAL - first for time in settled]
    due = len(calls) * int(ran / INTERVAL)
    status = Path("/proc/self/status").read_text(encoding="ascii")
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    return {"lost": max(0.0, 1 - polls / due), "p99": percentile(late, 0.99), "memory": resident / 1024}


if __name__ == "__main__":
    run(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
