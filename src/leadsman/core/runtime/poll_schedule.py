"""When a handler is polled: at an interval, or at the times of a cron expression.

An interval counts monotonic seconds from the start of the app. Cron follows the wall clock, which can be set: so a cron
schedule looks at it every `CLOCK_CHECK` seconds, together with all others.
"""

import math

from leadsman.core.loop.clock import Clock
from leadsman.core.loop.schedule import Cron, Wait, check_clocks, next_after, next_on_grid
from leadsman.core.resilience.environment import Environment

CLOCK_CHECK = 30.0
"""Seconds between two checks of the wall clock while a cron handler waits. A change of the clock is noticed within this
time."""


class IntervalSchedule:
    """The schedule of a handler with an interval."""

    __slots__ = ("due", "interval")

    def __init__(self, interval: float) -> None:
        self.interval = interval
        """Seconds."""
        self.due = math.inf
        """When the next poll is due, monotonic seconds."""

    def start(self, offset: float, shift: float, environment: Environment) -> float:
        """Begin `offset` seconds after the start of the app, and move all polls but the first by `shift` seconds, which
        is at most the interval. The second poll follows half an interval to one and a half after the first. Returns
        when to ring first, monotonic seconds."""
        first = environment.timers.first_slot(offset)
        self.due = first + (shift if shift < self.interval / 2 else shift - self.interval)
        return first

    def advance(self, now: float, environment: Environment) -> tuple[bool, int, float]:
        """The alarm rang at `now`, monotonic seconds: whether a poll is due, how many polls were missed before it, and
        when to ring next."""
        following, missed = self.due + self.interval, 0
        if now >= following:  # late by an interval or more
            following, missed = next_on_grid(self.due, self.interval, now)
        self.due = following
        return True, missed, following

    def missed_since(self, missed: int) -> float:
        """When the first of the polls came due that `advance` has just counted as missed, monotonic seconds."""
        return self.due - missed * self.interval

    def horizon(self, now: float, clock: Clock) -> float:
        """When the next poll is due, monotonic seconds."""
        return self.due

    def next_due(self, earliest: float, refusals: int, clock: Clock) -> float:
        """When a poll comes that is not before `earliest`, monotonic seconds, and after as many as an open circuit
        refuses: epoch seconds."""
        ahead = clock.wall() - clock.monotonic()
        return next_after(None, self.interval, self.due, earliest, refusals) + ahead


class CronSchedule:
    """The schedule of a handler with a cron expression."""

    __slots__ = ("_cron", "_due_at", "_wait")

    def __init__(self, cron: Cron) -> None:
        self._cron = cron
        self._wait = Wait(math.inf, 0.0, 0.0)
        self._due_at = 0.0

    def start(self, offset: float, shift: float, environment: Environment) -> float:
        """See `IntervalSchedule`. Cron has no offset and no shift."""
        clock, origin, at_start = environment.clock, environment.timers.origin, self._cron.at_start
        wall = clock.wall()
        self._wait = Wait(wall if at_start else self._cron.after(wall), wall, clock.monotonic())
        return origin if at_start else self._next_check(origin, wall, origin)

    def advance(self, now: float, environment: Environment) -> tuple[bool, int, float]:
        """See `IntervalSchedule`. A poll is not due each time the alarm rings: it also rings to check the wall
        clock."""
        wall = environment.clock.wall()
        self._due_at = now + self._wait.slot - wall
        self._wait, is_due, missed = check_clocks(self._cron, self._wait, wall, now)
        return is_due, missed, self._next_check(now, wall, environment.timers.origin)

    def missed_since(self, missed: int) -> float:
        """See `IntervalSchedule`."""
        return self._due_at

    def horizon(self, now: float, clock: Clock) -> float:
        """See `IntervalSchedule`."""
        return now + self._wait.slot - clock.wall()

    def next_due(self, earliest: float, refusals: int, clock: Clock) -> float:
        """See `IntervalSchedule`."""
        ahead = clock.wall() - clock.monotonic()
        return next_after(self._cron, 0.0, self._wait.slot, earliest + ahead, refusals)

    def _next_check(self, now: float, wall: float, origin: float) -> float:
        """At the slot, or before it together with all others that wait: the loop wakes up once for all of them."""
        check = origin + (math.floor((now - origin) / CLOCK_CHECK + 1e-6) + 1) * CLOCK_CHECK
        return min(now + self._wait.slot - wall, check)


PollSchedule = IntervalSchedule | CronSchedule


def schedule_of(interval: float | None, cron: Cron | None) -> PollSchedule:
    """The schedule of a handler, which has either an interval in seconds or a cron expression."""
    if cron is not None:
        return CronSchedule(cron)
    assert interval is not None  # checked at registration
    return IntervalSchedule(interval)
