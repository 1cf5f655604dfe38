"""Says when the missed polls of a device are reported: at once, and then as one sum each second.

An app that is asked for more than it can do misses polls before most of its readings. To report each time would cost it
a third of the readings that it can do.

Pure.
"""

import math

REPORT_EACH = 1.0
"""Seconds between two reports of a device whose interval is shorter than that. Others report at once."""


class MissedPolls:
    """The missed polls of a device that are not reported yet.

    Args:
        interval: seconds between two polls; None with a cron expression, whose slots are a minute apart.
    """

    __slots__ = ("_each", "_next_at", "_waiting")

    def __init__(self, interval: float | None) -> None:
        self._each = 0.0 if interval is None or interval >= REPORT_EACH else REPORT_EACH
        self._next_at = -math.inf
        self._waiting = 0

    def add(self, polls: int, now: float) -> int:
        """Count missed polls. Returns how many to report at `now`, monotonic seconds: all that wait, or 0 if there are
        none, or if the last report was less than a second ago."""
        self._waiting += polls
        if now < self._next_at or not self._waiting:
            return 0
        self._next_at = now + self._each
        return self.take()

    def take(self) -> int:
        """All that wait, to report them before they are due. They do not wait any more."""
        taken, self._waiting = self._waiting, 0
        return taken

    def over(self, now: float) -> bool:
        """Whether this can be forgotten: nothing waits, and the next missed poll is reported at once."""
        return not self._waiting and now >= self._next_at
