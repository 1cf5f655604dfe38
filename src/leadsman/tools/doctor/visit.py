"""Connections of the doctor: each with a client id of its own beside that of the app, and without a session that
outlives it."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import NamedTuple

from leadsman.loop.clock import Clock
from leadsman.mqtt import client
from leadsman.mqtt.broker import Broker
from leadsman.mqtt.connection import Connect, Received
from leadsman.mqtt.connection_state import V5
from leadsman.mqtt.message import Message
from leadsman.mqtt.side_connection import NoAnswer, SideConnection

ANSWER = 2.0
"""Seconds for the broker to answer one packet, or to pass a probe on."""
MOST_MESSAGES, MOST_BYTES = 20_000, 32 * 1024 * 1024
"""What one visit keeps of the messages that come, topics and payloads together. The rest is dropped, so that a broker
with a million retained messages does not take the memory of the machine."""
OFFER = 2
"""The quality of a message that is offered and never released; see `Message.qos`."""


class Visitor(NamedTuple):
    """Who visits which broker."""

    broker: Broker
    client_id: str
    protocol: str
    clock: Clock

    def greeting(self, step: str) -> Connect:
        """The CONNECT of one step."""
        return Connect(f"{self.client_id}-{step}", self.protocol, None, b"", session_expiry=0)


class Visit(SideConnection):
    """One connection of the doctor."""

    def __init__(self) -> None:
        super().__init__(ANSWER)
        self.crowded = False
        """Whether messages were dropped, since there were too many."""
        self._bytes = 0

    def received(self, message: Received) -> None:
        """See `ConnectionListener`."""
        self._bytes += len(message.topic) + len(message.payload)
        if len(self.messages) < MOST_MESSAGES and self._bytes <= MOST_BYTES:
            super().received(message)
        else:
            self.crowded = True
            self._news.set()

    @property
    def can_offer(self) -> bool:
        """Whether messages of quality 2 can be sent and held back."""
        return self.connection.client == "mqtt5" and self.connection.connack.maximum_qos >= OFFER

    async def subscribe(self, topic_filter: str, qos: int = 1) -> None:
        """Subscribe. Raises `SubscriptionRefused`, `BrokerError`."""
        asking = asyncio.ensure_future(self.connection.subscribe(topic_filter, qos))
        asking.add_done_callback(lambda _: self._news.set())
        try:
            if not await self.until(asking.done):
                raise self.broken or NoAnswer(f"no answer to a subscription within {ANSWER:g} s")
            await asking
        finally:
            asking.cancel()

    async def publish(self, message: Message) -> int | None:
        """Publish, and return the reason code; see `publish_all`."""
        (code,) = await self.publish_all([message])
        return code

    async def hears(self, topic: str, payload: bytes) -> bool:
        """Wait for a message. Returns whether it came."""
        return await self.until(lambda: any(each.topic == topic and each.payload == payload for each in self.messages))

    async def echo(self, topic: str, qos: int = 1) -> tuple[int | None, bool]:
        """Publish a marker at a topic that is subscribed to. Returns the reason code, and whether it came back. What
        was published or kept there before has arrived by then."""
        marker = new_marker()
        code = await self.publish(Message(topic, marker, qos))
        refused = code is not None and code >= 0x80
        return code, not refused and await self.hears(topic, marker)


async def open_visit(visitor: Visitor, greeting: Connect) -> Visit:
    """Connect. Raises as `leadsman.mqtt.connection.Connector`."""
    visit = Visit()
    visit.connection = await client.connect(visitor.broker, visitor.clock, greeting, visit)
    return visit


@contextlib.asynccontextmanager
async def visit_of(visitor: Visitor, step: str) -> AsyncIterator[Visit]:
    """A visit that ends with the block. Raises as `open_visit`."""
    visit = await open_visit(visitor, visitor.greeting(step))
    try:
        yield visit
    finally:
        await visit.connection.close()


def new_marker() -> bytes:
    """A payload that nobody else sends."""
    return f"leadsman doctor {uuid.uuid4().hex[:12]}".encode()


def expires(visitor: Visitor) -> bool:
    """Whether messages, sessions and wills can have a time: only in MQTT 5."""
    return visitor.protocol == V5
