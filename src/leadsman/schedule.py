"""When the next poll is due.

A fixed-rate schedule lies on a grid, ``start + k · interval``: what a poll takes does not move the next one, so nothing
drifts, and a process that slept through some points goes on at the next one instead of catching up in a burst.

A cron schedule follows the wall clock in an IANA time zone, through `cronsim`: jobs at a fixed time that fall into the
gap of a DST change run right after it, and those in the repeated hour run once, as Debian's cron does. It is asked
again whenever the wall clock may have moved, and never gives the same slot twice.

Pure: `now` is handed in, seconds, monotonic for the grid and epoch for cron.
"""

from __future__ import annotations

import math
import zlib
from datetime import datetime, timedelta, tzinfo
from functools import lru_cache
from typing import NamedTuple

from leadsman.errors import InvalidType, InvalidValue
from leadsman.value import Value

CLOCK_SET_BACK = 300.0
"""A wall clock that goes back by more than this (seconds) was set, not slewed: cron starts afresh from the new time.

ntpd slews by at most 128 ms and steps beyond (ntpd(8), `-x`); chrony slews faster, but minutes are nobody's slew.
"""


class Due(NamedTuple):
    """The next poll: when, and how many points of the schedule were passed over since the last one."""

    at: float
    missed: int


def next_on_grid(last: float, interval: float, now: float) -> Due:
    """The first point of the grid through `last` that lies after `now`, and the points missed on the way to it."""
    steps = max(1, math.floor((now - last) / interval) + 1)
    at = last + steps * interval
    if at <= now:  # the division rounded down across a point
        steps, at = steps + 1, last + (steps + 1) * interval
    return Due(at, steps - 1)


def spread_offset(name: str, spread: float) -> float:
    """Where within `spread` seconds a handler's first poll falls: the same for a name, at every start."""
    return zlib.crc32(name.encode()) / 2**32 * spread


class Cron(Value):
    """A cron schedule: five fields ``minute hour day-of-month month day-of-week``, in a time zone.

    Args:
        expression: such as ``"0 */2 * * *"`` or ``"30 6 * * MON-FRI"``.
        zone: an IANA name such as ``"Europe/Berlin"``; None takes the host's.
        at_start: also poll once when the app starts.

    Raises:
        InvalidValue, InvalidType: the expression, the zone, or a schedule that never comes due.
    """

    __slots__ = ("at_start", "expression", "zone")
    expression: str
    zone: str | None
    at_start: bool

    def __init__(self, expression: str, *, zone: str | None = None, at_start: bool = False) -> None:
        if not isinstance(expression, str):
            raise InvalidType(f"schedule is {expression!r}; write a cron expression such as '0 */2 * * *'")
        if len(expression.split()) != 5:
            raise InvalidValue(
                f"schedule is {expression!r}; write five fields: minute hour day-of-month month day-of-week, '0 */2 * * *'"
            )
        self._hold(expression=" ".join(expression.split()).upper(), zone=zone, at_start=at_start)
        if _next_slot(self.expression, datetime(2024, 1, 1, tzinfo=zone_of(zone))) is None:
            raise InvalidValue(f"schedule {expression!r} never comes due")

    def after(self, wall: float) -> float:
        """The first slot after `wall`, both in epoch seconds; infinity when there is none."""
        slot = _next_slot(self.expression, datetime.fromtimestamp(wall, zone_of(self.zone)))
        return math.inf if slot is None else slot.timestamp()

    def next(self, last: float | None, wall: float) -> float:
        """The slot to wait for at `wall`, when `last` was the latest slot polled. Never that slot again, unless the clock was set back."""
        if last is not None and last > wall and last - wall <= CLOCK_SET_BACK:
            return self.after(last)
        return self.after(wall)

    def largest_gap(self) -> float:
        """The longest time in seconds between two slots, over the next hundred or the next four years."""
        at = datetime(2024, 1, 1, tzinfo=zone_of(self.zone))
        end, largest = at + timedelta(days=4 * 366), 0.0
        for _ in range(100):
            slot = _next_slot(self.expression, at)
            if slot is None or slot > end:
                break
            largest, at = max(largest, slot.timestamp() - at.timestamp()), slot
        return largest


def _next_slot(expression: str, after: datetime) -> datetime | None:
    from cronsim import CronSim, CronSimError  # only apps with a cron schedule pay for it

    try:
        return next(CronSim(expression, after), None)
    except CronSimError as error:
        raise InvalidValue(f"schedule is {expression!r}: {error}; write five fields such as '0 */2 * * *'") from error


@lru_cache(maxsize=32)
def zone_of(name: str | None) -> tzinfo:
    """The time zone of an IANA name; None for the host's. Raises `InvalidValue`, `InvalidType`."""
    from zoneinfo import ZoneInfo

    if name is None:
        from tzlocal import get_localzone

        return get_localzone()
    if not isinstance(name, str):
        raise InvalidType(f"zone is {name!r}; write an IANA name such as 'Europe/Berlin'")
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise InvalidValue(
            f"zone is {name!r}, which is no known IANA time zone; write one such as 'Europe/Berlin'"
        ) from error
