"""What a reading of a device that is well costs: the functions of leadsman that are called between its alarm and its
acknowledgement."""

import asyncio
import sys
from collections import Counter
from pathlib import Path

import leadsman
from leadsman import App
from leadsman.testing import MemoryBroker

DEVICES, SECONDS = 100, 10
MAX_CALLS = 57
"""Of a reading: what it was when this was written, and a little. The broker in memory and C functions are not
counted."""
MOST_LINES = 80
OURS = tuple(str(Path(leadsman.__file__).parent / wing) for wing in ("core", "extensions"))


async def read():
    return {"temperature": 21.5, "humidity": 45.0}


def test_a_reading_of_a_device_that_is_well_takes_few_calls(loop):
    """If it fails: the message has the functions that are called for each reading. What is asked for each of them might
    be asked once for a device, once for a batch, or only where something is wrong. Where each reading needs more, write
    the new figure here, and the reason into the commit."""
    app, broker, calls = App("house", mqtt="mqtt://broker"), MemoryBroker(), Counter()
    for number in range(DEVICES):
        app.add_telemetry(f"d{number}", read, interval="1s", retry=3)
    serving = loop.create_task(app.serve(broker.connect))
    loop.run_until_complete(asyncio.sleep(3.0))

    def count(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(OURS):
            calls[f"{Path(code.co_filename).stem}.{code.co_qualname}"] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        loop.run_until_complete(asyncio.sleep(SECONDS))
    finally:
        sys.setprofile(before)
    app.stop()
    loop.run_until_complete(serving)

    each = {name: number / DEVICES / SECONDS for name, number in calls.items()}
    lines = [f"{number:.2f} {name}" for name, number in sorted(each.items(), key=lambda item: -item[1])[:MOST_LINES]]
    assert sum(each.values()) <= MAX_CALLS, "\n".join((f"{sum(each.values()):.1f} calls a reading, of which", *lines))
