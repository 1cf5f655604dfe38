"""Other clients of the broker, and other users of the machine, that mean harm."""

import json
import os
import time

import paho.mqtt.client as paho
import psutil
import pytest

from leadsman.testing import Mosquitto
from leadsman.testing.mosquitto import free_port

COMMANDED = """
n = 0
@app.telemetry("meter", interval=0.2)
async def meter():
    global n
    n += 1
    return {"n": n}

@app.command("meter")
async def obey(on: bool) -> dict:
    return {"on": on}
"""


def publish_retained(port, topic, payload):
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.connect("127.0.0.1", port)
    client.loop_start()
    client.publish(topic, payload, qos=1, retain=True).wait_for_publish(60)
    client.disconnect()
    client.loop_stop()


@pytest.mark.parametrize(("protocol", "scheme"), [("5.0", "mqtt"), ("5.0", "ws"), ("3.1.1", "mqtt")])
@pytest.mark.usefixtures("client")
def test_a_retained_command_of_many_megabytes_never_comes_and_readings_go_on(protocol, scheme, listen, start_app):
    ports = {"mqtt": free_port(), "ws": free_port()}
    with Mosquitto(f"listener {ports['mqtt']}\nlistener {ports['ws']}\nprotocol websockets\n") as mosquitto:
        publish_retained(mosquitto.port, "sys/meter/set", b"[" * 50_000_000)
        listener = listen(mosquitto.port)

        app = start_app(COMMANDED, f"{scheme}://127.0.0.1:{ports[scheme]}?protocol={protocol}")
        if protocol == "3.1.1":  # such a broker cannot be told, and sends it
            app.wait_for("a message of 50000022 bytes from the broker was passed over: 262144 are allowed")
        listener.wait_for("sys/meter/state", 10)

        assert psutil.Process(app.process.pid).memory_info().rss < 100 * 2**20
        assert app.log.count("connected to the broker") == 1
        assert app.end()[0] == 0


@pytest.fixture
def state(tmp_path, monkeypatch):
    directory = tmp_path / "state"
    directory.mkdir()
    monkeypatch.setenv("STATE_DIRECTORY", str(directory))
    return directory


STORING = """
@app.telemetry("d", interval=0.1, retry=1)
async def count(context: Context) -> dict:
    context.store["n"] = context.store.get("n", 0) + 1
    await asyncio.to_thread(context.store.save)
    return {"n": context.store["n"]}
"""


def test_links_that_another_user_has_put_into_the_state_directory_are_not_written_through(start_app, state, tmp_path):
    victims = {}
    for name in ("outbox.db", "resilience.db", "d.tmp", "d.json"):
        victims[name] = tmp_path / f"victim of {name}"
        victims[name].write_text("precious")
        (state / name).symlink_to(victims[name])

    app = start_app(STORING, "mqtt://127.0.0.1:9")
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and "outbox.db" not in app.log:
        time.sleep(0.1)
    time.sleep(1)

    assert app.process.poll() is None
    assert {name: victim.read_text() for name, victim in victims.items()} == dict.fromkeys(victims, "precious")


def test_a_state_directory_that_is_a_link_to_another_one_is_used_as_that(start_app, state, tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(state)
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "link"))

    app = start_app(STORING, "mqtt://127.0.0.1:9")
    deadline = time.monotonic() + 30
    while not (state / "d.json").exists():
        assert time.monotonic() < deadline, app.log
        time.sleep(0.1)

    assert json.loads((state / "d.json").read_text())["n"] >= 1
    assert os.stat(state / "d.json").st_mode & 0o777 == 0o600
