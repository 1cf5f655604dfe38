"""For how long no device of an app gave a fresh reading. Pure: `now` is monotonic seconds."""

from typing import NamedTuple


class Staleness(NamedTuple):
    """A time without a fresh reading of any device."""

    since: float | None = None
    """When it began; None while some data is fresh."""

    def seen(self, now: float, *, fresh: bool) -> "Staleness":
        """The staleness after a look at the devices."""
        if fresh:
            return Staleness()
        return Staleness(now) if self.since is None else self

    def lasts(self, now: float) -> float:
        """How many seconds it has lasted; 0 while some data is fresh."""
        return 0.0 if self.since is None else max(0.0, now - self.since)
