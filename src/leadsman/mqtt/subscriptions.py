"""The subscriptions of the link, which it renews on every connection, and the callbacks for their messages.

A broker refuses a subscription with a reason code, or by closing the connection. In the second case, the next
connections
subscribe before they send any message. When two of them break, the filter that was requested is left out for a while.
"""

from collections.abc import Callable

from leadsman.errors import BrokerError, SubscriptionRefused
from leadsman.event_bus import EventBus
from leadsman.events import AppFault, SubscriptionFailed
from leadsman.mqtt.connection import Connection, Received
from leadsman.mqtt.diagnosis import subscription
from leadsman.mqtt.topics import topic_matches
from leadsman.text import clean
from leadsman.timing.clock import Clock

BREAKS = 2
"""Connections that break on a filter with no message in flight before it is left out."""
REST = 600.0
"""Seconds that a filter is left out on which the broker closes the connection."""


class Subscriptions:
    """Topic filters with their listeners. Fill `listeners` before the first connection."""

    def __init__(self, clock: Clock, events: EventBus) -> None:
        self.listeners: dict[str, Callable[[Received], None]] = {}
        self.first = False
        """Whether nothing may be sent before the broker has answered all subscriptions."""
        self.error: str | None = None
        """What is wrong with one of them."""
        self._clock = clock
        self._events = events
        self._asked: str | None = None
        self._breaks: dict[str, int] = {}
        self._left_out: dict[str, float] = {}

    async def subscribe(self, connection: Connection) -> None:
        """Subscribe to everything; a filter that the broker refuses is told and leaves the others alone.

        Raises:
            BrokerError: the connection broke.
        """
        self.error = None
        for topic_filter in self.listeners:
            if self._clock.monotonic() < self._left_out.get(topic_filter, 0.0):
                self.error = subscription(topic_filter)
                continue
            self._asked = topic_filter
            try:
                await connection.subscribe(topic_filter)
            except SubscriptionRefused as error:
                self._failed(topic_filter, clean(str(error)))
            except BrokerError:  # no answer in time: the broker hangs, and not because of this filter
                self._asked = None
                raise
            self._asked = None
            self._breaks.pop(topic_filter, None)
        self.first = False

    def broke(self) -> bool:
        """The connection ended. Whether a subscription was unanswered then, so that it may be to blame."""
        asked, self._asked = self._asked, None
        if asked is None:
            return False
        self._breaks[asked] = self._breaks.get(asked, 0) + self.first
        if self._breaks[asked] >= BREAKS:
            self._left_out[asked] = self._clock.monotonic() + REST
            self._failed(asked, subscription(asked))
        self.first = True
        return True

    def received(self, message: Received) -> None:
        """Pass a message to its callback."""
        for topic_filter, listener in self.listeners.items():
            if topic_matches(topic_filter, message.topic):
                try:
                    listener(message)
                except Exception as error:  # a fault of ours; the message is lost, and the connection is not
                    self._events.emit(AppFault(f"receiving {clean(message.topic)}", error))
                return

    def _failed(self, topic_filter: str, reason: str) -> None:
        self.error = reason
        self._events.emit(SubscriptionFailed(topic_filter, reason))
