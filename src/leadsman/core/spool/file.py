"""The file of the spool: it writes readings to disk, and reads them. It blocks, so `leadsman.core.spool.committer`
calls it in a thread."""

import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from leadsman.core.spool import tables
from leadsman.core.spool.eviction import Index, Planner, RowChanges
from leadsman.core.spool.row import (
    DAMAGED,
    INSERT,
    MIB,
    DeadLetter,
    Evicted,
    Found,
    Quota,
    SpoolRow,
    TopicRows,
    columns,
)
from leadsman.core.spool.salvage import salvage
from leadsman.core.storage import salvage as storage_salvage
from leadsman.core.storage.database import (
    MAX_ROW_NUMBER,
    Damage,
    Database,
    Work,
    blame,
    check_structure,
    free_bytes,
    is_damage,
    is_full,
    reading,
    transact,
)
from leadsman.core.storage.files import delete
from leadsman.core.text import log_fields
from leadsman.errors import SpoolFull, SpoolReplaced, SpoolUnavailable

NAME = "outbox.db"
"""The name of the file, in the state directory of an app."""
EXPIRY_CHECK_INTERVAL = 600.0
"""Seconds between two searches for rows that have expired. Each reads the whole file."""
_DAMAGED = (sqlite3.Error, TypeError, ValueError, OverflowError, AttributeError)
"""SQLite stores any kind of value in any column, so a row may have what no row of ours has."""

logger = logging.getLogger("leadsman")
T = TypeVar("T")


class SpoolFile:
    """Rows in one SQLite file. All methods block; one thread at a time calls them, and it may be another each time.

    Damage is no error: a damaged file is put aside, its rows are salvaged, and `found` shows it.

    Args:
        path: the file. Its directory is made where it is missing.
        quota: how much waits at most. `write` obeys it, `open` deletes nothing.
        now: the wall clock, in epoch seconds.

    Raises:
        SpoolLocked, SpoolFull, SpoolUnavailable, SpoolReplaced: from all methods but `close`. Nothing was changed then.
    """

    def __init__(self, path: Path, quota: Quota, now: Callable[[], float] = time.time) -> None:
        self.path = path
        self.quota = quota
        self.found = Found(0, 1)
        """The result of `open`. `quarantined`, `salvaged`, `damaged` and `unread` change when damage is found later."""
        self._now = now
        self._lock = tables.lock_of(path)
        self._file = Database(path, tables.LAYOUT)
        self._index = Index()
        self._looked_at: float | None = None

    def open(self, list_topics: Callable[[frozenset[str]], None] | None = None) -> Found:
        """Lock and open the file, or make it. After an error, and after `close`, it may be called again.

        Args:
            list_topics: called with the topics that may have rows, before the file is checked and its rows are counted:
                that takes a second for each million of them. If the file turns out to be damaged afterwards, other
                topics may have rows, too.
        """
        self.close()
        self._looked_at = None
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock.acquire()
            self.found = Found(0, 1, storage_salvage.settle(self.path, self._now()))
            self._open(list_topics)
        except BaseException as error:
            self.close()
            if isinstance(error, sqlite3.Error | OSError):
                raise tables.translate(error, self.path) from error
            raise
        return self.found

    def write(
        self,
        add: Sequence[SpoolRow],
        settled: Sequence[int],
        dead: Sequence[tuple[SpoolRow, str]] = (),
    ) -> list[Evicted]:
        """Add rows, delete the settled ones, and move dead ones to the dead letters, each with its reason: all of it in
        one transaction that survives a power cut, or nothing of it.

        A row whose id is in the file replaces that row, so a write may be repeated. Ids that are not in the file may be
        settled. On a disk that is almost full, ``write((), settled)`` still works where `SpoolFull` refuses more rows.

        Returns:
            The rows deleted or not written because of the quota, its age or a newer row.
        """
        if not (add or settled or dead):
            return []
        return self._guard(lambda database: self._write(database, add, settled, dead))

    def read(self, after: int, most_rows: int, most_bytes: int) -> list[SpoolRow]:
        """Rows with ids larger than `after`, in order; one at least if there are any. `most_bytes` counts as `size`
        does. A row with a wrong checksum becomes a dead letter and is counted in ``found.damaged``."""
        return self._guard(lambda database: self._read(database, after, most_rows, most_bytes))

    def read_some(self, ids: Sequence[int]) -> list[SpoolRow]:
        """The rows with these ids that are in the file, and whole."""
        return self._guard(lambda database: tables.some(database, ids))

    def topics(self) -> dict[str, int]:
        """Rows of each topic."""
        return {name: topic.rows for name, topic in self._index.topics.items()}

    def by_topic(self) -> dict[str, TopicRows]:
        """The rows of each topic, their newest, and the one of which only the newest counts."""
        return {
            name: TopicRows(topic.rows, topic.newest, None if topic.latest is None else topic.latest.id)
            for name, topic in self._index.topics.items()
        }

    def taken_at(self, after: int) -> float | None:
        """When the first row with an id larger than `after` was taken, epoch seconds; None if there is none."""
        return self._guard(lambda database: tables.taken_at(database, after))

    def dead_letters(self) -> list[DeadLetter]:
        """The dead letters, oldest first."""
        return self._guard(tables.dead_letters)

    def close(self) -> None:
        """Close it and let the next process have it."""
        self._file.close()
        self._lock.release()

    def _open(self, list_topics: Callable[[frozenset[str]], None] | None) -> None:
        """Connect, and count the rows. A damaged file is replaced first."""
        try:
            self._connect(list_topics)
        except _DAMAGED as error:
            self._heal(error, None)

    def _connect(self, list_topics: Callable[[frozenset[str]], None] | None = None) -> sqlite3.Connection:
        database = self._file.connect()
        if list_topics is not None:
            list_topics(tables.topics(database))
        check_structure(database)
        self._index, _ = tables.count(database)
        if (next_id := self._next_id(database)) > MAX_ROW_NUMBER:
            raise Damage("it has a number that leadsman did not write")
        self.found = self.found._replace(rows=self._index.rows, next_id=next_id)
        return database

    def _heal(self, error: Exception, counted: int | None) -> sqlite3.Connection:
        """If an error blames the file, put that aside, and connect to a new one with all rows that can be read.

        Raises:
            Exception: the error, if it does not.
        """
        if isinstance(error, sqlite3.Error) and not is_damage(error):
            raise error
        self._file.close()
        now = self._now()
        aside, saved = storage_salvage.replace(
            self.path, tables.LAYOUT, now, error, lambda table, new: salvage(table, new, now, counted)
        )
        damaged = self.found.damaged + saved.damaged
        self.found = self.found._replace(quarantined=aside, salvaged=saved.rows, damaged=damaged, unread=saved.unread)
        return self._connect()

    def _guard(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do work in the open file. If it turns out to be damaged, do it again in the one that replaces it."""
        counted = self._index.rows
        try:
            try:
                return work(self._current())
            except _DAMAGED as error:
                return work(self._heal(error, counted))
        except (sqlite3.Error, OSError) as error:
            raise tables.translate(error, self.path) from error

    def _current(self) -> sqlite3.Connection:
        """The open database, whose files are still in their places."""
        database, found, before = self._file.connection, self._file.current_identities(), self._file.identities
        if database is None or before is None:
            raise SpoolUnavailable(f"{self.path} is not open")
        if before == found and self._lock.holds():
            return database
        try:
            if before[0] == found[0]:
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()  # the lost log is still open
                return self._again()
        except (sqlite3.Error, BlockingIOError):
            pass  # the present file must be examined as at a start
        except BaseException:
            self.close()
            raise
        self.close()
        raise SpoolReplaced(f"{self.path} was deleted or replaced while it was open")

    def _again(self) -> sqlite3.Connection:
        """Lock and connect anew, since the log or the lock was deleted. The rows must be those that were counted."""
        before, rows = self._index, self.topics()
        self.close()
        self._lock.acquire()
        database = self._connect()
        after = self._index
        if after.largest_id > before.largest_id or (after.bytes, self.topics()) != (before.bytes, rows):
            raise Damage("its rows are not those that were written")
        logger.warning(
            "files beside %s were deleted while it was in use; no reading of it is lost",
            self.path,
            extra=log_fields("spool files deleted", file=str(self.path)),
        )
        return database

    @property
    def room(self) -> int:
        """Bytes of rows that may be added before the quota deletes the oldest, or the disk is too full to add any."""
        left, free = self.quota.most_bytes - self._index.bytes, free_bytes(self.path.parent)
        return max(0, left if free is None else min(left, free - self.quota.least_free))

    def _next_id(self, database: sqlite3.Connection) -> int:
        return max(self._index.largest_id, tables.largest_dead_id(database)) + 1

    def _write(
        self,
        database: sqlite3.Connection,
        add: Sequence[SpoolRow],
        settled: Sequence[int],
        dead: Sequence[tuple[SpoolRow, str]],
    ) -> list[Evicted]:
        now = self._now()
        if add:
            self._check_floor()
        done = frozenset(settled) | {row.id for row, _ in dead}
        gone = tables.stored(database, done | {row.id for row in add})
        planner = Planner(self._index, self.quota, now, add, gone, done)
        looks = self._looked_at is None or not 0 <= now - self._looked_at < EXPIRY_CHECK_INTERVAL
        planner.expire(tables.aged(database, self.quota, now) if looks else ())
        planner.supersede()
        planner.evict(tables.oldest(database))
        changes = planner.changes()
        work = [*_statements(changes), *tables.bury(dead, now)]
        if looks:  # first, since the topics of rows that are added come back with these
            work = [*tables.forget_topics(tables.topics(database) - self._index.topics.keys()), *work]
        try:
            transact(database, work)
        except sqlite3.Error as error:
            if not is_full(error) or dead or not self._is_empty_after(database, changes):
                raise
            self._begin_again()
        else:
            self._count(database, changes)
        self._looked_at = now if looks else self._looked_at
        return planner.evicted()

    def _check_floor(self) -> None:
        free = free_bytes(self.path.parent)
        if free is not None and free < self.quota.least_free:
            raise SpoolFull(
                f"the disk of {self.path} has {free / MIB:.1f} MiB free, less than {self.quota.least_free / MIB:g} MiB;"
                " delete something there"
            )

    def _is_empty_after(self, database: sqlite3.Connection, changes: RowChanges) -> bool:
        """Whether nothing is left to keep, dead letters included."""
        nothing_left = not changes.added and len(changes.removed) == self._index.rows
        return nothing_left and not tables.dead_letters(database)

    def _begin_again(self) -> None:
        """Delete the file, of which nothing is needed, since a full disk has no room for deleting its rows."""
        self._file.close()
        delete(self.path)
        self._connect()

    def _count(self, database: sqlite3.Connection, changes: RowChanges) -> None:
        try:
            self._index.apply(changes)
        except KeyError:  # a topic changed on the disk
            self._index, _ = tables.count(database)

    def _read(self, database: sqlite3.Connection, after: int, most_rows: int, most_bytes: int) -> list[SpoolRow]:
        rows, damaged = tables.page(database, after, most_rows, most_bytes)
        if damaged:
            self._bury(database, damaged)
        return rows

    def _bury(self, database: sqlite3.Connection, damaged: Sequence[SpoolRow]) -> None:
        """Make dead letters of damaged rows. If that fails, they stay, and the next `read` of them tries it again."""
        removal = ("DELETE FROM outbox WHERE id = ?", [(row.id,) for row in damaged])
        try:
            transact(database, [removal, *tables.bury([(row, DAMAGED) for row in damaged], self._now())])
        except sqlite3.Error as error:
            if is_damage(error):
                raise
        else:
            self._index, _ = tables.count(database)
            self.found = self.found._replace(damaged=self.found.damaged + len(damaged))


def _statements(changes: RowChanges) -> Work:
    """Deletions come first: their pages are used again for the rows that are added."""
    return [
        ("DELETE FROM outbox WHERE id = ?", [(row.id,) for row in changes.removed]),
        (INSERT, [columns(row) for row in changes.added]),
    ]


# What other processes do with the file: look at it, also while an app runs.


class Contents(NamedTuple):
    """The contents of a file, as committed last."""

    rows: int
    bytes: int
    """Of all rows, as `leadsman.core.spool.row.size` counts them."""
    oldest_taken_at: float | None
    """Epoch seconds; None without rows."""
    topics: dict[str, int]
    """Rows of each topic."""
    dead: list[DeadLetter]
    """The dead letters, oldest first."""


def contents(path: Path) -> Contents:
    """Look at a file, also while an app has it. Changes nothing.

    Raises:
        SpoolUnavailable: there is none, or it cannot be read.
    """
    if not path.is_file():
        raise SpoolUnavailable(f"there is no {path}; an app makes it when readings wait for its broker")
    try:
        with reading(path, tables.LAYOUT) as database:
            if database is None:
                raise Damage("it has no tables")
            return _contents(database)
    except (sqlite3.Error, OSError) as error:
        if is_damage(error):
            raise SpoolUnavailable(f"{path} {blame(error)}") from error
        raise tables.translate(error, path) from error


def _contents(database: sqlite3.Connection) -> Contents:
    index, oldest = tables.count(database)
    topics = {name: topic.rows for name, topic in index.topics.items()}
    return Contents(index.rows, index.bytes, oldest, topics, tables.dead_letters(database))
