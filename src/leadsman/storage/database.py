"""A SQLite database in the state directory: how it is opened, what makes it ours, damage, and work on all of its files
at once.

Others may have put something else in its place: a database whose views never end, a journal that names another file. So
anything but a regular file is set aside before the database is opened, and it is asked for nothing but its schema until
it has proved to be ours.
"""

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

from leadsman.storage import files

LOG, SHARED = "-wal", "-shm"
BESIDE = ("", LOG, SHARED, "-journal")
"""Suffixes of the files of a database."""
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
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})

_Object = tuple[object, object, object, object]

# What an error means.


class Damage(sqlite3.DatabaseError):
    """A check of our own found that a database is not ours, or not whole."""


def is_damage(error: Exception) -> bool:
    """Whether an error blames the file, and not the disk, the permissions or another process."""
    return isinstance(error, Damage) or _code(error) in _DAMAGE


def is_locked(error: Exception) -> bool:
    """Whether another process has the file just now."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_full(error: Exception, directory: Path | None = None) -> bool:
    """Whether an error means that the disk is full, or follows from that of a directory."""
    if _code(error) == sqlite3.SQLITE_FULL or (isinstance(error, OSError) and error.errno in _NO_SPACE):
        return True
    return directory is not None and _code(error) == sqlite3.SQLITE_IOERR and free_bytes(directory) == 0


def _code(error: Exception) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def free_bytes(directory: Path) -> int | None:
    """The free bytes of a file system; None if they are not known."""
    try:
        found = os.statvfs(directory)
    except (OSError, AttributeError):  # Windows has no statvfs
        return None
    return found.f_bavail * found.f_frsize


# How it is opened, and what makes it ours.


def connect(path: Path, wait: float, *, read_only: bool = False) -> sqlite3.Connection:
    """Connect to a file that exists.

    Args:
        path: the file.
        wait: seconds to wait for another process that has locked it.
        read_only: nothing is written to it. An empty log may stay beside it.

    Raises:
        sqlite3.Error: there is none.
    """
    mode = "mode=rw" if not read_only else "immutable=1" if is_settled(path) else "mode=ro"
    address = f"file:{quote(str(path))}?{mode}"
    database = sqlite3.connect(address, uri=True, timeout=wait, isolation_level=None, check_same_thread=False)
    database.text_factory = lambda text: text.decode(errors="replace")
    return database


def is_settled(path: Path) -> bool:
    """Whether its directory cannot be written, and it has no log. SQLite writes even to read, unless such a file is
    opened as immutable."""
    return not os.access(path.parent, os.W_OK) and not Path(f"{path}{LOG}").exists()


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


# Its files.


def identity(path: Path) -> tuple[int, int] | None:
    """The identity that distinguishes a file from others that have its name; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def files_of(path: Path) -> list[Path]:
    """The database, and the files that SQLite has beside it."""
    return [Path(f"{path}{suffix}") for suffix in BESIDE]


def is_strange(path: Path) -> bool:
    """Whether one of its files is not a regular file."""
    return any(map(files.is_strange, files_of(path)))


def set_strange_aside(path: Path) -> None:
    """Rename those of its files that are not ours, before it is opened: anything but a regular file, and a journal. A
    database of ours has a log instead of one; SQLite would apply a journal, and open the file that it names.

    Raises:
        OSError: one cannot be renamed.
    """
    for each in files_of(path):
        files.set_aside(each, always=each.name.endswith("-journal"))


def rename(path: Path, name: Path) -> None:
    """Rename it with its log, which SQLite finds beside the new name. There is no database at that name.

    Raises:
        OSError: it cannot be renamed.
    """
    Path(f"{path}{SHARED}").unlink(missing_ok=True)
    if path.exists():
        path.rename(name)
        files.sync_directory(path.parent)
    if (log := Path(f"{path}{LOG}")).exists():
        log.rename(f"{name}{LOG}")
    files.sync_directory(path.parent)


def delete(path: Path) -> None:
    """Delete it with its log, if there is one."""
    for each in files_of(path):
        each.unlink(missing_ok=True)


# Puts a database aside and another one in its place, so that a kill or a power cut at any moment leaves one of the two
# there. The new file is complete and synced before the old one is renamed. If it ends between two renames, there is no
# file but a new one, which `finish_exchange` puts in place at the next start. If the file is there, a new one is
# unfinished and is deleted.

MOST_ASIDE = 3
"""Files put aside that are kept: the newest."""


def make_private(path: Path) -> None:
    """Make an empty file that only this user can read, or make sure that nobody else can read the one that is there.

    Raises:
        OSError: it cannot be made, or it is not a regular file.
    """
    handle = files.create(path)
    try:
        if os.fstat(handle).st_mode & 0o077:
            os.fchmod(handle, 0o600)
    finally:
        os.close(handle)


def new_beside(path: Path) -> Path:
    """An empty file that can take the place of `path`."""
    new = Path(f"{path}.new")
    delete(new)
    make_private(new)
    return new


def finish_exchange(path: Path, now: float) -> str | None:
    """Finish an `exchange` that was interrupted.

    Returns:
        The name of the file that was put aside in it; None if there was none.
    """
    new = Path(f"{path}.new")
    if path.exists():
        delete(new)
        return None
    if not new.exists():
        return None
    exchange(path, new, now)
    return next((each.name for each in reversed(_put_aside(path))), None)


def exchange(path: Path, new: Path, now: float) -> str:
    """Put a file with its log aside, as ``<path>.bad-<time>``, and a new one in its place.

    Returns:
        The name of the file put aside.
    """
    aside = files.free_name(f"{path}.bad-{datetime.fromtimestamp(now, UTC):%Y%m%dT%H%M%S}")
    rename(path, aside)
    new.rename(path)
    files.sync_directory(path.parent)
    _prune(path)
    return aside.name


def _prune(path: Path) -> None:
    """Delete all files put aside but the newest."""
    with contextlib.suppress(OSError):
        for name in _put_aside(path)[:-MOST_ASIDE]:
            delete(name)


def _put_aside(path: Path) -> list[Path]:
    """The files put aside, oldest first."""
    names = {str(each).removesuffix(LOG).removesuffix(SHARED) for each in path.parent.glob(f"{path.name}.bad-*")}
    return sorted(map(Path, names), key=_age)


def _age(name: Path) -> tuple[float, str]:
    with contextlib.suppress(OSError):
        return name.stat().st_ctime, name.name
    return 0.0, name.name
