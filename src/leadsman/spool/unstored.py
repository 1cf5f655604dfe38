"""The readings of an outbox that are to be written. Pure."""

from collections.abc import Iterable

from leadsman.mqtt.outbox import Item, is_unstored

MOST_ROWS = 1000
"""Rows that are written at once: some milliseconds of work for the event loop."""


class Unstored:
    """Readings that wait and have no row. Some of them arrived, or were written, since they were added."""

    def __init__(self) -> None:
        self._items: list[Item] = []

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: Item) -> None:
        """A reading is to be written."""
        self._items.append(item)

    def tidy(self, messages: int) -> None:
        """Forget what need not be written any more, if that is most of it. `messages` wait in the outbox."""
        if len(self._items) > 2 * messages + 64:  # as many arrived, or have a row, since the last time
            self._items = [each for each in dict.fromkeys(self._items) if is_unstored(each)]

    def waiting(self, number: int) -> bool:
        """Whether there is one with this number or a lower one."""
        return any(item.number <= number and is_unstored(item) for item in self._items)

    def batch(self, number: int, flying: Iterable[Item]) -> list[Item]:
        """Take the readings to be written, up to this number, in order, those in flight included: `MOST_ROWS` at the
        most."""
        unstored = dict.fromkeys(item for item in self._items if is_unstored(item))
        unstored |= dict.fromkeys(item for item in flying if is_unstored(item))
        ripe = sorted((item for item in unstored if item.number <= number), key=lambda item: item.number)[:MOST_ROWS]
        for item in ripe:
            item.row = item.number
            del unstored[item]
        self._items = list(unstored)
        return ripe
