"""What is known of the readings of a topic that are on disk only. Pure."""

from collections import deque

from leadsman.mqtt.message import Message, Receipt
from leadsman.mqtt.topic_queue import Item

STEP = 0.5
"""Seconds. A difference between wall clock and uptime that changes by less was not set."""


class Span:
    """Readings in a row that one receipt counts, and that were taken while the wall clock was set to one offset."""

    __slots__ = ("first", "last", "last_taken_at", "offset", "read", "receipt", "taken_at")

    def __init__(self, number: int, message: Message) -> None:
        self.first = self.last = number
        self.read = 0
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
        self.last, self.last_taken_at = number, message.taken_at

    def dropped(self, number: int) -> None:
        """One of these readings will never arrive. The time that the receipt learns is right for the first and the last
        of them; the others have that of the first."""
        taken_at = self.last_taken_at if number == self.last else self.taken_at
        if self.receipt is not None and taken_at is not None and self.offset is not None:
            self.receipt.dropped(taken_at - self.offset)

    def replaced(self) -> None:
        """A newer reading took the place of one of these."""
        if self.receipt is not None:
            self.receipt.replaced()


class Tail:
    """The newest readings of a topic: `rows` are on disk only, and those that are `held` come after them."""

    __slots__ = ("held", "rows", "spans")

    def __init__(self, rows: int = 0) -> None:
        self.rows = rows
        self.held: deque[Item] = deque()
        self.spans: deque[Span] = deque()

    def span_of(self, number: int) -> Span | None:
        """The span of a reading that comes back. Those before it are forgotten."""
        while self.spans and self.spans[0].last < number:
            self.spans.popleft()
        if not self.spans or self.spans[0].first > number:
            return None
        self.spans[0].read = number
        return self.spans[0]

    def damaged(self) -> None:
        """No more rows can be read. What came last of each span is lost if it was not read."""
        for span in self.spans:
            if span.read < span.last:
                span.dropped(span.last)
