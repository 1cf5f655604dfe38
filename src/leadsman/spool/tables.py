"""The tables of the spool, its settings, and what SQLite's errors mean for it. docs/adr/durability.md has the
measurements behind the settings."""

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from leadsman.errors import SpoolError, SpoolFull, SpoolLocked, SpoolUnavailable
from leadsman.mqtt.message import LARGEST
from leadsman.storage import own_file
from leadsman.storage.database import Damage, Work, admit, is_full, transact
from leadsman.storage.lock import Lock
from leadsman.text import describe

PAGE = 1024
"""Bytes of a page. A commit writes whole pages: those of 4096 bytes write 2.3 times as much for each reading."""
BUSY = 1.0
"""Seconds to wait for a process that reads the file beside this one."""
APPLICATION = 0x4C45_4144
"""``PRAGMA application_id``, "LEAD": another program's database is not taken for a spool."""
COLUMNS = "id, run, flags, taken_at, expires_at, crc, topic, payload"
"""Of the table `outbox`. The long ones come last, so that the others are read without them."""
_COLUMNS = (
    "run INTEGER NOT NULL, flags INTEGER NOT NULL, taken_at REAL NOT NULL, expires_at REAL, crc INTEGER NOT NULL,"
    " topic TEXT NOT NULL, payload BLOB NOT NULL"
)
MIGRATIONS = (
    (
        f"CREATE TABLE outbox (id INTEGER PRIMARY KEY, {_COLUMNS})",
        "CREATE TABLE dead (number INTEGER PRIMARY KEY AUTOINCREMENT, died_at REAL NOT NULL, why TEXT NOT NULL,"
        f" id INTEGER NOT NULL, {_COLUMNS})",
    ),
    (
        "CREATE TABLE topics (topic TEXT PRIMARY KEY) WITHOUT ROWID",
        "INSERT INTO topics SELECT DISTINCT topic FROM outbox",
        "CREATE TRIGGER topic_of_row AFTER INSERT ON outbox"
        " WHEN NOT EXISTS (SELECT 1 FROM topics WHERE topic = NEW.topic)"
        " BEGIN INSERT INTO topics VALUES (NEW.topic); END",
    ),
    ("CREATE TABLE overtaken (topic TEXT PRIMARY KEY, id INTEGER NOT NULL) WITHOUT ROWID",),
)
"""The statements that bring a file from version n (``PRAGMA user_version``) to n + 1. A new file begins at 0.

`topics` has the topic of each row, and topics that have no rows any more: whatever inserts a row inserts its topic in
the same transaction, and only `forget_topics` deletes one. `overtaken` has `leadsman.spool.row.TopicRows.overtaken` of
topics that have rows.
"""
VERSION = len(MIGRATIONS)
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
"""Bytes of a row besides its payload, at the most: a topic has 65,535."""


def prepare(database: sqlite3.Connection, path: Path) -> None:
    """Apply the settings, and make the tables where they are missing. The structure of a file is checked before its
    tables are changed.

    Raises:
        SpoolUnavailable: a newer version of leadsman wrote it.
        sqlite3.Error: it is damaged, or cannot be read just now.
    """
    is_new = not check(database, path)
    for setting in _SETTINGS:
        database.execute(setting).fetchall()
    if is_new:
        database.execute(f"PRAGMA application_id = {APPLICATION}").fetchall()
    found = _number(database, "user_version")
    if found < VERSION and not is_new:
        check_structure(database)
    for version in range(found, VERSION):
        statements = (*MIGRATIONS[version], f"PRAGMA user_version = {version + 1}")
        transact(database, [(statement, None) for statement in statements])


def check_structure(database: sqlite3.Connection) -> None:
    """Check the structure of the whole file, which is read for that.

    Raises:
        sqlite3.Error: it is damaged, or cannot be read just now.
    """
    found = database.execute("PRAGMA quick_check(1)").fetchall()
    if found != [("ok",)]:
        raise Damage(str(found[0][0]))


def check(database: sqlite3.Connection, path: Path) -> bool:
    """Check that it is a spool that this version can read, or has no tables yet. Returns whether it has any.

    Raises:
        SpoolUnavailable: a newer version of leadsman wrote it.
        sqlite3.Error: it is damaged, or cannot be read just now.
    """
    application, version = (_number(database, pragma) for pragma in ("application_id", "user_version"))
    if application == APPLICATION and version > VERSION:
        raise SpoolUnavailable(
            f"{path} was written by a newer version of leadsman (format {version}, this one knows {VERSION}); "
            "install that version again, or move the file away"
        )
    made = [statement for statements in MIGRATIONS for statement in statements]
    if not admit(database, made, LARGEST + _ROW):
        return False
    if application != APPLICATION:
        raise Damage("it is the database of another program")
    return True


def _number(database: sqlite3.Connection, pragma: str) -> int:
    rows: list[tuple[int]] = database.execute(f"PRAGMA {pragma}").fetchall()
    return rows[0][0]


def forget_topics(topics: Iterable[str]) -> Work:
    """The statement that deletes topics without rows."""
    return [("DELETE FROM topics WHERE topic = ?", [(topic,) for topic in topics])]


def translate(error: Exception, path: Path) -> SpoolError:
    """The error to raise for one of SQLite or of the operating system."""
    if isinstance(error, BlockingIOError):
        return SpoolLocked(f"another process uses {path}; stop that one, or give this app another STATE_DIRECTORY")
    if is_full(error, path.parent):
        return SpoolFull(f"the disk of {path} is full ({describe(error)}); delete something there")
    return SpoolUnavailable(f"{path} cannot be used just now: {describe(error)}")


def lock_of(path: Path) -> Lock:
    """The lock of a spool: that of a side file, ``<path>.lock``, which stays."""
    return Lock(Path(f"{path}.lock"), _open_side_file)


def _open_side_file(path: Path) -> int:
    own_file.set_aside(path)
    return own_file.create(path)
