"""The root device at a real broker: its requests at both of its addresses, beside a device with commands."""

import json
import subprocess
import sys

from leadsman.testing import Mosquitto

APP = """
@app.telemetry(None, interval=3600)
async def meter():
    return {"t": time.time()}

@app.command(None)
async def reset(to: int):
    return {"to": to}

@app.command("lamp")
async def lamp(on: bool):
    return {"on": on}
"""
LEADSMAN = [sys.executable, "-m", "leadsman"]


def send(listener, topic, text):
    listener.client.publish(topic, text, 1).wait_for_publish(10)


def leadsman(broker, *arguments):
    done = subprocess.run([*LEADSMAN, *arguments, "--mqtt", broker.url], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_is_read_commanded_held_and_explained_at_a_real_broker(mosquitto, listen, start_app):
    listener = listen(mosquitto.port)
    start_app(APP, mosquitto.url)
    listener.wait_for("sys/state")
    listener.wait_for("sys/registry", where=lambda message: json.loads(message.payload)["root"] == "sys")

    send(listener, "sys/get", "")
    listener.wait_for("sys/state", count=2)
    send(listener, "sys/set", "5")
    listener.wait_for("sys/state", where=lambda message: json.loads(message.payload) == {"to": 5})
    send(listener, "sys/lamp/set", "true")
    listener.wait_for("sys/lamp/state")
    explained = leadsman(mosquitto, "why", "sys", "--prefix", "sys")
    send(listener, "sys/hold/set", "")
    listener.wait_for("sys/availability", where=lambda message: message.payload == b"offline")
    leadsman(mosquitto, "release", "--prefix", "sys", "sys")
    listener.wait_for("sys/availability", count=2, where=lambda message: message.payload == b"online")
    board = leadsman(mosquitto, "watch", "sys", "--once")

    assert "at sys/state" in explained
    (row,) = [line for line in board.splitlines() if line.split()[:2] == ["sys", "ok"]]
    assert "t" in row.split()
    elsewhere = {message.topic for _, message in listener.messages if message.topic.startswith("sys/sys/")}
    assert elsewhere == {"sys/sys/release/set", "sys/sys/release/set/response"}  # a tool knows only the name


DESCRIBED = """
import os

from leadsman import App, Context, Finds
from pydantic import BaseModel

app = App("sys", mqtt=os.environ.get("URL"), discovery="homeassistant")

class Climate(BaseModel):
    temperature: float

@app.source(None, finds=Finds(Climate), silence=None)
async def gateway(context: Context):
    while True:
        context.device("attic").publish(dict(temperature=20.5))
        yield dict(heard=1)
        await context.sleep(1)

@app.telemetry("broken", interval=1)
async def broken():
    raise OSError("it is away")

@app.command("lamp")
async def lamp(on: bool):
    return dict(on=on)
"""


def test_with_the_printed_access_list_nothing_of_it_and_of_found_devices_is_refused(listen, start_app, tmp_path):
    (tmp_path / "house.py").write_text(DESCRIBED)
    command = [*LEADSMAN, "acl", "house:app", "--mqtt", "mqtt://localhost"]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    (tmp_path / "acl").write_text(f"{printed}\ntopic read #\ntopic write sys/+/set\n")
    with Mosquitto(f"acl_file {tmp_path / 'acl'}\n") as broker:
        listener = listen(broker.port)
        app = start_app(DESCRIBED, broker.url)
        listener.wait_for("sys/health")
        send(listener, "sys/lamp/set", "true")
        listener.wait_for("sys/lamp/set/result")
        listener.wait_for("sys/registry", where=lambda message: b"attic" in message.payload)

        assert "refuse" not in app.log
