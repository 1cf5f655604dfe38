"""The HTTP endpoint of a real app process, with a real broker."""

import contextlib
import itertools
import json
import socket
import statistics
import time
import urllib.request
from collections import deque

import psutil

from leadsman.testing.mosquitto import free_port

CODE = """
import os
os.environ["HTTP__BIND"] = "127.0.0.1:%d"

@app.telemetry("door", interval=1)
async def door() -> dict:
    return {"open": False}
"""


def ask(port, path, method="GET"):
    """The answer, once the endpoint is there."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    until = time.monotonic() + 60
    while True:
        with contextlib.suppress(ConnectionError, urllib.error.URLError):
            return opener.open(request, timeout=60)
        assert time.monotonic() < until
        time.sleep(0.05)


def test_an_app_is_watched_and_acted_upon_and_ends_at_once_with_a_stream_open(mosquitto, listen, start_app):
    port = free_port()
    broker = listen(mosquitto.port)
    app = start_app(CODE % port, mosquitto.url)
    with ask(port, "/events") as events:
        assert events.readline().startswith(b"retry:")
        broker.wait_for("sys/door/state")
        found = json.load(ask(port, "/introspect"))
        assert found["mqtt"]["connected"] is True
        assert found["devices"]["door"]["runtime"]["status"] == "ok"
        assert b"<html" in ask(port, "/").read()
        assert json.load(ask(port, "/devices/door/hold", "POST")) == {"device": "door", "held": True}
        broker.wait_for("sys/door/availability", where=lambda message: message.payload == b"offline")
        text = b"".join(events.readline() for _ in range(6))
        assert b'"type":"beat"' in text

        code, took = app.end()

    assert code == 0
    assert took < 6
    assert f"The page of the app is at http://127.0.0.1:{port}" in app.log
    assert "uvicorn" not in app.log
    assert "Traceback (most" not in app.log


def test_a_port_in_use_is_named_in_the_log_and_at_the_error_topic_and_the_app_runs(mosquitto, listen, start_app):
    broker = listen(mosquitto.port)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        app = start_app(CODE % port, mosquitto.url)
        fault = json.loads(broker.wait_for("sys/error")[-1].payload)
        broker.wait_for("sys/door/state")

    assert (fault["where"], fault["type"]) == ("the HTTP endpoint", "EndpointError")
    assert "another program uses it; stop that one" in fault["message"]
    assert app.end()[0] == 0
    assert "another program uses it; stop that one" in app.log


CONNECTIONS = 10_000
OPEN = 80
"""More than the endpoint keeps at the same time, so that it ends the oldest one with each that comes."""
POLLED = """
@app.telemetry("clock", interval=0.1)
async def clock() -> dict:
    return {"at": time.monotonic()}
"""


def crowd(port):
    """Make connections that send a byte now and then, and never a request. How many of them the endpoint ended, and
    what it answered to others meanwhile."""
    crowd, ended, answers = deque(), 0, []
    for number in range(CONNECTIONS):
        crowd.append(socket.create_connection(("127.0.0.1", port), 60))
        for slow in (crowd[-1], crowd[len(crowd) // 2]):
            slow.sendall(b"G")
        if len(crowd) == OPEN:
            with crowd.popleft() as oldest, contextlib.suppress(ConnectionResetError):
                assert oldest.recv(1) == b""
            ended += 1
        if number % 1000 == 999:
            answers.append(ask(port, "/livez").status)
    for each in crowd:
        each.close()
    return ended, answers


def test_ten_thousand_slow_connections_disturb_neither_the_polls_nor_others_and_leave_nothing(
    mosquitto, listen, start_app
):
    port = free_port()
    broker = listen(mosquitto.port)
    app = start_app(CODE % port + POLLED, mosquitto.url)
    broker.wait_for("sys/clock/state", 5)
    ask(port, "/livez")
    process = psutil.Process(app.process.pid)
    files, memory, before = process.num_fds(), process.memory_info().rss, len(broker.on("sys/clock/state"))

    ended, answers = crowd(port)

    polled = [json.loads(message.payload)["at"] for message in broker.on("sys/clock/state")[before:]]
    assert ended == CONNECTIONS - OPEN + 1
    assert set(answers) == {200}
    assert statistics.median(after - at for at, after in itertools.pairwise(polled)) < 0.2
    assert process.memory_info().rss - memory < 20 * 2**20
    deadline = time.monotonic() + 60
    while process.num_fds() > files + 5:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert app.end()[0] == 0
