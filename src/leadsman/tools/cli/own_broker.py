"""A broker of our own, for the demo and for the ``--demo`` of an app: mosquitto if it is installed, else an embedded
one that is suitable for nothing else. A viewer shows what the broker has, as anybody would see it."""

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterator

from leadsman.core.loop.clock import system_clock
from leadsman.core.mqtt.broker import Broker
from leadsman.core.mqtt.client import connect
from leadsman.core.mqtt.connection import Connect, Connection, ConnectionListener, Received
from leadsman.core.mqtt.side_connection import SideConnection
from leadsman.core.wiring.process import ended_by_sigterm
from leadsman.errors import BrokerError
from leadsman.testing.embedded import embedded_broker
from leadsman.testing.mosquitto import Mosquitto, executable

RECONNECT = 0.2
"""Seconds between two attempts to connect."""


def watching(broker: Broker, prefix: str) -> str:
    """What to type to see all messages below a prefix."""
    return f"mosquitto_sub -h {broker.host} -p {broker.port} -t '{prefix}/#' -v"


@contextlib.contextmanager
def demo_broker() -> Iterator[tuple[str, str, Mosquitto | None]]:
    """Run a broker. Gives its URL, a description, and mosquitto if that is what runs.

    Raises:
        LeadsmanError: neither mosquitto nor amqtt is installed.
    """
    with ended_by_sigterm(), contextlib.ExitStack() as stack:  # at a SIGTERM too, the broker ends with the demo
        if executable() is not None:
            mosquitto = stack.enter_context(Mosquitto())
            yield mosquitto.url, "a mosquitto of its own", mosquitto
        else:
            port = stack.enter_context(embedded_broker())
            description = "an embedded broker (amqtt, MQTT 3.1.1; for this demo only)"
            yield f"mqtt://127.0.0.1:{port}?protocol=3.1.1", description, None


class Viewer(SideConnection):
    """Subscribes to a topic filter and passes on each message.

    Args:
        broker: where to listen.
        topic_filter: what to subscribe to.
        show: is called with each message.
    """

    def __init__(self, broker: Broker, topic_filter: str, show: Callable[[Received], None]) -> None:
        super().__init__()
        self._broker = broker
        self._filter = topic_filter
        self._show = show
        self._tried = asyncio.Event()
        """Whether the last attempt to subscribe has ended, and its connection, if it made one, still lives."""
        self.failure: BrokerError | None = None
        """Why the last attempt to subscribe failed; None if it did not."""

    async def listen(self) -> None:
        """Listen until cancelled; come back when the broker does."""
        while True:
            try:
                async with self.at(self._broker):
                    await self.connection.subscribe(self._filter)
                    self.failure = None
                    self._tried.set()
                    await self.until(lambda: False, math.inf)
            except BrokerError as error:
                self.failure = error
                self._tried.set()
            await asyncio.sleep(RECONNECT)

    async def connect_next(self, packet: Connect, listener: ConnectionListener) -> Connection:
        """Make the connection of the app; see `leadsman.core.mqtt.connection.Connector`. It is made after this
        subscriber has subscribed, which therefore misses nothing of what the outbox delivers after an outage. Where
        this subscriber found no broker, neither does the app."""
        await self._tried.wait()
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        return await connect(self._broker, system_clock(asyncio.get_running_loop()), packet, listener)

    def received(self, message: Received) -> None:
        """See `ConnectionListener`."""
        self._show(message)

    def lost(self, reason: str, code: int = 0) -> None:
        """See `ConnectionListener`."""
        self._tried.clear()
        super().lost(reason, code)
