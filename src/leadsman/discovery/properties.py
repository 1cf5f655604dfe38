"""Publishes each value of a reading at a topic of its own, receives commands there, and reports whether the app runs,
for a convention that has such topics.

A value is published when its reading is, and differs from the last one. While there is no connection only the newest
reading is remembered, so none of these messages waits in the outbox. Nothing goes to the topics of a device before the
broker has its description: they may be those of another program.
"""

import asyncio
import logging
from collections.abc import Callable

from leadsman.discovery.description import PropertyTopics, RetainedMessage
from leadsman.errors import BrokerError, Busy, PayloadError
from leadsman.events import Event, LinkDown, LinkUp
from leadsman.mqtt.broker import Broker
from leadsman.mqtt.connection import Connect, Connection, Received
from leadsman.mqtt.link import Link
from leadsman.mqtt.message import Message
from leadsman.readings.publish import Fields
from leadsman.readings.reading import Reading
from leadsman.text import clean, log_fields

Execute = Callable[[str, Received], bool]
"""Executes a command of a device. Returns whether it was accepted."""

Add = Callable[[Received, Callable[[Received], None], Callable[[Received, PayloadError | Busy], None]], None]
"""Has a message handled, or refused, in its turn."""

SHORTEST, LONGEST = 1.0, 60.0
"""Seconds until the next attempt to connect; they double with each failure."""

logger = logging.getLogger("leadsman")


class Properties:
    """The values of the devices.

    Args:
        topics: makes the messages.
        link: sends the messages.
        client_id: that of the app.
    """

    def __init__(self, topics: PropertyTopics, link: Link, client_id: str) -> None:
        self._topics = topics
        self._link = link
        self._last: dict[str, Fields] = {}
        """The newest published reading of each device."""
        self._sent: dict[str, bytes] = {}
        """The values that were published last, by topic."""
        self._described: set[str] = set()
        self._refused: set[str] = set()
        """Devices of which a refused command was logged."""
        self.will = LastWill(topics, link, client_id)

    def goodbye(self) -> None:
        """Report that the app ends, for the devices that the broker has."""
        for message in self._topics.goodbye(sorted(self._described)):
            _put(self._link, message)

    def on_published(self, reading: Reading) -> None:
        """Publish the values of a reading that was published."""
        self._last[reading.entity] = reading.fields
        if reading.entity in self._described:
            self._send(reading.entity, events=True)

    def change(self, topics: PropertyTopics) -> None:
        """Devices have come or gone."""
        self._topics = topics

    def forget(self, name: str) -> None:
        """Remove a device."""
        last = self._last.pop(name, {})
        for value in self._topics.values(name, last) if self._topics.has_device(name) else ():
            self._sent.pop(value.topic, None)
        self._described.discard(name)
        self._refused.discard(name)

    def observe(self, event: Event) -> None:
        """Wait for the descriptions after each connection."""
        if isinstance(event, LinkUp | LinkDown):
            self._described.clear()
        self.will.observe(event)

    def on_described(self, name: str | None, *, new: bool) -> None:
        """The broker has the description of a device: publish its newest values. If the description is `new`, or the
        broker has forgotten the session, it may have forgotten them all. None is the app itself."""
        if name is None:
            self.will.on_described()
            return
        self._described.add(name)
        if name not in self._last:
            return
        if new or not self._link.resumed:
            for value in self._topics.values(name, self._last[name]):
                self._sent.pop(value.topic, None)
        self._send(name, events=False)

    def _send(self, name: str, *, events: bool) -> None:
        """Publish the newest values of a device. Those that are not retained are `events`: now or never."""
        for topic, payload, retained in self._topics.values(name, self._last[name]):
            if not retained:
                if events and payload and self._link.up:
                    self._link.put(Message(topic, payload, qos=0))
            elif self._sent.get(topic) != payload:
                self._sent[topic] = payload
                _put(self._link, RetainedMessage(topic, payload))

    def listen(self, execute: Execute, refuse: Callable[[str, Received, PayloadError | Busy], None], add: Add) -> None:
        """Subscribe to the commands. `refuse` answers one that is not executed, as it does not match the description,
        or finds no room. `add` has it handled or refused in its turn."""

        def on_set(received: Received) -> None:
            name = self._topics.device_of(received.topic)
            if name is not None:  # else it is for a device of another program
                add(received, lambda given: handle(name, given), lambda given, error: refuse(name, given, error))

        def handle(name: str, received: Received) -> None:
            try:
                command = self._topics.command(received.topic, received.payload)
            except PayloadError as error:
                self._warn(name, received.topic, error)
                refuse(name, received, error)
                return
            accepted = execute(name, received._replace(payload=command.payload))
            if accepted and command.accepted is not None:
                self._link.put(Message(command.accepted.topic, command.accepted.payload, qos=0))

        self._link.subscriptions.listeners[self._topics.commands] = on_set

    def _warn(self, name: str, topic: str, error: PayloadError) -> None:
        """Log the first refused command of a device. Later ones are only answered."""
        if name not in self._refused:
            self._refused.add(name)
            about = log_fields("command refused", name, topic=topic)
            logger.warning("%s: the command at %s is refused: %s", name, clean(topic), clean(str(error)), extra=about)


class LastWill:
    """The connection whose will reports that the app is lost, for a convention that wants one at a topic of its own.

    A connection has one will (MQTT 5 §3.1.2.5), and that of the app is its status. So this is a second connection to
    the same broker, which sends nothing. If it is lost alone, its will was a mistake, and the app reports once more
    that it runs.

    Args:
        topics: makes the messages.
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
        _put(self._link, self._topics.app_ready())

    def acknowledged(self, packet_id: int, code: int) -> None:
        """See `ConnectionListener`."""

    def lost(self, reason: str, code: int = 0, reference: str | None = None) -> None:
        """See `ConnectionListener`."""
        self._lost.set()

    def received(self, message: Received) -> None:
        """See `ConnectionListener`."""

    async def close(self, *, delivered: bool) -> None:
        """Close the connection. If the goodbye was not delivered, the broker publishes the will, which holds for all
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
                    _put(self._link, self._topics.app_ready())
                await self._lost.wait()
                connection.abort()
                self._connection = None
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST)

    async def _connect(self) -> Connection:
        will = self._topics.app_lost()
        packet = Connect(self._client_id, self._link.session.protocol, will.topic, will.payload)
        return await self._link.connect_beside(packet, self)

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


def _put(link: Link, message: RetainedMessage) -> None:
    link.put(Message(message.topic, message.payload, qos=1, retain=True, latest=True))
