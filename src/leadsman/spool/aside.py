"""The readings that wait on disk only because newer ones of their topics went ahead of them. Pure."""

from leadsman.mqtt.message import Message
from leadsman.mqtt.outbox import Dropped
from leadsman.spool.tail import Span, Tail

NOBODY = Tail()
"""Stands for the readings of a topic that has none here."""


class Aside:
    """Readings that were set aside. They are older than those of their topic in memory, and come back in order."""

    def __init__(self) -> None:
        self.rows = 0
        """How many they are."""
        self._tails: dict[str, Tail] = {}
        self._began: int | None = None

    def readings(self, topic: str) -> int:
        """Those of one topic."""
        return self._tails.get(topic, NOBODY).rows

    def put(self, row: int, message: Message) -> None:
        """Set a reading aside."""
        self._tails.setdefault(message.topic, Tail()).put(row, message)
        self.rows += 1
        self._began = min(row, row if self._began is None else self._began)

    def began(self) -> int | None:
        """The first row that was set aside since the last call, which a page that was asked for earlier may lack."""
        began, self._began = self._began, None
        return began

    def span_of(self, topic: str, row: int) -> Span | None:
        """The span of a reading that was set aside and did not come back."""
        span = self._tails.get(topic, NOBODY).span_of(row)
        return span if span is not None and row > span.read else None

    def read(self, topic: str, row: int) -> Span | None:
        """A reading comes back. They come in order: what did not come back of those before is lost."""
        self._less(topic)
        tail = self._tails[topic]
        span = tail.read(row)
        if not tail.rows:
            del self._tails[topic]
        return span

    def deleted(self, topic: str) -> None:
        """A reading was deleted from the disk. Its span knows that."""
        self._less(topic)
        if not self._tails[topic].rows:
            del self._tails[topic]

    def clear(self) -> None:
        """Nothing is known of them any more."""
        self.rows, self._began = 0, None
        self._tails.clear()

    def lost(self, why: str) -> list[Dropped]:
        """They cannot be read any more."""
        lost = [Dropped(topic, tail.rows, why) for topic, tail in self._tails.items()]
        for tail in self._tails.values():
            tail.lost()
        self.clear()
        return lost

    def _less(self, topic: str) -> None:
        self._tails[topic].rows -= 1
        self.rows -= 1
