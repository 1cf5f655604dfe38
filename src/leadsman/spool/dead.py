"""The dead letters: rows that the broker refused for good, and rows that changed on the disk."""

import secrets
import sqlite3
from collections.abc import Iterable, Sequence

from leadsman.spool.row import INSERT, INSERT_DEAD, DeadLetter, SpoolRow, columns, dead_columns, dead_letter
from leadsman.storage.database import Work

MOST = 1_000
"""Dead letters that are kept: the newest."""
MOST_BYTES = 8 * 1024 * 1024
"""Bytes of their payloads that are kept."""
_TRIM = (
    "DELETE FROM dead WHERE number <= (SELECT max(number) FROM dead) - ? OR number <= (SELECT max(number) FROM ("
    "SELECT number, sum(length(payload)) OVER (ORDER BY number DESC) AS bytes FROM dead) WHERE bytes > ?)"
)


def bury(dead: Iterable[tuple[SpoolRow, str]], now: float) -> Work:
    """The statements that make dead letters of rows, each with its reason."""
    buried = [dead_columns(row, now, why) for row, why in dead]
    return [(INSERT_DEAD, buried), (_TRIM, [(MOST, MOST_BYTES)])] if buried else []


def listed(database: sqlite3.Connection) -> list[DeadLetter]:
    """All dead letters, oldest first."""
    return [dead_letter(found) for found in database.execute("SELECT * FROM dead ORDER BY number")]


def revive(letters: Sequence[DeadLetter], next_id: int) -> tuple[list[SpoolRow], Work]:
    """The rows that are sent again, and the statements for it.

    A row gets a new `SpoolRow.run`: (run, id) of the process that took it may belong to a reading that was delivered.
    It is no `SpoolRow.latest`, since a value that was refused must not replace a newer one.
    """
    run = secrets.randbits(53)
    rows = [each.row._replace(id=next_id + place, run=run, latest=False) for place, each in enumerate(letters)]
    return rows, [(INSERT, [columns(row) for row in rows]), *remove([each.number for each in letters])]


def remove(numbers: Iterable[int]) -> Work:
    """The statements that delete dead letters."""
    return [("DELETE FROM dead WHERE number = ?", [(number,) for number in numbers])]
