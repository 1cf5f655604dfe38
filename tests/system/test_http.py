"""The HTTP endpoint of a real app process, with a real broker."""

import contextlib
import json
import socket
import time
import urllib.request

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
    until = time.monotonic() + 20
    while True:
        with contextlib.suppress(ConnectionError, urllib.error.URLError):
            return opener.open(request, timeout=10)
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
    assert took < 2.5
    assert f"The page of the app is at http://127.0.0.1:{port}" in app.log
    assert "uvicorn" not in app.log
    assert "Traceback" not in app.log


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
