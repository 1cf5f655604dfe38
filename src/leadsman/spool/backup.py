"""What other processes do with the file: look at it and copy it while an app runs, restore a copy while none does."""

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from leadsman.errors import SpoolUnavailable
from leadsman.spool import dead, queries
from leadsman.spool.row import DeadLetter
from leadsman.spool.tables import BUSY, check, lock_of, translate
from leadsman.storage import quarantine
from leadsman.storage.database import BESIDE, Damage, connect, delete, is_damage
from leadsman.storage.own_file import is_strange, sync_directory

T = TypeVar("T")


class Contents(NamedTuple):
    """What is in a file, as it was committed last."""

    rows: int
    bytes: int
    """Of all rows, as `leadsman.spool.row.size` counts them."""
    oldest_taken_at: float | None
    """Epoch seconds; None without rows."""
    topics: dict[str, int]
    """Rows of each topic."""
    dead: list[DeadLetter]
    """The dead letters, oldest first."""


def look(path: Path) -> Contents:
    """Look at a file, also while an app has it. Changes nothing.

    Raises:
        SpoolUnavailable: there is none, or it cannot be read.
    """
    return _reading(path, _contents)


def backup(path: Path, target: Path) -> Contents:
    """Copy the file as it was committed last, also while an app has it. The copy is one file that only this user can
    read; it takes the place of a file that is there.

    Raises:
        SpoolUnavailable, SpoolFull: one of the files cannot be read or written. The target is as it was.
    """
    if target.resolve() in [each.resolve() for each in _files(path)]:
        raise SpoolUnavailable(f"{target} belongs to the outbox; name another file for the copy")
    try:
        new = quarantine.new_beside(target)
        try:
            found = _reading(path, lambda database: _copy(database, path, new))
            new.replace(target)
        finally:
            delete(new)
    except OSError as error:
        raise translate(error, target) from error
    sync_directory(target.parent)
    return found


def restore(path: Path, source: Path, now: float) -> tuple[Contents, str | None]:
    """Put a copy in the place of the file, which is kept aside.

    Returns:
        What is in the copy, and the name of the file put aside, if there was one.

    Raises:
        SpoolLocked: an app has the file.
        SpoolUnavailable, SpoolFull: a file cannot be read or written, or the copy is damaged. Nothing was changed.
    """
    if not source.is_file():
        raise SpoolUnavailable(f"there is no {source}; name a copy that `leadsman outbox backup` made")
    lock = lock_of(path)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock.acquire()
        quarantine.adopt(path, now)
        was_there = path.exists()
        new = quarantine.new_beside(Path(f"{path}.restore"))
        try:
            found = _reading(source, lambda database: _copy(database, source, new))
            new = new.rename(f"{path}.new")  # it is whole: a start puts it in place, if this process is killed here
            aside = quarantine.replace(path, new, now)
        finally:
            delete(new)
    except OSError as error:
        raise translate(error, path) from error
    finally:
        lock.release()
    return found, aside if was_there else None


def _reading(path: Path, work: Callable[[sqlite3.Connection], T]) -> T:
    if not path.is_file():
        raise SpoolUnavailable(f"there is no {path}; an app makes it when readings wait for its broker")
    if strange := next((each for each in _files(path)[1:] if is_strange(each)), None):  # SQLite would wait for a pipe
        raise SpoolUnavailable(f"{strange} is not a regular file; remove it")
    try:
        with contextlib.closing(connect(path, BUSY, read_only=True)) as database:
            if not check(database, path):
                raise Damage("it has no tables")
            return work(database)
    except (sqlite3.Error, OSError) as error:
        if is_damage(error):
            raise SpoolUnavailable(f"{path} is damaged, or is not an outbox: {error}") from error
        raise translate(error, path) from error


def _files(path: Path) -> list[Path]:
    """The file, and those that SQLite has beside it."""
    return [Path(f"{path}{suffix}") for suffix in BESIDE]


def _contents(database: sqlite3.Connection) -> Contents:
    index, oldest = queries.count(database)
    topics = {name: topic.rows for name, topic in index.topics.items()}
    return Contents(index.rows, index.bytes, oldest, topics, dead.listed(database))


def _copy(database: sqlite3.Connection, path: Path, target: Path) -> Contents:
    """Copy the database, and check the structure of the copy."""
    with contextlib.closing(connect(target, BUSY)) as copy:
        database.backup(copy)  # in one step, which does not keep the app from writing
        copy.execute("PRAGMA journal_mode = DELETE").fetchall()  # so that it is one file
        found = copy.execute("PRAGMA integrity_check(1)").fetchall()
        if found != [("ok",)]:
            raise Damage(str(found[0][0]))
        return _contents(copy)
