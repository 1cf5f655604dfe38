"""What is known of the readings of a topic that are on disk only. Pure."""

from collections import deque
from typing import NamedTuple

from leadsman.mqtt.message import Message, Receipt
from leadsman.mqtt.outbox import Item
from leadsman.spool.eviction import FIRST_TIME
from leadsman.spool.row import Row

STEP = 0.5
"""Seconds. A difference between wall clock and uptime that changes by less was not set."""


class Times(NamedTuple):
    """The clocks of one moment."""

    wall: float
    """Epoch seconds."""
    monotonic: float


class Span:
    """Readings in a row that one receipt counts, and that were taken while the wall clock was set to one offset."""

    __slots__ = ("first", "last", "last_taken_at", "offset", "read", "receipt", "rows", "taken_at")

    def __init__(self, number: int, message: Message) -> None:
        self.first = self.last = number
        self.read = 0
        """The number of the last one that came back."""
        self.rows = 1
        """Those of them that did not come back and were not deleted."""
        self.receipt: Receipt | None = message.receipt
        self.offset = message.clock_offset
        self.taken_at = self.last_taken_at = message.taken_at

    def goes_on_with(self, message: Message) -> bool:
        """Whether a further reading belongs to it."""
        if message.receipt is not self.receipt or message.clock_offset is None or self.offset is None:
            return False
        return abs(message.clock_offset - self.offset) < STEP

    def goes_on(self, number: int, message: Message) -> None:
        """Add a further reading."""
        self.rows += 1
        if number > self.last:
            self.last, self.last_taken_at = number, message.taken_at

    def dropped(self, number: int) -> None:
        """One of these readings will never arrive. The time that the receipt learns is right for the first and the last
        of them; the others have that of the first."""
        self.rows -= 1
        self._drop(self.last_taken_at if number == self.last else self.taken_at, 1)

    def lost(self) -> None:
        """What did not come back will never arrive. The receipt learns of all of them."""
        rows, self.rows = self.rows, 0
        newest = 1 if rows and self.read < self.last else 0
        if rows > newest:
            self._drop(self.taken_at, rows - newest)
        if newest:
            self._drop(self.last_taken_at, 1)

    def _drop(self, taken_at: float | None, readings: int) -> None:
        if self.receipt is not None and taken_at is not None and self.offset is not None:
            self.receipt.dropped(taken_at - self.offset, readings)

    def replaced(self) -> None:
        """A newer reading took the place of one of these."""
        self.rows -= 1
        if self.receipt is not None:
            self.receipt.replaced()


class Tail:
    """The newest readings of a topic: `rows` are on disk only, and those that are `held` come after them. The spans are
    in the order of their first numbers."""

    __slots__ = ("held", "rows", "spans")

    def __init__(self, rows: int = 0) -> None:
        self.rows = rows
        self.held: deque[Item] = deque()
        self.spans: deque[Span] = deque()

    def put(self, number: int, message: Message) -> None:
        """A further reading is on disk only: the newest as a rule. After a broken connection it may be an older one."""
        self.rows += 1
        place = len(self.spans)
        while place and self.spans[place - 1].first > number:
            place -= 1
        before = self.spans[place - 1] if place else None
        if before is not None and before.goes_on_with(message):
            before.goes_on(number, message)
        else:
            self.spans.insert(place, Span(number, message))

    def span_of(self, number: int) -> Span | None:
        """The span of a reading that is deleted."""
        return next((span for span in self.spans if span.first <= number <= span.last), None)

    def read(self, number: int) -> Span | None:
        """The span of a reading that comes back. They come in order: what did not come back of those before is lost."""
        while self.spans and self.spans[0].last < number:
            self.spans.popleft().lost()
        if not self.spans or self.spans[0].first > number:
            return None
        span = self.spans[0]
        span.rows -= 1
        span.read = number
        return span

    def lost(self) -> None:
        """No more rows can be read."""
        for span in self.spans:
            span.lost()
        self.spans.clear()


def row_of(item: Item, run: int, now: Times) -> Row:
    """The row of a reading of the process with the number `run`."""
    topic, payload, qos, retain, taken_at, expires, latest, *_ = item.message
    expires_at = None if expires is None or now.wall < FIRST_TIME else now.wall + expires - now.monotonic
    return Row(item.number, run, topic, payload, qos, retain, taken_at or 0.0, expires_at, latest)


def item_of(row: Row, span: Span | None, now: Times, *, retain: bool) -> Item:
    """The reading of a row that comes back. `span`: what is known of it."""
    expires = None if row.expires_at is None else now.monotonic + row.expires_at - now.wall
    offset, receipt = (None, None) if span is None else (span.offset, span.receipt)
    times = (row.taken_at, expires, row.latest, None, offset, receipt)
    message = Message(row.topic, row.payload, row.qos, row.retain and retain, *times, replayed=True)
    item = Item(row.id, message, message.size)
    item.row = row.id
    return item
