"""A running app, asked on the command line."""

import json
import subprocess

import paho.mqtt.client as paho
import pytest

from leadsman.testing import Mosquitto
from leadsman_rigs.service import LEADSMAN


def test_the_command_line_asks_a_running_app(service):
    table = service.leadsman("inspect", "house:app", "--live")
    assert table.returncode == 0
    assert "kitchen  ok" in table.stdout
    assert "\x1b" not in table.stdout
    document = service.leadsman("inspect", "--prefix", "house", "attic", "--section", "devices", "--json")
    assert list(json.loads(document.stdout)["devices"]) == ["attic"]
    nobody = service.leadsman("inspect", "--prefix", "nobody", "--timeout", "500ms")
    assert nobody.returncode == 1
    assert "check that the app is running there, and its prefix" in nobody.stderr
    wrong = service.leadsman("inspect", "--prefix", "house", "atic")
    assert "did you mean 'attic'" in wrong.stderr
    refused = service.leadsman(
        "inspect", "--prefix", "house", "--mqtt", f"mqtt://eve:x@localhost:{service.broker.port}"
    )
    assert refused.returncode == 1
    assert "MQTT__PASSWORD" in refused.stderr


def test_check_shows_every_setting_with_its_origin_and_no_secret(service):
    checked = service.leadsman("check", "house:app")

    assert checked.returncode == 0
    assert checked.stdout.rstrip().endswith("ok")
    rows = {line.split()[0]: line for line in checked.stdout.splitlines() if line.strip()}
    assert rows["rooms.kitchen.address"].endswith("leadsman.toml")
    assert rows["rooms.kitchen.every"].endswith("default")
    assert rows["api_key"].split()[1:] == ["********", "environment", "HOUSE_API_KEY"]
    assert rows["mqtt.password"].split()[1] == "********"
    assert "secret " not in checked.stdout.replace("secret /", "")
    assert "hunter2" not in checked.stdout


LAMP = """
@app.telemetry("d", interval=0.2)
async def d():
    return {}

@app.command("lamp")
async def lamp(on: bool):
    return {"on": on}
"""


def test_a_broker_that_speaks_3_1_1_only_carries_commands_and_introspection(old_broker, listen, start_app):
    url = f"mqtt://127.0.0.1:{old_broker}"
    start_app(LAMP, f"{url}?protocol=3.1.1")
    listener = listen(old_broker, version=paho.MQTTv311)
    listener.wait_for("sys/d/state", 2)

    listener.client.publish("sys/lamp/set", b"on", 1)
    (result,) = listener.wait_for("sys/lamp/set/result")
    asked = subprocess.run(
        [*LEADSMAN, "inspect", "--prefix", "sys", "--mqtt", f"{url}?protocol=3.1.1", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert json.loads(result.payload)["data"] == {"on": True}
    assert json.loads(asked.stdout)["mqtt"]["protocol"] == "3.1.1", asked.stderr


DEVICES = 4000
MANY = f"""
@app.telemetry([f"d{{number}}" for number in range({DEVICES})], interval="1h")
async def d():
    return {{}}
"""


@pytest.mark.parametrize("limit", ["", "max_packet_size 50000\n"])
def test_a_large_app_tells_all_in_pages_and_leaves_nothing_undelivered(listen, start_app, limit):
    with Mosquitto(limit) as mosquitto:
        app = start_app(MANY, mosquitto.url)
        listener = listen(mosquitto.port)
        pages = json.loads(listener.wait_for("sys/registry", timeout=60)[0].payload)["pages"]
        registry = [listener.on("sys/registry")[-1]]
        registry += [listener.wait_for(f"sys/registry/{page}", timeout=60)[-1] for page in range(2, pages + 1)]

        asked = subprocess.run(
            [*LEADSMAN, "inspect", "--prefix", "sys", "--mqtt", mosquitto.url, "--json", "--timeout", "30s"],
            capture_output=True,
            text=True,
            timeout=120,
        )
        listener.wait_for(f"sys/d{DEVICES - 1}/availability", timeout=60)
        listener.wait_for(f"sys/d{DEVICES - 1}/state", timeout=60)
        code, _ = app.end()

        names = {f"d{number}" for number in range(DEVICES)}
        assert {name for page in registry for name in json.loads(page.payload)["devices"]} == names
        assert set(json.loads(asked.stdout)["devices"]) == names, asked.stderr
        answers = listener.on("sys/introspect/response")
        assert len(answers) == json.loads(answers[0].payload)["pages"] > 10
        assert max(len(message.payload) for message in (*registry, *answers)) < (50_000 if limit else 128 * 1024)
        listener.wait_for("sys/status", where=lambda message: json.loads(message.payload)["state"] == "offline")
        assert code == 0
        assert "not delivered" not in app.log
        assert "dropped" not in app.log
