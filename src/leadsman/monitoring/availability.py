"""Publishes ``online`` or ``offline`` for each device at ``{prefix}/{device}/availability``.

A device is said online or offline after each connection, and when that changes. When the app stops, only the app's own
status says so, as the will does after a crash.
"""

from collections.abc import Iterator

from leadsman.loop.slices import Slices
from leadsman.monitoring.statuses import Statuses
from leadsman.mqtt.link import Link
from leadsman.mqtt.message import Message
from leadsman.mqtt.topics import Topics

SLICE = 100
"""Devices that are announced in one slice."""
MOST_WAITING = 1000
"""Messages in the outbox above which the announcement goes slowly, so that readings do not wait behind it."""
PAUSE = 0.1
"""Seconds between two slices of a slow announcement."""


class Availability:
    """Publishes the availability of devices.

    Args:
        topics: the topics of the app.
        statuses: the statuses of all entities.
        link: sends the messages.
        slices: does the announcement of all devices.
    """

    def __init__(self, topics: Topics, statuses: Statuses, link: Link, slices: Slices) -> None:
        self._topics = topics
        self._statuses = statuses
        self._link = link
        self._slices = slices

    def announce(self) -> None:
        """Begin to publish the availability of every device. It ends with the connection, for the next one begins it
        again."""
        self._slices.begin("the announcement of the devices", self._announcement(self._link.connects))

    def say(self, entity: str) -> None:
        """Publish the availability of one device as it is now; nothing for a side job."""
        if entity not in self._statuses.jobs:
            payload = b"offline" if entity in self._statuses.offline else b"online"
            self._link.put(Message(self._topics.availability(entity), payload, qos=1, retain=True, latest=True))

    def _announcement(self, connects: int) -> Iterator[float]:
        for number, entity in enumerate(tuple(self._statuses.words), 1):
            if self._link.connects != connects:
                return
            if entity in self._statuses.words:  # a device may be forgotten meanwhile
                self.say(entity)
            if number % SLICE == 0:
                yield PAUSE if self._link.outbox.messages > MOST_WAITING else 0.0
