"""Makes the records of a day from the events of the app and the calls at the seam."""

from collections.abc import Mapping

from leadsman.events import (
    AttemptFailed,
    CircuitMoved,
    DeviceHeld,
    Event,
    MessageDropped,
    PollDeferred,
    PollFailed,
    PollMissed,
    PollSkipped,
    ReadingTaken,
)
from leadsman.registration.telemetry import Telemetry
from leadsman.simulation.record import DEFERRED, FAILED, HELD, MISSED, SKIPPED, Lost, Record
from leadsman.simulation.seam import Calls


class _ToTheMillisecond(dict[float, float]):
    """Moments, rounded. Each is rounded once: many devices are called, and read, at the same moment."""

    def __missing__(self, at: float) -> float:
        rounded = self[at] = round(at, 3)
        return rounded


class _Device:
    """The record of one device while it grows."""

    def __init__(self, interval: float | None, calls: Calls) -> None:
        self.interval = interval
        self.calls = calls
        self.failures: list[float] = []
        self.readings: list[float] = []
        self.lost: list[Lost] = []
        self.circuits: list[tuple[float, str]] = []
        self.held_at: float | None = None


class Recorder:
    """Observes the events of an app.

    Args:
        devices: the simulated devices, with the calls that their seams count.
        topics: the topics of their readings.
        end: the length of the day, in seconds. What comes later is not recorded.
    """

    def __init__(self, devices: Mapping[str, tuple[Telemetry, Calls]], topics: frozenset[str], end: float) -> None:
        self.dropped = 0
        """Readings that the outbox dropped."""
        self._devices = {name: _Device(telemetry.interval, calls) for name, (telemetry, calls) in devices.items()}
        self._topics = topics
        self._end = end

    def observe(self, event: Event) -> None:
        """Take one event."""
        if event.at >= self._end:
            return
        if type(event) is ReadingTaken:  # most are, and a match of all kinds takes longer
            device = self._devices[event.entity]
            device.readings.append(event.at)
            device.calls.under_way = None
        elif isinstance(event, MessageDropped):
            self.dropped += event.messages if event.topic in self._topics else 0
        elif (failing := self._devices.get(getattr(event, "entity", ""))) is not None:
            self._take(failing, event)

    def _take(self, device: _Device, event: Event) -> None:
        match event:
            case AttemptFailed(requested=False):
                began, device.calls.under_way = device.calls.under_way, None
                device.failures.append(event.at if began is None else began)
            case PollFailed():
                device.lost.append(Lost(event.at, FAILED))
            case PollSkipped():
                device.lost.append(Lost(event.at, SKIPPED))
            case PollMissed():
                device.lost.append(Lost(event.at, MISSED, event.polls))
            case PollDeferred():
                later = 0 if device.interval is None else int(event.seconds / device.interval)
                device.lost.append(Lost(event.at, DEFERRED, 1 + later))
            case DeviceHeld():
                device.held_at = event.at
            case CircuitMoved():
                device.circuits.append((event.at, event.state))

    def records(self) -> tuple[Record, ...]:
        """The records, in the order of the devices."""
        moments = _ToTheMillisecond()
        return tuple(self._record(name, device, moments) for name, device in self._devices.items())

    def _record(self, name: str, device: _Device, moments: Mapping[float, float]) -> Record:
        if device.held_at is not None and device.interval is not None:
            slots = int((self._end - device.held_at) / device.interval)
            device.lost += [Lost(device.held_at, HELD, slots)] if slots else []
        return Record(
            name,
            tuple([moments[at] for at in device.calls.began if at < self._end]),
            tuple(sorted([moments[at] for at in device.failures])),
            tuple([moments[at] for at in device.readings]),
            tuple(each._replace(at=moments[each.at]) for each in device.lost),
            tuple((moments[at], state) for at, state in device.circuits),
        )
