"""What other programs send fills neither the log nor the memory, and delays no poll: of an app alone, with discovery,
and on several machines."""

import asyncio
import functools
import itertools
import json
import os
import tracemalloc

import pytest
from tests.extensions.nodes.cluster.test_cluster import Clusters
from tests.extensions.nodes.standby.test_standby import Broker
from tests.extensions.nodes.test_document import document

from leadsman import App, Context, Finds
from leadsman.core.settings.sources import Where
from leadsman.testing import MemoryBroker

MESSAGES = int(os.environ.get("FLOOD_MESSAGES", "400"))
"""To each topic. At night there are more."""
MAX_LINES = 24
"""In the log, about the flood of one topic."""
MAX_BYTES = 2**20
"""Bytes that a flood may leave behind."""
MAX_READ_BYTES = 32 * 2**20
"""Bytes of memory that a start takes, whatever the broker keeps."""
TTL = 3.0

KINDS = (
    {"payload": b""},
    {"payload": b"{"},
    {"payload": b"\xff"},
    {"payload": b"5", "response_topic": "elsewhere/me"},
    {"payload": b"{}", "response_topic": "$share/a/b"},
    {"payload": b"5", "response_topic": "app/me", "correlation": b"x" * 2000},
    {"payload": b'"isolate"'},
    {"payload": b'"close"'},
    {"payload": b"online"},
    {"payload": b"offline"},
)


def documents(number):
    """What makes sense at some topic, and changes with each message."""
    name = f"other-{number}"
    return (
        {"state": "online" if number % 2 else "offline", "client_id": f"other-{number // 4}"},
        {"drain": number % 2 == 0, "by": name},
        {"owner": name, "token": 2**50 + number, "ttl_s": TTL, "sent": number},
        {"app": name, "client_id": name, "devices": {name: {"topics": {"state": f"app/{name}/state"}}}, "pages": 2},
        document(node=f"other-{number % 8}"),
        {"transaction": number, "sections": ["app"], "action": "isolate", "by": name},
    )


def register(app):
    @app.telemetry("healthy", interval="1s")
    async def healthy() -> dict[str, int]:
        return {"v": 1}

    @app.command("healthy")
    async def set_healthy(x: int) -> dict[str, float]:
        return {"half": 10 / x}

    @app.subscribe("other/+/topic")
    async def other(value: int) -> None:
        assert value

    @app.source("finder", finds=Finds())
    async def find(context: Context):
        context.device("found")
        await asyncio.Event().wait()
        yield {}


class Flooded:
    """Apps of one name at one broker."""

    def __init__(self, loop, broker, directory):
        self.loop, self.broker, self.directory = loop, broker, directory
        self.apps, self.tasks = [], []

    def start(self, **settings):
        app = App("app", mqtt="mqtt://broker")
        register(app)
        app.load(Where.nowhere(settings))
        variables = {"STATE_DIRECTORY": str(self.directory / str(len(self.apps)))}
        self.apps.append(app)
        self.tasks.append(self.loop.create_task(app.serve(self.broker.connect, environment=variables)))

    def stop(self):
        for app in self.apps:
            app.stop()
        self.loop.run_until_complete(asyncio.gather(*self.tasks))

    def run(self, seconds):
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def readings(self):
        return len(self.broker.messages("app/healthy/state"))


def alone(loop, directory, monkeypatch):
    flooded = Flooded(loop, MemoryBroker(), directory)
    flooded.start()
    return flooded


def homeassistant(loop, directory, monkeypatch):
    flooded = Flooded(loop, MemoryBroker(), directory)
    flooded.start(**{"discovery.convention": "homeassistant"})
    return flooded


def standby(loop, directory, monkeypatch):
    flooded = Flooded(loop, Broker(), directory)
    for _ in range(2):
        flooded.start(**{"standby.enabled": "true", "standby.ttl": TTL})
    return flooded


def cluster(loop, directory, monkeypatch):
    flooded = Flooded(loop, Clusters(loop, directory, monkeypatch).broker, directory)
    for node in ("one", "two"):
        flooded.start(**{"cluster.engine": "nats://memory", "cluster.node": node, "cluster.ttl": TTL})
    return flooded


WAYS = (alone, homeassistant, standby, cluster)
EXPECTED = {
    alone: {"app/healthy/set", "app/healthy/get", "app/status", "app/introspect", "other/healthy/topic"},
    homeassistant: {"homeassistant/status", "homeassistant/device/app/healthy/config"},
    standby: {"app/lease", "app/nodes/healthy", "app/status"},
    cluster: {"app/nodes/one/drain", "app/nodes/two/introspect"},
}
"""Topics at which such an app hears something, among others."""


@pytest.fixture
def flooded(request, loop, tmp_path, monkeypatch):
    flooded = request.param(loop, tmp_path, monkeypatch)
    yield flooded
    flooded.stop()


def topics_under(topic_filter):
    """Topics that a subscription receives, one of them about a device that exists."""
    if topic_filter.endswith("/#"):
        above = topic_filter[:-2]
        return {above, f"{above}/2", f"{above}/x/y"}
    return {topic_filter.replace("+", name) for name in ("healthy", "nobody")}


def attacks():
    for number in itertools.count():
        yield KINDS[number % len(KINDS)]
        every = documents(number)
        yield {"payload": every[number % len(every)]}
        yield {"payload": every[number * 3 % len(every)]}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("way", "flooded"), [(way, way) for way in WAYS], indirect=["flooded"])
def test_no_inbound_topic_fills_the_log_or_the_memory_or_delays_polls(way, flooded, caplog):
    caplog.set_level("INFO")
    flooded.run(20)
    filters = {each for client in flooded.broker._clients.values() for each in client.filters}
    topics = sorted(set().union(*map(topics_under, filters)))
    assert EXPECTED[way] <= {*topics}

    for topic in topics:
        flood(flooded, topic)  # what is remembered once is no growth
        caplog.clear()
        flooded.broker.log.clear()
        tracemalloc.start()
        flood(flooded, topic)
        readings, lines = flooded.readings(), [record.getMessage()[:100] for record in caplog.records]
        caplog.clear()
        flooded.broker.log.clear()
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(lines) <= MAX_LINES, (topic, lines[:: len(lines) // 10])
        assert readings >= 10, topic
        assert held < MAX_BYTES, (topic, held)


def flood(flooded, topic):
    send = flooded.broker.send
    for number, attack in enumerate(itertools.islice(attacks(), MESSAGES)):
        send(topic, **attack)
        if topic.endswith("hold/set"):
            send(topic.replace("hold", "release"))
        if number % 100 == 99:
            flooded.run(0.1)
    send("app/healthy/release/set")
    send("app/healthy/circuit/set", b'"close"')
    if topic.endswith("/drain"):
        send(topic, {"drain": False})
    flooded.run(20)


class Planted:
    """A retained message, whose bytes nobody but its receiver keeps."""

    retain = True

    def __init__(self, make):
        self._make = make

    @property
    def payload(self):
        return self._make()


def ghosts(payload, number, size):
    """A document of ours about a device that there is none of, of so many bytes."""
    made = payload.replace(b"healthy", b"ghost%d" % number)
    return made[:-1] + b',"more":"' + b"x" * size + b'"}' if made.endswith(b"}") else made


@pytest.mark.parametrize("size", [10, 200_000])
@pytest.mark.parametrize("way", [alone, homeassistant])
def test_what_anybody_retained_fills_neither_the_log_nor_the_memory_of_the_next_start(
    way, size, loop, tmp_path, monkeypatch, caplog
):
    first = way(loop, tmp_path, monkeypatch)
    first.run(20)
    first.stop()
    kept = {topic: each.payload for topic, each in first.broker.retained.items()}
    second = way(loop, tmp_path, monkeypatch)
    for topic, payload in kept.items():
        for number in range(MESSAGES):
            name = topic.replace("healthy", f"ghost{number}")
            if topic == "app/registry":
                name = f"app/registry/{number + 2}"
            if name != topic:
                second.broker.retained[name] = Planted(functools.partial(ghosts, payload, number, size))
    second.broker.retained["app/registry"] = Planted(lambda: kept["app/registry"])
    caplog.clear()
    caplog.set_level("INFO")
    tracemalloc.start()
    second.run(0.9)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    second.run(59.1)
    second.stop()

    assert held < MAX_READ_BYTES
    assert len(caplog.records) <= MAX_LINES
    assert second.readings() >= 59
    left = {topic for topic in second.broker.retained if topic.endswith("/config")}
    assert size > 10 or not [topic for topic in left if "ghost" in topic]
    described = json.loads(second.broker.retained["app/registry"].payload)["devices"]
    assert "healthy" in described
