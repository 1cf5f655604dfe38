"""The connection and the variables of an app, and the harmless ones of a dry run."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from leadsman import Broker, Brokers
from leadsman.mqtt import client
from leadsman.mqtt.connection import ConnAck, Connect
from leadsman.mqtt.message import Message
from leadsman.testing import MemoryBroker, VirtualLoop
from leadsman.wiring.outside import access, connector, variables

BROKER = Broker.from_url("mqtt://localhost")


class Listener:
    def acknowledged(self, packet_id, code): ...
    def lost(self, reason, code=0, reference=None): ...
    def received(self, message): ...


def retained_after(dry_run):
    """What a broker keeps of one retained message."""
    broker, loop = MemoryBroker(), VirtualLoop()

    async def publish():
        connect = connector(BROKER, broker.connect, dry_run=dry_run)
        connection = await connect(Connect("me", "5.0", None, b""), Listener())
        connection.publish(Message("a/b", b"1", retain=True))
        await asyncio.sleep(1)
        await connection.close()

    try:
        loop.run_until_complete(publish())
    finally:
        loop.close()
    return list(broker.retained)


def test_a_dry_run_retains_nothing():
    assert retained_after(dry_run=False) == ["a/b"]
    assert retained_after(dry_run=True) == []


def test_a_connection_that_is_given_is_used_as_it_is():
    connect = MemoryBroker().connect

    assert connector(BROKER, connect, dry_run=False) == connect


def test_each_broker_has_one_connector_and_those_that_others_name_do_not_gather():
    brokers = Brokers(Broker("a"), Broker("b"))

    async def made():
        reach = access(brokers, None, dry_run=False)
        kept = reach.connector(Broker("a"))
        again = reach.connector(Broker("a")) is kept
        named = [reach.connector(Broker(f"named{number}")) for number in range(3)]
        return again, len(set(named)), reach.brokers

    assert asyncio.run(made()) == (True, 3, brokers)


def test_certificates_that_are_not_verified_are_warned_of(caplog):
    async def make(url):
        return connector(Broker.from_url(url), None, dry_run=False)

    asyncio.run(make("mqtts://localhost"))
    assert caplog.text == ""
    asyncio.run(make("mqtts://localhost?insecure=1"))
    assert "not verified" in caplog.text


def warnings_after(connacks, caplog, monkeypatch):
    """What is logged when a broker accepts connections with these answers, one after the other."""
    coming = iter(connacks)

    async def connect(broker, clock, packet, listener):
        return await MemoryBroker(next(coming)).connect(packet, listener)

    async def scenario():
        made = connector(BROKER, None, dry_run=False)
        for _ in connacks:
            await made(Connect("me", "5.0", None, b""), Listener())

    monkeypatch.setattr(client, "connect", connect)
    asyncio.run(scenario())
    return caplog.messages


def test_what_the_broker_does_without_is_logged_once(caplog, monkeypatch):
    neither = ConnAck(maximum_qos=0, retain_available=False)

    assert warnings_after([neither, neither, ConnAck()], caplog, monkeypatch) == [
        "mqtt://localhost:1883 keeps no messages, so a new subscriber sees a device only with its next reading, and "
        "acknowledges no messages, so some may be lost"
    ]


def test_a_broker_that_does_all_is_not_worth_a_word(caplog, monkeypatch):
    assert warnings_after([ConnAck()], caplog, monkeypatch) == []


def test_an_app_sees_the_variables_of_its_process_or_those_that_it_is_given():
    with variables("app", None, dry_run=False) as found:
        assert found is os.environ
    with variables("app", {"A": "b"}, dry_run=True) as found:
        assert found == {"A": "b"}


def test_a_dry_run_has_a_state_directory_of_its_own_which_is_removed_at_the_end():
    with variables("app", None, dry_run=True) as found:
        directory = Path(found["STATE_DIRECTORY"])
        (directory / "state").write_text("x")

    assert list(found) == ["STATE_DIRECTORY"]
    assert not directory.exists()


WITHOUT_FILES = """
import os, resource
from leadsman import App
from leadsman.wiring.outside import load_modules

app = App("app", mqtt="mqtt://broker.lan")
app.load()
load_modules(app.plan({}))
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
"""


def test_the_name_of_a_broker_is_found_after_a_time_without_free_descriptors():
    done = subprocess.run([sys.executable, "-c", WITHOUT_FILES], capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("b'broker.lan'\n", "")
