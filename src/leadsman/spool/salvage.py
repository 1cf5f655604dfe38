"""Copies the rows of a damaged file that SQLite can still read into a new one.

SQLite finds rows through the pages above them, so a damaged page costs what lies below it, and a damaged first page
costs the file. The file itself is not changed: it is put aside.
"""

import contextlib
import sqlite3
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from leadsman.spool import tables
from leadsman.spool.row import (
    DAMAGED,
    INSERT,
    INSERT_DEAD,
    DeadLetter,
    SpoolRow,
    columns,
    dead_columns,
    dead_letter,
    row_of,
)
from leadsman.storage.database import LOG, MOST_NUMBER, Damage, Work, connect, is_damage, transact

_ROWS = f"SELECT {tables.COLUMNS} FROM outbox WHERE id >= ? ORDER BY id"
_DEAD = "SELECT * FROM dead WHERE number >= ? ORDER BY number"
_BATCH = 2_000
"""Rows of one transaction."""
_AT_ONCE = 50
"""Rows that are read at once, as long as none of them is damaged."""


class Salvaged(NamedTuple):
    """What became of the rows of a damaged file."""

    rows: int
    """Rows that were copied."""
    damaged: int
    """Rows with a wrong checksum, which are among the dead letters now."""
    unread: int | None
    """Rows that could not be read; None if their number is not known."""


class _Reader:
    """The rows of one table of a damaged file, in the order of their numbers."""

    def __init__(self, database: sqlite3.Connection, query: str) -> None:
        self.missing: int | None = 0
        """How many numbers lie between rows that can be read, where rows cannot; None if there are such at an end."""
        self._database = database
        self._query = query

    def __iter__(self) -> Iterator[Sequence[Any]]:
        begin, last = 1, 0
        while True:
            try:
                for found in self._from(begin):
                    last = found[0]
                    yield found
            except sqlite3.Error as error:
                if not is_damage(error):
                    raise
            else:
                return
            following = self._readable_after(max(last, begin))
            if following is None:
                self.missing = None
                return
            if self.missing is not None:
                self.missing = self.missing + following - last - 1 if last else None
            begin = following

    def _from(self, number: int) -> Iterator[Sequence[Any]]:
        """The rows from a number on, up to the first one that cannot be read."""
        at_once = _AT_ONCE
        while True:
            try:
                some = self._database.execute(f"{self._query} LIMIT ?", (number, at_once)).fetchall()
            except sqlite3.Error:
                if at_once == 1:
                    raise
                at_once = 1  # `sqlite3` drops the row before the one that cannot be read
                continue
            if not some:
                return
            for found in some:
                if not isinstance(found[0], int) or not number <= found[0] <= MOST_NUMBER:
                    raise Damage("its rows are not in order")
                number = found[0] + 1
                yield found

    def _readable_after(self, number: int) -> int | None:
        """The first number above this one from which on rows can be read; None if there is none. A stretch of rows that
        can be read may be missed where more cannot on both sides of it."""
        step = 1
        while not self._can_read(number + step):
            step *= 2
            if number + step > MOST_NUMBER:
                return None
        bad, good = step // 2, step
        while good - bad > 1:
            middle = (bad + good) // 2
            bad, good = (bad, middle) if self._can_read(number + middle) else (middle, good)
        return number + good

    def _can_read(self, number: int) -> bool:
        try:
            next(self._from(number), None)
        except sqlite3.Error as error:
            if not is_damage(error):
                raise
            return False
        return True


def salvage(path: Path, new: Path, now: float, counted: int | None) -> Salvaged:
    """Copy all rows that can be read of a damaged file into a new file, which is whole and synced at the end.

    Args:
        path: the damaged file.
        new: an empty file.
        now: epoch seconds, for the dead letters.
        counted: how many rows it had, if they were counted before it was damaged.

    Raises:
        sqlite3.Error, OSError: the new file cannot be written, or the disk of the damaged one not be read at all.
    """
    rows, damaged, letters = list[SpoolRow](), deque[SpoolRow](maxlen=tables.MOST_DEAD), list[DeadLetter]()
    with contextlib.closing(connect(new, tables.BUSY)) as database:
        tables.prepare(database, new)
        database.execute("PRAGMA synchronous = OFF")  # until the end, for if it fails, the file is thrown away
        missing: int | None = None
        with _open(path) as source:
            if source is not None:
                reader = _Reader(source, _ROWS)
                whole = _whole(reader, damaged)
                while rows := list(islice(whole, _BATCH)):
                    transact(database, [(INSERT, [columns(row) for row in rows])])
                missing = reader.missing
                letters = _dead_letters(_Reader(source, _DEAD))
        dead: Work = [(INSERT_DEAD, [dead_columns(each.row, each.died_at, each.why) for each in letters])]
        work = [*dead, *tables.bury([(row, DAMAGED) for row in damaged], now)]
        transact(database, work)
        saved = database.execute("SELECT count(*) FROM outbox").fetchall()[0][0]
        database.execute("PRAGMA synchronous = FULL")
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    if counted is not None:
        missing = max(0, counted - saved - len(damaged))
    return Salvaged(saved, len(damaged), missing)


@contextlib.contextmanager
def _open(path: Path) -> Iterator[sqlite3.Connection | None]:
    """The damaged file; None if nothing can be asked of it."""
    if not path.stat().st_size:  # SQLite would delete its log
        yield None
        return
    with contextlib.closing(connect(path, tables.BUSY, read_only=True)) as database:
        try:
            database.execute("PRAGMA cell_size_check = ON").fetchall()
            database.execute("PRAGMA writable_schema = ON").fetchall()  # else a file that is too short is not read
            is_ours = _is_ours(database)
        except sqlite3.Error as error:
            if not is_damage(error):
                raise
            is_ours = False
        yield database if is_ours else None
    log = Path(f"{path}{LOG}")
    if log.exists() and not log.stat().st_size:  # SQLite made it, to read
        log.unlink()


def _is_ours(database: sqlite3.Connection) -> bool:
    """Whether its rows can be asked for: no view or trigger that somebody planted is used for that."""
    try:
        return tables.has_our_schema(database)
    except Damage:
        return tables.has_our_rows(database)


def _whole(found: _Reader, damaged: deque[SpoolRow]) -> Iterator[SpoolRow]:
    """The rows whose checksum matches. The others are added to the list."""
    for each in found:
        row, is_whole = tables.row_found(each)
        if is_whole:
            yield row
        else:
            damaged.append(row)


def _dead_letters(found: _Reader) -> list[DeadLetter]:
    """The dead letters, but those that were damaged since they died: they were reported then."""
    letters = deque[DeadLetter](maxlen=tables.MOST_DEAD)
    for each in found:
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            letter, (_, is_whole) = dead_letter(each), row_of(each[3:])
            if (is_whole or letter.damaged) and letter.row.id <= MOST_NUMBER:
                letters.append(letter)
    return list(letters)
