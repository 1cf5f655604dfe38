"""The broker that stands in for mosquitto: a process that lives as long as the one that started it."""

import asyncio
import signal
import socket
import subprocess
import sys
import time

import pytest

from leadsman import Broker
from leadsman.core.loop.clock import system_clock
from leadsman.core.mqtt.client import connect
from leadsman.core.mqtt.connection import Connect
from leadsman.core.mqtt.message import Message
from leadsman.errors import LeadsmanError
from leadsman.testing.embedded import embedded_broker
from leadsman_rigs.one_connection import Hooks

HOLDING = """\
import time
from leadsman.testing.embedded import embedded_broker
with embedded_broker() as port:
    print(port, flush=True)
    time.sleep(300)
"""


def answers(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_it_listens_on_its_port_until_the_end_of_the_block():
    with embedded_broker() as port:
        assert answers(port)
    assert not answers(port)


def test_a_client_is_served_although_others_subscribe_while_it_connects(monkeypatch):
    monkeypatch.setattr(
        "leadsman.core.mqtt.aiomqtt_client.CONNECT_TIMEOUT", 60.0
    )  # which a client waits that is not served

    async def client(port, name, topic_filter):
        clock, hooks = system_clock(asyncio.get_running_loop()), Hooks()
        packet = Connect(name, "3.1.1", None, b"")
        connection = await connect(Broker.from_url(f"mqtt://127.0.0.1:{port}"), clock, packet, hooks)
        await connection.subscribe(topic_filter)
        return connection, hooks

    async def crowd(port):
        first, hooks = await client(port, "first", "kept/#")
        for number in range(100):  # what is kept is sent to each client that connects
            first.publish(Message(f"kept/{number}", b"1", retain=True))
        while len(hooks.acknowledgements) < 100:
            await asyncio.sleep(0.01)
        others = [client(port, f"client-{number}", f"own/{number}") for number in range(40)]
        for each, _ in await asyncio.gather(*others):
            await each.close()
        await first.close()

    with embedded_broker() as port:
        asyncio.run(crowd(port))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_a_process_that_has_no_time_to_end_it(number):
    with subprocess.Popen([sys.executable, "-c", HOLDING], stdout=subprocess.PIPE, text=True) as holder:
        port = int(holder.stdout.readline())
        assert answers(port)
        holder.send_signal(number)

    deadline = time.monotonic() + 60
    while answers(port):
        assert time.monotonic() < deadline, "it outlived its parent"
        time.sleep(0.01)


def test_a_broker_that_cannot_start_is_a_named_error():
    with pytest.raises(LeadsmanError, match="did not start"), embedded_broker({"no.such.Plugin": {}}):
        pass


def test_without_amqtt_the_error_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "amqtt", None)

    with (
        pytest.raises(
            LeadsmanError, match=r'type: pip install "leadsman\[demo\]" .*; or type: apt-get install mosquitto'
        ),
        embedded_broker(),
    ):
        pass
