"""The messages of one topic: in which order they are sent, and what is known of those in flight. Pure."""

import heapq
from bisect import bisect_left
from collections import deque

from leadsman.mqtt.message import Message
from leadsman.mqtt.message_state import REPEATED, Item, repeat_message

SHARE = 16
"""Messages that come back are put in their places one by one, each found by bisection, while they are fewer than one in
so many of those that wait; else all are merged."""


class TopicQueue:
    """The messages of a topic that wait, and what is known of those in flight."""

    __slots__ = ("ahead", "arrived", "behind", "in_flight", "kept", "newest", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Item] = deque()
        """In order, the oldest first."""
        self.behind: list[Item] = []
        """Those of them that could wait on disk only, if the oldest could."""
        self.in_flight = 0
        self.ahead: tuple[int, Message] | None = None
        """The number and the message of the newest one that went ahead of older ones that still wait."""
        self.arrived: tuple[int, Message] | None = None
        """The number and the message of the newest one that arrived while others were in flight or waited. Those in
        flight may come back, and may be older."""
        self.kept = 0
        """The number of the newest of those that the broker keeps."""
        self.newest: tuple[int, Message] | None = None
        """The same of the newest one that was handed out; None if it came back or was dropped."""

    def forget(self) -> None:
        """Nothing waits, and nothing is in flight."""
        self.ahead = self.arrived = self.newest = None
        self.kept = 0
        if self.behind:
            self.behind.clear()

    @property
    def oldest(self) -> Item | None:
        """The oldest that did not arrive before."""
        return next((item for item in self.waiting if item.row_state is not REPEATED), None)

    def hand_out(self, item: Item) -> Item | None:
        """An item is handed out, and others wait or went ahead. Returns a copy that must be sent again, or None.

        If a newer message went ahead of it, the item is sent without the retain flag, since the broker keeps the newest
        reading of a topic. After the last such item the newest message is sent again, so that a subscriber receives it
        last. The copy has the number of that message: readings that come back from disk after it may be newer.
        """
        self.went_ahead(item)
        if self.ahead is None:
            return None
        number, newest = self.ahead
        if item.number < number:
            item.message = item.message._replace(retain=False)
            if not self.waiting:
                self.ahead = None
                return repeat_message(number, newest)
        elif item.number > number:
            self.ahead = None
        return None

    def went_ahead(self, item: Item) -> None:
        """An item was handed out, or arrived, while older ones may still wait."""
        if self.newest is None or self.newest[0] < item.number:
            self.newest = item.number, item.message
        older = bool(self.waiting) and self.waiting[0].number < item.number
        if older and (self.ahead is None or self.ahead[0] < self.newest[0]):
            self.ahead = self.newest

    def note_arrival(self, item: Item) -> None:
        """An item arrived, and others of the topic did not."""
        if self.arrived is None or self.arrived[0] < item.number:
            self.arrived = item.number, item.message
        if item.message.retain and not item.unretained and item.number > self.kept:
            self.kept = item.number

    def fell_back(self, item: Item) -> None:
        """An item that may have gone ahead is not with the broker."""
        if self.newest is not None and self.newest[0] == item.number:
            self.newest = None
        if self.ahead is not None and self.ahead[0] == item.number:
            self.ahead = None

    def take_back(self, items: list[Item]) -> None:
        """Put items that were in flight back in their places. They are in order."""
        waiting = self.waiting
        for item in items:
            self.fell_back(item)
        if not (waiting and items) or items[-1].number <= waiting[0].number:
            waiting.extendleft(reversed(items))
        elif len(items) * SHARE < len(waiting):
            for item in items:
                waiting.insert(bisect_left(waiting, item.number, key=_number), item)
        else:
            self.waiting = deque(heapq.merge(items, waiting, key=_number))
        self.in_flight -= len(items)
        arrived = self.arrived
        older = arrived is not None and self.waiting[0].number < arrived[0]
        if arrived is not None and older and (self.ahead is None or self.ahead[0] < arrived[0]):
            self.ahead = arrived


def _number(item: Item) -> int:
    return item.number
