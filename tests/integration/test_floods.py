"""What other programs send fills neither the log nor the memory, and delays no poll."""

import os
import tracemalloc

from leadsman import App

MESSAGES = int(os.environ.get("FLOOD_MESSAGES", "400"))
"""To each topic. At night there are more."""
MOST_LINES = 24
"""In the log, about the flood of one topic."""
LARGEST = 2**20
"""Bytes that a flood may leave behind."""

KINDS = (
    {"payload": b""},
    {"payload": b"{"},
    {"payload": b"\xff"},
    {"payload": b"5", "response_topic": "elsewhere/me"},
    {"payload": b"{}", "response_topic": "$share/a/b"},
    {"payload": b"5", "response_topic": "app/me", "correlation": b"x" * 2000},
    {"payload": b'"isolate"'},
    {"payload": b'"close"'},
)


def flooded_app():
    app = App("app")

    @app.telemetry("healthy", interval="1s")
    async def healthy() -> dict[str, int]:
        return {"v": 1}

    @app.command("healthy")
    async def set_healthy(x: int) -> dict[str, float]:
        return {"half": 10 / x}

    @app.subscribe("other/+/topic")
    async def other(value: int) -> None:
        assert value

    return app


def topics_under(topic_filter):
    """Topics that a subscription receives, one of them about a device that exists."""
    if topic_filter.endswith("#"):
        topic_filter = topic_filter[:-1] + "x/y"
    return {topic_filter.replace("+", name) for name in ("healthy", "nobody")}


def statuses():
    for n in range(MESSAGES):
        state = "online" if n % 2 else "offline"
        yield {"payload": {"state": state, "client_id": f"other-{n // 4}"}}


def attacks(topic):
    yield from (KINDS[n % len(KINDS)] for n in range(MESSAGES))
    if topic == "app/status":
        yield from statuses()


def test_no_inbound_topic_fills_the_log_or_the_memory_or_delays_polls(harness, caplog):
    caplog.set_level("INFO")
    running = harness(flooded_app())
    running.run("10s")
    filters = {each for client in running.broker._clients.values() for each in client.filters}
    topics = sorted(set().union(*map(topics_under, filters)))
    assert {"app/healthy/set", "app/healthy/get", "app/status", "app/introspect", "other/healthy/topic"} <= {*topics}

    for topic in topics:
        flood(running, topic)  # what is remembered once is no growth
        caplog.clear()
        running.broker.log.clear()
        tracemalloc.start()
        before = len(running.states("healthy"))
        flood(running, topic)
        readings = len(running.states("healthy")) - before
        lines = len(caplog.records)
        caplog.clear()
        running.broker.log.clear()
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert lines <= MOST_LINES, (topic, lines)
        assert readings >= 10, topic
        assert held < LARGEST, (topic, held)


def flood(running, topic):
    for n, attack in enumerate(attacks(topic)):
        send(running, topic, attack)
        if topic.endswith("hold/set"):
            send(running, topic.replace("hold", "release"), {"payload": b""})
        if n % 100 == 99:
            running.run("0.1s")
    send(running, "app/healthy/release/set", {"payload": b""})
    send(running, "app/healthy/circuit/set", {"payload": b'"close"'})
    running.run("20s")


def send(running, topic, attack):
    running.broker.send(topic, **attack)
