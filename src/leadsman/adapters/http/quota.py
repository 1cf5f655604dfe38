"""How many requests a server allows in a day. Pure."""

import math

from leadsman.errors import InvalidValue
from leadsman.resilience.failure import RetryRequested

DAY = 86_400.0
"""Seconds. A day begins at midnight UTC."""


class DailyQuota:
    """Counts requests.

    The first day gets the share of what is left of it. So an app that is started again in the evening does not have a
    whole day's requests once more; nothing is kept on disk.

    Args:
        limit: requests of a day.
    """

    def __init__(self, limit: int) -> None:
        if type(limit) is not int or limit < 1:
            raise InvalidValue(f"daily_quota is {limit!r}; it must be 1 or more requests")
        self.limit = limit
        self._day: float | None = None
        self._left = 0

    def left(self, wall: float) -> int:
        """How many requests are left at this time, epoch seconds."""
        self._turn(wall)
        return max(self._left, 0)

    def take(self, wall: float) -> None:
        """Count a request before it is sent.

        Raises:
            RetryRequested: none is left; the delay ends with the day.
        """
        self._turn(wall)
        if self._left < 1:
            raise RetryRequested(
                DAY - wall % DAY, f"the daily quota of {self.limit:,} requests is used up until midnight UTC"
            )
        self._left -= 1

    def add(self, requests: int) -> None:
        """Count requests that were sent besides."""
        self._left -= requests

    def _turn(self, wall: float) -> None:
        day = wall // DAY
        if day != self._day:
            share = 1.0 if self._day is not None else 1.0 - wall % DAY / DAY
            self._day, self._left = day, math.ceil(self.limit * share)
