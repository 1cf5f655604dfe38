"""The job of `benchmarks.extensions`: an app that uses nothing but `App.telemetry`, and counts what it costs.

``python -X tracemalloc -m benchmarks.extensions_job PORT [WITHOUT]`` prints one JSON, a `Cost`. WITHOUT is a package of
`leadsman.extensions.SHIPPED`, whose row is taken out. Settings come from the environment.
"""

import asyncio
import gc
import json
import os
import sys
from types import FrameType
from typing import NamedTuple, TypedDict

DEVICES, INTERVAL = 20, 0.2
SETTLING, COUNTED = 2.0, 4.0
"""Seconds: for which nothing more is imported, before the memory is read; then, for which calls are counted."""


class Cost(TypedDict):
    """What an app costs."""

    modules: list[str]
    """What is imported, in the order of the imports."""
    memory: float
    """Bytes that Python has allocated and not freed."""
    calls: float
    """Calls of functions, of Python and of C, in the thread of the event loop, for each reading."""


class Added(NamedTuple):
    """What one app costs more than another one."""

    modules: list[str]
    memory: float
    """KiB."""
    calls: float
    """For each reading."""


def added(without: Cost, cost: Cost) -> Added:
    """What `cost` is more than `without`."""
    had = {*without["modules"]}
    modules = [name for name in cost["modules"] if name not in had]
    return Added(modules, (cost["memory"] - without["memory"]) / 1024, cost["calls"] - without["calls"])


async def _serve(port: int) -> None:
    from leadsman import App

    app, readings, calls = App("job", mqtt=f"mqtt://127.0.0.1:{port}"), 0, 0
    began = asyncio.Event()

    async def read() -> dict[str, float]:
        nonlocal readings
        readings += 1
        began.set()
        return {"temperature": 21.5, "humidity": 45.0}

    def count(_frame: FrameType, event: str, _what: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    for number in range(DEVICES):
        app.telemetry(f"d{number}", interval=INTERVAL)(read)
    serving = asyncio.create_task(app.serve())
    await began.wait()  # a standby takes over first
    modules = list[str]()
    while len(modules) < len(sys.modules):
        modules = [*sys.modules]
        await asyncio.sleep(SETTLING)
    gc.collect()
    import tracemalloc  # it runs already, see above; what it imports is not a part of the app

    memory, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    before = readings
    sys.setprofile(count)
    await asyncio.sleep(COUNTED)
    sys.setprofile(None)
    cost: Cost = {"modules": modules, "memory": memory, "calls": calls / (readings - before)}
    print(json.dumps(cost), flush=True)
    os._exit(0 if not serving.done() else 1)


if __name__ == "__main__":
    from leadsman import extensions

    without = sys.argv[2:]
    kept = tuple(each for each in extensions.SHIPPED if each.package not in without)
    extensions.SHIPPED = kept  # type: ignore[assignment]  # a row fewer
    asyncio.run(_serve(int(sys.argv[1])))
