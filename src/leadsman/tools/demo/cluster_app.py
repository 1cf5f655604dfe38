"""The app of the demo of a cluster, as a user would write it: meters that every node can read. Each node runs it."""

import math
import os
import time
from collections.abc import Awaitable, Callable

from leadsman.core.app import App

PREFIX = "leadsman-cluster-demo"
METERS = 60
INTERVAL = 1.0
"""Seconds between two readings of a meter."""
NODE = "CLUSTER__NODE"
"""The variable that names the node. The reading has it, so that the demo sees who took it."""

app = App(PREFIX, version="demo", heartbeat="5s")


def meter(number: int) -> Callable[[], Awaitable[dict[str, float | str]]]:
    """The handler of one meter, which is simulated."""

    async def read() -> dict[str, float | str]:
        watts = 600 + 400 * math.sin(time.time() / 15 + number)
        return {"watts": round(watts, 1), "read_by": os.environ.get(NODE, "")}

    return read


for number in range(METERS):
    app.add_telemetry(f"meter-{number:02}", meter(number), interval=INTERVAL)
