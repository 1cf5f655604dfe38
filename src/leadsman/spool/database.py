"""The SQLite database of the spool: its settings, its tables, and the meaning of SQLite's errors.
docs/adr/durability.md has the measurements behind the settings."""

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import quote

from leadsman.errors import SpoolError, SpoolFull, SpoolUnavailable
from leadsman.files.own_file import Damage, admit
from leadsman.mqtt.message import LARGEST
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
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Connect to a file that exists. To read from it, a file whose directory cannot be written and that has no log is
    opened as immutable: otherwise SQLite writes even to read.

    Raises:
        sqlite3.Error: there is none.
    """
    mode = "mode=rw"
    if read_only:
        is_settled = not os.access(path.parent, os.W_OK) and not Path(f"{path}-wal").exists()
        mode = "immutable=1" if is_settled else "mode=ro"
    address = f"file:{quote(str(path))}?{mode}"
    database = sqlite3.connect(address, uri=True, timeout=BUSY, isolation_level=None, check_same_thread=False)
    database.text_factory = lambda text: text.decode(errors="replace")
    return database


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


Work = list[tuple[str, Sequence[tuple[object, ...]] | None]]
"""Statements, each with the parameters of each of its executions; None: it has no parameters, and is executed once."""


def transact(database: sqlite3.Connection, work: Work) -> None:
    """Execute statements in one transaction.

    Raises:
        sqlite3.Error: nothing was changed.
    """
    database.execute("BEGIN IMMEDIATE")
    try:
        for statement, parameters in work:
            if parameters is None:
                database.execute(statement)
            else:
                database.executemany(statement, parameters)
        database.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # some errors of SQLite end the transaction
            database.execute("ROLLBACK")
        raise


def forget_topics(topics: Iterable[str]) -> Work:
    """The statement that deletes topics without rows."""
    return [("DELETE FROM topics WHERE topic = ?", [(topic,) for topic in topics])]


def is_full(error: Exception) -> bool:
    """Whether an error says that the disk is full."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code == sqlite3.SQLITE_FULL or (isinstance(error, OSError) and error.errno in _NO_SPACE)


def translated(error: Exception, path: Path) -> SpoolError:
    """The error to raise for one of SQLite or of the operating system."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if is_full(error) or (code == sqlite3.SQLITE_IOERR and free_bytes(path.parent) == 0):
        return SpoolFull(f"the disk of {path} is full ({describe(error)}); delete something there")
    return SpoolUnavailable(f"{path} cannot be used just now: {describe(error)}")


def free_bytes(directory: Path) -> int | None:
    """The free bytes of a file system; None if they are not known."""
    try:
        found = os.statvfs(directory)
    except (OSError, AttributeError):  # Windows has no statvfs
        return None
    return found.f_bavail * found.f_frsize
