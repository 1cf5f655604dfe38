"""What a further device costs that has always been well: the bytes that live once it was read twice."""

import asyncio
import gc
import linecache
import tracemalloc
from pathlib import Path

from leadsman import App
from leadsman.testing import MemoryBroker

FEW, MORE = 10, 1000
MAX_BYTES = 2620
"""Of a further device, with the last reading, which the link keeps for its next connection: what it was when this was
written (2,552 on Python 3.11, 2,604 on 3.13), and a little. Dicts that grow by steps have their part in it."""
MOST_LINES = 12


async def read():
    return {"temperature": 21.5, "humidity": 45.0}


def held(loop, devices):
    """The bytes by the lines that allocated them, of an app whose devices were read twice."""
    app, broker = App("house", mqtt="mqtt://broker"), MemoryBroker()
    for number in range(devices):
        app.add_telemetry(f"d{number}", read, interval="10s", retry=3)
    serving = loop.create_task(app.serve(broker.connect))
    loop.run_until_complete(asyncio.sleep(25.0))
    assert all(len(broker.messages(f"house/d{number}/state")) >= 2 for number in range(devices))
    broker.log.clear()
    broker.retained.clear()
    gc.collect()
    own = (tracemalloc.Filter(False, __file__), tracemalloc.Filter(False, tracemalloc.__file__))
    snapshot = tracemalloc.take_snapshot().filter_traces(own)
    app.stop()
    loop.run_until_complete(serving)
    return {(each.traceback[0].filename, each.traceback[0].lineno): each.size for each in snapshot.statistics("lineno")}


def test_a_further_device_that_is_well_costs_few_bytes(loop):
    """If it fails: the message has the lines that allocate most of them. What only an outage, a request or a person
    needs is made at the first one, and what is equal for many devices is one object. Where each device needs more,
    write the new figure here, and the reason into the commit."""
    tracemalloc.start()
    try:
        held(loop, FEW)  # what is imported or made once for all
        few, many = held(loop, FEW), held(loop, FEW + MORE)
    finally:
        tracemalloc.stop()
    grown = {line: (size - few.get(line, 0)) / MORE for line, size in many.items()}
    largest = sorted(grown.items(), key=lambda each: -each[1])[:MOST_LINES]
    lines = [
        f"{size:.0f} bytes: {Path(file).name}:{line}: {linecache.getline(file, line).strip()}"
        for (file, line), size in largest
    ]
    total = sum(grown.values())
    assert total <= MAX_BYTES, "\n".join((f"{total:.0f} bytes a device, of which", *lines))
