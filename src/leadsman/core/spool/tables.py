"""The tables of the spool: their settings, the questions to them and the statements for dead letters, and what SQLite's
errors mean for them. docs/adr/durability.md has the measurements behind the settings."""

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from leadsman.core.mqtt.message import MAX_PAYLOAD_BYTES
from leadsman.core.spool.eviction import FIRST_TIME, Aged, Index, Stored
from leadsman.core.spool.row import (
    INSERT_DEAD,
    DeadLetter,
    Quota,
    SpoolRow,
    dead_columns,
    dead_letter,
    row_of,
    size,
)
from leadsman.core.storage import files
from leadsman.core.storage.database import Damage, Layout, NewerLayout, Work, is_full
from leadsman.core.storage.files import FileLock
from leadsman.core.storage.owner import in_use
from leadsman.core.text import describe
from leadsman.errors import SpoolError, SpoolFull, SpoolLocked, SpoolUnavailable

PAGE = 1024
"""Bytes of a page. A commit writes whole pages: those of 4096 bytes write 2.3 times as much for each reading."""
BUSY_TIMEOUT = 1.0
"""Seconds to wait for a process that reads the file beside this one."""
COLUMNS = "id, run, flags, taken_at, expires_at, crc, topic, payload"
"""Of the table `outbox`. The long ones come last, so that the others are read without them."""
_COLUMNS = (
    "run INTEGER NOT NULL, flags INTEGER NOT NULL, taken_at REAL NOT NULL, expires_at REAL, crc INTEGER NOT NULL,"
    " topic TEXT NOT NULL, payload BLOB NOT NULL"
)
TABLES = (
    f"CREATE TABLE outbox (id INTEGER PRIMARY KEY, {_COLUMNS})",
    "CREATE TABLE dead (number INTEGER PRIMARY KEY AUTOINCREMENT, died_at REAL NOT NULL, why TEXT NOT NULL,"
    f" id INTEGER NOT NULL, {_COLUMNS})",
    "CREATE TABLE topics (topic TEXT PRIMARY KEY) WITHOUT ROWID",
    "CREATE TRIGGER topic_of_row AFTER INSERT ON outbox"
    " WHEN NOT EXISTS (SELECT 1 FROM topics WHERE topic = NEW.topic)"
    " BEGIN INSERT INTO topics VALUES (NEW.topic); END",
)
"""The statements that make a new file.

`topics` has the topic of each row, and topics that have no rows any more: whatever inserts a row inserts its topic in
the same transaction, and only `forget_topics` deletes one.
"""
MIGRATIONS: tuple[tuple[str, ...], ...] = ()
"""See `Layout.migrations`. `TABLES` does not change once it is released."""
_SETTINGS = (
    f"PRAGMA page_size = {PAGE}",  # before the others: it counts in an empty file only
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA wal_autocheckpoint = 256",
    "PRAGMA journal_size_limit = 1048576",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA cell_size_check = ON",
)
_ROW = 1 << 20
"""Bytes of a row besides its payload, at most: a topic has 65,535."""
LAYOUT = Layout(TABLES, MIGRATIONS, _SETTINGS, MAX_PAYLOAD_BYTES + _ROW, BUSY_TIMEOUT, "reading")


def _number(database: sqlite3.Connection, query: str, *parameters: object) -> int:
    rows: list[tuple[int]] = database.execute(query, parameters).fetchall()
    return rows[0][0]


def forget_topics(topics: Iterable[str]) -> Work:
    """The statement that deletes topics without rows."""
    return [("DELETE FROM topics WHERE topic = ?", [(topic,) for topic in topics])]


def translate(error: Exception, path: Path) -> SpoolError:
    """The error to raise for one of SQLite or of the operating system."""
    if isinstance(error, BlockingIOError):
        return SpoolLocked(in_use(path.parent))
    if isinstance(error, NewerLayout):
        return SpoolUnavailable(f"{path} cannot be used: {error}")
    if is_full(error, path.parent):
        return SpoolFull(f"the disk of {path} is full ({describe(error)}); delete something there")
    return SpoolUnavailable(f"{path} cannot be used just now: {describe(error)}")


def lock_of(path: Path) -> FileLock:
    """The lock of a spool: that of a side file, ``<path>.lock``, which stays."""
    return FileLock(Path(f"{path}.lock"), _open_side_file)


def _open_side_file(path: Path) -> int:
    files.set_aside(path)
    return files.create(path)


# The questions to the table of the rows. None of them is asked inside a transaction that writes.

MAX_TOPICS = 1_000_000
_ROWS_PER_QUERY = 500
"""Rows in one query."""
_IDS = 100
"""Ids in one query. Its text is always the same: `sqlite3` keeps each of the last 128 texts compiled, which takes 170
bytes for each id."""
_BY_ID = f"SELECT id, topic, length(payload) FROM outbox WHERE id IN ({', '.join('?' * _IDS)})"
_SIZE_OF = "SELECT length(payload) FROM outbox WHERE id = ?"
_STRETCH = 10_000
"""Rows that are counted at once, so that sorting them by topic needs little memory."""
_LATEST_BIT = 8
"""The bit of `SpoolRow.latest` in the column `flags`."""


def count(database: sqlite3.Connection) -> tuple[Index, float | None]:
    """The index of a file, and when its oldest reading was taken.

    Raises:
        Damage: a row is larger than any of ours. It would take the room of all others.
    """
    index, oldest, after = Index(), list[float](), -(1 << 63)
    while True:
        found = database.execute(
            "SELECT topic, count(*), sum(bytes), max(bytes), max(id), min(taken_at),"
            " max(CASE WHEN flags & ? THEN id END) FROM"
            " (SELECT id, topic, length(payload) AS bytes, taken_at, flags FROM outbox WHERE id > ?"
            " ORDER BY id LIMIT ?) GROUP BY topic",
            (_LATEST_BIT, after, _STRETCH),
        ).fetchall()
        for topic, rows, payloads, largest, newest, taken_at, latest in found:
            if largest > MAX_PAYLOAD_BYTES:
                raise Damage(f"one of its rows has {largest:,} bytes")
            newer = None if latest is None else (latest, _number(database, _SIZE_OF, latest))
            index.count(topic, rows, payloads, newest, newer)
            oldest.append(taken_at)
        if sum(each[1] for each in found) < _STRETCH:
            return index, min(oldest, default=None)
        after = max(each[4] for each in found)


def largest_dead_id(database: sqlite3.Connection) -> int:
    """The largest id that a dead letter had as a row; 0 without any."""
    return _number(database, "SELECT coalesce(max(id), 0) FROM dead")


def topics(database: sqlite3.Connection) -> frozenset[str]:
    """The topics that may have rows. No other one has any. They are few, and no row is read.

    Raises:
        Damage: they are more than an app has.
    """
    found = [topic for (topic,) in database.execute("SELECT topic FROM topics LIMIT ?", (MAX_TOPICS + 1,))]
    if len(found) > MAX_TOPICS or not all(isinstance(topic, str) for topic in found):
        raise Damage("it has topics that leadsman did not write")
    return frozenset(found)


def taken_at(database: sqlite3.Connection, after: int) -> float | None:
    """When the first row with a larger id was taken; None if there is none."""
    query = "SELECT taken_at FROM outbox WHERE id > ? ORDER BY id LIMIT 1"
    rows: list[tuple[float]] = database.execute(query, (after,)).fetchall()
    return rows[0][0] if rows else None


def stored(database: sqlite3.Connection, ids: Iterable[int]) -> list[Stored]:
    """The rows with these ids that are in the file."""
    wanted, found = sorted(set(ids)), list[Stored]()
    for start in range(0, len(wanted), _IDS):
        some = wanted[start : start + _IDS]
        some += some[-1:] * (_IDS - len(some))  # an id that is asked for twice is found once
        found += [_make_stored(*each) for each in database.execute(_BY_ID, some).fetchall()]
    return found


def oldest(database: sqlite3.Connection) -> Iterator[Stored]:
    """All rows, in the order of their ids."""
    query = "SELECT id, topic, length(payload) FROM outbox WHERE id > ? ORDER BY id LIMIT ?"
    after = -(1 << 63)
    while found := database.execute(query, (after, _ROWS_PER_QUERY)).fetchall():
        yield from (_make_stored(*each) for each in found)
        after = found[-1][0]


def aged(database: sqlite3.Connection, quota: Quota, now: float) -> list[Aged]:
    """The rows that may have expired."""
    query = (
        "SELECT id, topic, length(payload), taken_at, expires_at FROM outbox"
        " WHERE expires_at <= ? OR (taken_at < ? AND taken_at >= ?)"
    )
    found = database.execute(query, (now, now - quota.most_age, FIRST_TIME)).fetchall()
    return [
        Aged(_make_stored(key, topic, payload), taken_at, expires) for key, topic, payload, taken_at, expires in found
    ]


def page(
    database: sqlite3.Connection, after: int, most_rows: int, most_bytes: int
) -> tuple[list[SpoolRow], list[SpoolRow]]:
    """Rows with larger ids, in order, at least one if there are any; and the damaged ones among them, which do not
    count."""
    rows, damaged, total = list[SpoolRow](), list[SpoolRow](), 0
    query = f"SELECT {COLUMNS} FROM outbox WHERE id > ? ORDER BY id"
    with contextlib.closing(database.execute(query, (after,))) as cursor:
        for found in cursor:
            row, is_whole = row_found(found)
            if not is_whole:
                damaged.append(row)
                continue
            total += size(row.topic, len(row.payload))
            if rows and total > most_bytes:
                break
            rows.append(row)
            if len(rows) >= most_rows:
                break
    return rows, damaged


def some(database: sqlite3.Connection, ids: Iterable[int]) -> list[SpoolRow]:
    """The rows with these ids that are there, and whole."""
    query = f"SELECT {COLUMNS} FROM outbox WHERE id = ?"
    found = (each for key in ids for each in database.execute(query, (key,)).fetchall())
    return [row for row, is_whole in map(row_found, found) if is_whole]


def row_found(found: Sequence[Any]) -> tuple[SpoolRow, bool]:
    """The row of its columns, and whether it is whole. Of a damaged one, what can be understood."""
    try:
        return row_of(found)
    except (TypeError, ValueError, OverflowError):  # the types of its columns are damaged
        return SpoolRow(found[0], 0, "", b"", 0, False, 0.0, None, False), False


def _make_stored(key: int, topic: str, payload: int) -> Stored:
    return Stored(key, topic, size(topic, payload))


# The dead letters: rows that the broker refused for good, and rows that changed on the disk.

MAX_DEAD = 1_000
"""Dead letters that are kept: the newest."""
MAX_DEAD_BYTES = 8 * 1024 * 1024
"""Bytes of their payloads that are kept."""
_TRIM = (
    "DELETE FROM dead WHERE number <= (SELECT max(number) FROM dead) - ? OR number <= (SELECT max(number) FROM ("
    "SELECT number, sum(length(payload)) OVER (ORDER BY number DESC) AS bytes FROM dead) WHERE bytes > ?)"
)


def bury(dead: Iterable[tuple[SpoolRow, str]], now: float) -> Work:
    """The statements that make dead letters of rows, each with its reason."""
    buried = [dead_columns(row, now, why) for row, why in dead]
    return [(INSERT_DEAD, buried), (_TRIM, [(MAX_DEAD, MAX_DEAD_BYTES)])] if buried else []


def dead_letters(database: sqlite3.Connection) -> list[DeadLetter]:
    """All dead letters, oldest first."""
    return [dead_letter(found) for found in database.execute("SELECT * FROM dead ORDER BY number")]
