"""The job: so many devices, each read so often, each reading published with QoS 1, retained. As a process of its own.

``python -m benchmarks.job bare|ours|spread PORT DEVICES INTERVAL MEASURE`` polls for two seconds, then measures itself
for MEASURE seconds and prints one JSON; with MEASURE 0 it runs until SIGTERM. The bare loop is the one people write: a
task per device that reads, publishes, and sleeps.
"""

import asyncio
import json
import os
import resource
import signal
import sys
import time
from typing import Any

WARM_UP = 2.0


class Meter:
    """What both sides count with."""

    def __init__(self) -> None:
        self.calls = 0
        self.lateness: list[float] = []
        self.measuring = False

    def called(self, late: float) -> None:
        self.calls += 1
        if self.measuring:
            self.lateness.append(late)

    async def measure(self, duration: float, delivered: Any) -> None:
        """Let it warm up, measure, print, and stop the process."""
        await asyncio.sleep(WARM_UP)
        if not duration:
            return
        calls, arrived, cpu, began = self.calls, delivered(), _cpu(), time.perf_counter()
        self.measuring = True
        await asyncio.sleep(duration)
        took = time.perf_counter() - began
        result = {
            "calls": (self.calls - calls) / took,
            "delivered": (delivered() - arrived) / took,
            "cpu_per_10k": (_cpu() - cpu) / max(1, delivered() - arrived) * 1e4,
            "p99_late": sorted(self.lateness)[int(len(self.lateness) * 0.99)] if self.lateness else 0.0,
        }
        print(json.dumps(result), flush=True)
        os._exit(0)


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def bare(port: int, devices: int, interval: float, duration: float) -> None:
    """The loop that people write."""
    import aiomqtt

    meter, arrived = Meter(), 0

    async def read() -> dict[str, float]:
        return {"temperature": 21.5, "humidity": 45.0, "n": meter.calls}

    async def device(client: aiomqtt.Client, number: int) -> None:
        nonlocal arrived
        due = time.perf_counter()
        while True:
            now = time.perf_counter()
            meter.called(now - due)
            due = now + interval
            reading = await read()
            await client.publish(f"job/d{number}/state", json.dumps(reading), qos=1, retain=True)
            arrived += 1
            await asyncio.sleep(interval)

    async def main() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)  # type: ignore[union-attr]
        measuring = asyncio.create_task(meter.measure(duration, lambda: arrived))
        while True:
            try:
                async with aiomqtt.Client("127.0.0.1", port, protocol=aiomqtt.ProtocolVersion.V5) as client:
                    client.pending_calls_threshold = 10**9
                    await asyncio.gather(*(device(client, number) for number in range(devices)))
            except aiomqtt.MqttError:
                await asyncio.sleep(1.0)
            except asyncio.CancelledError:
                measuring.cancel()
                return

    asyncio.run(main())


def ours(port: int, devices: int, interval: float, duration: float, *, spread: bool = False) -> None:
    """The same with leadsman; `spread` starts the devices apart, as who has many of them would."""
    import gc

    from leadsman import App
    from leadsman.mqtt.outbox import Outbox
    from leadsman.runtime.poll_runner import PollRunner
    from leadsman.runtime.poll_schedule import IntervalSchedule

    app, meter = App("job", mqtt=f"mqtt://127.0.0.1:{port}"), Meter()

    async def read() -> dict[str, float]:
        meter.calls += 1
        return {"temperature": 21.5, "humidity": 45.0, "n": meter.calls}

    for number in range(devices):
        app.add_telemetry(f"d{number}", read, interval=interval, retry=3, spread=interval if spread else 0)

    if not duration:
        app.run()
        return

    async def main() -> None:
        serving = asyncio.create_task(app.serve())
        await asyncio.sleep(0.5)
        outbox = next(thing for thing in gc.get_objects() if isinstance(thing, Outbox))
        advance = PollRunner.cycle

        async def watched(poll: PollRunner, horizon: float) -> None:
            if meter.measuring and isinstance(poll.schedule, IntervalSchedule):
                meter.lateness.append(asyncio.get_running_loop().time() - (poll.schedule.due - interval))
            await advance(poll, horizon)

        if interval >= 0.1:  # at the highest rates even this would cost
            PollRunner.cycle = watched  # type: ignore[method-assign,assignment]
        await meter.measure(duration, lambda: outbox.delivered)
        await serving

    asyncio.run(main())


def main() -> None:
    """Do the job that the command line says, on one core."""
    os.sched_setaffinity(0, {0})
    side, (port, devices, interval, duration) = sys.argv[1], map(float, sys.argv[2:])
    if side == "bare":
        bare(int(port), int(devices), interval, duration)
    else:
        ours(int(port), int(devices), interval, duration, spread=side == "spread")


if __name__ == "__main__":
    main()
