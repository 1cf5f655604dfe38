"""What an app keeps for people who watch it: what happened, the last values and outcomes, and the lag of the loop. It
exists only while the HTTP endpoint is on."""

from collections import deque

from leadsman.event_bus import EventBus, Phase
from leadsman.introspection.happenings import Happenings
from leadsman.introspection.recent import RecentValues
from leadsman.reading import Reading
from leadsman.timing.clock import Clock
from leadsman.timing.slots import FINE
from leadsman.timing.timers import Timers

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
