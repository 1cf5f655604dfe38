"""The SQLite file behind ``keep_state=True``: one row per handler, the rows of the trace, and those of the ledgers.

Four kinds of fault, and their consequences:

* a row that cannot be read: that handler starts without state;
* a damaged page, found by a read or only by a write, or another layout: the file is kept aside, once in the life of an
  app, and a new one is written with what can be read of it, and everything that is known;
* a file that was removed or replaced: a new one is written with everything that is known;
* a full disk, a lock, no descriptor, an I/O error: these are no sign of damage. The file and its log stay as they are,
  and the unwritten data waits for the next write.
"""

import contextlib
import json
import logging
import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from leadsman.core.storage.database import Damage, Database, Layout, Work, is_damage, reading, transact
from leadsman.core.storage.salvage import Salvaged, Table, replace, settle
from leadsman.core.text import log_fields
from leadsman.extensions.ledger.saved import HEAD, HOUR, KEPT_SECONDS
from leadsman.extensions.trace.trace import MAX_ROWS as MAX_ROWS_IN_MEMORY
from leadsman.extensions.trace.trace import ROWS as ROWS_IN_MEMORY
from leadsman.extensions.trace.trace import TraceRow

ROWS = 10_000
"""Rows of the trace that are kept. Of more, the device with most rows loses its oldest."""
TRIM = 500
"""Rows after which those above are deleted: each deletion writes pages."""
_DELETE_OLD = (
    "DELETE FROM trace WHERE number IN (SELECT number FROM (SELECT number, row_number() OVER"
    " (PARTITION BY handler ORDER BY number DESC) AS age FROM trace) ORDER BY age DESC, number"
    " LIMIT max(0, (SELECT count(*) FROM trace) - ?))"
)
ROW_BYTES = 16 * 1024
"""Bytes of trace rows in one write, at most: the newest row of each device, then the next ones, one of each."""
_LAYOUT = Layout(
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
MAX_TABLE_BYTES = 64 * 1024 * 1024
"""Bytes of rows that are read of a table."""
_NONE: Mapping[tuple[str, int], str] = {}

logger = logging.getLogger("leadsman")


class Saved(NamedTuple):
    """One handler, as it is in the file. `wall` is epoch seconds of the write, `document` JSON; neither is checked."""

    wall: object
    document: object


class StateFile:
    """The file. All methods block, and are called by one thread at a time.

    Args:
        path: the file.
        now: the wall clock, in epoch seconds.

    Raises:
        sqlite3.Error, OSError: from its methods, when the file cannot be read or written just now.
    """

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self.path = path
        self._now = now
        self._file = Database(path, _LAYOUT)
        self._handlers: dict[str, tuple[float, str]] = {}  # all that is known, for a file that begins again
        self._waiting: set[str] = set()
        self._gone: set[str] = set()
        self._rows: dict[str, deque[tuple[int, TraceRow]]] = {}  # by device, numbered as they came
        self._came = 0
        self._ledgers: dict[tuple[str, int], str] = {}
        self._tracebacks: dict[str, str] = {}
        self._kept_aside = False
        self._untrimmed = TRIM

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

    def ledgers(self) -> dict[str, list[tuple[int, object]]]:
        """The rows of all ledgers: keys and JSON by device, in the order of the keys; nothing is checked."""
        found: dict[str, list[tuple[int, object]]] = {}
        for name, key, document in self._select("SELECT name, key, document FROM ledger ORDER BY key"):
            found.setdefault(name, []).append((key, document))
        return found

    def write(
        self,
        handlers: Mapping[str, str],
        rows: Sequence[TraceRow],
        wall: float,
        ledgers: Mapping[tuple[str, int], str] = _NONE,
        gone: Iterable[str] = (),
    ) -> None:
        """Write these handlers and rows of ledgers, add these rows of the trace, and delete the handlers that are gone,
        with their ledgers; or nothing of it.

        What an earlier call could not write is written with it.
        """
        for name in gone:
            self._gone.add(name)
            self._waiting.discard(name)
            self._handlers.pop(name, None)
            self._ledgers = {key: row for key, row in self._ledgers.items() if key[0] != name}
        self._gone -= handlers.keys()
        self._handlers.update((name, (wall, document)) for name, document in handlers.items())
        self._waiting |= handlers.keys()
        self._keep_rows(rows)
        self._ledgers = _recent(self._ledgers | dict(ledgers))
        if not (self._waiting or self._rows or self._ledgers or self._gone):
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
        self._rows.clear()
        self._ledgers.clear()
        self._gone.clear()

    def close(self) -> None:
        """Close it."""
        self._file.close()

    def _select(self, query: str) -> list[tuple[Any, ...]]:
        if not os.path.lexists(self.path):
            return []
        with reading(self.path, _LAYOUT) as database:
            if database is None:
                return []
            return list(_limited(database.execute(query)))

    def _commit(self) -> None:
        database = self._open()
        rows, tracebacks = self._encoded_rows()
        gone = [(name,) for name in self._gone]
        waiting = [(name, *self._handlers[name]) for name in sorted(self._waiting)]
        ledgers = sorted((key, name, document) for (name, key), document in self._ledgers.items())
        work: Work = [
            ("DELETE FROM handler WHERE name = ?", gone),
            ("DELETE FROM ledger WHERE name = ?", gone),
            (
                "INSERT INTO handler (name, wall, document) VALUES (?, ?, ?) "
                "ON CONFLICT (name) DO UPDATE SET wall = excluded.wall, document = excluded.document",
                waiting,
            ),
            ("INSERT INTO trace (at, handler, document) VALUES (?, ?, ?)", rows),
            (
                "INSERT INTO ledger (key, name, document) VALUES (?, ?, ?) "
                "ON CONFLICT (key, name) DO UPDATE SET document = excluded.document",
                ledgers,
            ),
        ]
        if ledgers:
            oldest = ledgers[-1][0] - KEPT_SECONDS - HOUR
            work.append(("DELETE FROM ledger WHERE key != ? AND key < ?", [(HEAD, oldest)]))
        untrimmed = self._untrimmed + len(rows)
        if rows and untrimmed > TRIM:
            work.append((_DELETE_OLD, [(ROWS,)]))
            untrimmed = 0
        transact(database, work)
        self._tracebacks, self._untrimmed = tracebacks, untrimmed

    def _encoded_rows(self) -> tuple[list[tuple[float, str, str]], dict[str, str]]:
        """The rows of this write, as they are stored, oldest first, and each handler's last traceback."""
        turns = [(age, -came, row) for each in self._rows.values() for age, (came, row) in enumerate(reversed(each))]
        taken, size = list[tuple[int, TraceRow]](), 0
        for _, came, row in sorted(turns, key=lambda turn: turn[:2]):
            size += len(_encode([row], {row.handler: row.traceback or ""})[0][2])
            if size > ROW_BYTES:
                break
            taken.append((-came, row))
        while True:
            tracebacks = dict(self._tracebacks)
            encoded = _encode((row for _, row in sorted(taken)), tracebacks)
            if sum(len(row[2]) for row in encoded) <= ROW_BYTES:
                return encoded, tracebacks
            taken.pop()  # tracebacks that are not stored yet come on top

    def _keep_rows(self, rows: Iterable[TraceRow]) -> None:
        """Let rows wait for the next write: as many as in memory, if the disk takes none for long."""
        for row in rows:
            self._came += 1
            self._rows.setdefault(row.handler, deque(maxlen=ROWS_IN_MEMORY)).append((self._came, row))
        for _ in range(sum(map(len, self._rows.values())) - MAX_ROWS_IN_MEMORY):
            max(self._rows.values(), key=len).popleft()

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
        replace(self.path, _LAYOUT, self._now(), error, _salvage)
        self._kept_aside = True
        self._begin_again()

    def _begin_again(self) -> None:
        self._waiting = set(self._handlers)
        self._tracebacks = {}


def _recent(ledgers: dict[tuple[str, int], str]) -> dict[tuple[str, int], str]:
    """The rows of ledgers that are still read after a restart: a disk that stays full must not fill the memory."""
    oldest = max((key for _, key in ledgers), default=0) - KEPT_SECONDS - HOUR
    return {(name, key): document for (name, key), document in ledgers.items() if key == HEAD or key >= oldest}


def _encode(rows: Iterable[TraceRow], tracebacks: dict[str, str]) -> list[tuple[float, str, str]]:
    """Rows as they are stored. What a row does not have is left out, and a traceback that is the same as in the
    handler's row before; `tracebacks` holds those, by handler, and is kept up."""
    encoded = []
    for row in rows:
        fields = {key: value for key, value in row._asdict().items() if value is not None and key != "number"}
        if row.traceback is not None and tracebacks.get(row.handler) == row.traceback:
            del fields["traceback"]
            fields["repeated"] = True
        elif row.traceback is not None:
            tracebacks[row.handler] = row.traceback
        encoded.append((row.at, row.handler, json.dumps(fields, separators=(",", ":"))))
    return encoded


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
