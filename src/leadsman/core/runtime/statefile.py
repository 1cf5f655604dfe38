"""The SQLite file behind ``keep_state=True``: one row per handler, and what parts of the app keep in
further tables.

Four kinds of fault, and their consequences:

* a row that cannot be read: that handler starts without state;
* a damaged page, found by a read or only by a write, or another layout: the file is kept aside, once in the life of an
  app, and a new one is written with what can be read of it, and everything that is known;
* a file that was removed or replaced: a new one is written with everything that is known;
* a full disk, a lock, no descriptor, an I/O error: these are no sign of damage. The file and its log stay as they are,
  and the unwritten data waits for the next write.
"""

import contextlib
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from leadsman.core.storage.database import Damage, Database, Layout, Work, is_damage, reading, transact
from leadsman.core.storage.salvage import Salvaged, Table, replace, settle
from leadsman.core.text import log_fields

LAYOUT = Layout(
    tables=(
        "CREATE TABLE handler (name TEXT PRIMARY KEY, wall REAL NOT NULL, document TEXT NOT NULL)",
        "CREATE TABLE trace (number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, handler TEXT NOT NULL,"
        " document TEXT NOT NULL)",
        "CREATE TABLE ledger (key INTEGER NOT NULL, name TEXT NOT NULL, document TEXT NOT NULL,"
        " PRIMARY KEY (key, name))",
    ),
    migrations=(),
    settings=("PRAGMA journal_mode = WAL", "PRAGMA synchronous = NORMAL"),
    largest=1024 * 1024,
    wait=0.25,
    row="row",
)
"""One for all apps, whichever parts they have, so that a file outlives a change of those. What is in ``trace`` and in
``ledger`` is the matter of the `FurtherTable` that a part of the app keeps there."""
MAX_TABLE_BYTES = 64 * 1024 * 1024
"""Bytes of rows that are read of a table."""

logger = logging.getLogger("leadsman")


class Saved(NamedTuple):
    """One handler, as it is in the file. `wall` is epoch seconds of the write, `document` JSON; neither is checked."""

    wall: object
    document: object


class SavedState(Protocol):
    """What a further table asks of `leadsman.core.runtime.failure_state`, the room above this one."""

    @property
    def path(self) -> Path:
        """The file."""
        ...

    @property
    def outages(self) -> Mapping[str, float]:
        """Since when devices have failed, epoch seconds, by device."""
        ...

    def soon(self) -> None:
        """Write what has changed, soon."""
        ...


class FurtherTable:
    """What a part of the app keeps in a further table of the file; this one keeps nothing. A subclass has its rows, and
    decides which of them stay.

    Three methods are called on the event loop: `restore`, `forget` and `gather`. The others are called in the thread
    that has the file.
    """

    query = ""
    """Selects what `found` gets; empty if that is nothing."""

    def found(self, rows: Sequence[tuple[object, ...]]) -> None:
        """Take what the query selects, as the file is read. Nothing of it is checked."""

    def restore(self, store: SavedState) -> None:
        """Go on where an earlier run was: the devices have their state again. `SavedState.soon` writes what changes
        from now on."""

    def forget(self, device: str) -> None:
        """A device is gone, and its rows with it."""

    def gather(self) -> Callable[[], None]:
        """Take what is new. What is returned is called in the thread, and lets it wait for the next write."""
        return lambda: None

    @property
    def waits(self) -> bool:
        """Whether something waits for the next write."""
        return False

    def work(self, gone: Sequence[tuple[str]]) -> Work:
        """The statements that write what waits. `gone`: the devices that are gone."""
        return []

    def written(self) -> None:
        """What `work` returned last is in the file: it waits no more."""

    def begin_again(self) -> None:
        """The file is a new one, without the rows that were written."""


class StateFile:
    """The file. All methods block, and are called by one thread at a time.

    Args:
        path: the file.
        now: the wall clock, in epoch seconds.
        tables: what parts of the app keep in it.

    Raises:
        sqlite3.Error, OSError: from its methods, when the file cannot be read or written just now.
    """

    def __init__(self, path: Path, now: Callable[[], float] = time.time, tables: Sequence[FurtherTable] = ()) -> None:
        self.path = path
        self._tables = tables
        self._now = now
        self._file = Database(path, LAYOUT)
        self._handlers: dict[str, tuple[float, str]] = {}  # all that is known, for a file that begins again
        self._waiting: set[str] = set()
        self._gone: set[str] = set()
        self._kept_aside = False

    def read(self, *, keep_aside: bool = True) -> dict[str, Saved]:
        """All handlers. Changes nothing, except that a damaged file is kept aside, if wanted."""
        query = "SELECT name, wall, document FROM handler"
        if keep_aside:
            settle(self.path, self._now())
        try:
            rows = self._select(query)
        except sqlite3.DatabaseError as error:
            if not is_damage(error) or not keep_aside:
                raise
            self._keep_aside(error)
            rows = self._select(query)
        return {name: Saved(wall, document) for name, wall, document in rows}

    def read_tables(self) -> None:
        """Hand over what the further tables select. A damaged page costs the table alone that it is of."""
        for table in self._tables:
            with contextlib.suppress(sqlite3.DatabaseError):
                if table.query:
                    table.found(self._select(table.query))

    def write(self, handlers: Mapping[str, str], wall: float, gone: Iterable[str] = ()) -> None:
        """Write these handlers and what waits in the tables, and delete the handlers that are gone; or nothing of it.

        What an earlier call could not write is written with it.
        """
        for name in gone:
            self._gone.add(name)
            self._waiting.discard(name)
            self._handlers.pop(name, None)
        self._gone -= handlers.keys()
        self._handlers.update((name, (wall, document)) for name, document in handlers.items())
        self._waiting |= handlers.keys()
        if not (self._waiting or self._gone or any(table.waits for table in self._tables)):
            return
        try:
            self._commit()
        except sqlite3.DatabaseError as error:
            self.close()
            if not is_damage(error) or self._kept_aside:
                raise
            self._keep_aside(error)
            self._commit()
        self._waiting.clear()
        self._gone.clear()
        for table in self._tables:
            table.written()

    def close(self) -> None:
        """Close it."""
        self._file.close()

    def _select(self, query: str) -> list[tuple[Any, ...]]:
        if not os.path.lexists(self.path):
            return []
        with reading(self.path, LAYOUT) as database:
            if database is None:
                return []
            return list(_limited(database.execute(query)))

    def _commit(self) -> None:
        database = self._open()
        gone = [(name,) for name in self._gone]
        work: Work = [
            ("DELETE FROM handler WHERE name = ?", gone),
            (
                "INSERT INTO handler (name, wall, document) VALUES (?, ?, ?) "
                "ON CONFLICT (name) DO UPDATE SET wall = excluded.wall, document = excluded.document",
                [(name, *self._handlers[name]) for name in sorted(self._waiting)],
            ),
        ]
        for table in self._tables:
            work += table.work(gone)
        transact(database, work)

    def _open(self) -> sqlite3.Connection:
        if self._file.connection is not None:
            if self._file.current_identities() == self._file.identities:
                return self._file.connection
            logger.warning(
                "%s was removed or replaced while the app ran; it is written again",
                self.path,
                extra=log_fields("state removed", file=str(self.path)),
            )
            self.close()
            self._begin_again()
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        settle(self.path, self._now())
        return self._file.connect()

    def _keep_aside(self, error: Exception) -> None:
        self.close()
        replace(self.path, LAYOUT, self._now(), error, _salvage)
        self._kept_aside = True
        self._begin_again()

    def _begin_again(self) -> None:
        self._waiting = set(self._handlers)
        for table in self._tables:
            table.begin_again()


def _salvage(table: Table, new: sqlite3.Connection) -> Salvaged:
    """Copy what can be read of each table, whatever a row says: that is checked when it is used."""
    before, unread = new.total_changes, list[int | None]()
    for name, values in (("handler", "?, ?, ?"), ("trace", "?, ?, ?, ?"), ("ledger", "?, ?, ?")):
        rows, found = table(name), list[tuple[Any, ...]]()
        with contextlib.suppress(Damage):
            found.extend(_limited(rows))
        transact(new, [(f"INSERT OR IGNORE INTO {name} VALUES ({values})", found)])
        unread.append(rows.missing)
    known = [each for each in unread if each is not None]
    return Salvaged(new.total_changes - before, 0, sum(known) if len(known) == len(unread) else None)


def _limited(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """The same rows. Raises `Damage` if they are more than a file of ours has."""
    left = MAX_TABLE_BYTES
    for row in rows:
        left -= sum(len(value) if isinstance(value, str | bytes) else 8 for value in row)
        if left < 0:
            raise Damage(f"its rows have more than {MAX_TABLE_BYTES} bytes")
        yield row
