"""Messages that a real broker sends again: their PUBACK was lost, or an older version of the app has left a filter."""

import json
import time

import pytest

from leadsman_rigs.losing_proxy import LosingProxy

GATE = """
from typing import Literal

@app.command("door")
async def door(step: int):
    with open(os.environ["CALLS"], "a") as file:
        file.write(f"{step}\\n")

@app.subscribe("FILTER", event="bell", device_class="button")
async def bell(action: str) -> Literal["short", "long"]:
    return action
"""

pytestmark = pytest.mark.usefixtures("client")


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """The commands that were executed, by all runs of the app."""
    path = tmp_path / "calls"
    path.touch()
    monkeypatch.setenv("CALLS", str(path))
    return lambda: path.read_text().split()


@pytest.fixture
def losing(mosquitto):
    with LosingProxy(mosquitto.port) as proxy:
        yield proxy


def gate(topic_filter="doors/+/press"):
    return GATE.replace("FILTER", topic_filter)


def send(listener, topic, payload, qos=1):
    listener.client.publish(topic, payload, qos).wait_for_publish(60)


def result(message):
    return json.loads(message.payload)


def is_online(message):
    return result(message)["state"] == "online"


def wait_for_results(listener, count):
    return [result(each) for each in listener.wait_for("sys/door/set/result", count=count)]


@pytest.mark.parametrize(("protocol", "qos"), [("", 1), ("", 2), ("?protocol=3.1.1", 1)])
def test_a_command_whose_acknowledgement_is_lost_is_executed_once(
    mosquitto, losing, listen, start_app, calls, protocol, qos
):
    listener = listen(mosquitto.port)
    start_app(gate(), losing.url + protocol)
    listener.wait_for("sys/door/availability")
    losing.loses = True
    send(listener, "sys/door/set", b"1", qos)
    assert losing.lost.wait(60)
    wait_for_results(listener, 1)
    losing.loses = False
    losing.cut()
    listener.wait_for("sys/door/availability", count=2)  # the next connection has its subscriptions
    send(listener, "sys/door/set", b"2", qos)
    wait_for_results(listener, 2)

    assert calls() == ["1", "2"]


def test_a_command_that_a_killed_run_has_executed_is_refused_and_one_that_waited_is_executed(
    mosquitto, losing, listen, start_app, calls, tmp_path
):
    listener = listen(mosquitto.port)
    app = start_app(gate(), losing.url, state=tmp_path / "state")
    listener.wait_for("sys/status")
    losing.loses = True
    send(listener, "sys/door/set", b"1")
    assert losing.lost.wait(60)
    wait_for_results(listener, 1)
    app.kill()
    losing.loses = False
    send(listener, "sys/door/set", b"2")
    start_app(gate(), losing.url, state=tmp_path / "state")
    listener.wait_for("sys/door/set/result", where=lambda message: result(message)["status"] == "error")
    deadline = time.monotonic() + 60  # the result of the first one may have come twice: its PUBACK may be lost, too
    while calls() != ["1", "2"] and time.monotonic() < deadline:
        time.sleep(0.01)

    assert calls() == ["1", "2"]
    results = map(result, listener.on("sys/door/set/result"))
    (error,) = [each["error"] for each in results if each["status"] == "error"]
    assert error == "the app was restarted, and may have handled this request before; send it again"


@pytest.mark.parametrize("filters", [("doors/+/press", "doors/#"), ("doors/#", "doors/+/press")])
@pytest.mark.parametrize("state", ["kept", "lost"])
@pytest.mark.parametrize("killed", [False, True])
def test_an_event_comes_once_after_an_update_that_changes_the_filter(
    mosquitto, listen, start_app, calls, tmp_path, filters, state, killed
):
    listener = listen(mosquitto.port)
    app = start_app(gate(filters[0]), mosquitto.url, state=tmp_path / "0")
    listener.wait_for("sys/status")
    send(listener, "doors/front/press", b"short")
    listener.wait_for("sys/bell/state")
    if killed:
        app.kill()
    else:
        app.end()
    seen = len(listener.wait_for("sys/status", where=is_online))
    start_app(gate(filters[1]), mosquitto.url, state=tmp_path / ("0" if state == "kept" else "1"))
    listener.wait_for("sys/status", count=seen + 1, where=is_online)
    before = len(listener.on("sys/bell/state"))
    for word in (b"short", b"long"):
        send(listener, "doors/front/press", word)
    listener.wait_for("sys/bell/state", where=lambda message: b"long" in message.payload)

    assert [result(each)["event_type"] for each in listener.on("sys/bell/state")[before:]] == ["short", "long"]
