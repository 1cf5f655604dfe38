import asyncio

from leadsman.core.mqtt.client import without_retained
from leadsman.core.mqtt.connection import Connect
from leadsman.core.mqtt.message import Message
from leadsman.testing import MemoryBroker


class Listener:
    def acknowledged(self, packet_id, code):
        pass

    def lost(self, reason, code=0):
        pass

    def received(self, message):
        pass


def test_a_broker_keeps_neither_a_message_nor_the_will_of_a_dry_run():
    broker = MemoryBroker()

    async def scenario():
        connection = await without_retained(broker.connect)(Connect("app", "5.0", "app/status", b"{}"), Listener())
        connection.urgent = True
        assert connection.urgent
        connection.publish(Message("app/meter/state", b"{}", retain=True))

    asyncio.run(scenario())

    assert [(each.topic, each.retain) for each in broker.log] == [("app/meter/state", False)]
    assert broker.retained == {}
    assert [packet.will_retained for _, packet in broker.connects] == [False]
