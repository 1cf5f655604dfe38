"""The job of `benchmarks.causes`: leadsman, whose stack is looked at while it works.

``python -m benchmarks.causes_job PORT DEVICES INTERVAL SECONDS`` prints one JSON.
"""

import asyncio
import functools
import json
import os
import random
import resource
import signal
import sys
from collections import Counter
from collections.abc import Mapping
from types import FrameType

WARM_UP = 3.0
STEP = 0.0005
"""Mean seconds between two looks. They come at random: the timer of the CPU ticks each few milliseconds, as the app
works, and would always find it at the same place."""
WAKE_UPS = "wake-ups and turns of the event loop"
WAITS = "/selectors.py"
"""Where the event loop waits: a look there does not tell whether it has just been woken."""
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
    (WAKE_UPS, ("/asyncio/",)),
)
"""Causes, and the files of the innermost function that shows each."""


def cause_of(stack: list[tuple[str, str]]) -> str | None:
    """The cause that a stack shows: the file and the name of each function, the innermost one first. None while the
    event loop waits."""
    if stack[0][0].endswith(WAITS):
        return None
    if any(path.endswith(ACKNOWLEDGEMENTS[0]) and name == ACKNOWLEDGEMENTS[1] for path, name in stack):
        return "acknowledgements"
    for path, _ in stack:
        for cause, files in CAUSES:
            if any(each in path for each in files):
                return cause
    return "other"


def by_cause(looks: Mapping[str, float], cpu: float) -> dict[str, float]:
    """The CPU of each cause, the largest first: what was seen of it, and what nobody saw is what wake-ups take.

    Args:
        looks: how often each was seen; one stands for `STEP` seconds.
        cpu: seconds that all of them take together.
    """
    seen = {cause: number * STEP for cause, number in looks.items()}
    seen[WAKE_UPS] = seen.get(WAKE_UPS, 0.0) + max(0.0, cpu - sum(seen.values()))
    return dict(sorted(seen.items(), key=lambda item: -item[1]))


def _used() -> resource.struct_rusage:
    return resource.getrusage(resource.RUSAGE_SELF)


def _look(looks: Counter[str], _: int, frame: FrameType | None) -> None:
    signal.setitimer(signal.ITIMER_REAL, random.expovariate(1 / STEP))
    stack = []
    while frame is not None:
        if frame.f_code is _look.__code__:
            return  # it looks at itself
        stack.append((frame.f_code.co_filename, frame.f_code.co_name))
        frame = frame.f_back
    cause = cause_of(stack)
    if cause is not None:
        looks[cause] += 1


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
    before = _used()
    await asyncio.sleep(seconds)  # without looks, which cost more than they see
    after = _used()
    signal.signal(signal.SIGALRM, functools.partial(_look, looks))
    signal.setitimer(signal.ITIMER_REAL, STEP)
    await asyncio.sleep(seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    wakeups = (after.ru_nvcsw - before.ru_nvcsw) / seconds
    print(json.dumps({"cpu": cpu, "causes": by_cause(looks, cpu), "wakeups": wakeups}), flush=True)
    serving.cancel()
    os._exit(0)


if __name__ == "__main__":
    os.sched_setaffinity(0, {0})
    asyncio.run(_job(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])))
