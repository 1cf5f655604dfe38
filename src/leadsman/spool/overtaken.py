"""Which readings on disk were overtaken: the broker has a newer one of their topic, and shall keep that. Pure.

A row is deleted when its reading arrived, and a reading that arrives at once never has one. So the rows of a topic do
not tell the next life of the app that a newer reading arrived before them. The file has a number for that: rows of the
topic up to this number are sent without the retain flag.

The number is needed while the topic has rows, and none of them is newer. It is written once for each such moment, and
not for each reading.
"""

from collections.abc import Iterable, Mapping

from leadsman.mqtt.outbox import Item
from leadsman.spool.row import TopicRows


class Overtaken:
    """The numbers of one app."""

    def __init__(self) -> None:
        self.counted = False
        """Whether it is known what is in the file."""
        self._newest: dict[str, int] = {}
        """The largest row of each topic that has rows, or had some."""
        self._numbers: dict[str, int] = {}
        self._due: dict[str, int] = {}
        self.before = 0
        """Rows of any topic up to this number may have been overtaken: the file was replaced while the app ran."""

    def __len__(self) -> int:
        """How many numbers are to be written."""
        return len(self._due)

    def number(self, topic: str) -> int:
        """Rows of a topic up to this number were overtaken."""
        return max(self.before, self._numbers.get(topic, 0))

    def newest(self, topic: str) -> int:
        """The largest row of a topic that is or was on disk since it was last without rows, or a larger one; else 0."""
        return self._newest.get(topic, 0)

    def arrived(self, topic: str, number: int) -> bool:
        """The broker keeps a reading. Returns whether its number is to be written now."""
        if not self.counted:
            self._numbers[topic] = max(number, self._numbers.get(topic, 0))
            return False
        newest = self._newest.get(topic)
        if newest is None or number < newest or self._numbers.get(topic, 0) >= newest:
            return False
        self._numbers[topic] = self._due[topic] = number
        return True

    def writes(self, batch: Iterable[Item]) -> None:
        """Rows of these readings are about to be written."""
        for item in batch:
            topic = item.message.topic
            self._newest[topic] = max(item.row, self._newest.get(topic, 0))

    def begin(self, topics: Mapping[str, TopicRows]) -> None:
        """The file has these rows."""
        known, self.counted = self._numbers, True
        self._newest = {topic: rows.newest for topic, rows in topics.items()}
        self._numbers = {topic: max(known.get(topic, 0), rows.overtaken) for topic, rows in topics.items()}
        self._due = {
            topic: number
            for topic, number in self._numbers.items()
            if number > topics[topic].overtaken and number >= topics[topic].newest
        }

    def renumber(self, by: int) -> None:
        """The numbers of this life become so much larger, since the rows in the file are not of this life."""
        self._numbers = {} if self.counted else {topic: number + by for topic, number in self._numbers.items()}
        self._due.clear()

    def take(self) -> dict[str, int]:
        """Take the numbers to be written, by topic."""
        due, self._due = self._due, {}
        return due

    def failed(self, numbers: Mapping[str, int]) -> None:
        """These were not written."""
        self._due = {**numbers, **self._due}

    def clear(self) -> None:
        """Nothing is on disk."""
        self._newest.clear()
        self._numbers.clear()
        self._due.clear()
