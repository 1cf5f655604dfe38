"""The two clocks of an app: monotonic time, which only goes forward, and wall time, which can be set."""

import functools
import time
from asyncio import AbstractEventLoop, BaseEventLoop
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple


class Clock(NamedTuple):
    """Reads the time. Pure modules do not use it: they take `now` as an argument."""

    monotonic: Callable[[], float]
    """Seconds from an arbitrary start; never goes back. Everything in memory is timed by it."""
    wall: Callable[[], float]
    """Seconds since 1970-01-01 UTC; may jump when NTP or a person sets it. Only for what people and brokers read."""
    uptime: Callable[[], float] = time.monotonic
    """Seconds from an arbitrary start; never goes back, and goes on while the host sleeps, if it has such a clock."""

    def offset(self) -> float:
        """`wall` less `uptime`. It changes only if the wall clock is set, and by as much as that."""
        return self.wall() - self.uptime()


def system_clock(loop: AbstractEventLoop) -> Clock:
    """The clock of a loop: its own time, and the wall time it carries if it is a virtual one. The time of most loops is
    that of Python, and read there without a call more."""
    wall = getattr(loop, "wall_time", None)
    if wall is not None:
        return Clock(loop.time, wall, loop.time)
    return Clock(time.monotonic if type(loop).time is BaseEventLoop.time else loop.time, time.time, _uptime)


_uptime: Callable[[], float] = (
    functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)


def rfc3339(wall: float) -> str:
    """Write epoch seconds as RFC 3339 in UTC with milliseconds: ``2026-11-20T22:11:00.250Z``."""
    second, millisecond = divmod(round(wall * 1000), 1000)
    return f"{_to_the_second(second)}.{millisecond:03}Z"


@functools.lru_cache(maxsize=8)
def _to_the_second(second: int) -> str:
    """Whole epoch seconds: ``2026-11-20T22:11:00``. Readings of one second share it."""
    return datetime.fromtimestamp(second, UTC).isoformat()[:-6]
