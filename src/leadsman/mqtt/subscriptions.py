"""The subscriptions of the link, which it renews on every connection, and the callbacks for their messages.

A broker refuses a subscription with a reason code, or by closing the connection. In the second case, the next
connections subscribe before they send any message. When two of them break, the filter that was requested is left out
for a while.
"""

from collections.abc import Callable, Sequence

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
LEFT_OUT_FOR = 600.0
"""Seconds that a filter is left out on which the broker closes the connection."""


class Subscriptions:
    """Topic filters with their listeners. Fill `listeners` before the first connection."""

    def __init__(self, clock: Clock, events: EventBus) -> None:
        self.listeners: dict[str, Callable[[Received], None]] = {}
        self.first = False
        """Whether nothing may be sent before the broker has answered all subscriptions."""
        self.urgent: tuple[str, ...] = ()
        """Filters that are subscribed to before the others, in this order."""
        self.on_answer: Callable[[str], None] | None = None
        """Called with each filter when the broker has taken or refused it, or when it was left out."""
        self.error: str | None = None
        """What is wrong with one of the subscriptions, or None."""
        self.acknowledged: dict[str, float] = {}
        """When the broker took each subscription of this connection, monotonic seconds."""
        self._clock = clock
        self._events = events
        self._pending: str | None = None
        self._breaks: dict[str, int] = {}
        self._left_out: dict[str, float] = {}

    async def subscribe(self, connection: Connection) -> None:
        """Subscribe to all filters. A filter that the broker refuses is reported, and does not affect the others.

        Raises:
            BrokerError: the connection broke.
        """
        self.error = None
        self.acknowledged.clear()
        first = [each for each in self.urgent if each in self.listeners]
        await self.add(connection, tuple(dict.fromkeys((*first, *self.listeners))))
        self.first = False

    async def add(self, connection: Connection, filters: Sequence[str]) -> None:
        """Subscribe to these filters, too; see `subscribe`."""
        for topic_filter in filters:
            if self._clock.monotonic() < self._left_out.get(topic_filter, 0.0):
                self.error = subscription(topic_filter)
                self._answered(topic_filter)
                continue
            self._pending = topic_filter
            try:
                await connection.subscribe(topic_filter)
                self.acknowledged[topic_filter] = self._clock.monotonic()
            except SubscriptionRefused as error:
                self._failed(topic_filter, clean(str(error)))
            except BrokerError:  # no answer in time: the broker hangs, and not because of this filter
                self._pending = None
                raise
            self._pending = None
            self._breaks.pop(topic_filter, None)
            self._answered(topic_filter)

    def broke(self) -> bool:
        """The connection ended. Returns whether a subscription was unanswered then, so that it may be to blame."""
        pending, self._pending = self._pending, None
        if pending is None:
            return False
        self._breaks[pending] = self._breaks.get(pending, 0) + self.first
        if self._breaks[pending] >= BREAKS:
            self._left_out[pending] = self._clock.monotonic() + LEFT_OUT_FOR
            self._failed(pending, subscription(pending))
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

    def _answered(self, topic_filter: str) -> None:
        if self.on_answer is not None:
            self.on_answer(topic_filter)

    def _failed(self, topic_filter: str, reason: str) -> None:
        self.error = reason
        self._events.emit(SubscriptionFailed(topic_filter, reason))
