"""A subscriber that shows what the broker has, as anybody would see it."""

import asyncio
from collections.abc import Callable

from leadsman.errors import BrokerError
from leadsman.loop.clock import system_clock
from leadsman.mqtt.broker import Broker
from leadsman.mqtt.client import connect
from leadsman.mqtt.connection import Connect, Connection, ConnectionListener, Received
from leadsman.mqtt.side_connection import open_beside

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
        self._tried = asyncio.Event()
        """Whether the last attempt to subscribe has ended, and its connection, if it made one, still lives."""
        self.failure: BrokerError | None = None
        """Why the last attempt to subscribe failed; None if it did not."""

    async def listen(self) -> None:
        """Listen until cancelled; come back when the broker does."""
        while True:
            self._lost.clear()
            try:
                connection = (await open_beside(self._broker, self._client_id, self)).connection
                try:
                    await connection.subscribe(self._filter)
                    self.failure = None
                    self._tried.set()
                    await self._lost.wait()
                finally:
                    connection.abort()
            except BrokerError as error:
                self.failure = error
                self._tried.set()
            await asyncio.sleep(RECONNECT)

    async def connect_next(self, packet: Connect, listener: ConnectionListener) -> Connection:
        """Make the connection of the app; see `leadsman.mqtt.connection.Connector`. It is made after this subscriber
        has subscribed, which therefore misses nothing of what the outbox delivers after an outage. Where this
        subscriber found no broker, neither does the app."""
        await self._tried.wait()
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        return await connect(self._broker, system_clock(asyncio.get_running_loop()), packet, listener)

    def received(self, message: Received) -> None:
        """See `ConnectionListener`."""
        self._show(message)

    def acknowledged(self, packet_id: int, code: int) -> None:
        """See `ConnectionListener`. The viewer publishes nothing."""

    def lost(self, reason: str, code: int = 0, reference: str | None = None) -> None:
        """See `ConnectionListener`."""
        self._tried.clear()
        self._lost.set()
