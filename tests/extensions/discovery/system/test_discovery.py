"""An app describes its devices at a real broker."""

import json
import time

import paho.mqtt.client as paho
import pytest

from leadsman.testing import Mosquitto
from leadsman_rigs.processes import app_process, program_process

OWN = "homeassistant/device/sys"
APP = """
app = App("sys", mqtt=os.environ["URL"], discovery="homeassistant")

from pydantic import BaseModel

class Air(BaseModel):
    co2: int
    temperature: float

class OnlyCo2(BaseModel):
    co2: int
"""
DEVICES = """
async def read() -> {returns}:
    return {{"co2": 400, "temperature": 21.5}}

app.add_telemetry({names}, read, interval=1)
"""


def devices(*names, returns="Air"):
    return APP + DEVICES.format(names=list(names), returns=returns)


def wait_until(true, timeout=60.0):
    deadline = time.monotonic() + timeout
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def retained(listen, port, **options):
    """What the broker has, by topic. The last message of the app is its goodbye or its will."""
    listener = listen(port, **options)
    listener.wait_for("sys/status")
    wait_until(lambda: time.monotonic() - listener.messages[-1][0] > 0.5)
    return {message.topic: message.payload for _, message in list(listener.messages) if message.retain}


def described(found):
    return {topic.split("/")[-2] for topic in found if topic.startswith(OWN)}


@pytest.mark.usefixtures("client")
def test_a_device_is_described_and_gone_when_it_is_removed(mosquitto, listen, start_app):
    app = start_app(devices("kitchen", "attic"), mosquitto.url)
    watching = listen(mosquitto.port)
    for key in ("kitchen", "attic", "leadsman_app"):
        watching.wait_for(f"{OWN}/{key}/config")
    watching.wait_for("sys/kitchen/health")
    assert app.end()[0] == 0
    found = retained(listen, mosquitto.port)
    assert described(found) == {"kitchen", "attic", "leadsman_app"}
    assert json.loads(found["sys/kitchen/health"])["status"] == "ok"

    app = start_app(devices("kitchen"), mosquitto.url)
    watching.wait_for(f"{OWN}/attic/config", where=lambda message: not message.payload)
    assert app.end()[0] == 0

    assert described(retained(listen, mosquitto.port)) == {"kitchen", "leadsman_app"}


def test_a_field_that_is_gone_leaves_in_two_steps(mosquitto, listen, start_app):
    watching = listen(mosquitto.port)
    app = start_app(devices("kitchen"), mosquitto.url)
    watching.wait_for(f"{OWN}/kitchen/config")
    assert app.end()[0] == 0

    start_app(devices("kitchen", returns="OnlyCo2"), mosquitto.url)

    def components():
        return [json.loads(each.payload)["cmps"] for each in watching.on(f"{OWN}/kitchen/config")]

    wait_until(lambda: any(each.get("temperature") == {"p": "sensor"} for each in components()))
    wait_until(lambda: "temperature" not in components()[-1])


def test_a_birth_brings_the_configuration_again(mosquitto, listen, start_app):
    watching = listen(mosquitto.port)
    start_app(devices("kitchen"), mosquitto.url)
    watching.wait_for(f"{OWN}/kitchen/config")

    watching.client.publish("homeassistant/status", "online", 1).wait_for_publish(10)

    watching.wait_for(f"{OWN}/kitchen/config", 2)


def test_a_broker_that_forgot_everything_gets_it_again(mosquitto, listen, start_app):
    watching = listen(mosquitto.port)
    start_app(devices("kitchen"), mosquitto.url)
    watching.wait_for(f"{OWN}/kitchen/config")

    mosquitto.kill()
    mosquitto.start()

    watching.wait_for(f"{OWN}/kitchen/config", 2)


def test_an_old_broker_has_it_too(old_broker, listen, start_app):
    watching = listen(old_broker, version=paho.MQTTv311)
    start_app(devices("kitchen"), f"mqtt://127.0.0.1:{old_broker}")

    watching.wait_for(f"{OWN}/kitchen/config")
    watching.wait_for("sys/kitchen/health")


def test_the_flag_switches_it_on(mosquitto, listen, tmp_path):
    (tmp_path / "house.py").write_text(
        "from leadsman import App\napp = App('sys')\n"
        "@app.telemetry('kitchen', interval=1)\nasync def read():\n    return {'co2': 400}\n"
    )
    watching = listen(mosquitto.port)
    arguments = ["run", str(tmp_path / "house.py"), "--mqtt", mosquitto.url, "--discovery", "homeassistant"]
    app = program_process("leadsman", arguments, tmp_path / "app.log", XDG_STATE_HOME=str(tmp_path))
    try:
        watching.wait_for(f"{OWN}/kitchen/config")
    finally:
        app.end()


def test_a_broker_that_refuses_discovery_costs_no_reading(listen, tmp_path):
    rules = tmp_path / "acl"
    rules.write_text("topic readwrite sys/#\ntopic read #\n")
    with Mosquitto(f"acl_file {rules}\n") as broker:
        watching = listen(broker.port)
        app = app_process(devices("kitchen"), broker.url, tmp_path / "app.log")
        try:
            watching.wait_for("sys/kitchen/state", 5)
            app.wait_for(f"{OWN}/kitchen/config")
        finally:
            app.end()
