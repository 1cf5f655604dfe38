"""What a broker keeps of this client between two connections, as far as the client knows it (MQTT 5 §4.1): its
subscriptions, and the messages that the broker has sent and whose acknowledgement it may not have received.

Of the second kind each comes again with the next connection, with DUP and the same packet identifier (§4.4). A broker
uses an identifier again for another message, so the content must be the same, too, and the message must be one that may
still come again.
"""

from collections.abc import Iterable
from enum import Enum, auto

from leadsman.core.mqtt.connection import KEEPALIVE, RECEIVE_MAXIMUM, SESSION_EXPIRY, Received

COMES_AGAIN = 1.5 * KEEPALIVE + SESSION_EXPIRY
"""Seconds after a message in which it may come again. A broker that lacks the acknowledgement has no later packet of
this client either, so it ends the connection (§3.1.2.10), and then the session (§3.1.2.11.2)."""


class Arrival(Enum):
    """What is known of a message that has arrived."""

    NEW = auto()
    """It was not handled."""
    AGAIN = auto()
    """This process has handled it."""
    UNSURE = auto()
    """It was sent to an earlier process, which may have handled it."""


class BrokerSession:
    """The session at one broker.

    Args:
        filters: the topic filters of its subscriptions, or more; None if they are not known.
        shared: whether other processes connect with this client id in turns. They subscribe to the same filters.
    """

    __slots__ = ("_arrived", "_inherited", "_shared", "filters")

    def __init__(self, filters: Iterable[str] | None = None, *, shared: bool = False) -> None:
        self.filters = set[str]() if shared else None if filters is None else set(filters)
        """The filters that the broker may have; None if they are not known, so that the session must end."""
        self._shared = shared
        self._inherited = True
        """Whether a message may come again that was sent to another process."""
        self._arrived: dict[int, tuple[int, float]] = {}
        """The content of the latest messages, and when they came, by their packet identifiers: as many as the broker
        may send before it has an acknowledgement."""

    def connected(self, *, present: bool) -> None:
        """The broker has accepted a connection. `present`: it still has the session."""
        if self.filters is None or not present:
            self.filters = set()
            self._inherited = self._shared
            self._arrived.clear()

    def settled(self) -> None:
        """A connection has held: what was unacknowledged before it has come."""
        self._inherited = self._shared

    def arrived(self, message: Received, now: float) -> Arrival:
        """Take note of a message, which is acknowledged in any case. `now`: monotonic seconds."""
        if message.packet_id is None:
            return Arrival.NEW
        content = hash((message.topic, message.payload, message.retain, message.response_topic, message.correlation))
        before, at = self._arrived.pop(message.packet_id, (None, 0.0))
        self._arrived[message.packet_id] = content, now
        if len(self._arrived) > RECEIVE_MAXIMUM:
            del self._arrived[next(iter(self._arrived))]
        if not message.redelivered:
            return Arrival.NEW
        if before == content and now - at <= COMES_AGAIN:
            return Arrival.AGAIN
        return Arrival.UNSURE if self._inherited else Arrival.NEW
