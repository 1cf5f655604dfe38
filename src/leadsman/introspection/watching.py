"""What an app keeps for people who watch it: what happened, the last values and outcomes, and the lag of the loop. It
exists only while the HTTP endpoint is on."""

from array import array
from collections import deque
from typing import TYPE_CHECKING

from leadsman.event_bus import EventBus, Phase
from leadsman.events import Event, PollDeferred, PollFailed, PollMissed, PollSkipped, ReadingTaken
from leadsman.introspection.happenings import Happenings, small_fields
from leadsman.loop.clock import Clock
from leadsman.loop.slots import FINE
from leadsman.loop.timers import Timers
from leadsman.readings.reading import JsonObject, Reading

if TYPE_CHECKING:
    from leadsman.introspection.document import OutcomeWord, Recent

KEPT = 60
"""Values of a field, and outcomes of a device, that are kept."""
MOST_SERIES = 4
"""Fields of a device whose values are kept. The others have their last value only."""
OUTCOMES: "tuple[OutcomeWord, ...]" = ("ok", "failed", "skipped", "deferred", "missed")
_KINDS: dict[type, int] = {ReadingTaken: 0, PollFailed: 1, PollSkipped: 2, PollDeferred: 3, PollMissed: 4}


class RecentValues:
    """The last values and outcomes of all devices. An observer of the event bus, and of readings."""

    def __init__(self) -> None:
        self._devices: dict[str, _RecentOfDevice] = {}

    def observe(self, event: Event) -> None:
        """Keep an outcome. Other events change nothing."""
        kind = _KINDS.get(type(event))
        if kind is not None:
            self._of(event.entity).add_outcome(event.wall, kind)  # type: ignore[union-attr]  # those have one

    def on_reading(self, reading: Reading) -> None:
        """Keep the values of a reading."""
        self._of(reading.entity).add_values(reading.wall, reading.fields)

    def look(self, device: str) -> "Recent":
        """What is kept of a device."""
        found = self._devices.get(device)
        return _RecentOfDevice().look() if found is None else found.look()

    def forget(self, device: str) -> None:
        """Remove a device."""
        self._devices.pop(device, None)

    def _of(self, device: str) -> "_RecentOfDevice":
        found = self._devices.get(device)
        if found is None:
            found = self._devices[device] = _RecentOfDevice()
        return found


class _RecentOfDevice:
    __slots__ = ("_fields", "_kinds", "_outcomes", "_series", "_wall")

    def __init__(self) -> None:
        self._outcomes = array("d")
        """The times of the outcomes, epoch seconds."""
        self._kinds = bytearray()
        """Positions in `OUTCOMES`."""
        self._series: dict[str, tuple[array[float], array[float]]] = {}
        """The times and the values of each field that has numbers."""
        self._fields: JsonObject = {}
        self._wall: float | None = None

    def add_outcome(self, wall: float, kind: int) -> None:
        self._outcomes.append(round(wall, 3))
        self._kinds.append(kind)
        if len(self._kinds) > KEPT:
            del self._outcomes[0]
            del self._kinds[0]

    def add_values(self, wall: float, fields: JsonObject) -> None:
        self._wall, self._fields = round(wall, 3), small_fields(fields)
        for name, value in self._fields.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            series = self._series.get(name)
            if series is None:
                if len(self._series) == MOST_SERIES:
                    continue
                series = self._series[name] = (array("d"), array("d"))
            times, values = series
            times.append(self._wall)
            values.append(value)
            if len(times) > KEPT:
                del times[0]
                del values[0]

    def look(self) -> "Recent":
        return {
            "at": self._wall,
            "fields": self._fields,
            "series": {name: {"at": list(at), "values": list(values)} for name, (at, values) in self._series.items()},
            "outcomes": {"at": list(self._outcomes), "words": [OUTCOMES[kind] for kind in self._kinds]},
        }


PERIOD = 1.0
"""Seconds between two measurements of the lag."""
MEASURED = 10
"""Measurements that are kept: the lag is the largest of them."""


class LoopLag:
    """Measures by how much the event loop is late: what blocks it delays everything else. An alarm of `Timers`."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._lags: deque[float] = deque(maxlen=MEASURED)
        self._due = 0.0
        self._wait(timers.origin)

    @property
    def seconds(self) -> float:
        """The largest lag of the last seconds."""
        return max(self._lags, default=0.0)

    def ring(self, now: float) -> None:
        """Measure."""
        self._lags.append(max(0.0, now - self._due))
        self._wait(now)

    def _wait(self, now: float) -> None:
        self._due = self._timers.origin + self._timers.add(now + PERIOD, self) * FINE


class Watching:
    """Keeps these for one running app.

    Args:
        clock: the clock of the app.
        timers: the timers of the app.
        events: the events of the app.
    """

    def __init__(self, clock: Clock, timers: Timers, events: EventBus) -> None:
        self.happenings = Happenings(first=int(clock.wall() * 1000))
        self.recent = RecentValues()
        self.lag = LoopLag(timers)
        events.subscribe(self.recent.observe, Phase.REPORT)
        events.subscribe(self.happenings.observe, Phase.REPORT)

    def on_reading(self, reading: Reading) -> None:
        """Keep a reading."""
        self.recent.on_reading(reading)
        self.happenings.on_reading(reading)
