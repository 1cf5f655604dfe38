"""Two processes of one app whose Bluetooth adapters hear one sensor: real bleak on two buses, a real engine and a real
broker."""

import itertools
import json
import logging
import signal
import sys
import time
from contextlib import ExitStack

import pytest

from leadsman.adapters.ble import bthome
from leadsman_rigs.bluez import Air, Scripted
from leadsman_rigs.nats_server import NatsServer
from leadsman_rigs.processes import HEADER, Process

TTL = 3.0
SENSOR = "F0:11:22:33:44:55"
GATEWAY = """
from leadsman.adapters.ble import BleRadio, bthome
app = App("sys", mqtt=os.environ["URL"], adapters=[BleRadio()])

@app.source("gateway", needs="ble", finds=Finds(everywhere=True), silence=None)
async def gateway(radio: BleRadio, context: Context):
    async for heard in radio.advertisements(service=bthome.SERVICE):
        reading = bthome.decode(heard.service_data[bthome.SERVICE])
        context.device(heard.address, signal=heard.rssi).publish(reading | {"pid": os.getpid()})
        yield
"""


class Gateway:
    """A machine: its air, in which the sensor is, and the process of the app."""

    def __init__(self, name, stack, path, rssi):
        self.name, self.path = name, path
        self.air = stack.enter_context(Air())
        said = {bthome.SERVICE: bytes.fromhex("40 02 ca 09")}
        self.sensor = self.air.place(Scripted(SENSOR, "attic", {bthome.SERVICE: {}}, service_data=said))
        self.sensor.rssi = rssi
        stack.callback(self.leave)
        self.process = None

    def start(self, url, engine):
        options = {"URL": url, "PYTHONWARNINGS": "error", "XDG_STATE_HOME": str(self.path / self.name)}
        cluster = {"CLUSTER__ENGINE": engine, "CLUSTER__NODE": self.name, "CLUSTER__TTL": f"{TTL:g}s"}
        self.process = Process(
            [sys.executable, "-c", f"{HEADER}{GATEWAY}\napp.run()\n"],
            self.path / f"{self.name}.log",
            DBUS_SYSTEM_BUS_ADDRESS=self.air.address,
            CLUSTER__LABELS="ble",
            **options,
            **cluster,
        )

    @property
    def pid(self):
        return self.process.process.pid

    def leave(self):
        if self.process is not None and self.process.process.poll() is None:
            self.process.process.send_signal(signal.SIGCONT)
            self.process.kill()


@pytest.fixture
def gateways(tmp_path):
    with ExitStack() as stack:
        yield Gateway("far", stack, tmp_path, -80), Gateway("near", stack, tmp_path, -60)


@pytest.fixture(scope="module")
def nats():
    with NatsServer() as server:
        yield server


class Stream:
    """The readings of the sensor at the broker."""

    def __init__(self, listener):
        self.listener = listener

    def readings(self):
        """When each came, from which process, and with which token."""
        return [
            (at, json.loads(message.payload)["pid"], int(dict(message.properties.UserProperty)["fence"]))
            for at, message in list(self.listener.messages)
            if message.topic == f"sys/{SENSOR}/state"
        ]

    def wait_for(self, gateway, timeout=30.0):
        """When the first reading came that this gateway published."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            for at, pid, _ in self.readings():
                if pid == gateway.pid:
                    return at
            time.sleep(0.02)
        pytest.fail(f"{gateway.name} publishes nothing; its log is:\n{gateway.process.log}")

    def publishers(self):
        return [pid for pid, _ in itertools.groupby(pid for _, pid, _ in self.readings())]


def test_the_better_of_two_gateways_publishes_and_the_other_one_when_it_is_killed(gateways, mosquitto, nats, listen):
    far, near = gateways
    listener = listen(mosquitto.port)
    stream = Stream(listener)
    far.start(mosquitto.url, nats.url)
    stream.wait_for(far)
    near.start(mosquitto.url, nats.url)
    moved = stream.wait_for(near)
    listener.wait_for(f"sys/{SENSOR}/state", len(stream.readings()) + 10)

    killed = time.monotonic()
    near.process.kill()
    listener.wait_for(f"sys/{SENSOR}/state", where=lambda message: json.loads(message.payload)["pid"] == far.pid)
    while stream.readings()[-1][1] != far.pid:
        time.sleep(0.02)
    taken_over = next(at for at, pid, _ in stream.readings() if at > moved and pid == far.pid)

    logging.getLogger(__name__).info("kill -9: %.2f s", taken_over - killed)
    assert stream.publishers() == [far.pid, near.pid, far.pid]
    assert taken_over - killed <= 1.5 * TTL
    tokens = [token for _, _, token in stream.readings()]
    assert tokens == sorted(tokens)
    gaps = [two[0] - one[0] for one, two in itertools.pairwise(stream.readings()) if two[0] < killed]
    assert max(gaps) < TTL, "no reading is missing while it moves"
    assert {json.loads(each.payload)["temperature"] for each in listener.on(f"sys/{SENSOR}/state")} == {25.06}
    assert listener.on("sys/gateway@far/availability")[-1].payload == b"online"
    assert "Traceback" not in far.process.log + near.process.log
