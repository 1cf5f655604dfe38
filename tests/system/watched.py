"""An adapter in use, with an eye on the event loop."""

import asyncio
import time


def on(adapter, scenario, longest_block=0.5):
    """Run ``scenario(adapter)`` with the adapter open, and see that the loop was never blocked for longer than that, in seconds."""

    async def run():
        longest = 0.0

        async def watch():
            nonlocal longest
            while True:
                before = time.perf_counter()
                await asyncio.sleep(0.005)
                longest = max(longest, time.perf_counter() - before - 0.005)

        async with adapter as opened:
            watcher = asyncio.create_task(watch())
            try:
                return await scenario(opened)
            finally:
                watcher.cancel()
                assert longest < longest_block, f"the event loop was blocked for {longest:.3f} s"

    return asyncio.run(run())
