"""An app with an HTTP endpoint, on a real port of this machine, and a client."""

import asyncio
import contextlib
import json
import os
import tempfile

import httpx
import pytest

from leadsman import App, CircuitBreaker
from leadsman.core.settings.sources import Where
from leadsman.extensions.http.settings import Endpoint
from leadsman.testing import MemoryBroker
from leadsman.testing.mosquitto import free_port


class House:
    """A running app, its client, and the address of its endpoint."""

    def __init__(self, app, client, port, broker):
        self.app = app
        self.client = client
        self.port = port
        self.broker = broker

    async def polled(self):
        """Wait until each device of `house_app` has been read."""
        async with asyncio.timeout(60):
            while not POLLED.issubset(message.topic for message in self.broker.log):
                await asyncio.sleep(0.01)

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


POLLED = {"house/boiler/state", "house/door/error", "house/meter/state"}


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


@contextlib.asynccontextmanager
async def serving(app=None, **settings):
    """Run an app with an endpoint, and close everything at the end."""
    app = house_app() if app is None else app
    port = free_port()
    app.load(Where.nowhere({"http.bind": f"127.0.0.1:{port}", **settings}))
    broker = MemoryBroker()
    running = asyncio.create_task(
        app.serve(broker.connect, environment={"XDG_STATE_HOME": f"{os.environ['XDG_STATE_HOME']}/{port}"})
    )
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as client:
        try:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if (await client.get("/readyz")).status_code == 200:
                        break
                assert not running.done(), running.result()
                await asyncio.sleep(0.01)
            yield House(app, client, port, broker)
        finally:
            app.stop()
            await running


def endpoint(bind, token=None, hosts=()):
    """The endpoint of an app with these settings."""
    app = App("house")
    settings = {"http.bind": bind} | ({"http.hosts": [*hosts]} if hosts else {})
    with tempfile.NamedTemporaryFile("w+") as file:
        if token is not None:
            file.write(token)
            file.flush()
            settings["http.token_file"] = file.name
        app.load(Where.nowhere(settings))
    return app.setup.sections.of(Endpoint)


def streams():
    """How many streams are open: each has a task that listens for its end."""
    return sum("until_disconnected" in str(task.get_coro()) for task in asyncio.all_tasks())


async def events(house, count, headers=None, begun=None):
    """The first events of a stream: their ids and their data. `begun` is set with the first.

    Of the beats only the first: a busy machine has more of them.
    """
    found = []
    async with house.client.stream("GET", "/events", headers=headers or {}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        number = None
        async for line in response.aiter_lines():
            if line.startswith("id: "):
                number = int(line[4:])
            elif line.startswith("data: "):
                data = json.loads(line[6:])
                if data["type"] != "beat" or all(earlier["type"] != "beat" for _, earlier in found):
                    found.append((number, data))
                number = None
                if begun is not None:
                    begun.set()
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
