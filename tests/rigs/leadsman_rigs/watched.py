"""An adapter in use, with an eye on the event loop."""

import asyncio
import time
from pathlib import Path

SCHEDULED = Path("/proc/thread-self/schedstat")
"""Nanoseconds that this thread worked, and that it waited for a processor; proc(5)."""


def waiting():
    """Seconds that this thread has waited for a processor."""
    return int(SCHEDULED.read_text().split()[1]) / 1e9 if SCHEDULED.exists() else 0.0


def on(adapter, scenario, longest_block=0.5):
    """Run ``scenario(adapter)`` with the adapter open, and see that the loop was never blocked for longer than that, in
    seconds.

    What counts is the time that the thread of the loop worked, since a busy machine delays any loop; and four times as
    much of the clock, since what waits for a device does not work. What it waited for a processor is left out.
    """

    async def run():
        longest = 0.0

        async def watch():
            nonlocal longest
            while True:
                before, worked, waited = time.perf_counter(), time.thread_time(), waiting()
                await asyncio.sleep(0.005)
                lag = time.perf_counter() - before - 0.005 - (waiting() - waited)
                longest = max(longest, lag / 4, min(lag, time.thread_time() - worked))

        async with adapter as opened:
            watcher = asyncio.create_task(watch())
            try:
                return await scenario(opened)
            finally:
                watcher.cancel()
                assert longest < longest_block, f"the event loop was blocked for {longest:.3f} s"

    return asyncio.run(run())
