"""The job: so many devices, each read so often, each reading published with QoS 1, retained. As a process of its own.

``python -m benchmarks.job SIDE PORT DEVICES INTERVAL [MEASURE] [KIND] [OUTBOX]`` polls for two seconds, then measures
itself for MEASURE seconds and prints one JSON; with MEASURE 0 it runs until SIGTERM. OUTBOX is how many messages the
outbox holds; with it, the job says at its end what became of each reading.

SIDE is ``bare``, the loop that people write: a task per device that reads, publishes, and sleeps; ``ours``, leadsman;
``aiomqtt``, leadsman with its other client; ``spread``, leadsman with `spread=` over the interval; ``filtered``,
leadsman with five filters of one field; ``telemetry``, leadsman with `App.telemetry` and no option. KIND says what a
device does, see `KINDS`.
"""

import argparse
import asyncio
import json
import logging
import os
import random
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

WARM_UP = 2.0
KINDS = ("plain", "stamped", "failing", "backlog", "watched")
"""``plain``: all devices share one function, whose readings are counted together. ``stamped``: each has a function of
its own, whose readings have a number of its own and the time. ``failing``: the same, and one read of ten fails.
``backlog``: each sends BACKLOG readings at once, says so on stdout, and then one per INTERVAL. ``watched``: as plain;
says so on stdout, and then SIGUSR1 prints what blocked the event loop the longest."""
BACKLOG = 640
FAILING = 0.1
"""The share of reads that fail."""
Read = Callable[[], Awaitable[dict[str, float]]]


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
        """Let it warm up, measure CPU and then lateness, print, and stop the process."""
        await asyncio.sleep(WARM_UP)
        if not duration:
            return
        calls, arrived, cpu, began = self.calls, delivered(), _cpu(), time.perf_counter()
        await asyncio.sleep(duration)
        took = time.perf_counter() - began
        result = {
            "calls": (self.calls - calls) / took,
            "delivered": (delivered() - arrived) / took,
            "cpu_per_10k": (_cpu() - cpu) / max(1, delivered() - arrived) * 1e4,
            "resident": _resident(),
        }
        self.measuring = True
        await asyncio.sleep(duration / 2)
        result["p99_late"] = sorted(self.lateness)[int(len(self.lateness) * 0.99)] if self.lateness else 0.0
        print(json.dumps(result), flush=True)
        os._exit(0)


class Lost(logging.Handler):
    """Reads in the log of leadsman how many readings it could not deliver at its end."""

    readings = 0

    def emit(self, record: logging.LogRecord) -> None:
        fields = getattr(record, "fields", {})
        if fields.get("event") == "readings lost":
            self.readings = fields["readings"]


def _resident() -> float:
    """MiB of memory at most. What getrusage says begins with the memory of the process that started this one."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def stamped(meter: Meter, failing: float = 0.0) -> Read:
    """The function of one device, whose readings have a number and a time. `failing`: the share of reads that fail."""
    number, dice = 0, random.Random(1)

    async def read() -> dict[str, float]:
        nonlocal number
        if failing and dice.random() < failing:
            raise OSError("no answer")
        number += 1
        meter.calls += 1
        return {"temperature": 21.5, "n": number, "at": time.time()}

    return read


def bare(port: int, devices: int, interval: float, duration: float, kind: str) -> None:
    """The loop that people write."""
    import aiomqtt

    meter, arrived = Meter(), 0

    async def plain() -> dict[str, float]:
        return {"temperature": 21.5, "humidity": 45.0, "n": meter.calls}

    async def device(client: aiomqtt.Client, number: int) -> None:
        nonlocal arrived
        read = stamped(Meter()) if kind == "stamped" else plain
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
        task = asyncio.current_task()
        assert task is not None  # a coroutine runs here
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
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


def ours(given: argparse.Namespace) -> None:
    """The same with leadsman; `given` is the command line."""
    from leadsman import App

    app, meter = App("job", mqtt=f"mqtt://127.0.0.1:{given.port}"), Meter()
    options: dict[str, Any] = {"spread": given.interval} if given.side == "spread" else {}
    if given.side == "filtered":
        from leadsman import LowPass, Median, Outlier, Round, Scale

        options["filters"] = {"n": [Outlier(5), Median(5), LowPass("30s"), Scale(1.02, -0.3), Round(2)]}

    async def plain() -> dict[str, float]:
        meter.calls += 1
        return {"temperature": 21.5, "humidity": 45.0, "n": meter.calls}

    for number in range(given.devices if given.kind != "backlog" else 0):
        read = plain if given.kind in ("plain", "watched") else stamped(meter, FAILING * (given.kind == "failing"))
        if given.side == "telemetry":
            app.telemetry(f"d{number}", interval=given.interval)(read)
        else:
            app.add_telemetry(f"d{number}", read, interval=given.interval, retry=3, **options)
    if given.kind == "backlog":
        _sources(app, given.devices, given.interval)
    if given.kind == "watched":
        _watch_the_loop()
    if given.measure:
        asyncio.run(_measured(app, meter, given.interval, given.measure))
    else:
        _until_sigterm(app, meter, given.outbox)


def _until_sigterm(app: Any, meter: Meter, outbox: int) -> None:
    """Run it, and print what became of its readings, of each one if the size of the outbox is given; then SIGUSR1
    prints what the process holds, too."""
    lost, said = Lost(), dict[str, Any]()
    logging.getLogger("leadsman").addHandler(lost)
    if outbox:
        from benchmarks import held
        from benchmarks.account import Account

        account = Account(outbox)
        held.answer(account)
        app.run()
        said = account.report()
    else:
        app.run()
    print(json.dumps({"calls": meter.calls, "lost": lost.readings, **said}), flush=True)


async def _measured(app: Any, meter: Meter, interval: float, duration: float) -> None:
    import gc

    from leadsman.core.mqtt.outbox import Outbox
    from leadsman.core.runtime.poll_runner import PollRunner
    from leadsman.core.runtime.poll_schedule import IntervalSchedule

    serving = asyncio.create_task(app.serve())
    await asyncio.sleep(0.5)
    outbox = next(thing for thing in gc.get_objects() if isinstance(thing, Outbox))
    advance = PollRunner.cycle

    async def watched(poll: PollRunner) -> None:
        if isinstance(poll.schedule, IntervalSchedule):
            meter.lateness.append(asyncio.get_running_loop().time() - (poll.schedule.due - interval))
        await advance(poll)

    def watch() -> None:  # replaces the method, since an app has no hook there
        PollRunner.cycle = watched  # type: ignore[method-assign,assignment]

    if interval >= 0.1:  # at the highest rates even this would cost
        asyncio.get_running_loop().call_later(WARM_UP + duration, watch)
    await meter.measure(duration, lambda: outbox.delivered)
    await serving


def _sources(app: Any, devices: int, interval: float) -> None:
    full = 0

    def add(name: str) -> None:
        @app.source(name)  # type: ignore[untyped-decorator]  # `app` is Any: each state of leadsman has its own
        async def source() -> AsyncIterator[dict[str, float]]:
            nonlocal full
            for number in range(BACKLOG):
                yield {"n": number, "at": time.time()}
                await asyncio.sleep(0)
            full += 1
            if full == devices:
                print("full", flush=True)
            while True:
                await asyncio.sleep(interval)
                yield {"n": -1, "at": time.time()}

    for number in range(devices):
        add(f"d{number}")


def _watch_the_loop() -> None:
    """Time each callback of the event loop, by the CPU that its thread used: a busy machine counts for nothing."""
    handle, longest, began = asyncio.Handle, (0.0, "nothing"), 0.0
    running: asyncio.Handle | None = None
    run = handle._run

    def timed(self: asyncio.Handle) -> None:
        nonlocal began, running
        began, running = time.thread_time(), self
        run(self)
        count()
        running = None

    def count() -> None:
        nonlocal longest
        took = time.thread_time() - began
        if running is not None and took > longest[0]:
            callback = getattr(running, "_callback", None)
            task = getattr(callback, "__self__", None)
            longest = took, repr(task.get_coro() if isinstance(task, asyncio.Task) else callback)

    def show(*_: object) -> None:
        nonlocal longest
        count()  # what has not ended yet
        print(json.dumps({"longest": longest[0], "where": longest[1]}), flush=True)
        longest = 0.0, "nothing"

    # asyncio has no public hook around a callback.
    handle._run = timed  # type: ignore[method-assign]
    signal.signal(signal.SIGUSR1, show)
    print("watched", flush=True)


def main() -> None:
    """Do the job that the command line says, on one core."""
    parser = argparse.ArgumentParser()
    parser.add_argument("side", choices=("bare", "ours", "aiomqtt", "spread", "filtered", "telemetry"))
    parser.add_argument("port", type=int)
    parser.add_argument("devices", type=int)
    parser.add_argument("interval", type=float)
    parser.add_argument("measure", type=float, nargs="?", default=0.0)
    parser.add_argument("kind", choices=KINDS, nargs="?", default="plain")
    parser.add_argument("outbox", type=int, nargs="?", default=0)
    given = parser.parse_args()
    os.sched_setaffinity(0, {0})
    if given.side == "bare":
        bare(given.port, given.devices, given.interval, given.measure, given.kind)
        return
    if given.side == "aiomqtt":
        sys.modules["mqtt5"] = None  # type: ignore[assignment]  # as on a machine for which there is no such package
    ours(given)


if __name__ == "__main__":
    main()
