"""Looks after messages that wait: an acknowledgement may be overdue, and readings that wait are written to disk.

It looks only while something waits. Where the broker answers at once, that is a few times a second at most, and never
while no reading comes.
"""

import asyncio
from collections.abc import Callable, Mapping

from leadsman.loop.clock import Clock
from leadsman.mqtt.message_state import Item
from leadsman.mqtt.outbox import Outbox

PUBACK_TIMEOUT = 10.0
"""Seconds without the acknowledgement of a message after which the connection is dropped."""
SILENT = f"no acknowledgement within {PUBACK_TIMEOUT:g} s"
"""Why the connection is dropped then."""
AT_ONCE = 0.01
"""Seconds. Readings that are written after that time, or sooner, are written as they come."""


class Overdue:
    """The clock of a window of sends.

    Args:
        outbox: the messages.
        sent: those in flight, and when they were sent, monotonic seconds; the first was sent first.
        lost: called with the reason when the connection is of no use any more.
    """

    __slots__ = ("_after", "_at_once", "_clock", "_loop", "_lost", "_mark", "_outbox", "_sent", "_write", "handle")

    def __init__(
        self,
        outbox: Outbox,
        sent: Mapping[int, tuple[Item, float]],
        clock: Clock,
        lost: Callable[[str], None],
    ) -> None:
        self._outbox = outbox
        self._sent = sent
        self._clock = clock
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._after = PUBACK_TIMEOUT
        self._write: Callable[[int], None] | None = None
        self._at_once = False
        self._mark = 0
        self.handle: asyncio.TimerHandle | None = None
        """The next look; None while nothing waits."""

    def store(self, after: float, write: Callable[[int], None]) -> None:
        """Call `write` with the number of a reading when this one, and all with lower numbers, waited `after` seconds.

        Without a connection, all readings are written together `after` seconds after the first of them. On a
        connection they have waited half of it at the least, unless `after` is `AT_ONCE` or less.
        """
        self._write, self._after, self._at_once = write, after / 2, after <= AT_ONCE

    def sends(self) -> None:
        """A message is in flight, and no look is arranged."""
        self.handle = self._loop.call_later(self._after, self._look)

    def waits(self) -> None:
        """A message may wait, in flight or not."""
        if self._write is not None and self.handle is None:
            self.handle = self._loop.call_later(self._after if self._sent else 2 * self._after, self._look)

    def writes(self) -> None:
        """Something must be written, though no reading has waited."""
        if self._write is not None:
            self._write(0)

    def stop(self) -> None:
        """Look no more."""
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None

    def _look(self) -> None:
        self.handle = None
        waits = self._write is not None and self._stored(self._write)
        if self._sent:
            now = self._clock.monotonic()
            _, oldest = next(iter(self._sent.values()))
            if now >= oldest + PUBACK_TIMEOUT:  # as the timer was set: a difference may be smaller by rounding
                self._lost(SILENT)
            elif not waits:
                after = PUBACK_TIMEOUT if self._write is None else self._after
                self.handle = self._loop.call_at(min(oldest + PUBACK_TIMEOUT, now + after), self._look)
        if waits:
            self.waits()

    def _stored(self, write: Callable[[int], None]) -> bool:
        """Have readings written that waited since the last look. Returns whether others wait."""
        number, mark = self._outbox.number, self._mark
        self._mark = number
        if not self._sent or self._at_once:
            mark = number
        if self._outbox.unstored(mark):
            write(mark)
        return self._outbox.unstored(number)
