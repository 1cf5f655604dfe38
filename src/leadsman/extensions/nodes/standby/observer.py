"""Observes the lease and the status of an app on a connection with a client id of its own, for as long as the process
runs, whichever node owns the app."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable

from leadsman.core.loop.clock import Clock
from leadsman.core.mqtt import connection_state
from leadsman.core.mqtt.connection import Connect, Connection, Connector, Received
from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.topics import Topics
from leadsman.core.text import clean, describe, log_fields
from leadsman.errors import BrokerError, SubscriptionRefused
from leadsman.extensions.nodes.brief import is_online
from leadsman.extensions.nodes.failure_state import FailureStates
from leadsman.extensions.nodes.standby.machine import Blind, Event, LeaseHeard, Observing, StatusHeard
from leadsman.extensions.nodes.standby.renewal import read_renewal
from leadsman.extensions.nodes.standby.report import StandbyReport

SETTLE = 0.25
"""Seconds from the last SUBACK until all that the broker retains is heard: brokers send it at once, but not in a
certain order (MQTT 5 §3.8.4)."""
REPLAY = 0.05
"""Seconds from the SUBACK of a lease that is read once more."""
RESTART_INTERVAL = 1.0
"""Seconds after a fault of ours."""

logger = logging.getLogger("leadsman")


class Observer:
    """Keeps the connection, and passes on what it hears. It is a `ConnectionListener`.

    Args:
        client_id: of this connection; no other client has it.
        topics: of the app.
        connector: makes the connection.
        protocol: the MQTT version to try first.
        feed: takes what happens.
        report: of this node; it hears the other nodes, too.
        clock: the clocks.
    """

    def __init__(
        self,
        client_id: str,
        topics: Topics,
        connector: Connector,
        protocol: str | None,
        feed: Callable[[Event], None],
        report: StandbyReport,
        clock: Clock,
    ) -> None:
        self._client_id = client_id
        self._topics = topics
        self._connector = connector
        self._feed = feed
        self._report = report
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._session = connection_state.begin(protocol)
        self._lost: asyncio.Future[str] = self._loop.create_future()
        self._connection: Connection | None = None
        self._observing = asyncio.Event()
        self._reason: str | None = None
        self.failure_states: FailureStates | None = None
        """Keeps the failure state of the devices; None if it is not shared. Set it before `run`."""

    @property
    def blind(self) -> str | None:
        """Why the lease is not observed just now; None if it is."""
        return None if self._observing.is_set() else self._reason or "it has not been read yet"

    async def run(self) -> None:
        """Observe until cancelled."""
        while True:
            try:
                wait, reason = await self._live()
            except Exception as error:  # a fault of ours must not leave the node without a view for good
                wait, reason = RESTART_INTERVAL, f"{type(error).__name__}: {describe(error)}"
            if self._observing.is_set():
                self._observing.clear()
                self._report.heard.forget()
                self._feed(Blind())
            if self._connection is not None:
                self._connection.abort()
                self._connection = None
            if reason != self._reason:
                self._reason = reason
                about = log_fields("lease not observed", reason=clean(reason))
                logger.warning("%s: the lease is not observed: %s", self._topics.prefix, clean(reason), extra=about)
            await asyncio.sleep(wait)

    async def close(self) -> None:
        """Disconnect. `run` must have been cancelled."""
        self._report.goodbye()
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def read_again(self) -> None:
        """Wait until the broker has sent the lease once more: on a connection that is half open nothing comes."""
        while True:
            await self._observing.wait()
            connection = self._connection
            if connection is None:
                continue
            try:
                await connection.subscribe(self._topics.lease)
                await asyncio.sleep(REPLAY)
            except BrokerError as error:
                self.lost(str(error))
                await asyncio.sleep(REPLAY)
            else:
                if connection is self._connection and self._observing.is_set():
                    return

    def publish(self, message: Message) -> None:
        """Publish on this connection, if there is one. What is lost is not sent again."""
        if self._connection is not None:
            with contextlib.suppress(BrokerError):  # `lost` reports it too
                self._connection.publish(message)

    def acknowledged(self, packet_id: int, code: int) -> None:
        """See `ConnectionListener`."""

    def lost(self, reason: str, code: int = 0) -> None:
        """See `ConnectionListener`."""
        if not self._lost.done():
            self._lost.set_result(reason)

    def received(self, message: Received) -> None:
        """See `ConnectionListener`."""
        if message.topic == self._topics.status:
            self._feed(StatusHeard(is_online(message.payload)))
        elif self._report.takes(message.topic):
            self._report.received(message)
        elif message.topic != self._topics.lease:
            if self.failure_states is not None:
                self.failure_states.received(message)
        elif not message.payload:
            self._feed(LeaseHeard(None))
        elif (lease := read_renewal(message.payload)) is not None:
            self._feed(LeaseHeard(lease))

    async def _live(self) -> tuple[float, str]:
        """One connection, to its end. Returns seconds to wait, and why it ended."""
        self._lost = self._loop.create_future()
        try:
            will = self._report.topic  # its message removes the document
            packet = Connect(self._client_id, self._session.protocol, will, b"", will_delay=0, session_expiry=0)
            self._connection = connection = await self._connector(packet, self)
            self._session = connection_state.connected(self._session, self._clock.monotonic())
            shared = () if self.failure_states is None else self.failure_states.topic_filters
            for topic in (*shared, self._topics.lease, self._topics.status):
                await connection.subscribe(topic)
            await self._subscribe_to_nodes(connection)
            await asyncio.wait({self._lost}, timeout=SETTLE)
            if not self._lost.done():
                self._reason = None
                self._observing.set()
                self._feed(Observing())
                self._report.publish()
            reason = await self._lost
        except BrokerError as error:
            now, draw = self._clock.monotonic(), random.random()
            self._session, wait = connection_state.not_connected(self._session, error, now, draw)
            return wait, str(error)
        self._session, wait = connection_state.failed(self._session, self._clock.monotonic(), random.random())
        return wait, reason

    async def _subscribe_to_nodes(self, connection: Connection) -> None:
        """Nobody takes over because of documents of nodes, so a broker may refuse it."""
        try:
            for topic in self._report.topic_filters:
                await connection.subscribe(topic)
        except SubscriptionRefused as error:
            about = log_fields("nodes not observed", reason=clean(str(error)))
            logger.warning("%s: the nodes are not observed: %s", self._topics.prefix, clean(str(error)), extra=about)
