"""Processes of one app that share its devices by the leases of a real engine."""

import json
import signal
import sys
import time
from collections import Counter
from contextlib import contextmanager

import mqtt5
import pytest

from leadsman.testing import Mosquitto
from leadsman.testing.mosquitto import free_port
from leadsman_rigs.byte_broker import ByteBroker
from leadsman_rigs.nats_server import NatsServer
from leadsman_rigs.processes import HEADER, Process

pytestmark = pytest.mark.system

TTL = 3.0
DEVICES = [f"meter-{number}" for number in range(30)]
METERS = f"""
import socket
NODE = os.environ["CLUSTER__NODE"]

@app.telemetry({DEVICES!r}, interval=0.2)
async def read():
    return {{"node": NODE}}

@app.command("valve")
async def valve():
    return {{"node": NODE}}
"""


@contextmanager
def running(tmp_path, url, code=METERS):
    started = []

    def start(node, engine, **environment):
        command = [sys.executable, "-c", f"{HEADER}{code}\napp.run()\n"]
        options = {"URL": url, "PYTHONWARNINGS": "error", "XDG_STATE_HOME": str(tmp_path / node), **environment}
        cluster = {"CLUSTER__ENGINE": engine, "CLUSTER__NODE": node, "CLUSTER__TTL": f"{TTL:g}s"}
        started.append(Process(command, tmp_path / f"{node}.log", **options, **cluster))
        return started[-1]

    try:
        yield start
    finally:
        for each in started:
            if each.process.poll() is None:
                each.process.send_signal(signal.SIGCONT)
                each.kill()


@pytest.fixture
def start_node(tmp_path, mosquitto):
    with running(tmp_path, mosquitto.url) as start:
        yield start


@pytest.fixture(scope="module")
def nats():
    with NatsServer() as server:
        yield server


def until(condition, seconds=90.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def fence_of(message):
    return int(dict(message.properties.UserProperty)["fence"])


class Readings:
    """What a listener has of the devices."""

    def __init__(self, listener):
        self.listener = listener

    def all(self):
        """The readings: when they came, of which device, from which node, and with which token."""
        return [
            (at, message.topic.split("/")[1], json.loads(message.payload)["node"], fence_of(message))
            for at, message in list(self.listener.messages)
            if message.topic.startswith("sys/meter-") and message.topic.endswith("/state")
        ]

    def owners(self, since):
        """The nodes that each device was read by since then."""
        found = {}
        for at, device, node, _ in self.all():
            if at >= since:
                found.setdefault(device, set()).add(node)
        return found

    def wait_until_read(self, nodes, since, timeout=30.0):
        """Wait until all devices were read since then by these nodes. Returns the time of the last first reading."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            first = {}
            for at, device, node, _ in self.all():
                if at >= since and node in nodes:
                    first.setdefault(device, at)
            if len(first) == len(DEVICES):
                return max(first.values())
            time.sleep(0.02)
        pytest.fail(f"not read: {sorted(set(DEVICES) - set(first))}")

    def wait_for_nodes(self, count):
        """Wait until so many nodes each read some devices, and each device is read by one."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            owners = self.owners(time.monotonic() - 0.5)
            if len(owners) == len(DEVICES) and all(len(each) == 1 for each in owners.values()):
                shares = Counter(node for each in owners.values() for node in each)
                if len(shares) == count:
                    return shares
            time.sleep(0.1)
        pytest.fail(f"the owners are {self.owners(time.monotonic() - 0.5)}")

    def late(self):
        """The readings that came after one of the same device with a greater token."""
        newest, late = {}, []
        for at, device, node, token in self.all():
            if token < newest.get(device, 0):
                late.append((at, device, node, token))
            newest[device] = max(token, newest.get(device, 0))
        return late


def three_nodes(start_node, engine, listener):
    nodes = {name: start_node(name, engine) for name in ("one", "two", "three")}
    for node in nodes.values():
        node.wait_for("takes")
    readings = Readings(listener)
    shares = readings.wait_for_nodes(3)
    assert sum(shares.values()) == len(DEVICES)
    return nodes, readings


def test_three_nodes_share_the_devices_and_take_over_from_each_other(start_node, mosquitto, nats, listen):
    listener = listen(mosquitto.port)
    nodes, readings = three_nodes(start_node, nats.url, listener)

    died = time.monotonic()
    nodes["one"].kill()
    gap = readings.wait_until_read(("two", "three"), died) - died
    assert gap <= 1.5 * TTL

    stopped = time.monotonic()
    nodes["two"].process.send_signal(signal.SIGSTOP)
    readings.wait_until_read(("three",), stopped)
    nodes["two"].process.send_signal(signal.SIGCONT)
    readings.wait_for_nodes(2)
    assert readings.late() == []

    asked = time.monotonic()
    code, _ = nodes["two"].end()
    handed_over = readings.wait_until_read(("three",), asked) - asked
    assert code == 0
    assert handed_over <= 1.0


def test_a_node_behind_a_proxy_that_is_silent_at_the_start_waits_and_never_speaks_the_old_version(
    tmp_path, nats, listen
):
    """Without its token a message could not be told from one of a node that lost the device."""
    port, greetings = free_port(), []

    def silent(peer):
        greetings.append(peer.packet())  # none of a CONNECT of 3.1.1, which has no token

    with running(tmp_path, f"mqtt://127.0.0.1:{port}") as start:
        with ByteBroker(silent, port=port) as broker:
            node = start("one", nats.url)
            until(lambda: len(greetings) >= 5)
        assert broker.connections == len(greetings)
        with Mosquitto(port=port) as mosquitto:
            readings = Readings(listen(mosquitto.port))
            until(lambda: readings.all())
            assert node.process.poll() is None
    assert "MQTT 3.1.1" not in node.log


def test_a_node_whose_broker_refuses_mqtt_5_at_the_start_ends_with_the_code_of_a_wrong_setting(tmp_path, nats):
    def refuses(peer):
        peer.packet()
        peer.send(mqtt5.ConnAckPacket(reason_code=mqtt5.ConnAckReasonCode.UNSUPPORTED_PROTOCOL_VERSION))

    with ByteBroker(refuses) as broker, running(tmp_path, broker.url) as start:
        node = start("one", nats.url)
        assert node.process.wait(60) == 78

    assert "a cluster needs MQTT 5" in node.log
