"""The files of the state directory, where others may have put something else: a pipe whose open waits for its other
end, a device that never ends, a link to the file of another program, a database whose views never end.

What is not a regular file is set aside before it is opened. A database is asked for nothing but its schema until it is
known to be ours. Someone who exchanges files just then is not defended against: he may write there in any case.
"""

import contextlib
import logging
import os
import sqlite3
import stat
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from leadsman.text import log_fields

BESIDE = ("", "-wal", "-shm", "-journal")
"""What follows the name of a database in those of its files."""
MOST_STEPS = 1_000_000
"""Instructions of SQLite's machine that reading a schema may take. Ours take some hundreds."""
MOST_NUMBER = 1 << 62
"""The largest number of a row: SQLite has twice as many, and an app that gives out a million a second comes to it in
146,000 years."""
_MOST_OBJECTS = 100
"""Objects of a schema that are compared."""
_STATISTICS = "sqlite_stat"
"""Begins the names of the tables that ``ANALYZE`` makes, which change no answer."""
_DAMAGE = frozenset(
    {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_ERROR,  # its tables are not ours
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_TOOBIG,
        sqlite3.SQLITE_INTERRUPT,  # by `MOST_STEPS`
    }
)
"""Primary result codes (https://sqlite.org/rescode.html) that blame the file."""

logger = logging.getLogger("leadsman")
_Object = tuple[object, object, object, object]


class Damage(sqlite3.DatabaseError):
    """A check of our own found that a database is not ours, or not whole."""


def is_damage(error: Exception) -> bool:
    """Whether an error blames the file, and not the disk, the permissions or another process."""
    return isinstance(error, Damage) or getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE


def is_strange(path: Path) -> bool:
    """Whether something is there that is not a regular file; a link is none."""
    try:
        return not stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def set_aside(path: Path) -> None:
    """Rename what is there if it is a journal or not a regular file, and log its new name. A database of ours has a log
    instead of a journal; SQLite would apply one, and open the file that it names.

    Raises:
        OSError: it cannot be renamed.
    """
    if not (is_strange(path) or (path.name.endswith("-journal") and os.path.lexists(path))):
        return
    names = [f"{path}.strange", *(f"{path}.strange.{number}" for number in range(1, 100))]
    aside = next((name for name in names if not os.path.lexists(name)), names[-1])
    path.rename(aside)
    logger.warning(
        "%s is not a file of leadsman; it is kept as %s, and a new one is begun",
        path,
        Path(aside).name,
        extra=log_fields("state damaged", file=str(path)),
    )


def create(path: Path, flags: int = os.O_RDWR, mode: int = 0o600) -> int:
    """Open a file in the state directory, and make it if it is missing. Returns its descriptor.

    Raises:
        OSError: it is not a regular file, or cannot be opened.
    """
    flags |= os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0)
    handle = os.open(path, flags, mode)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(f"{path} is not a regular file; move it away")
    return handle


def replace(path: Path, beside: Path, data: bytes, mode: int = 0o600, *, sync: bool) -> None:
    """Write a file at the name `beside` and rename it to `path`, so that nobody sees half of it. With `sync` a power
    failure leaves the old or the new one, too.

    Raises:
        OSError: it cannot be written. There is none at `beside` then.
    """
    try:
        set_aside(beside)
        beside.unlink(missing_ok=True)  # of a process that was killed
        with os.fdopen(create(beside, os.O_WRONLY | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        with contextlib.suppress(OSError):  # a directory is there
            beside.unlink()
        raise


def read(path: Path, most: int) -> bytes:
    """The first `most` bytes of a file.

    Raises:
        OSError: there is none, or it is not a regular file, or it cannot be read.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(f"{path} is not a regular file; move it away")
        return file.read(most)


def admit(database: sqlite3.Connection, statements: Iterable[str], largest: int) -> bool:
    """Check the schema of a database, before anything else is asked of it, and that its counters have numbers left.
    Values of more than `largest` bytes are damage from then on.

    Args:
        database: just connected.
        statements: what made it; not all of its objects need to be there.
        largest: bytes of a row, at the most.

    Returns:
        Whether it has any tables yet.

    Raises:
        Damage: it has something else.
        sqlite3.Error: it is damaged, or cannot be read just now.
    """
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, largest)
    database.set_progress_handler(lambda: 1, MOST_STEPS)
    try:
        database.execute("PRAGMA trusted_schema = OFF")
        found = set(_objects(database))
        if any(name == "sqlite_sequence" for _, name, _, _ in found):
            largest_number = database.execute("SELECT max(seq) FROM sqlite_sequence").fetchall()[0][0]
            if largest_number is not None and not (isinstance(largest_number, int) and largest_number <= MOST_NUMBER):
                raise Damage("it has no numbers left")
    finally:
        database.set_progress_handler(None, 0)
    strange = sorted(str(name) for _, name, _, _ in found - _made_by(tuple(statements)))
    if strange:
        raise Damage(f"it contains {strange[0]!r}, which leadsman did not make")
    return bool(found)


def _objects(database: sqlite3.Connection) -> list[_Object]:
    found = database.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE NOT (type = 'table' AND name GLOB ?) LIMIT ?",
        (f"{_STATISTICS}[0-9]", _MOST_OBJECTS),
    )
    return found.fetchall()


@lru_cache(maxsize=8)
def _made_by(statements: tuple[str, ...]) -> frozenset[_Object]:
    database = sqlite3.connect(":memory:")
    try:
        for statement in statements:
            database.execute(statement)
        return frozenset(_objects(database))
    finally:
        database.close()
