"""Publishes how each device is, as the convention of discovery says it.

It is small, and about one device, where the heartbeat is about all of them. A change is published within a second; the
time of the last success alone at most once a minute. Nothing is said of a device before the broker has its description.
"""

from typing import NamedTuple

from leadsman.discovery.description import Convention, RetainedMessage
from leadsman.events import Event, LinkUp
from leadsman.loop.clock import Clock
from leadsman.loop.slices import Slices, Work
from leadsman.monitoring.condition import condition_of
from leadsman.monitoring.statuses import StatusChange, Statuses
from leadsman.mqtt.link import Link
from leadsman.mqtt.message import Message

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
    offline: bool
    at: float
    """Monotonic seconds."""
    messages: tuple[RetainedMessage, ...]


class HealthTopics:
    """Publishes the health of the devices.

    Args:
        convention: says how a device is.
        statuses: the statuses of the devices.
        link: sends the messages.
        clock: the clocks.
        slices: does the work of many devices.
    """

    def __init__(self, convention: Convention, statuses: Statuses, link: Link, clock: Clock, slices: Slices) -> None:
        self._convention = convention
        self._statuses = statuses
        self._link = link
        self._clock = clock
        self._slices = slices
        self._said: dict[str, _Said] = {}
        self._described: set[str] = set()
        """The devices whose descriptions the broker has, as far as this connection showed."""
        self._due: dict[str, None] = {}
        """Devices of which something may be new."""
        self._turning = False
        statuses.on_change.append(self._note)

    def observe(self, event: Event) -> None:
        """Note the device that an event is about. It is looked at within a second."""
        entity: str | None = getattr(event, "entity", None)
        if entity is not None:
            self._due[entity] = None
        elif isinstance(event, LinkUp):
            self._described.clear()
            self._said.clear()
        if not self._turning:
            self._turning = True
            self._slices.begin("the health of the devices", self._turns())

    def _note(self, change: StatusChange) -> None:
        """The status of a device changed without an event about it."""
        self._due[change.entity] = None

    def announce(self) -> None:
        """Publish the health of all devices again, within a second."""
        self._said.clear()
        self._due.update(dict.fromkeys(self._statuses.words))

    def described(self, name: str) -> None:
        """The broker has the description of a device, so how that is can be said, within a second."""
        self._described.add(name)
        self._said.pop(name, None)
        self._due[name] = None

    def change(self, convention: Convention) -> None:
        """Devices have come or gone."""
        self._convention = convention

    def forget(self, entity: str) -> None:
        """Remove a device, after its last event."""
        self._described.discard(entity)
        self._said.pop(entity, None)
        self._due.pop(entity, None)

    def _turns(self) -> Work:
        """Look at the devices that are due, and at those in trouble, whose status time alone may change."""
        try:
            while True:
                yield TURN
                self._statuses.refresh(self._clock.monotonic())
                due, self._due = {**self._due, **self._statuses.troubled}, {}
                for number, entity in enumerate(due, 1):
                    self._look(entity)
                    if number % SLICE == 0:
                        yield TURN if self._link.outbox.messages > MOST_WAITING else 0.0
        finally:  # after a fault of ours, the next event begins again
            self._turning = False

    def _look(self, entity: str) -> None:
        """Publish the health of a device if it is new. If only the last success is, it may stay due."""
        if entity not in self._statuses.words or entity not in self._described:
            return
        health, now = self._statuses.records[entity], self._clock.monotonic()
        status, offline = self._statuses.words[entity], entity in self._statuses.offline
        failures, said = health.trouble.failures, self._said.get(entity)
        if said is not None and said[:3] == (status, health.circuit, failures) and said.offline == offline:
            if said.success == health.success_wall:
                return
            if now - said.at < REFRESH:
                self._due[entity] = None
                return
        before = () if said is None else said.messages
        messages = tuple(self._convention.condition(entity, condition_of(health, now, self._clock.wall())))
        self._said[entity] = _Said(status, health.circuit, failures, health.success_wall, offline, now, messages)
        for each in messages:
            if each not in before:
                self._link.put(Message(each.topic, each.payload, qos=1, retain=True, latest=True))
