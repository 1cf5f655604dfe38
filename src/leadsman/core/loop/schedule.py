"""Computes when the next poll is due.

A fixed-rate schedule is a grid, ``start + k · interval``. The duration of a poll does not move the next one, so nothing
drifts. A process that slept through some points continues at the next one, instead of catching up in a burst.

A cron schedule follows the wall clock in an IANA time zone, through `cronsim`. Jobs at a fixed time that fall into the
gap of a DST change run right after it, and those in the repeated hour run once, as in Debian's cron. The wall clock is
checked again and again while waiting, since it may be set meanwhile. No slot is due twice, unless the clock was set
back.

Pure: `now` is passed in, in seconds, monotonic for the grid and epoch for cron.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from datetime import datetime, timedelta, tzinfo
from functools import lru_cache
from typing import NamedTuple

from leadsman.core.value import Value
from leadsman.errors import InvalidType, InvalidValue

CLOCK_SET_BACK = 300.0
"""A wall clock that goes back by more than this (seconds) was set, not slewed: cron starts afresh from the new time.

ntpd slews by at most 128 ms and steps beyond (ntpd(8), `-x`); chrony slews faster, but minutes are nobody's slew.
"""

CLOCK_SET_FORWARD = 3 * 3600.0
"""A wall clock that goes forward by more than this (seconds) was wrong before: what it passes over is not polled.
Within it, one poll is made at once. cron(8) of Debian draws the line there, too."""

_SET = 1.0
"""Seconds by which a clock that is slewed between two looks does not move."""

_MAX_COUNTED_SLOTS = 10_000
"""Slots passed over that are counted: a week of minutes."""


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


class Wait(NamedTuple):
    """The time that a cron handler waits for, and the clocks when it read them: `wall` in epoch seconds, `now` in
    monotonic ones."""

    slot: float
    """Epoch seconds."""
    wall: float
    now: float
    last: float | None = None
    """The latest slot that came due, epoch seconds."""


class ClockCheck(NamedTuple):
    """The result of a look at the clocks: what to `wait` for, whether the slot that was waited for is `due`, and how
    many after it were `missed`."""

    wait: Wait
    due: bool
    missed: int


class Cron(Value):
    """A cron schedule: five fields ``minute hour day-of-month month day-of-week``, in a time zone.

    Args:
        expression: such as ``"0 */2 * * *"`` or ``"30 6 * * MON-FRI"``.
        zone: an IANA name such as ``"Europe/Berlin"``; None takes the host's.
        at_start: also poll once when the app starts.

    Raises:
        InvalidValue, InvalidType: the expression or the zone is invalid, or the schedule is never due.
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
                f"schedule is {expression!r}; "
                "write five fields: minute hour day-of-month month day-of-week, such as '0 */2 * * *'"
            )
        self._hold(expression=" ".join(expression.split()).upper(), zone=zone, at_start=at_start)
        if next(_slots(self.expression, datetime(2024, 1, 1, tzinfo=zone_of(zone))), None) is None:
            raise InvalidValue(f"schedule {expression!r} never comes due")

    def after(self, wall: float) -> float:
        """The first slot after `wall`, both in epoch seconds; infinity when there is none."""
        # Jobs at a fixed time are found in local time. In the hour that autumn repeats, the first ones are in the past.
        slots = _slots(self.expression, datetime.fromtimestamp(wall, zone_of(self.zone)))
        return next((at for at in map(datetime.timestamp, slots) if at > wall), math.inf)

    def next(self, last: float | None, wall: float) -> float:
        """The slot to wait for at `wall`, when `last` was the latest slot polled. Never that slot again, unless the
        clock was set back."""
        if last is not None and last > wall and last - wall <= CLOCK_SET_BACK:
            return self.after(last)
        return self.after(wall)

    def largest_gap(self) -> float:
        """The longest time in seconds between two slots, over the next hundred or the next four years."""
        at = datetime(2024, 1, 1, tzinfo=zone_of(self.zone))
        end, largest = at + timedelta(days=4 * 366), 0.0
        for slot in itertools.islice(_slots(self.expression, at), 100):
            if slot > end:
                break
            largest, at = max(largest, slot.timestamp() - at.timestamp()), slot
        return largest


def check_clocks(cron: Cron, wait: Wait, wall: float, now: float) -> ClockCheck:
    """What the clocks say: `wall` in epoch seconds, `now` in monotonic ones."""
    slot, last, passed = wait.slot, wait.last, now - wait.now
    step = wall - wait.wall - passed
    if step > CLOCK_SET_FORWARD or step < -CLOCK_SET_BACK:
        slot, last = (
            cron.after(wall - passed),
            None,
        )  # what came since the clock was set, at the earliest at the last check_clocks
    elif wall < slot and abs(step) > _SET:
        slot = cron.next(last, wall)
    if wall < slot:
        return ClockCheck(Wait(slot, wall, now, last), due=False, missed=0)
    missed, latest, following = 0, slot, cron.after(slot)
    while following <= wall and missed < _MAX_COUNTED_SLOTS:
        missed, latest, following = missed + 1, following, cron.after(following)
    return ClockCheck(
        Wait(following if following > wall else cron.after(wall), wall, now, latest), due=True, missed=missed
    )


def next_after(cron: Cron | None, interval: float, due: float, rest: float, refusals: int) -> float:
    """The first poll, at or after the next one, `due`, that comes at `rest` or later and after `refusals` that are
    turned away.

    Args:
        cron: the schedule, or None where there is an interval.
        interval: seconds.
        due: when the next poll is due; `rest` by the same clock, epoch seconds for cron.
        rest: minus infinity for none.
        refusals: 0 or more.
    """
    if cron is None:
        steps = math.ceil((rest - due) / interval) if rest > due and interval else 0
        return due + (steps + refusals) * interval
    if rest > due:
        due = cron.after(math.ceil(rest) - 1)
    for _ in range(refusals):
        due = cron.after(due)
    return due


def slots_between(cron: Cron | None, interval: float, origin: float, since: float, until: float) -> int:
    """The slots of a schedule after `since`, up to and including `until`.

    Args:
        cron: the schedule, or None where there is an interval.
        interval: seconds.
        origin: a slot of the interval; without meaning for cron.
        since, until: seconds, by the same clock as `origin`; epoch seconds for cron.
    """
    if until <= since:
        return 0
    if cron is None:
        before, after = (math.floor((at - origin) / interval + 1e-9) for at in (since, until))
        return after - before
    slots = _slots(cron.expression, datetime.fromtimestamp(since, zone_of(cron.zone)))
    found = itertools.takewhile(lambda at: at <= until, map(datetime.timestamp, slots))
    return sum(since < at for at in itertools.islice(found, _MAX_COUNTED_SLOTS))


def _slots(expression: str, after: datetime) -> Iterator[datetime]:
    """The slots from a point in time on, in order, but for those right after the hour that autumn repeats."""
    from cronsim import CronSim, CronSimError  # only apps with a cron schedule need it

    try:
        return CronSim(expression, after)
    except CronSimError as error:
        raise InvalidValue(f"schedule is {expression!r}: {error}; write five fields such as '0 */2 * * *'") from error


@lru_cache(maxsize=32)
def zone_of(name: str | None) -> tzinfo:
    """The time zone of an IANA name; None for the host's. Raises `InvalidValue`, `InvalidType`."""
    from zoneinfo import ZoneInfo

    from leadsman.core.loop.host_zone import host_zone  # as above

    if name is None:
        return host_zone()
    if not isinstance(name, str):
        raise InvalidType(f"zone is {name!r}; write an IANA name such as 'Europe/Berlin'")
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise InvalidValue(
            f"zone is {name!r}, which is not a known IANA time zone; write one such as 'Europe/Berlin'"
        ) from error
