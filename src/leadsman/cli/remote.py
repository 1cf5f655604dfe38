"""Sends a request to a running app over MQTT and waits for its answer, which carries the transaction of the request."""

import asyncio
import json
import sys
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from leadsman.errors import BrokerError, ConnackMissing, ConnectionRefused
from leadsman.mqtt import client
from leadsman.mqtt.broker import Broker
from leadsman.mqtt.connection import Connect, Connection, Received
from leadsman.mqtt.connection_state import UNSUPPORTED_VERSION, V5, V311
from leadsman.mqtt.message import Message
from leadsman.timing.clock import system_clock

if TYPE_CHECKING:
    from leadsman.introspection.document import Answer

_PATIENCE = 1.0
"""Seconds after which a waiting person is told what the command waits for."""


def ask(broker: Broker, topic: str, request: Mapping[str, object], timeout: float, *, quiet: bool = False) -> Any:
    """Send a request to `topic` and return the ``data`` of its answer. Unless `quiet`, a person at a terminal reads
    what the command waits for.

    Raises:
        BrokerError: the broker cannot be reached, there is no answer within `timeout` seconds, or the answer is an
            error.
    """
    return asyncio.run(_Exchange(topic, request, quiet=quiet).ask(broker, timeout))


class _Exchange:
    """One request and its answer. It listens to a connection of its own."""

    def __init__(self, topic: str, request: Mapping[str, object], *, quiet: bool) -> None:
        self._topic = topic
        self._quiet = quiet or not sys.stderr.isatty()
        self._transaction = uuid.uuid4().hex
        self._request = {**request, "transaction": self._transaction}
        self._answer: asyncio.Future[Answer] | None = None

    async def ask(self, broker: Broker, timeout: float) -> Any:
        loop = asyncio.get_running_loop()
        self._answer = loop.create_future()
        patience = loop.call_later(_PATIENCE, self._say, f"waiting for an answer at {self._topic!r} on {broker} …")
        try:
            return await self._exchange(broker, timeout, self._answer)
        finally:
            patience.cancel()

    async def _exchange(self, broker: Broker, timeout: float, coming: "asyncio.Future[Answer]") -> Any:
        connection = await self._connect(broker)
        try:
            await connection.subscribe(f"{self._topic}/response")
            connection.publish(Message(self._topic, json.dumps(self._request).encode()))
            async with asyncio.timeout(timeout):
                answer = await coming
        except TimeoutError:
            raise BrokerError(
                f"no answer at {self._topic!r} on {broker} within {timeout:g} s; "
                "check that the app is running there, and its prefix"
            ) from None
        finally:
            await connection.close()
        if answer.get("status") != "ok":
            raise BrokerError(str(answer.get("error")))
        return answer.get("data")

    async def _connect(self, broker: Broker) -> Connection:
        clock = system_clock(asyncio.get_running_loop())
        versions = [broker.protocol, V311 if broker.protocol == V5 else V5]
        for number, version in enumerate(versions):
            hello = Connect(f"leadsman-{self._transaction[:12]}", version, None, b"", largest=None)
            try:
                return await client.connect(broker, clock, hello, self)
            except (ConnectionRefused, ConnackMissing) as error:
                last = number == len(versions) - 1
                if last or (isinstance(error, ConnectionRefused) and error.code != UNSUPPORTED_VERSION):
                    raise
        raise AssertionError("one of the versions returned or raised")

    def _say(self, text: str) -> None:
        if not self._quiet:
            print(text, file=sys.stderr, flush=True)

    def received(self, message: Received) -> None:
        """See `ConnectionListener`."""
        try:
            answer = json.loads(message.payload)
        except ValueError:
            return  # another sender's
        if isinstance(answer, dict) and answer.get("transaction") == self._transaction:
            assert self._answer is not None  # made before the connection
            if not self._answer.done():
                self._answer.set_result(cast("Answer", answer))

    def lost(self, reason: str, code: int = 0) -> None:
        """See `ConnectionListener`."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(BrokerError(reason))

    def acknowledged(self, packet_id: int, code: int) -> None:
        """See `ConnectionListener`."""
        if code >= 0x80:
            self.lost(f"the broker refused the request (0x{code:02x}); allow {self._topic!r} in its access list")
