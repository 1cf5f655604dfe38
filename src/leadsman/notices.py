"""Notices of what happens while an app runs, for functions of the app; see `App.on`. Each notice is a plain record with
its time, an aware datetime in UTC. The set is stable: fields are added, and none is renamed or removed.
"""

from datetime import UTC, datetime
from typing import NamedTuple

from leadsman.core import events
from leadsman.core.events import Event


class DeviceFailed(NamedTuple):
    """An outage of a device began: a poll failed for good, after `calls` calls. There is one until it is read again."""

    at: datetime
    device: str
    error: BaseException
    calls: int


class DeviceRecovered(NamedTuple):
    """A device was read again. `seconds` is how long the outage lasted, as far as notices show it."""

    at: datetime
    device: str
    seconds: float


class CircuitOpened(NamedTuple):
    """The circuit of a device opened, after `failures` failed polls in a row. A probe that fails is no other notice."""

    at: datetime
    device: str
    failures: int


class CircuitClosed(NamedTuple):
    """The circuit of a device is closed again, after a probe or by a person."""

    at: datetime
    device: str


class DeviceHeld(NamedTuple):
    """A device is not polled until a person releases it. `by` names the person; it is empty after a failure."""

    at: datetime
    device: str
    by: str


class DeviceReleased(NamedTuple):
    """A person, `by`, released a device."""

    at: datetime
    device: str
    by: str


class BrokerConnected(NamedTuple):
    """A broker accepted the connection. `protocol` is ``"5.0"`` or ``"3.1.1"``."""

    at: datetime
    protocol: str


class BrokerLost(NamedTuple):
    """The connection to the broker ended, or could not be made, because of `reason`. There is one until the app is
    connected again."""

    at: datetime
    reason: str


class AdapterReopened(NamedTuple):
    """An adapter that failed was closed and opened again. `how` is ``"reopened"``, or ``"reset"`` if its client was
    replaced too."""

    at: datetime
    adapter: str
    how: str


class ReadingsDropped(NamedTuple):
    """`messages` messages of a topic will never reach the broker, because of `reason`."""

    at: datetime
    topic: str
    messages: int
    reason: str


Notice = (
    DeviceFailed
    | DeviceRecovered
    | CircuitOpened
    | CircuitClosed
    | DeviceHeld
    | DeviceReleased
    | BrokerConnected
    | BrokerLost
    | AdapterReopened
    | ReadingsDropped
)
KINDS: tuple[type[Notice], ...] = (
    DeviceFailed,
    DeviceRecovered,
    CircuitOpened,
    CircuitClosed,
    DeviceHeld,
    DeviceReleased,
    BrokerConnected,
    BrokerLost,
    AdapterReopened,
    ReadingsDropped,
)
"""All of them."""
__all__ = [*(kind.__name__ for kind in KINDS), "KINDS", "Notice"]


class Notices:
    """Makes notices of what happened. It remembers which devices fail, which circuits are open, and whether there is a
    connection, so that each change has one notice, and decides nothing else."""

    __slots__ = ("_connected", "_failing", "_open")

    def __init__(self) -> None:
        self._failing: dict[str, float] = {}
        """When each outage began of which there was a notice, epoch seconds."""
        self._open: set[str] = set()
        self._connected: bool | None = None

    def of(self, event: Event) -> Notice | None:
        """The notice about an event; None if there is none."""
        if isinstance(event, events.ReadingTaken) and event.entity not in self._failing:  # most events
            return None
        at = datetime.fromtimestamp(event.wall, UTC)
        match event:
            case events.PollFailed() if event.entity not in self._failing:
                self._failing[event.entity] = event.outage
                return DeviceFailed(at, event.entity, event.error, event.attempts)
            case events.ReadingTaken():
                return DeviceRecovered(at, event.entity, max(0.0, event.wall - self._failing.pop(event.entity)))
            case events.CircuitMoved(state="open") if event.entity not in self._open:
                self._open.add(event.entity)
                return CircuitOpened(at, event.entity, event.failures)
            case events.CircuitMoved(state="closed") if event.entity in self._open:
                self._open.discard(event.entity)
                return CircuitClosed(at, event.entity)
            case events.DeviceHeld():
                return DeviceHeld(at, event.entity, event.by)
            case events.DeviceReleased():
                return DeviceReleased(at, event.entity, event.by)
            case events.LinkUp():
                self._connected = True
                return BrokerConnected(at, event.protocol)
            case events.LinkDown() if self._connected is not False:
                self._connected = False
                return BrokerLost(at, event.reason)
            case events.AdapterReopened():
                return AdapterReopened(at, event.adapter, event.how)
            case events.MessageDropped():
                return ReadingsDropped(at, event.topic, event.messages, event.reason)
        return None

    def forget(self, device: str) -> None:
        """A device has left."""
        self._failing.pop(device, None)
        self._open.discard(device)
