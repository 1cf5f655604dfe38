"""An event loop with virtual time: when nothing can run, the time jumps to the next timer.

The time belongs to the loop, not to a clock that is passed around, so `asyncio.timeout` and `asyncio.sleep` inside any
library are virtual too. A day of outages takes milliseconds.

Threads are real. While a call runs that was made through leadsman's workers or `asyncio.to_thread`, the time stands
still, unless the call makes no progress for `patience` real seconds: then it is considered hung, and the time goes on.
"""

import asyncio
import selectors
import time

from leadsman.loop import threads as workers

START = 1_767_225_600.0
"""2026-01-01T00:00:00Z in epoch seconds: the default start of a virtual wall clock."""
_STEP = 0.02


class VirtualLoop(asyncio.SelectorEventLoop):
    """A selector event loop whose `time` begins at zero and jumps.

    Args:
        wall: the wall clock at the start, in epoch seconds.
        patience: real seconds to wait for a thread before the time goes on without it.
    """

    def __init__(self, wall: float = START, patience: float = 5.0) -> None:
        self._now = 0.0
        self._wall_offset = wall
        self._patience = patience
        super().__init__(_JumpingSelector(self))
        # A nanosecond, the resolution of the real clock, is lost in the float after 97 days, and timers would never be
        # due.
        self._clock_resolution = 1e-6
        self.set_default_executor(workers.DaemonExecutor())

    def time(self) -> float:
        """Virtual monotonic seconds."""
        return self._now

    def wall_time(self) -> float:
        """Virtual epoch seconds."""
        return self._now + self._wall_offset

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock forward, or back when negative, as NTP or a person does. The monotonic time goes on."""
        self._wall_offset += seconds

    def block(self, seconds: float) -> None:
        """Let time pass while the loop is blocked, as by a handler that computes."""
        self._now += seconds


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop
        self._waiting_since: float | None = None
        self._hanging = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout == 0:
            self._waiting_since = None
            return super().select(0) if len(self.get_map()) > 1 else []  # only the pipe that wakes a loop which waits
        busy = workers.busy()  # before the look: a call that ends in between has woken the loop when the look comes
        ready = super().select(0)
        if ready:
            self._waiting_since = None
            return ready
        if self._a_thread_works(busy):
            return super().select(_STEP)
        if timeout is None:
            raise RuntimeError("nothing is due, and nothing will be: the program waits for ever")
        self._loop._now += timeout  # noqa: SLF001  # the other half of one thing
        return []

    def _a_thread_works(self, busy: int) -> bool:
        """Whether more calls are under way than those known to hang."""
        self._hanging = min(self._hanging, busy)
        if busy == self._hanging:
            return False
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        if now - self._waiting_since > self._loop._patience:  # noqa: SLF001  # as above
            self._hanging, self._waiting_since = busy, None
            return False
        return True
