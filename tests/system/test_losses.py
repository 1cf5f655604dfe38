"""A device whose readings a real broker does not take, or does not keep: the heartbeat, `leadsman why` and `leadsman
doctor` are asked about the same faults, and must agree."""

import json
import re
import subprocess
import sys
import time
from typing import NamedTuple

import pytest

from leadsman.testing import Mosquitto
from leadsman_rigs.listener import Listener

LEADSMAN = [sys.executable, "-m", "leadsman"]
HOUSE = """
app = App("loss", mqtt=os.environ["URL"])
n = 0

@app.telemetry("well", interval=0.2)
async def well():
    return {"t": 21.0}

@app.telemetry(["bad", "worse"], interval=0.2)
async def bad():
    global n
    n += 1
    return {"t": n, "text": "x" * (%s)}
"""


class Fault(NamedTuple):
    """A fault of a broker."""

    conf: str
    access: str
    text: str
    """How long the text is that the bad devices return."""
    advice: str
    """What `why` and the doctor say is to be done."""
    query: str = ""


FAULTS = {
    "each fifth reading of two is too large": Fault(
        "max_packet_size 8000\n", "", "12000 if n % 10 < 2 else 3", "limit on the size"
    ),
    "each reading is too large": Fault("max_packet_size 8000\n", "", "12000", "limit on the size"),
    "two devices are denied": Fault("", "topic deny loss/bad/state\ntopic deny loss/worse/state\n", "3", "access list"),
    "two devices are denied under MQTT 3.1.1": Fault(
        "", "topic deny loss/bad/state\ntopic deny loss/worse/state\n", "3", "access list", "?protocol=3.1.1"
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_all_that_is_asked_names_both_devices_with_the_same_remedy(name, tmp_path, start_app):
    fault = FAULTS[name]
    access = tmp_path / "access"
    access.write_text(f"topic readwrite #\n{fault.access}")
    with Mosquitto(f"{fault.conf}acl_file {access}\n") as broker, Listener(broker.port) as listener:
        start_app(HOUSE % fault.text, broker.url + fault.query)
        listener.wait_for("loss/well/state", 3)
        status = listener.wait_for("loss/status", where=lambda message: len(faults_in(message.payload)) == 2)[-1]
        document = json.loads(status.payload)
        assert document["health"] == "degraded"
        assert faults_in(status.payload) == {"loss/bad/state", "loss/worse/state"}

        deadline = time.monotonic() + 60
        while not agreed(broker, fault):  # the broker may close the connection on what it denies, again and again
            assert time.monotonic() < deadline, asked(broker, "doctor") | {"why": asked(broker, "why")}
        if "fifth" in name:  # single readings are no silence
            shown = subprocess.run([*LEADSMAN, "why", *at(broker)], capture_output=True, text=True, timeout=120).stdout
            assert "bad lost" in shown
            assert not re.search("bad was silent.*dropped", shown)


def faults_in(payload):
    return set((json.loads(payload or b"{}").get("mqtt") or {}).get("faults", {}))


def at(broker):
    return ["--prefix", "loss", "--mqtt", broker.url]


def asked(broker, command):
    done = subprocess.run([*LEADSMAN, command, *at(broker), "--json"], capture_output=True, text=True, timeout=120)
    return json.loads(done.stdout)


def agreed(broker, fault):
    """Whether both name both devices, with the same remedy."""
    verdicts = {each["device"]: each for each in asked(broker, "why")}
    found = [each for each in asked(broker, "doctor")["findings"] if each["verdict"] == "fail"]
    return verdicts.keys() >= {"bad", "worse"} and all(
        verdicts[name]["state"] == "broken"
        and fault.advice in verdicts[name]["advice"]
        and any(f"loss/{name}/state" in each["text"] and fault.advice in each["advice"] for each in found)
        for name in ("bad", "worse")
    )
