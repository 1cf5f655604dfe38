"""What a real Home Assistant shows of an app that two nodes of a cluster share, when one of them dies.

The other node takes over before the broker sends the last will of the first one, so nothing is unavailable meanwhile.
"""

import time

import pytest

from leadsman_rigs.nats_server import NatsServer

pytestmark = [pytest.mark.home_assistant, pytest.mark.slow]

ROOMS = ["kitchen", "hall", "bath", "cellar", "study", "porch"]
NAMES = [f"shared--{room}--process" for room in ROOMS]
APP = """
from pydantic import BaseModel

class Room(BaseModel):
    process: int

os.environ.update(CLUSTER__ENGINE="{engine}", CLUSTER__NODE="{node}", CLUSTER__TTL="3s")
app = App("shared", mqtt=os.environ["URL"], discovery="homeassistant")

@app.telemetry({rooms}, interval="1h")
def room() -> Room:
    return Room(process=os.getpid())
"""


def readers(home):
    """The process that has read each room."""
    states = home.states()
    return {name: states[name]["state"] for name in NAMES if name in states}


def entities(home):
    """The entities of all rooms, and of which devices they are."""
    rooms = {device["id"] for device in home.devices().values() if device["name"] in ROOMS}
    found = [each for each in home.entities().values() if each["device_id"] in rooms]
    return sorted((each["entity_id"], each["device_id"]) for each in found)


def test_the_devices_of_a_node_that_is_killed_come_back_with_the_values_of_the_other_one(home, broker, start_app):
    with NatsServer() as engine:
        code = {node: APP.format(engine=engine.url, node=node, rooms=ROOMS) for node in ("one", "two")}
        one, two = (start_app(each, broker.url) for each in code.values())
        lost, left = str(one.process.pid), str(two.process.pid)
        deadline = time.monotonic() + 120
        while sorted(readers(home)) != sorted(NAMES) or set(readers(home).values()) != {lost, left}:
            assert time.monotonic() < deadline, readers(home)
            time.sleep(0.1)
        before = entities(home)
        assert len({device for _, device in before}) == len(ROOMS)

        one.kill()
        home.wait_for(dict.fromkeys(NAMES, left))

        assert entities(home) == before
        two.end()
