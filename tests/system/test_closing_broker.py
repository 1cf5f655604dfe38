"""A broker that closes the connection instead of refusing a message: mosquitto 2.0.11, in both versions of MQTT."""

import json
import time

import paho.mqtt.client as paho
import pytest

from leadsman.testing import Mosquitto

TEN_DEVICES = """
class Device:
    def __init__(self, bytes=0):
        self.n, self.bytes = 0, bytes
    async def __call__(self):
        self.n += 1
        return {"n": self.n, "at": time.time(), "ballast": "x" * self.bytes}

for number in range(9):
    app.add_telemetry(f"d{number}", Device(), interval=0.5)
app.add_telemetry("bad", Device(BYTES), interval=0.5, delivery=Delivery(qos=QOS))
"""
WITHOUT_CODEC = "sys.modules['mqtt5'] = None\n"
CASES = {  # what the access list denies, the bytes of the bad device's readings, their quality, the version of MQTT
    "denied": ("sys/bad/state", 10, 1, "5.0"),
    "denied, aiomqtt": ("sys/bad/state", 10, 1, "5.0"),
    "denied, 3.1.1": ("sys/bad/state", 10, 1, "3.1.1"),
    "denied, quality 0": ("sys/bad/state", 10, 0, "5.0"),
    "too large": (None, 9000, 1, "5.0"),
    "too large, aiomqtt": (None, 9000, 1, "5.0"),
    "too large, 3.1.1": (None, 9000, 1, "3.1.1"),
    "own status": ("sys/status", 10, 1, "5.0"),
    "own status, 3.1.1": ("sys/status", 10, 1, "3.1.1"),
    "own registry": ("sys/registry", 10, 1, "5.0"),
    "own availability": ("sys/d3/availability", 10, 1, "5.0"),
}
READINGS = 16
"""Of each device that is well: eight seconds of them."""


class Case:
    """One app beside one broker, and what came of it."""

    def __init__(self, name, directory, start_app, listen):
        self.denied, size, quality, version = CASES[name]
        access = directory / f"access of {name}"
        access.write_text("topic readwrite #\n" + (f"topic deny {self.denied}\n" if self.denied else ""))
        access.chmod(0o644)
        self.broker = Mosquitto(f"acl_file {access}\nmessage_size_limit 5000\n").__enter__()
        self.listener = listen(self.broker.port, version=paho.MQTTv311)
        code = TEN_DEVICES.replace("BYTES", str(size)).replace("QOS", str(quality))
        if "aiomqtt" in name:
            code = WITHOUT_CODEC + code
        self.app = start_app(code, f"{self.broker.url}?protocol={version}")

    def readings(self, device):
        return [
            (at, json.loads(message.payload))
            for at, message in self.listener.messages
            if message.topic == f"sys/{device}/state"
        ]

    def all_readings(self, device):
        """The readings of a device, once none is missing up to the last of them. After a break the newest may come
        first, over MQTT 5."""
        last = max(reading["n"] for _, reading in self.readings(device))
        deadline = time.monotonic() + 60
        while True:
            readings = [each for each in self.readings(device) if each[1]["n"] <= last]
            numbers = {reading["n"] for _, reading in readings}
            if missing := {*range(min(numbers), last + 1)} - numbers:
                assert time.monotonic() < deadline, f"{sorted(missing)} of {device} are missing; {self.app.log}"
                time.sleep(0.1)
            else:
                return readings


@pytest.fixture(scope="module")
def cases(tmp_path_factory, start_app_for_all, listen_all_along):
    """All of them at once: each takes seconds, and nearly all of it is waiting."""
    directory = tmp_path_factory.mktemp("cases")
    cases = {name: Case(name, directory, start_app_for_all, listen_all_along) for name in CASES}
    for case in cases.values():
        for number in range(9):
            case.listener.wait_for(f"sys/d{number}/state", READINGS, timeout=120)
    yield cases
    for case in cases.values():
        case.broker.stop()


@pytest.mark.parametrize("name", CASES)
def test_a_topic_on_which_the_broker_closes_the_connection_costs_the_other_devices_nothing(cases, name):
    case = cases[name]
    ages = []
    for number in range(9):
        readings = case.all_readings(f"d{number}")
        numbers = [reading["n"] for _, reading in readings]
        ages += [time.time() - time.monotonic() + at - reading["at"] for at, reading in readings]

        assert max(numbers) >= READINGS - 6

    assert max(ages) < 20
    assert sorted(ages)[len(ages) // 2] < 3


@pytest.mark.parametrize("name", CASES)
def test_the_topic_is_named_and_no_other_client_is_blamed(cases, name):
    case = cases[name]

    assert f"The broker refuses messages to {case.denied or 'sys/bad/state'}: " in case.app.log
    assert "check its access list" in case.app.log
    assert "another client" not in case.app.log
    assert case.app.log.count("onnect") < 20
