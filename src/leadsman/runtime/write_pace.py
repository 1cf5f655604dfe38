"""How often the failure state is written: soon after a first change, and rarely while something always changes."""

import math

SOON = 0.25
"""Seconds to the first write after a time without any."""
FLOOR = 60.0
"""Seconds between two writes, at the least."""
CEILING = 900.0
"""Seconds between two writes at the most, while something changes."""


class Pace:
    """When to write. Pure: it is handed `now`, monotonic seconds.

    While something changes, the wait between two writes doubles from `FLOOR` to `CEILING`; a time without changes that
    is longer than that begins it again.
    """

    def __init__(self) -> None:
        self._at = -math.inf
        self._wait = FLOOR

    def due(self, now: float, *, urgent: bool) -> float:
        """When a change at `now` is to be written, monotonic seconds."""
        return max(now + SOON, self._at + (FLOOR if urgent else self._wait))

    def wrote(self, now: float) -> None:
        """It was written."""
        quiet = now - self._at >= CEILING + FLOOR
        self._wait = FLOOR if quiet else min(2 * self._wait, CEILING)
        self._at = now
