"""An app with an HTTP endpoint, on a real port of this machine, and a client."""

import asyncio
import contextlib
import json
import socket

import httpx
import pytest

from leadsman import App, CircuitBreaker
from leadsman.settings.sources import Where
from leadsman.testing import MemoryBroker


class House:
    """A running app, its client, and the address of its endpoint."""

    def __init__(self, app, client, port):
        self.app = app
        self.client = client
        self.port = port

    async def get(self, path, **options):
        return await self.client.get(path, **options)

    async def post(self, path, **options):
        return await self.client.post(path, **options)

    async def raw(self, text=b""):
        """A connection that sends what it is given, and no more."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(text)
        await writer.drain()
        return reader, writer


def house_app(devices=0):
    app = App("house", version="1.2")

    @app.telemetry("boiler", interval=60, circuit_breaker=CircuitBreaker(2))
    async def boiler():
        return {"t": 21.5, "mode": "eco"}

    @app.telemetry("door", interval=60, throttle="0s")
    async def door():
        raise OSError("stuck, password=hunter2")

    @app.source("meter")
    async def meter():
        while True:
            yield {"watts": 5}
            await asyncio.sleep(60)

    async def read():
        return {"t": 1.0}

    if devices:
        app.add_telemetry([f"d{number}" for number in range(devices)], read, interval=3600)
    return app


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.asynccontextmanager
async def serving(app=None, **settings):
    """Run an app with an endpoint, and close everything at the end."""
    app = house_app() if app is None else app
    port = free_port()
    app.load(Where.nowhere({"http.bind": f"127.0.0.1:{port}", **settings}))
    running = asyncio.create_task(app.serve(MemoryBroker().connect, environment={}))
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=20) as client:
        try:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if (await client.get("/readyz")).status_code == 200:
                        break
                assert not running.done(), running.result()
                await asyncio.sleep(0.01)
            yield House(app, client, port)
        finally:
            app.stop()
            await running


async def events(house, count, headers=None):
    """The first events of a stream: their ids and their data."""
    found = []
    async with house.client.stream("GET", "/events", headers=headers or {}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        number = None
        async for line in response.aiter_lines():
            if line.startswith("id: "):
                number = int(line[4:])
            elif line.startswith("data: "):
                found.append((number, json.loads(line[6:])))
                number = None
                if len(found) == count:
                    break
    return found


@pytest.fixture
def run():
    """Run a test's coroutine with an app, in a loop of its own."""

    def run(test, app=None, **settings):
        async def whole():
            async with serving(app, **settings) as house:
                return await test(house)

        return asyncio.run(whole())

    return run
