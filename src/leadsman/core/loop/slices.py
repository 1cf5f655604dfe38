"""Does long work in slices, one per turn of the event loop, so that readings and messages go on in between."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator

from leadsman.core.events import AppFault

Work = Iterator[float]
"""Long work. Each step is a slice of a millisecond or two. It yields the seconds until its next slice; 0 is the next
turn of the loop."""


class Slices:
    """Does the works that were begun, in turn. Two works at once take no longer in one turn of the loop than one.

    Args:
        loop: the event loop.
        emit: takes the exceptions of works, as faults of the app.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, emit: Callable[[AppFault], None]) -> None:
        self._loop = loop
        self._emit = emit
        self._ready: deque[tuple[str, Work]] = deque()
        self._turning = False
        self._stopped = False

    def begin(self, where: str, work: Work) -> None:
        """Do the first slice of `work` now, and the others in later turns of the loop. An exception ends the work, and
        is reported as a fault at `where`."""
        if not self._stopped:
            self._go_on(where, work, self._slice(where, work))

    def stop(self) -> None:
        """Do nothing more, not even the rest of begun work."""
        self._stopped = True
        self._ready.clear()

    def _turn(self) -> None:
        self._turning = False
        if self._ready:  # else everything was stopped
            where, work = self._ready.popleft()
            self._go_on(where, work, self._slice(where, work))

    def _go_on(self, where: str, work: Work, pause: float | None) -> None:
        """Do the next slice of `work` after `pause` seconds; None is the end of it."""
        if pause:
            self._loop.call_later(pause, self._add, where, work)
        elif pause is not None:
            self._add(where, work)
        self._wake()

    def _add(self, where: str, work: Work) -> None:
        if not self._stopped:
            self._ready.append((where, work))
            self._wake()

    def _wake(self) -> None:
        if self._ready and not self._turning:
            self._turning = True
            self._loop.call_soon(self._turn)

    def _slice(self, where: str, work: Work) -> float | None:
        """Do one slice. Returns the seconds until the next one, or None at the end."""
        try:
            return next(work, None)
        except Exception as error:
            self._emit(AppFault(where, error))
            return None
