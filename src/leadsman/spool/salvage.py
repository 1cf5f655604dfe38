"""Copies the rows of a damaged file into a new one."""

import sqlite3
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from leadsman.spool.damaged_file import DamagedFile, Record
from leadsman.spool.dead import MOST, bury
from leadsman.spool.row import (
    DAMAGED,
    INSERT_DEAD,
    NOTE,
    DeadLetter,
    SpoolRow,
    columns,
    dead_columns,
    dead_letter,
    row_of,
)
from leadsman.spool.tables import BUSY, PAGE, prepare
from leadsman.storage.database import MOST_NUMBER, Work, connect, transact

_KEEP = "INSERT OR IGNORE INTO outbox VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_BATCH = 2_000
"""Rows of one transaction."""
_COLUMNS, _DEAD_COLUMNS = 8, 11
"""Columns of the two tables, which tell a row from a dead letter."""


class Salvaged(NamedTuple):
    """What was copied."""

    rows: int
    damaged: int
    """Rows with a wrong checksum: they are among the dead letters now."""


def salvage(path: Path, new: Path, now: float, overtaken: Mapping[str, int]) -> Salvaged:
    """Copy all rows of a damaged file and its log into a new file, which is whole and synced at the end.

    Args:
        path: the damaged file.
        new: an empty file.
        now: epoch seconds, for the dead letters.
        overtaken: `leadsman.spool.row.TopicRows.overtaken`, as far as it is known.

    Raises:
        sqlite3.Error, OSError: the new file cannot be written, or the damaged one not be read at all.
    """
    pages = DamagedFile(path, PAGE)
    try:
        database = connect(new, BUSY)
        try:
            return _copy(pages, database, new, now, overtaken)
        finally:
            database.close()
    finally:
        pages.close()


def _copy(
    pages: DamagedFile, database: sqlite3.Connection, new: Path, now: float, overtaken: Mapping[str, int]
) -> Salvaged:
    prepare(database, new)
    database.execute("PRAGMA synchronous = OFF")  # until the end, for if it fails, the file is thrown away
    damaged: deque[SpoolRow] = deque(maxlen=MOST)
    letters: deque[DeadLetter] = deque(maxlen=MOST)
    rows = _sort_out(pages, damaged, letters)
    while batch := list(islice(rows, _BATCH)):
        transact(database, [(_KEEP, [columns(row) for row in batch])])
    lost = [row for row in damaged if not _has(database, row.id)]
    dead: Work = [(INSERT_DEAD, [dead_columns(each.row, each.died_at, each.why) for each in letters])]
    transact(database, [*dead, *bury([(row, DAMAGED) for row in lost], now), (NOTE, list(overtaken.items()))])
    count = database.execute("SELECT count(*) FROM outbox").fetchall()[0][0]
    database.execute("PRAGMA synchronous = FULL")
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return Salvaged(count, len(lost))


def _sort_out(pages: DamagedFile, damaged: deque[SpoolRow], letters: deque[DeadLetter]) -> Iterator[SpoolRow]:
    """The rows whose checksum matches. The others, and the dead letters, are added to the lists."""
    for key, record in pages.records():
        try:
            if len(record) == _DEAD_COLUMNS:
                letter = _dead_letter(key, record)
                if letter is not None and letter.row.id <= MOST_NUMBER:
                    letters.append(letter)
            elif len(record) == _COLUMNS:
                row, is_whole = row_of([key, *record[1:]])
                if row.id > MOST_NUMBER:
                    continue
                if is_whole:
                    yield row
                else:
                    damaged.append(row)
        except (ValueError, TypeError, OverflowError):  # not a row
            continue


def _dead_letter(number: int, record: Record) -> DeadLetter | None:
    """The dead letter of a record; None if it is damaged: it was reported when it died."""
    _, is_whole = row_of(record[3:])
    letter = dead_letter([number, *record[1:]])
    return letter if is_whole or letter.damaged else None


def _has(database: sqlite3.Connection, key: int) -> bool:
    return bool(database.execute("SELECT 1 FROM outbox WHERE id = ?", (key,)).fetchall())
