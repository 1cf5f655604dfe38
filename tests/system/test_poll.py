"""`leadsman poll`, asked of a running app on a real broker."""

import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from leadsman_rigs.listener import Listener

HOUSE = """
from typing import Annotated
from pydantic import BaseModel
from leadsman import Sensor
from leadsman.errors import DeviceTimeout

app = App("sys", mqtt=os.environ["URL"])

class Air(BaseModel):
    celsius: Annotated[float, Sensor("°C", precision=1)]

@app.telemetry("kitchen", interval="1h")
async def kitchen() -> Air:
    return Air(celsius=21.3456)

@app.telemetry("boiler", interval="1h")
async def boiler() -> Air:
    raise DeviceTimeout("no answer within 3s")

@app.source("door")
async def door():
    yield {"open": True}
    await asyncio.Event().wait()
"""


def poll(mosquitto, *arguments):
    command = [sys.executable, "-m", "leadsman", "poll", *arguments, "--mqtt", mosquitto.url]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def house(mosquitto, start_app):
    app = start_app(HOUSE, mosquitto.url)
    with Listener(mosquitto.port) as listener:
        listener.wait_for("sys/registry")
        listener.wait_for("sys/kitchen/state")
    return app


def test_a_device_is_polled_now_and_its_reading_or_error_is_printed(house, mosquitto):
    time.sleep(1)  # the throttle of requested polls

    kitchen = poll(mosquitto, "kitchen")
    assert (kitchen.returncode, kitchen.stdout, kitchen.stderr) == (0, "kitchen: celsius 21.3 °C\n", "")
    time.sleep(1)
    assert json.loads(poll(mosquitto, "kitchen", "--json", "--prefix", "sys").stdout) == {"celsius": 21.3456}

    boiler, door, typo = poll(mosquitto, "boiler"), poll(mosquitto, "door"), poll(mosquitto, "kitchn")
    assert (boiler.returncode, boiler.stdout) == (1, "")
    assert "DeviceTimeout: no answer within 3s" in boiler.stderr
    assert (door.returncode, "is a source" in door.stderr) == (1, True)
    assert (typo.returncode, "did you mean 'kitchen'?" in typo.stderr) == (2, True)


def test_where_nobody_listens_it_says_so_at_once(mosquitto):
    nobody = poll(mosquitto, "kitchen", "--prefix", "nobody", "--timeout", "60s")

    assert (nobody.returncode, nobody.stdout) == (1, "")
    assert "nobody listens there; check that the app is running" in nobody.stderr


def test_a_poll_with_a_payload_as_the_page_about_commands_does_it(mosquitto, start_app):
    page = Path("docs/how-to/commands.md").read_text()
    (code,) = [each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "request=" in each]
    (command,) = re.findall(r"^    (mosquitto_rr .*house/waste/get.*)$", page, re.MULTILINE)
    start_app(code.replace('App("house")', 'App("house", mqtt=os.environ["URL"])'), mosquitto.url)
    with Listener(mosquitto.port) as listener:
        listener.wait_for("house/waste/state")

    def asked(payload):
        words = [*shlex.split(command)[:-1], payload, "-p", str(mosquitto.port), "-W", "60"]
        time.sleep(1)  # the throttle
        return json.loads(subprocess.run(words, check=True, capture_output=True, text=True, timeout=90).stdout)

    assert len(asked(shlex.split(command)[-1])["data"]["dates"]) == 14
    assert asked("32")["error"] in " ".join(page.split())
    assert len(asked("{}")["data"]["dates"]) == 7
