"""The connection of an app and the variables that it sees. Dry runs have `tests/integration/test_dry_run.py`."""

import os
import subprocess
import sys

import pytest

from leadsman import App
from leadsman.core.mqtt import client
from leadsman.core.mqtt.connection import ConnAck
from leadsman.testing import MemoryBroker, VirtualLoop


def app_at(mqtt, **options):
    app = App("house", mqtt=mqtt, **options)

    @app.telemetry("boiler", interval="1s")
    async def read() -> dict[str, int]:
        return {"degrees": 60}

    return app


def served(app, duration, *events, connect=None, environment=None):
    """Run an app in virtual time, as a program with a loop of its own does. Events are (time, action)."""
    loop = VirtualLoop()
    try:
        for when, action in events:
            loop.call_at(when, action)
        loop.call_at(duration, app.stop)
        loop.run_until_complete(app.serve(connect, environment=environment))
    finally:
        loop.close()


@pytest.fixture
def network(monkeypatch):
    """Puts a function of a broker, a packet and a listener in the place of the network."""

    def put(connect):
        async def made(broker, clock, packet, listener):
            return await connect(broker, packet, listener)

        monkeypatch.setattr(client, "connect", made)

    return put


def test_a_connection_that_is_given_stands_for_all_brokers_and_the_network_is_not_touched(network, tmp_path):
    async def touched(broker, packet, listener):
        raise AssertionError("the network was touched")

    network(touched)
    broker = MemoryBroker()

    served(app_at(["mqtt://a", "mqtt://b"]), 3, connect=broker.connect, environment={"STATE_DIRECTORY": str(tmp_path)})

    assert broker.retained["house/boiler/state"].json == {"degrees": 60}


def test_certificates_that_are_not_verified_are_warned_of(network, caplog, tmp_path):
    async def connect(broker, packet, listener):
        return await MemoryBroker().connect(packet, listener)

    network(connect)
    served(app_at("mqtts://localhost"), 1, environment={"STATE_DIRECTORY": str(tmp_path)})
    assert "not verified" not in caplog.text

    served(app_at("mqtts://localhost?insecure=1"), 1, environment={"STATE_DIRECTORY": str(tmp_path)})
    assert "not verified" in caplog.text


def warnings_after(connacks, network, caplog, tmp_path):
    """What is logged of the abilities of a broker that accepts connections with these answers, one after the other."""
    broker, coming = MemoryBroker(), iter(connacks)

    async def connect(address, packet, listener):
        broker.connack = next(coming)
        return await broker.connect(packet, listener)

    network(connect)
    cuts = [(30.0 * number, broker.cut) for number in range(1, len(connacks))]
    served(app_at("mqtt://localhost"), 30 * len(connacks), *cuts, environment={"STATE_DIRECTORY": str(tmp_path)})
    assert next(coming, None) is None
    return [message for message in caplog.messages if "messages" in message]


def test_what_the_broker_does_without_is_logged_once(network, caplog, tmp_path):
    neither = ConnAck(maximum_qos=0, retain_available=False)

    assert warnings_after([neither, neither, ConnAck()], network, caplog, tmp_path) == [
        "mqtt://localhost:1883 keeps no messages, so a new subscriber sees a device only with its next reading, and "
        "acknowledges no messages, so some may be lost"
    ]


def test_a_broker_that_does_all_is_not_worth_a_word(network, caplog, tmp_path):
    assert warnings_after([ConnAck()], network, caplog, tmp_path) == []


@pytest.mark.parametrize("given", [False, True])
def test_an_app_sees_the_variables_of_its_process_or_those_that_it_is_given(monkeypatch, tmp_path, given):
    for name in ("process", "given"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "process"))
    environment = {"STATE_DIRECTORY": str(tmp_path / "given")} if given else None

    served(app_at("mqtt://localhost", keep_state=True), 3, connect=MemoryBroker().connect, environment=environment)

    used = [each.name for each in tmp_path.iterdir() if any(each.iterdir())]
    assert used == ["given" if given else "process"]


def test_a_dry_run_has_a_state_directory_of_its_own_which_is_removed_at_the_end(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    app, found = app_at("mqtt://localhost", keep_state=True), []
    with app.unloaded():
        app.rehearse()
        served(app, 3, (2, lambda: found.extend(tmp_path.iterdir())), connect=MemoryBroker().connect)

    assert [each.name.startswith("house-dry-run-") for each in found] == [True]
    assert list(tmp_path.iterdir()) == []


WITHOUT_FILES = """
import os, resource
from leadsman import App
from leadsman.errors import BrokerError
from leadsman.core.mqtt import client

app = App("app", mqtt="mqtt://broker.lan")

@app.telemetry("boiler", interval="1h")
async def read() -> dict[str, int]:
    return {"degrees": 60}

async def connect(*arguments):
    app.stop()
    free = os.dup(0)
    os.close(free)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        "broker.lan".encode("idna")
    except LookupError:
        pass
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    print("broker.lan".encode("idna"))
    raise BrokerError("unreachable")

client.connect = connect
app.run(log_level="critical")
"""


def test_the_name_of_a_broker_is_found_after_a_time_without_free_descriptors(tmp_path):
    environment = {**os.environ, "STATE_DIRECTORY": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_FILES], capture_output=True, text=True, check=False, env=environment
    )

    assert (done.stdout, done.stderr) == ("b'broker.lan'\n", "")
