"""Requests that have arrived over MQTT and wait for their turn. A few of them are handled in one turn of the loop, so
that thousands at once delay no poll."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from leadsman.errors import Busy
from leadsman.mqtt.connection import Received
from leadsman.slices import Slices, Work
from leadsman.timing.clock import Clock

MOST = 10_000
"""Requests that may wait. One more is refused as it arrives."""
MOST_BYTES = 4 * 2**20
"""Bytes of their payloads."""
TURN = 5
"""Requests that are handled in one turn of the loop."""
PATIENCE = 10.0
"""Seconds after which a request that waited is refused: its sender no longer expects it to be carried out."""


class _Waiting(NamedTuple):
    received: Received
    handle: Callable[[Received], None]
    since: float


class RequestQueue:
    """Handles requests in the order in which they came, or refuses them.

    Args:
        slices: does the work.
        clock: the clock of the app.
        room: waits until answers may be sent.
        refuse: answers a request with an error, without a look at what it asks for.
    """

    def __init__(
        self, slices: Slices, clock: Clock, room: Callable[[], Work], refuse: Callable[[Received, Busy], None]
    ) -> None:
        self._slices = slices
        self._clock = clock
        self._room = room
        self._refuse = refuse
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._busy = False

    def add(self, received: Received, handle: Callable[[Received], None]) -> None:
        """Handle a request now, or after those that wait."""
        size = len(received.payload)
        if len(self._waiting) >= MOST or self._bytes + size > MOST_BYTES:
            self._refuse(received, Busy(f"{len(self._waiting)} requests wait; ask again in a few seconds"))
            return
        self._waiting.append(_Waiting(received, handle, self._clock.monotonic()))
        self._bytes += size
        if not self._busy:
            self._busy = True
            self._slices.begin("requests over MQTT", self._turns())

    def _turns(self) -> Iterator[float]:
        while self._waiting:
            yield from self._room()
            for _ in range(min(TURN, len(self._waiting))):
                waiting = self._waiting.popleft()
                self._bytes -= len(waiting.received.payload)
                self._slices.begin("a request over MQTT", self._handled(waiting))
            yield 0.0  # what comes in this turn of the loop waits for the next one
        self._busy = False

    def _handled(self, waiting: _Waiting) -> Iterator[float]:
        """Handle one request: in a work of its own, since a fault ends a work."""
        if self._clock.monotonic() - waiting.since > PATIENCE:
            self._refuse(waiting.received, Busy(f"the request waited for {PATIENCE:g} s; ask again in a few seconds"))
        else:
            waiting.handle(waiting.received)
        yield from ()
