"""One connection to a broker, without a link."""

import asyncio

from leadsman import Broker
from leadsman.core.loop.clock import system_clock
from leadsman.core.mqtt.client import connect
from leadsman.core.mqtt.connection import Connect
from leadsman.core.mqtt.message import Message


class Hooks:
    """A listener that writes down what it hears."""

    def __init__(self):
        self.acknowledgements, self.reasons, self.messages = [], [], []

    def acknowledged(self, packet_id, code):
        self.acknowledgements.append(code)

    def lost(self, reason, code=0):
        self.reasons.append(reason)

    def received(self, message):
        self.messages.append(message)


def connected(url, scenario, protocol="5.0", client_id="tester"):
    """Connect and run `scenario(connection, hooks)`."""

    async def run():
        hooks, clock = Hooks(), system_clock(asyncio.get_running_loop())
        connection = await connect(Broker.from_url(url), clock, Connect(client_id, protocol, "t/status", b"{}"), hooks)
        try:
            await scenario(connection, hooks)
        finally:
            await connection.close()
        return hooks

    return asyncio.run(run())


async def publish_one(connection, hooks):
    """Publish a message, and wait until it is acknowledged."""
    connection.publish(Message("t/x", b"1"))
    while not hooks.acknowledgements:
        await asyncio.sleep(0.01)
