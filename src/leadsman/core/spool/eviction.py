"""Decides which rows a write adds and deletes: the quota, ages, and newer rows of topics of which only the latest
counts."""

import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from leadsman.core.spool.row import EXPIRED, FULL, SUPERSEDED, Evicted, Quota, SpoolRow, size

# What the file holds, in memory: rows and bytes of each topic. An index on disk would be written with each row.


class Stored(NamedTuple):
    """A row of the file, without its content."""

    id: int
    topic: str
    size: int
    """Bytes, as `leadsman.core.spool.row.size` counts them."""


class Topic(NamedTuple):
    """The rows of one topic."""

    rows: int
    newest: int
    """The largest id that was accepted since the topic was last without rows."""
    latest: Stored | None
    """Its row with `SpoolRow.latest`. There is one at most."""


class RowChanges(NamedTuple):
    """The changes of one transaction to the table of the rows."""

    removed: list[Stored]
    added: list[SpoolRow]
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
            latest: id and bytes of the payload of the newest row with `SpoolRow.latest`.
        """
        known = self.topics.get(topic, Topic(0, 0, None))
        newer = known.latest if latest is None else Stored(latest[0], topic, size(topic, latest[1]))
        self.topics[topic] = Topic(known.rows + rows, max(known.newest, newest), newer)
        self.rows += rows
        self.bytes += rows * size(topic, 0) + payloads
        self.largest_id = max(self.largest_id, newest)

    def apply(self, changes: RowChanges) -> None:
        """Count what a transaction changed, after its commit. A row that replaces one with its id is removed and
        added.

        Raises:
            KeyError: a topic of a removed row is unknown, so the file is not the counted one.
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


MIN_STEP_BYTES = 64 * 1024
"""Bytes to evict at once, at least; and 1 % of the quota. Fewer rows free no page (SQLite frees whole pages)."""
FIRST_TIME = 1_577_836_800.0
"""Epoch seconds of 2020-01-01. A reading of an earlier time was taken before the clock was set; its age is unknown."""


class Aged(NamedTuple):
    """A row of the file that may have expired."""

    row: Stored
    taken_at: float
    expires_at: float | None


class Planner:
    """The plan of one write.

    Args:
        index: what the file holds.
        quota: how much waits at most.
        now: epoch seconds.
        add: rows to add. The last of those with one id counts.
        gone: rows of the file that the write deletes or replaces anyway.
        settled: ids that are not to be added either.
    """

    def __init__(
        self,
        index: Index,
        quota: Quota,
        now: float,
        add: Iterable[SpoolRow],
        gone: Iterable[Stored],
        settled: frozenset[int],
    ) -> None:
        self._index = index
        self._quota = quota
        self._now = now
        accepted = {row.id: row for row in add if row.id not in settled}
        self._added = dict(sorted(accepted.items()))
        self._removed = {row.id: row for row in gone}
        self._evicted: dict[tuple[str, str], list[int]] = {}
        self._newest = _newest(index.topics, self._added.values())

    def expire(self, aged: Iterable[Aged]) -> None:
        """Delete expired rows: of `aged`, and of the rows to add."""
        for row, taken_at, expires_at in aged:
            if row.id not in self._removed and self._has_expired(row, taken_at, expires_at):
                self._evict(row, EXPIRED)
        for added in list(self._added.values()):
            if self._has_expired(_make_stored(added), added.taken_at, added.expires_at):
                self._evict(_make_stored(added), EXPIRED)

    def supersede(self) -> None:
        """Delete the rows of topics of which only the latest counts, but for the latest."""
        current: dict[str, Stored] = {}
        for added in list(self._added.values()):
            if not added.latest:
                continue
            row = _make_stored(added)
            before = current.get(row.topic) or self._latest(row.topic)
            older, newer = sorted((before or row, row))
            current[row.topic] = newer
            if older.id != newer.id:
                self._evict(older, SUPERSEDED)

    def evict(self, oldest: Iterator[Stored]) -> None:
        """Delete the oldest rows, if there are too many bytes. The newest row of a topic stays.

        Args:
            oldest: the rows of the file, in the order of their ids. It is read as far as needed.
        """
        total = self._index.bytes - sum(row.size for row in self._removed.values())
        total += sum(_make_stored(row).size for row in self._added.values())
        most = self._quota.most_bytes
        if total <= most:
            return
        target = most - min(max(most // 100, MIN_STEP_BYTES), most // 2)
        stored = (row for row in oldest if row.id not in self._removed)
        for row in heapq.merge(stored, [_make_stored(each) for each in self._added.values()]):
            if total <= target:
                return
            if row.id != self._newest_of(row.topic):
                total -= row.size
                self._evict(row, FULL)

    def changes(self) -> RowChanges:
        """The changes to write."""
        return RowChanges(list(self._removed.values()), list(self._added.values()), self._newest)

    def evicted(self) -> list[Evicted]:
        """The rows of `add` that were not wanted, and those deleted without having been settled."""
        return [Evicted(topic, why, sorted(ids)) for (topic, why), ids in sorted(self._evicted.items())]

    def _newest_of(self, topic: str) -> int:
        known = self._index.topics.get(topic)
        return self._newest.get(topic) or (0 if known is None else known.newest)

    def _latest(self, topic: str) -> Stored | None:
        known = self._index.topics.get(topic)
        if known is None or known.latest is None or known.latest.id in self._removed:
            return None
        return known.latest

    def _has_expired(self, row: Stored, taken_at: float, expires_at: float | None) -> bool:
        if expires_at is not None and expires_at <= self._now:
            return True
        is_old = FIRST_TIME <= taken_at < self._now - self._quota.most_age
        return is_old and row.id != self._newest_of(row.topic)

    def _evict(self, row: Stored, why: str) -> None:
        if self._added.pop(row.id, None) is None:
            self._removed[row.id] = row
        self._evicted.setdefault((row.topic, why), []).append(row.id)


def _make_stored(row: SpoolRow) -> Stored:
    return Stored(row.id, row.topic, size(row.topic, len(row.payload)))


def _newest(known: Mapping[str, Topic], added: Iterable[SpoolRow]) -> dict[str, int]:
    """The newest id of each topic of `added`, the rows of the file included."""
    found: dict[str, int] = {}
    for row in added:
        before = found.get(row.topic) or (known[row.topic].newest if row.topic in known else 0)
        found[row.topic] = max(before, row.id)
    return found
