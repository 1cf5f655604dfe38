"""What the file holds, in memory: rows and bytes of each topic. An index on disk would be written with each row."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from leadsman.spool.row import Row, size


class Stored(NamedTuple):
    """A row of the file, without its content."""

    id: int
    topic: str
    size: int
    """Bytes, as `leadsman.spool.row.size` counts them."""


class Topic(NamedTuple):
    """The rows of one topic."""

    rows: int
    newest: int
    """The largest id that was accepted since the topic was last without rows."""
    latest: Stored | None
    """Its row with `Row.latest`. There is one at most."""


class Changes(NamedTuple):
    """What one transaction changes in the table of the rows."""

    removed: list[Stored]
    added: list[Row]
    newest: Mapping[str, int]
    """The new `Topic.newest` of the topics that rows were written to."""


class Index:
    """Rows and bytes of the file, by topic."""

    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0
        self.largest_id = 0
        self.topics: dict[str, Topic] = {}

    def count(self, topic: str, rows: int, payloads: int, newest: int, latest: tuple[int, int] | None) -> None:
        """Count rows that are in the file.

        Args:
            topic: their topic.
            rows: how many they are.
            payloads: bytes of their payloads.
            newest: the largest id.
            latest: id and bytes of the payload of the newest row with `Row.latest`.
        """
        known = self.topics.get(topic, Topic(0, 0, None))
        newer = known.latest if latest is None else Stored(latest[0], topic, size(topic, latest[1]))
        self.topics[topic] = Topic(known.rows + rows, max(known.newest, newest), newer)
        self.rows += rows
        self.bytes += rows * size(topic, 0) + payloads
        self.largest_id = max(self.largest_id, newest)

    def left(self, topics: Iterable[str], changes: Changes) -> list[str]:
        """Those of some topics that have rows after a transaction."""
        rows = Counter(row.topic for row in changes.added)
        rows.subtract(row.topic for row in changes.removed)
        return [topic for topic in topics if rows[topic] + (self.topics[topic].rows if topic in self.topics else 0) > 0]

    def apply(self, changes: Changes) -> None:
        """Count what a transaction changed, after its commit. A row that replaces one with its id is removed and
        added.

        Raises:
            KeyError: a topic of a removed row is unknown, so the file is not what was counted.
        """
        for row in changes.removed:
            known = self.topics[row.topic]
            latest = None if known.latest is not None and known.latest.id == row.id else known.latest
            self.topics[row.topic] = known._replace(rows=known.rows - 1, latest=latest)
            self.rows -= 1
            self.bytes -= row.size
        for added in changes.added:
            newest = (added.id, len(added.payload)) if added.latest else None
            self.count(added.topic, 1, len(added.payload), added.id, newest)
        for topic in changes.newest.keys() & self.topics.keys():
            self.topics[topic] = self.topics[topic]._replace(newest=changes.newest[topic])
        for topic in {row.topic for row in changes.removed}:
            if self.topics[topic].rows <= 0:
                del self.topics[topic]
