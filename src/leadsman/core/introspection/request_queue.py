"""Requests, commands included, that have arrived over MQTT and wait for their turn. A few of them are handled in one
turn of the loop, so that thousands at once delay no poll."""

import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from leadsman.core.loop.clock import Clock
from leadsman.core.loop.slices import Slices
from leadsman.core.mqtt.answers import MAX_CORRELATION_BYTES, MAX_REQUEST_BYTES
from leadsman.core.mqtt.connection import Received
from leadsman.core.mqtt.outbox import Outbox
from leadsman.core.mqtt.topics import MAX_TOPIC_BYTES
from leadsman.errors import Busy, PayloadError

MAX_REQUESTS = 10_000
"""Requests that may wait. One more is refused as it arrives."""
MAX_BYTES = 4 * 2**20
"""Bytes of memory for their payloads, topics, response topics and correlation data."""
REQUESTS_PER_TURN = 5
"""Requests that are handled in one turn of the loop."""
MAX_REQUEST_AGE = 10.0
"""Seconds after which a request that waited is refused: its sender no longer expects it to be carried out."""
ANSWER_CHECK_INTERVAL = 0.02
"""Seconds between two looks at the answers that wait."""

Handle = Callable[[Received], None]
"""Carries a request out."""
Refuse = Callable[[Received, Busy | PayloadError], None]
"""Answers a request with an error, without a look at what it asks for."""


class _Waiting(NamedTuple):
    received: Received
    handle: Handle
    refuse: Refuse
    since: float
    size: int


class RequestQueue:
    """Handles requests in the order in which they came, or refuses them.

    Args:
        slices: does the work.
        clock: the clock of the app.
        outbox: takes the answers. Requests wait while it has many.
    """

    def __init__(self, slices: Slices, clock: Clock, outbox: Outbox) -> None:
        self._slices = slices
        self._clock = clock
        self._outbox = outbox
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._busy = False

    def add(self, received: Received, handle: Handle, refuse: Refuse) -> None:
        """Handle a request now, or after those that wait. One that is absurd, or finds no room, or that an
        earlier run of the app may have handled, is refused at once."""
        if received.redelivered:
            refuse(received, Busy("the app was restarted, and may have handled this request before; send it again"))
            return
        absurd = _absurd(received)
        if absurd is not None:
            refuse(received._replace(response_topic=None, correlation=None), PayloadError(absurd))
            return
        if len(received.payload) > MAX_REQUEST_BYTES:
            size = len(received.payload)
            refuse(received, PayloadError(f"the payload has {size} bytes; {MAX_REQUEST_BYTES} are allowed"))
            return
        size = _size(received)
        if len(self._waiting) >= MAX_REQUESTS or self._bytes + size > MAX_BYTES:
            refuse(received, Busy(f"{len(self._waiting)} requests wait; ask again in a few seconds"))
            return
        received = received._replace(taken_at=None)  # it may be long, and a request does not need it
        self._waiting.append(_Waiting(received, handle, refuse, self._clock.monotonic(), size))
        self._bytes += size
        if not self._busy:
            self._busy = True
            self._slices.begin("requests over MQTT", self._turns())

    def _turns(self) -> Iterator[float]:
        while self._waiting:
            deadline = self._clock.monotonic() + MAX_REQUEST_AGE
            while not self._outbox.expects_answers and self._clock.monotonic() < deadline:
                yield ANSWER_CHECK_INTERVAL
            for _ in range(min(REQUESTS_PER_TURN, len(self._waiting))):
                waiting = self._waiting.popleft()
                self._bytes -= waiting.size
                self._slices.begin("a request over MQTT", self._handled(waiting))
            yield 0.0  # what comes in this turn of the loop waits for the next one
        self._busy = False

    def _handled(self, waiting: _Waiting) -> Iterator[float]:
        """Handle one request: in a work of its own, since a fault ends a work."""
        if self._clock.monotonic() - waiting.since > MAX_REQUEST_AGE:
            late = Busy(f"the request waited for {MAX_REQUEST_AGE:g} s; ask again in a few seconds")
            waiting.refuse(waiting.received, late)
        else:
            waiting.handle(waiting.received)
        yield from ()


def _size(received: Received) -> int:
    """Bytes of memory that a request holds while it waits."""
    held = received.payload, received.topic, received.response_topic, received.correlation
    return sum(map(sys.getsizeof, held))


def _absurd(received: Received) -> str | None:
    """Why a request cannot be answered where its sender wants; None if it can."""
    correlation = len(received.correlation or b"")
    if correlation > MAX_CORRELATION_BYTES:
        return f"the correlation data has {correlation} bytes; send at most {MAX_CORRELATION_BYTES}"
    topic = len((received.response_topic or "").encode())
    if topic > MAX_TOPIC_BYTES:
        return f"the response topic has {topic} bytes; send at most {MAX_TOPIC_BYTES}"
    return None
