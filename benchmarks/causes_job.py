"""The job of `benchmarks.causes`: leadsman, whose stack is looked at while it works.

``python -m benchmarks.causes_job PORT DEVICES INTERVAL SECONDS`` prints one JSON.
"""

import asyncio
import json
import os
import resource
import signal
import sys
from collections import Counter
from types import FrameType

WARM_UP = 3.0
STEP = 0.001
"""Seconds of CPU between two looks."""
ACKNOWLEDGEMENTS = ("codec_client.py", "buffer_updated")
"""The function below which all is about what the broker has answered."""
CAUSES = (
    ("the socket: writes and reads", ("/asyncio/selector_events.py",)),
    ("packets", ("/mqtt/codec.py", "/mqtt5/")),
    ("the ledger", ("/extensions/ledger/",)),
    ("statuses and health", ("/core/monitoring/",)),
    ("events", ("/core/event_bus.py", "/core/observers.py")),
    ("the outbox and the window", ("/core/mqtt/",)),
    ("readings, payloads and publishing", ("/core/readings/", "/runtime/publisher.py", "/json/")),
    ("polls, retries and deadlines", ("/core/runtime/", "/core/resilience/", "/core/adapters/")),
    ("the heap of alarms", ("/core/loop/",)),
    ("the handlers", ("/benchmarks/",)),
    ("wake-ups and turns of the event loop", ("/selectors.py", "/asyncio/")),
)
"""Causes, and the files of the innermost function that shows each."""


def cause_of(stack: list[tuple[str, str]]) -> str:
    """The cause that a stack shows: the file and the name of each function, the innermost one first."""
    if any(path.endswith(ACKNOWLEDGEMENTS[0]) and name == ACKNOWLEDGEMENTS[1] for path, name in stack):
        return "acknowledgements"
    for path, _ in stack:
        for cause, files in CAUSES:
            if any(each in path for each in files):
                return cause
    return "other"


def _look(looks: Counter[str], frame: FrameType | None) -> None:
    stack = []
    while frame is not None:
        stack.append((frame.f_code.co_filename, frame.f_code.co_name))
        frame = frame.f_back
    looks[cause_of(stack)] += 1


async def _job(port: int, devices: int, interval: float, seconds: float) -> None:
    from leadsman import App

    app, calls, looks = App("job", mqtt=f"mqtt://127.0.0.1:{port}"), 0, Counter[str]()

    async def read() -> dict[str, float]:
        nonlocal calls
        calls += 1
        return {"temperature": 21.5, "humidity": 45.0, "n": calls}

    for number in range(devices):
        app.add_telemetry(f"d{number}", read, interval=interval, retry=3)
    serving = asyncio.create_task(app.serve())
    await asyncio.sleep(WARM_UP)
    signal.signal(signal.SIGPROF, lambda _, frame: _look(looks, frame))
    before = resource.getrusage(resource.RUSAGE_SELF)
    signal.setitimer(signal.ITIMER_PROF, STEP, STEP)
    await asyncio.sleep(seconds)
    signal.setitimer(signal.ITIMER_PROF, 0)
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"cpu": cpu, "looks": looks, "wakeups": after.ru_nvcsw - before.ru_nvcsw}), flush=True)
    serving.cancel()
    os._exit(0)


if __name__ == "__main__":
    os.sched_setaffinity(0, {0})
    asyncio.run(_job(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])))
