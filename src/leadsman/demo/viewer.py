"""A subscriber that shows what the broker has, as anybody would see it."""

import asyncio
import contextlib
from collections.abc import Callable

from leadsman.errors import BrokerError
from leadsman.mqtt.broker import Broker
from leadsman.mqtt.client import connect
from leadsman.mqtt.connection import Connect, Received
from leadsman.timing.clock import system_clock

RECONNECT = 0.2
"""Seconds between two attempts to connect."""


class Viewer:
    """Subscribes to a topic filter and passes on each message.

    Args:
        broker: where to listen.
        client_id: of this subscriber.
        topic_filter: what to subscribe to.
        show: is called with each message.
    """

    def __init__(self, broker: Broker, client_id: str, topic_filter: str, show: Callable[[Received], None]) -> None:
        self._broker = broker
        self._client_id = client_id
        self._filter = topic_filter
        self._show = show
        self._lost = asyncio.Event()

    async def listen(self) -> None:
        """Listen until cancelled; come back when the broker does."""
        clock = system_clock(asyncio.get_running_loop())
        packet = Connect(self._client_id, self._broker.protocol, None, b"")
        while True:
            self._lost.clear()
            with contextlib.suppress(BrokerError):
                connection = await connect(self._broker, clock, packet, self)
                try:
                    await connection.subscribe(self._filter)
                    await self._lost.wait()
                finally:
                    connection.abort()
            await asyncio.sleep(RECONNECT)

    def received(self, message: Received) -> None:
        """See `ConnectionListener`."""
        self._show(message)

    def acknowledged(self, packet_id: int, code: int) -> None:
        """See `ConnectionListener`. The viewer publishes nothing."""

    def lost(self, reason: str, code: int = 0, reference: str | None = None) -> None:
        """See `ConnectionListener`."""
        self._lost.set()
