"""Each row of the table: both sides in turn, several times, medians."""

import atexit
import json
import math
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path

import psutil

from benchmarks import bare_python
from benchmarks.ear import Ear
from benchmarks.rows import note
from leadsman import App
from leadsman.testing import Harness, Mosquitto, Scripted
from leadsman.testing.embedded import embedded_broker
from leadsman.testing.mosquitto import free_port

os.sched_setaffinity(0, {1})  # brokers inherit it; the job takes the other core, so that neither waits for the other
ROOT = Path(__file__).parent.parent
RATES = tuple(500 * each for each in (2, 3, 4, 6, 8, 12, 16, 20, 24, 28, 32, 40, 48, 60, 72, 84))
"""Readings a second that are asked for, until much less is delivered."""
MAX_RATE_PER_DEVICE = 100.0
"""Readings a second: leadsman polls a device every 10 ms at most, so that higher rates need more devices."""
WIDE = "max_inflight_messages 1000\n"
"""For mosquitto, whose Receive Maximum is 20 unless it is configured: then a round trip of 20 messages is the limit at
some ten thousand readings a second."""
RUN = "import asyncio, json, aiomqtt"
"""What the bare loop imports."""
SIDES = ("bare", "ours")
CLIENTS = (*SIDES, "aiomqtt")
"""With leadsman on its other client."""
LAUNCHER = ContextVar[tuple[str, ...]]("launcher", default=())
"""The words that start the interpreter of a job; none: that of `bare_python`."""


def job(
    side: str,
    port: int,
    devices: int,
    interval: float,
    duration: float = 0,
    kind: str = "plain",
    *outbox: int,
    environment: Mapping[str, str] | None = None,
) -> "subprocess.Popen[str]":
    """Start the job as a process; see `benchmarks.job`. Its environment is `with_state` unless one is given."""
    words = map(str, (side, port, devices, interval, duration, kind, *outbox))
    command = [*(LAUNCHER.get() or (bare_python.executable(),)), "-m", "benchmarks.job", *words]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment or with_state(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    atexit.register(process.kill)  # a job must not outlive a benchmark that fails
    return process


def with_state(directory: str | None = None) -> dict[str, str]:
    """The environment of a job whose state lies in this directory, or in one of its own that goes with the benchmark:
    readings that one job could not deliver are not those of the next one."""
    if directory is None:
        directory = tempfile.mkdtemp(prefix="leadsman-bench-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return {**os.environ, "STATE_DIRECTORY": directory}


def end(process: "subprocess.Popen[str]") -> None:
    """Kill the job."""
    process.kill()
    process.communicate()


def import_time(code: str) -> float:
    """Milliseconds to import, above the bare interpreter, once."""

    def run(what: str) -> float:
        before = time.perf_counter()
        subprocess.run([bare_python.executable(), "-c", what], check=True, cwd=ROOT)
        return (time.perf_counter() - before) * 1e3

    return -run("pass") + run(code)


def first_reading(side: str, devices: int) -> float:
    """Milliseconds from the start of the process to its first reading at a subscriber."""
    with Mosquitto() as broker:
        ear = Ear(broker.port)
        time.sleep(0.2)
        before = time.perf_counter()
        process = job(side, broker.port, devices, 60)
        came = ear.wait()
        end(process)
        ear.close()
    return (came - before) * 1e3


def silent_broker(times: int) -> list[float]:
    """Seconds from the start of the process to its first reading, at a broker that leaves a CONNECT of MQTT 5
    unanswered, as amqtt does."""
    port, taken = free_port(), list[float]()
    for _ in range(times):
        with embedded_broker(port=port):  # a new one, which keeps no reading of the last job
            ear = Ear(port)
            before = time.perf_counter()
            process = job("ours", port, 10, 60)
            taken.append(ear.wait() - before)
            end(process)
    return taken


def memory(side: str, devices: int) -> float:
    """MiB resident once every device has been read, and read again."""
    with Mosquitto() as broker:
        process = job(side, broker.port, devices, 2)
        time.sleep(6)
        resident = psutil.Process(process.pid).memory_info().rss / 2**20
        end(process)
    return resident


def measured(
    side: str, devices: int, rate: float, duration: float, conf: str = "", durability: str = "acked-or-durable"
) -> dict[str, float]:
    """The job's own figures at so many readings a second, of so many devices or more; see `MAX_RATE_PER_DEVICE`. `conf`
    is for mosquitto, `durability` for the outbox of leadsman."""
    devices = max(devices, math.ceil(rate / MAX_RATE_PER_DEVICE))
    with Mosquitto(conf) as broker:
        environment = {**with_state(), "OUTBOX__DURABILITY": durability}
        process = job(side, broker.port, devices, devices / rate, duration, environment=environment)
        out, _ = process.communicate(timeout=2 * duration + 60)
    figures: dict[str, float] = json.loads(out)
    return figures


def highest_rates(side: str, duration: float, rates: Sequence[float] = RATES, conf: str = "") -> tuple[float, float]:
    """Readings per second delivered at most, and the highest offered rate that was delivered within 5 %."""
    most = held = 0.0
    holding = True
    for rate in rates:
        delivered = measured(side, 200, rate, duration, conf)["delivered"]
        if delivered < 0.95 * rate:  # once more: a neighbour on a shared machine may have spoilt it
            delivered = max(delivered, measured(side, 200, rate, duration, conf)["delivered"])
        note(f"{side}: {rate:,} readings/s offered, {delivered:,.0f} delivered")
        most = max(most, delivered)
        holding = holding and delivered >= 0.95 * rate
        if holding:
            held = rate
        if delivered < 0.6 * rate:
            break
    return most, held


def stopping(side: str, situation: str, devices: int = 10) -> float:
    """Seconds from SIGTERM to the end of the process; idle or with a frozen broker."""
    with Mosquitto() as broker:
        process = job(side, broker.port, devices, 1)
        time.sleep(2.5)
        if situation == "frozen":
            broker.freeze()
            time.sleep(1.5)
        before = time.perf_counter()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        took = time.perf_counter() - before
        broker.thaw()
    return took


def stopping_in_backoff() -> float:
    """Seconds from SIGTERM to the end of a process whose handler waits for its retry."""
    code = """
import os
from leadsman import App, FixedBackoff
app = App("job", mqtt=os.environ["URL"])
@app.telemetry("d", interval="10m", retry=3, backoff=FixedBackoff("5m"))
async def d(): raise OSError("away")
app.run()
"""
    with Mosquitto() as broker:
        process = subprocess.Popen(
            [bare_python.executable(), "-c", code], env={**os.environ, "URL": broker.url}, stderr=subprocess.DEVNULL
        )
        time.sleep(2)
        before = time.perf_counter()
        process.terminate()
        process.wait(30)
        return time.perf_counter() - before


def virtual_day() -> float:
    """Seconds that ten devices at one reading a minute take through a virtual day."""
    app = App("job")
    for number in range(10):
        app.add_telemetry(f"d{number}", Scripted({"t": 21.5}), interval=60)
    before = time.perf_counter()
    with Harness(app) as harness:
        harness.run("1d")
    return time.perf_counter() - before


def virtual_day_of(kind: str) -> float:
    """Seconds that two handlers at 10 s take through a virtual day: ``async`` or plain ``def``."""

    async def read_async() -> dict[str, float]:
        return {"t": 21.5}

    def read() -> dict[str, float]:
        return {"t": 21.5}

    app = App("job")
    for name in ("a", "b"):
        app.add_telemetry(name, read_async if kind == "async" else read, interval=10)
    before = time.perf_counter()
    with Harness(app) as harness:
        harness.run("1d")
    return time.perf_counter() - before


def broker_killed(side: str, away: float = 10.0) -> tuple[float, float]:
    """Per cent of the readings lost around an outage, and seconds from the broker's return to the first reading."""
    with Mosquitto() as broker:
        process = job(side, broker.port, 5, 0.2)
        time.sleep(3)
        ear = Ear(broker.port)
        time.sleep(2)
        broker.kill()
        ear.close()
        before_numbers = _numbers(ear)
        time.sleep(away)
        broker.start()
        back = time.perf_counter()
        after = Ear(broker.port)
        time.sleep(8)
        end(process)
        after.close()
    first = min(heard.at for heard in after.heard) - back
    numbers = before_numbers | _numbers(after)
    expected = max(numbers) - min(numbers) + 1
    return (1 - len(numbers) / expected) * 100, first


def _numbers(ear: Ear) -> set[float]:
    return {heard.reading["n"] for heard in ear.heard if not heard.retained}
