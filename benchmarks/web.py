"""A thousand devices over HTTP on one pool, each with an address of its own, against a real server in a process of its
own: what they cost, how long the event loop is blocked, and what is left behind."""

import asyncio
import contextlib
import gc
import os
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from pydantic import BaseModel

from benchmarks.rows import NONE, Row, note
from leadsman import App, Device
from leadsman.adapters.http import HttpClient
from leadsman.errors import LeadsmanError
from leadsman.testing import Mosquitto
from leadsman_rigs.watched import waiting

DEVICES, INTERVAL, SECONDS = 1000, 30.0, 90.0
BODY = b'{"power": 41.5, "voltage": 231.2, "total": 120442}'
SETTLING = 5.0
"""Seconds after the start that do not count for the blocked loop."""


class Plug(BaseModel):
    url: str


class Load(BaseModel):
    power: float
    voltage: float
    total: int


class Found(NamedTuple):
    """What was seen."""

    readings: int
    failed: int
    """Calls."""
    cpu: float
    """Of one processor."""
    blocked: float
    """Seconds that the thread of the loop worked without a pause."""
    left: int
    """Descriptors after the end more than before the start."""


def polled() -> Found:
    """Poll the devices."""
    command = [sys.executable, "-m", "benchmarks.web"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, Mosquitto() as mosquitto:
        assert server.stdout is not None
        try:
            return asyncio.run(_polled(mosquitto.url, int(server.stdout.readline())))
        finally:
            server.kill()


async def _polled(broker: str, port: int) -> Found:
    plugs = {f"plug{n}": Device(Plug(url=f"http://127.1.{n // 250}.{n % 250 + 1}:{port}")) for n in range(DEVICES)}
    app = App("plugs", mqtt=broker, adapters=(HttpClient(),))
    readings = failed = 0

    @app.telemetry(plugs, interval=INTERVAL, spread=INTERVAL, retry=2)
    async def load(http: HttpClient, plug: Plug) -> Load:
        nonlocal readings, failed
        try:
            found = await http.get_json(f"{plug.url}/meter/0", Load)
        except LeadsmanError:
            failed += 1
            raise
        readings += 1
        return found

    before, began = len(os.listdir("/proc/self/fd")), time.process_time()
    with tempfile.TemporaryDirectory() as state:
        serving = asyncio.create_task(app.serve(environment={"STATE_DIRECTORY": state}))
        asyncio.get_running_loop().call_later(1.0, gc.freeze)  # as the process of an app does
        blocked = await _longest_block()
        cpu = (time.process_time() - began) / SECONDS
        app.stop()
        await serving
    return Found(readings, failed, cpu, blocked, len(os.listdir("/proc/self/fd")) - before)


async def _longest_block() -> float:
    """Watch the loop for `SECONDS`."""
    end, longest = time.monotonic() + SECONDS, 0.0
    await asyncio.sleep(SETTLING)
    while time.monotonic() < end:
        before, worked, waited = time.perf_counter(), time.thread_time(), waiting()
        await asyncio.sleep(0.005)
        late = time.perf_counter() - before - 0.005 - (waiting() - waited)
        longest = max(longest, min(late, time.thread_time() - worked))  # as in `watched.on`
    return longest


def web(times: int) -> list[Row]:
    """The rows."""
    note("a thousand devices over HTTP, a minute and a half")
    found = polled()
    name = f"{DEVICES:,} devices over HTTP at {INTERVAL:g} s, on one pool"
    return [
        Row(f"{name}: CPU", NONE, f"{100 * found.cpu:.1f} %", wanted="≤ 8 %"),
        Row("… the event loop blocked for at most", NONE, f"{found.blocked * 1e3:.1f} ms", wanted="≤ 5 ms"),
        Row("… descriptors left behind", NONE, str(found.left), wanted="0"),
        Row("… calls that failed", NONE, f"{found.failed} of {found.readings + found.failed:,}", wanted="0"),
    ]


async def _serve() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(BODY)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(head + BODY)
        writer.close()

    server = await asyncio.start_server(answer, "0.0.0.0", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())
