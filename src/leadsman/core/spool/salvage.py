"""Copies what can be read of a damaged file of the spool into a new one: see `leadsman.core.storage.salvage`."""

import contextlib
import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from leadsman.core.spool import tables
from leadsman.core.spool.row import (
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
from leadsman.core.storage.database import MAX_ROW_NUMBER, Work, transact
from leadsman.core.storage.salvage import Salvaged, Table

_BATCH = 2_000
"""Rows of one transaction."""


def salvage(table: Table, new: sqlite3.Connection, now: float, counted: int | None) -> Salvaged:
    """Copy the readings and the dead letters of a damaged file. Rows with a wrong checksum become dead letters.

    Args:
        table: its tables.
        new: the new file.
        now: epoch seconds.
        counted: how many rows it had, if they were counted before it was damaged.
    """
    rows, damaged = table("outbox"), deque[SpoolRow](maxlen=tables.MAX_DEAD)
    whole = _whole(rows, damaged)
    while some := list(islice(whole, _BATCH)):
        transact(new, [(INSERT, [columns(row) for row in some])])
    letters = _dead_letters(table("dead"))
    dead: Work = [(INSERT_DEAD, [dead_columns(each.row, each.died_at, each.why) for each in letters])]
    transact(new, [*dead, *tables.bury([(row, DAMAGED) for row in damaged], now)])
    saved = new.execute("SELECT count(*) FROM outbox").fetchall()[0][0]
    missing = rows.missing if counted is None else max(0, counted - saved - len(damaged))
    return Salvaged(saved, len(damaged), missing)


def _whole(found: Iterable[Sequence[Any]], damaged: deque[SpoolRow]) -> Iterator[SpoolRow]:
    """The rows whose checksum matches. The others are added to the list."""
    for each in found:
        row, is_whole = tables.row_found(each)
        if is_whole:
            yield row
        else:
            damaged.append(row)


def _dead_letters(found: Iterable[Sequence[Any]]) -> list[DeadLetter]:
    """The dead letters, but those that were damaged since they died: they were reported then."""
    letters = deque[DeadLetter](maxlen=tables.MAX_DEAD)
    for each in found:
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            letter, (_, is_whole) = dead_letter(each), row_of(each[3:])
            if (is_whole or letter.damaged) and letter.row.id <= MAX_ROW_NUMBER:
                letters.append(letter)
    return list(letters)
