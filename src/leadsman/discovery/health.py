"""Publishes how each device is, at ``{prefix}/{device}/health``, while discovery is on.

It is small, and about one device, where the heartbeat is about all of them. A change is published within a second; the
time of the last success alone at most once a minute.
"""

from typing import TYPE_CHECKING, NamedTuple, cast

from leadsman.events import Event, LinkUp
from leadsman.monitoring.health import Health
from leadsman.monitoring.statuses import Statuses
from leadsman.mqtt.link import Link
from leadsman.mqtt.message import Message
from leadsman.mqtt.topics import Topics, encode
from leadsman.slices import Slices, Work
from leadsman.timing.clock import Clock, rfc3339

if TYPE_CHECKING:
    from leadsman.introspection.document import CircuitWord, StatusWord
    from leadsman.introspection.health_document import DeviceHealth

TURN = 1.0
"""Seconds between two looks at what has changed."""
REFRESH = 60.0
"""Seconds between two messages about a device that only say when it was last read."""
SLICE = 100
"""Devices that are looked at in one turn of the loop."""
MOST_WAITING = 1000
"""Messages in the outbox above which this waits, as the announcement of the devices does."""


class _Said(NamedTuple):
    """What was published last of a device."""

    status: str
    circuit: str
    failures: int
    success: float | None
    at: float
    """Monotonic seconds."""


class HealthTopics:
    """Publishes the health of the devices.

    Args:
        topics: the topics of the app.
        statuses: the statuses of the devices.
        link: sends the messages.
        clock: the clocks.
        slices: does the work of many devices.
    """

    def __init__(self, topics: Topics, statuses: Statuses, link: Link, clock: Clock, slices: Slices) -> None:
        self._topics = topics
        self._statuses = statuses
        self._link = link
        self._clock = clock
        self._slices = slices
        self._said: dict[str, _Said] = {}
        self._due: dict[str, None] = {}
        """Devices of which something may be new."""
        self._turning = False

    def observe(self, event: Event) -> None:
        """Note the device that an event is about. It is looked at within a second."""
        entity: str | None = getattr(event, "entity", None)
        if entity is not None:
            self._due[entity] = None
        elif isinstance(event, LinkUp):
            self.announce()
        if not self._turning:
            self._turning = True
            self._slices.begin("the health of the devices", self._turns())

    def announce(self) -> None:
        """Publish the health of all devices again, within a second."""
        self._said.clear()
        self._due.update(dict.fromkeys(self._statuses.words))

    def forget(self, entity: str) -> None:
        """Remove a device, after its last event."""
        self._said.pop(entity, None)
        self._due.pop(entity, None)

    def _turns(self) -> Work:
        """Look at the devices that are due, and at those in trouble, whose status time alone may change."""
        try:
            while True:
                yield TURN
                due, self._due = {**self._due, **self._statuses.troubled}, {}
                for number, entity in enumerate(due, 1):
                    self._look(entity)
                    if number % SLICE == 0:
                        yield TURN if self._link.outbox.messages > MOST_WAITING else 0.0
        finally:  # after a fault of ours, the next event begins again
            self._turning = False

    def _look(self, entity: str) -> None:
        """Publish the health of a device if it is new. If only the last success is, it may stay due."""
        if entity not in self._statuses.words or entity in self._statuses.jobs:
            return
        health, now = self._statuses.records[entity], self._clock.monotonic()
        status, failures = self._statuses.words[entity], health.trouble.failures
        said = self._said.get(entity)
        if said is not None and said[:3] == (status, health.circuit, failures):
            if said.success == health.success_wall:
                return
            if now - said.at < REFRESH:
                self._due[entity] = None
                return
        self._said[entity] = _Said(status, health.circuit, failures, health.success_wall, now)
        payload = encode(document(cast("StatusWord", status), health))
        self._link.put(Message(self._topics.of(entity, "health"), payload, qos=1, retain=True, latest=True))


def document(status: "StatusWord", health: Health) -> "DeviceHealth":
    """What is published of one device."""
    return {
        "status": status,
        "circuit": cast("CircuitWord", health.circuit),
        "consecutive_failures": health.trouble.failures,
        "last_success_at": None if health.success_wall is None else rfc3339(health.success_wall),
    }
