"""Publishes each value of a reading at a topic of its own, and receives commands there, for a convention that has such
topics.

A value is published when its reading is, and differs from the last one. While there is no connection only the newest
reading is remembered, so none of these messages waits in the outbox. Nothing goes to the topics of a device before the
broker has its description: they may be those of another program.
"""

import logging
from collections.abc import Callable, Sequence

from leadsman.discovery.description import PropertyTopics, RetainedMessage
from leadsman.errors import Busy, PayloadError
from leadsman.events import Event, LinkDown, LinkUp
from leadsman.mqtt.connection import Received
from leadsman.mqtt.link import Link
from leadsman.mqtt.message import Message
from leadsman.readings.publish import Fields
from leadsman.readings.reading import Reading
from leadsman.text import clean, log_fields

Execute = Callable[[str, Received], bool]
"""Executes a command of a device. Returns whether it was accepted."""

Add = Callable[[Received, Callable[[Received], None], Callable[[Received, PayloadError | Busy], None]], None]
"""Has a message handled, or refused, in its turn."""

logger = logging.getLogger("leadsman")


class Properties:
    """The values of the devices.

    Args:
        topics: says what is published.
        link: sends the messages.
    """

    def __init__(self, topics: PropertyTopics, link: Link) -> None:
        self._topics = topics
        self._link = link
        self._last: dict[str, Fields] = {}
        """The newest published reading of each device."""
        self._sent: dict[str, bytes] = {}
        """The values that were published last, by topic."""
        self._described: set[str] = set()
        self._refused: set[str] = set()
        """Devices of which a refused command was logged."""

    def goodbye(self) -> Sequence[RetainedMessage]:
        """What says that the app ends, of the devices that the broker knows."""
        return self._topics.goodbye(sorted(self._described))

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
        for value in self._topics.values(name, last) if self._topics.knows(name) else ():
            self._sent.pop(value.topic, None)
        self._described.discard(name)
        self._refused.discard(name)

    def observe(self, event: Event) -> None:
        """Wait for the descriptions after each connection."""
        if isinstance(event, LinkUp | LinkDown):
            self._described.clear()

    def on_described(self, name: str, *, new: bool) -> None:
        """The broker has the description of a device: publish its newest values. If the description is `new`, or the
        broker has forgotten the session, it may have forgotten them all."""
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
                self._link.put(Message(topic, payload, qos=1, retain=True, latest=True))

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
        """Log the first refused command of a device; the answers tell of all."""
        if name not in self._refused:
            self._refused.add(name)
            about = log_fields("command refused", name, topic=topic)
            logger.warning("%s: the command at %s is refused: %s", name, clean(topic), clean(str(error)), extra=about)
