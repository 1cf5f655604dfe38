"""An adapter in use, with an eye on the event loop."""

import asyncio
import time


def on(adapter, scenario, longest_block=0.5):
    """Run ``scenario(adapter)`` with the adapter open, and see that the loop was never blocked for longer than that, in
    seconds.

    What counts is the time that the thread of the loop worked, since a busy machine delays any loop; and four times as
    much of the clock, since what waits for a device does not work.
    """

    async def run():
        longest = 0.0

        async def watch():
            nonlocal longest
            while True:
                before, worked = time.perf_counter(), time.thread_time()
                await asyncio.sleep(0.005)
                lag = time.perf_counter() - before - 0.005
                longest = max(longest, lag / 4, min(lag, time.thread_time() - worked))

        async with adapter as opened:
            watcher = asyncio.create_task(watch())
            try:
                return await scenario(opened)
            finally:
                watcher.cancel()
                assert longest < longest_block, f"the event loop was blocked for {longest:.3f} s"

    return asyncio.run(run())
