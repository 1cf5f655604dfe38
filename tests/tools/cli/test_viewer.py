"""A subscriber that shows what the broker has, at brokers in memory. `tests/tools/demo/system` has a real one."""

import asyncio

import pytest

from leadsman import Broker
from leadsman.core.mqtt.connection import Connect
from leadsman.core.mqtt.message import Message
from leadsman.testing import MemoryBroker
from leadsman.tools.cli.own_broker import Viewer


@pytest.mark.parametrize("answer", [None, "refuse", "close"])
def test_what_the_broker_has_is_shown_whichever_version_of_mqtt_it_speaks(monkeypatch, answer):
    greetings, broker = [], MemoryBroker()
    broker.only_v311 = answer

    async def connect(address, clock, packet, listener):
        greetings.append((packet.protocol, packet.session_expiry))
        return await broker.connect(packet, listener)

    async def view():
        seen = asyncio.Queue()
        viewer = Viewer(Broker(), "house/#", seen.put_nowait)
        connection = await broker.connect(Connect("app", "3.1.1", None, b""), viewer)
        connection.publish(Message("house/attic/state", b"{}", retain=True))
        async with asyncio.timeout(10):
            listening = asyncio.create_task(viewer.listen())
            message = await seen.get()
        listening.cancel()
        return message.topic

    monkeypatch.setattr("leadsman.core.mqtt.client.connect", connect)

    assert asyncio.run(view()) == "house/attic/state"
    assert greetings == ([("5.0", 0)] if answer is None else [("5.0", 0), ("3.1.1", 0)])  # no session outlives it
