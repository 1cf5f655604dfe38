"""A connection beside that of an app, with a client id of its own: for a tool that asks an app or its broker. It
collects messages, and waits for the wanted ones. It has no session that outlives it."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Self

from leadsman.core.loop.clock import system_clock
from leadsman.core.mqtt import client
from leadsman.core.mqtt.broker import Broker
from leadsman.core.mqtt.connection import Connect, Connection, Received
from leadsman.core.mqtt.connection_state import UNSUPPORTED_VERSION, V5, V311
from leadsman.core.mqtt.message import Message
from leadsman.errors import BrokerError, ConnackMissing, ConnectionRefused, SubscriptionRefused

ANSWER = 2.0
"""Seconds for the broker to answer one packet."""
AT_ONCE = 100
"""Subscriptions that are asked for before an answer is waited for: the road is long, and brokers bound their queues."""


class NoAnswer(BrokerError):
    """The broker left a packet unanswered, and the connection open."""


def new_client_id(name: str = "leadsman") -> str:
    """A client id that no other client has."""
    return f"{name}-{uuid.uuid4().hex[:12]}"


def greeting(client_id: str, protocol: str) -> Connect:
    """A CONNECT without a will, whose session ends with the connection."""
    return Connect(client_id, protocol, None, b"", largest=None, session_expiry=0)


class SideConnection:
    """One connection at a time, and its listener. A tool that stays connects again."""

    connection: Connection
    protocol: str
    """The version of MQTT."""

    def __init__(self) -> None:
        self.messages: list[Received] = []
        """The received messages, in order."""
        self.broken: BrokerError | None = None
        """Why the last connection was lost; None if it was not."""
        self._codes: dict[int, int] = {}
        self._news = asyncio.Event()

    @contextlib.asynccontextmanager
    async def at(self, broker: Broker, client_id: str | None = None) -> AsyncIterator[Self]:
        """Connect with the version of the URL, or else with the other one; close at the end of the block.

        Args:
            broker: where.
            client_id: None makes one that no other client has.

        Raises:
            BrokerError: the broker cannot be reached, or refuses the connection. If it takes neither version, its
                reason against the second one, which may be a password. Or it had a session for the client id, which
                nobody has used: it takes the user name for it, and so this connection ends that of the app.
        """
        packet = greeting(client_id or new_client_id(), broker.version)
        try:
            await self._open(broker, packet)
        except (ConnectionRefused, ConnackMissing) as error:
            if isinstance(error, ConnectionRefused) and error.code != UNSUPPORTED_VERSION:
                raise
            await self._open(broker, packet._replace(protocol=V311 if packet.protocol == V5 else V5))
        if self.connection.connack.session_present:
            self.connection.abort()
            raise BrokerError(
                f"{broker} uses the user name as the client id, so a tool with the user of the app ends the app's "
                "connection; give the tool a user of its own: --mqtt, or MQTT__USERNAME and MQTT__PASSWORD"
            )
        try:
            yield self
        finally:
            await self.connection.close()

    @contextlib.asynccontextmanager
    async def greeted(self, broker: Broker, packet: Connect) -> AsyncIterator[Self]:
        """Connect with this CONNECT, and close at the end of the block. Raises as
        `leadsman.core.mqtt.connection.Connector`."""
        await self._open(broker, packet)
        try:
            yield self
        finally:
            await self.connection.close()

    async def _open(self, broker: Broker, packet: Connect) -> None:
        self.broken = None
        self._codes.clear()
        self.protocol = packet.protocol
        self.connection = await client.connect(broker, system_clock(asyncio.get_running_loop()), packet, self)

    async def until(self, done: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until something is done, at most `seconds`, or until the connection is lost. Returns whether it is.
        Without `seconds` it waits as long as for an answer of the broker."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER if seconds is None else seconds):
                while not done() and self.broken is None:
                    self._news.clear()
                    await self._news.wait()
        return done()

    async def read(self, filters: Sequence[str], marker: str) -> dict[str, SubscriptionRefused]:
        """Subscribe to filters, and wait until what the broker keeps there is in `messages`. Returns the filters that
        it refuses.

        Args:
            filters: topic filters. Some brokers, such as RabbitMQ, send what they keep only for a filter that is the
                very topic.
            marker: a filter at which nothing is kept. Its acknowledgement shows that the messages of the others have
                come.

        Raises:
            BrokerError: the connection was lost, or an answer is missing; trying again may help.
        """
        refused: dict[str, SubscriptionRefused] = {}
        for first in range(0, len(filters), AT_ONCE):
            some = filters[first : first + AT_ONCE]
            answers = await asyncio.gather(*map(self.connection.subscribe, some), return_exceptions=True)
            for each, answer in zip(some, answers, strict=True):
                if isinstance(answer, SubscriptionRefused):
                    refused[each] = answer
                elif answer is not None:
                    raise answer
        await self.connection.subscribe(marker)
        return refused

    def kept(self) -> dict[str, Received]:
        """The retained messages received so far, by topic."""
        return {each.topic: each for each in self.messages if each.retain and each.payload}

    async def publish_all(self, messages: Sequence[Message]) -> list[int | None]:
        """Publish several messages, and return their reason codes in order; None if the broker closes the connection
        instead.

        Raises:
            BrokerError: the connection had ended before, or there is no answer.
        """
        if self.broken is not None:
            raise self.broken
        ids = [self.connection.publish(message) for message in messages]
        answered = await self.until(lambda: all(each in self._codes for each in ids))
        if not answered and self.broken is None:
            raise NoAnswer(f"no answer to a message within {ANSWER:g} s")
        return [self._codes.pop(each, None) for each in ids]

    def acknowledged(self, packet_id: int, code: int) -> None:
        """See `ConnectionListener`."""
        self._codes[packet_id] = code
        self._news.set()

    def lost(self, reason: str, code: int = 0) -> None:
        """See `ConnectionListener`."""
        self.broken = BrokerError(reason)
        self._news.set()

    def received(self, message: Received) -> None:
        """See `ConnectionListener`."""
        self.messages.append(message)
        self._news.set()
