"""Keeps the connection whose will says that the app is lost, for a convention that wants one at a topic of its own.

A connection has one will (MQTT 5 §3.1.2.5), and that of the app is its status. So this is a second connection to the
same broker, which sends nothing. If it is lost alone, its will was a mistake, and the app says once more that it runs.
"""

import asyncio
import logging

from leadsman.discovery.description import PropertyTopics, RetainedMessage
from leadsman.errors import BrokerError
from leadsman.events import Event, LinkUp
from leadsman.mqtt.broker import Broker
from leadsman.mqtt.connection import Connect, Connection, Received
from leadsman.mqtt.link import Link
from leadsman.mqtt.message import Message
from leadsman.text import clean, log_fields

SHORTEST, LONGEST = 1.0, 60.0
"""Seconds until the next attempt to connect; they double with each failure."""

logger = logging.getLogger("leadsman")


class LastWill:
    """Says that the app runs, or by its will that it is lost.

    Args:
        topics: says with which messages.
        link: the connection of the app.
        client_id: that of the app.
    """

    def __init__(self, topics: PropertyTopics, link: Link, client_id: str) -> None:
        self._topics = topics
        self._link = link
        self._client_id = f"{client_id}-{topics.client}"
        self._connection: Connection | None = None
        self._broker: Broker | None = None
        """That of the connection."""
        self._task: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()
        self._described = False
        """Whether the broker has the description of the app, as far as this connection showed."""
        self._warned = False

    def observe(self, event: Event) -> None:
        """Connect when the app does."""
        if isinstance(event, LinkUp):
            self._described = False
            if self._connection is None or self._broker != self._link.broker:
                self.abandon()
                self._task = asyncio.get_running_loop().create_task(self._keep())

    def on_described(self) -> None:
        """The broker has the description of the app."""
        self._described = True
        self._put(self._topics.app_ready())

    def acknowledged(self, packet_id: int, code: int) -> None:
        """See `ConnectionListener`."""

    def lost(self, reason: str, code: int = 0, reference: str | None = None) -> None:
        """See `ConnectionListener`."""
        self._lost.set()

    def received(self, message: Received) -> None:
        """See `ConnectionListener`."""

    async def close(self, *, delivered: bool) -> None:
        """Close the connection. If the goodbye was not delivered, the broker publishes the will, which says it for all
        devices."""
        connection = self._connection
        if delivered and connection is not None:
            self._connection = None
            await connection.close()
        self.abandon()

    def abandon(self) -> None:
        """Close the connection at once."""
        task, connection = self._task, self._connection
        self._task = self._connection = None
        if task is not None:
            task.cancel()
        if connection is not None:
            connection.abort()

    async def _keep(self) -> None:
        """Connect, and again when the connection is lost, while that of the app is there."""
        wait = SHORTEST
        while self._link.up:
            self._lost, self._broker = asyncio.Event(), self._link.broker
            try:
                self._connection = connection = await self._connect()
            except BrokerError as error:
                self._warn(error)
            else:
                wait, self._warned = SHORTEST, False
                if self._described:
                    self._put(self._topics.app_ready())
                await self._lost.wait()
                connection.abort()
                self._connection = None
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST)

    async def _connect(self) -> Connection:
        will = self._topics.app_lost()
        packet = Connect(self._client_id, self._link.session.protocol, will.topic, will.payload)
        return await self._link.connect_beside(packet, self)

    def _put(self, message: RetainedMessage) -> None:
        self._link.put(Message(message.topic, message.payload, qos=1, retain=True, latest=True))

    def _warn(self, error: BrokerError) -> None:
        """Log the first failure in a row."""
        if not self._warned:
            self._warned = True
            logger.warning(
                "The broker refuses the connection of the client %s: %s. Without it, nothing reports a crash of the "
                "app; allow this client id",
                clean(self._client_id),
                clean(str(error)),
                extra=log_fields("no last will", client_id=self._client_id),
            )
