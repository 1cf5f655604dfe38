"""Two clocks, told apart: one that only goes forward, and one that people set."""

import time
from asyncio import AbstractEventLoop
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple


class Clock(NamedTuple):
    """Where the shell reads the time. The cores never do: they are handed `now`."""

    monotonic: Callable[[], float]
    """Seconds from an arbitrary start; never goes back. Everything in memory is timed by it."""
    wall: Callable[[], float]
    """Seconds since 1970-01-01 UTC; may jump when NTP or a person sets it. Only for what people and brokers read."""


def system_clock(loop: AbstractEventLoop) -> Clock:
    """The clock of a loop: its own time, and the wall time it carries if it is a virtual one."""
    return Clock(loop.time, getattr(loop, "wall_time", time.time))


def rfc3339(wall: float) -> str:
    """Write epoch seconds as RFC 3339 in UTC with milliseconds: ``2026-11-20T22:11:00.250Z``."""
    return datetime.fromtimestamp(round(wall * 1000) / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
