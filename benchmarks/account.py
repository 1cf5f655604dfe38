"""What became of the readings of a soak. Each device numbers its readings 1, 2, 3 and so on."""

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.message_state import Item
from leadsman.core.mqtt.outbox import MAX_BYTES, MAX_MESSAGES, Dropped, Outbox

_NUMBER = re.compile(rb'"n":\s*(\d+)')


class Numbers:
    """The numbers of one device that were seen. It remembers the gaps only, so it stays small."""

    def __init__(self) -> None:
        self.greatest = 0
        self.missing: set[int] = set()
        """The numbers below the greatest that were not seen."""

    def add(self, number: int) -> bool:
        """Count a number. Whether it was not seen before."""
        if number > self.greatest:
            self.missing.update(range(self.greatest + 1, number))
            self.greatest = number
            return True
        if number in self.missing:
            self.missing.discard(number)
            if not self.missing:
                self.missing = set()  # one that was emptied keeps its memory
            return True
        return False

    def not_seen(self, most: int) -> set[int]:
        """The numbers from 1 to `most` that were not seen."""
        return self.missing | set(range(self.greatest + 1, most + 1))


class Account:
    """Follows the readings that go through the outbox of leadsman, in the process of the app.

    It replaces methods of the class `Outbox`, so it must be made before the app runs.

    Args:
        size: how many messages the outbox holds. The bound of its bytes grows in proportion.
    """

    def __init__(self, size: int = MAX_MESSAGES) -> None:
        self._put: dict[str, int] = defaultdict(int)
        self._acknowledged: dict[str, Numbers] = defaultdict(Numbers)
        self._dropped: dict[str, int] = defaultdict(int)
        self._outboxes: list[Outbox] = []
        self._most = 0
        self._follow(size, MAX_BYTES * size // MAX_MESSAGES)

    def report(self) -> dict[str, Any]:
        """Readings of each device: the number of the last one that was put, the numbers that the broker did not
        acknowledge, and how many were dropped to make room; and the messages of any kind that were dropped for any
        reason, that are left in the outbox, and that waited there at most."""
        devices = {
            topic.split("/")[1]: {
                "put": last,
                "unacknowledged": sorted(self._acknowledged[topic].not_seen(last)),
                "dropped": self._dropped[topic],
            }
            for topic, last in self._put.items()
        }
        (outbox,) = self._outboxes
        left = outbox.messages + (0 if outbox.on_disk is None else outbox.on_disk.only)
        return {"devices": devices, "dropped": outbox.dropped, "left": left, "most": self._most}

    @property
    def waiting(self) -> int:
        """Messages in the memory of the outbox."""
        return sum(outbox.messages for outbox in self._outboxes)

    def _follow(self, most_messages: int, most_bytes: int) -> None:
        begin, put, hand_over, accept = Outbox.__init__, Outbox.put, Outbox.hand_over, Outbox.accept

        def followed_begin(outbox: Outbox) -> None:
            begin(outbox, most_messages, most_bytes)
            self._outboxes.append(outbox)

        def followed_put(outbox: Outbox, message: Message) -> list[Dropped]:
            self._comes(message)
            dropped = put(outbox, message)
            self._most = max(self._most, outbox.messages)
            for each in dropped:
                self._dropped[each.topic] += each.messages
            return dropped

        def followed_hand_over(outbox: Outbox, message: Message, size: int | None = None) -> Item | None:
            self._comes(message)
            return hand_over(outbox, message, size)

        def followed_accept(outbox: Outbox, item: Item) -> list[tuple[Item, Message]]:
            arrived = accept(outbox, item)
            for _, message in arrived:
                number = _number(message)
                if number is not None:
                    self._acknowledged[message.topic].add(number)
            return arrived

        # The outbox itself must be followed, without a hook that a real app would pay for: so its methods are replaced.
        Outbox.__init__ = followed_begin  # type: ignore[method-assign,assignment]  # as above
        Outbox.put = followed_put  # type: ignore[method-assign,assignment]
        Outbox.hand_over = followed_hand_over  # type: ignore[method-assign,assignment]
        Outbox.accept = followed_accept  # type: ignore[method-assign,assignment]

    def _comes(self, message: Message) -> None:
        number = _number(message)
        if number is not None:
            self._put[message.topic] = max(self._put[message.topic], number)


def _number(message: Message) -> int | None:
    """The number of a reading; None for messages of other kinds."""
    if not message.topic.endswith("/state"):
        return None
    found = _NUMBER.search(message.payload)
    return None if found is None else int(found[1])


def spans(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Numbers as the first and the last of each run of neighbours."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found
