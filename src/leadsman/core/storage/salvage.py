"""Puts a damaged database aside, and in its place a new one with what SQLite can still read of it.

SQLite finds rows through the pages above them, so a damaged page costs what lies below it, and a damaged first page
costs the file. The file itself is not changed.
"""

import contextlib
import logging
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from leadsman.core.storage import files
from leadsman.core.storage.database import (
    MAX_ROW_NUMBER,
    Damage,
    Layout,
    blame,
    connect,
    is_damage,
    make_private,
    prepare,
    rename,
    schema,
    set_strange_aside,
)
from leadsman.core.text import count_noun, log_fields

_AT_ONCE = 50
"""Rows that are read at once, as long as none of them is damaged."""
_MAX_STEPS = 20_000_000
"""Instructions of SQLite's machine that counting the rows of a table may take: some four million rows."""

logger = logging.getLogger("leadsman")

# What SQLite reads of a damaged file.


class Rows:
    """The rows of one table of a damaged file that can be read, in the order of their numbers.

    Args:
        database: the file.
        table: the name.
        layout: the one that the table must have; else its rows are not read.
    """

    def __init__(self, database: sqlite3.Connection, table: str, layout: Layout) -> None:
        self.missing: int | None = None
        """How many numbers lie between rows that can be read, where rows cannot; None if there are such at an end, and
        of another table its rows. It is known when all rows were read."""
        self._database = database
        self._table = table
        self._layout = layout

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        query = "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name = ? LIMIT 2"
        try:
            made = set(self._database.execute(query, (self._table,)))
            if made and made <= self._layout.objects(self._layout.number):
                yield from self._all()
            elif any(str(sql).startswith("CREATE TABLE ") for *_, sql in made):
                self.missing = self._count()
        except sqlite3.Error as error:
            if not is_damage(error):
                raise
            self.missing = None

    def _count(self) -> int:
        """The rows of a table that is not ours. No value of them is read."""
        self._database.set_progress_handler(lambda: 1, _MAX_STEPS)
        try:
            query = f"SELECT count(*) FROM (SELECT 1 FROM {self._table} LIMIT {MAX_ROW_NUMBER})"
            found: list[tuple[int]] = self._database.execute(query).fetchall()
            return found[0][0]
        finally:
            self._database.set_progress_handler(None, 0)

    def _all(self) -> Iterator[tuple[Any, ...]]:
        begin, last, self.missing = 1, 0, 0
        while True:
            try:
                for found in self._from(begin):
                    last = found[0]
                    yield found[1:]
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

    def _from(self, number: int) -> Iterator[tuple[Any, ...]]:
        """The rows from a number on, each behind its number, up to the first one that cannot be read."""
        query = f"SELECT rowid, * FROM {self._table} WHERE rowid >= ? ORDER BY rowid LIMIT ?"
        at_once = _AT_ONCE
        while True:
            try:
                some = self._database.execute(query, (number, at_once)).fetchall()
            except sqlite3.Error:
                if at_once == 1:
                    raise
                at_once = 1  # `sqlite3` drops the row before the one that cannot be read
                continue
            if not some:
                return
            for found in some:
                if not isinstance(found[0], int) or not number <= found[0] <= MAX_ROW_NUMBER:
                    raise Damage("its rows are not in order")
                number = found[0] + 1
                yield found

    def _readable_after(self, number: int) -> int | None:
        """The first number above this one from which on rows can be read; None if there is none. A stretch of rows that
        can be read may be missed where more cannot on both sides of it."""
        step = 1
        while not self._can_read(number + step):
            step *= 2
            if number + step > MAX_ROW_NUMBER:
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


Table = Callable[[str], Rows]
"""The rows of a table with a name, of a damaged file."""


class Salvaged(NamedTuple):
    """What became of the rows of a damaged file."""

    rows: int
    """Rows that were copied into the new one."""
    damaged: int
    """Rows that were read, but are not whole."""
    unread: int | None
    """Rows that could not be read; None if their number is not known."""


Copy = Callable[[Table, sqlite3.Connection], Salvaged]
"""Copies rows of the tables of the damaged file into the new one."""


@contextlib.contextmanager
def _damaged(path: Path, layout: Layout) -> Iterator[sqlite3.Connection]:
    """The damaged file, or an empty one if nothing can be asked of it. What somebody put beside our tables is not used
    for what is asked."""
    with contextlib.closing(sqlite3.connect(":memory:")) as empty:
        if not path.stat().st_size:  # SQLite would delete its log
            yield empty
            return
        with contextlib.closing(connect(path, layout.wait, read_only=True)) as database:
            source = database
            try:
                database.execute("PRAGMA cell_size_check = ON").fetchall()
                database.execute("PRAGMA writable_schema = ON").fetchall()  # else a file that is too short is not read
                with contextlib.suppress(Damage):
                    schema(database, layout.largest)
            except sqlite3.Error as error:
                if not is_damage(error):
                    raise
                source = empty
            yield source
    log = Path(f"{path}{files.LOG}")
    if log.exists() and not log.stat().st_size:  # SQLite made it, to read
        log.unlink()


def replace(path: Path, layout: Layout, now: float, error: Exception, copy: Copy) -> tuple[str, Salvaged]:
    """Put a damaged file aside, and in its place a new one with what is copied from it. That is logged.

    Args:
        path: the file, which no connection of this process has.
        layout: of the new one.
        now: epoch seconds.
        error: why.
        copy: what is copied.

    Returns:
        The name of the file that was put aside, and what became of its rows.

    Raises:
        sqlite3.Error, OSError: the new file cannot be written, or the disk of the damaged one cannot be read at all.
            The damaged file is where it was.
    """
    new = _new_beside(path)
    try:
        make_private(path)  # perhaps only its log is there
        with contextlib.closing(connect(new, layout.wait)) as database:
            prepare(database, layout)
            database.execute("PRAGMA synchronous = OFF")  # until the end, for if it fails, the file is thrown away
            with _damaged(path, layout) as damaged:
                saved = copy(lambda table: Rows(damaged, table, layout), database)
            database.execute("PRAGMA synchronous = FULL")
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except BaseException:
        files.delete(new)
        raise
    aside = _exchange(path, new, now)
    logger.warning(
        "%s %s; it is kept as %s; %s saved from it, %s",
        path,
        blame(error),
        aside,
        count_noun(saved.rows, f"{layout.row} was", f"{layout.row}s were"),
        "the number of those that could not be read is not known"
        if saved.unread is None
        else f"{saved.unread} could not be read",
        extra=log_fields("state damaged", file=str(path), error_type=type(error).__name__, unread=saved.unread),
    )
    return aside, saved


# Puts a database aside and another one in its place, so that a kill or a power cut at any moment leaves one of the two
# there. The new file is complete and synced before the old one is renamed. If it ends between two renames, there is no
# file but a new one, which `settle` puts in place at the next start. If the file is there, a new one is
# unfinished and is deleted.


def _new_beside(path: Path) -> Path:
    """An empty file that can take the place of `path`."""
    new = Path(f"{path}.new")
    files.delete(new)
    make_private(new)
    return new


def settle(path: Path, now: float) -> str | None:
    """Set aside what is not ours in the place of a database, and finish a `replace` that was interrupted: before
    anything is asked of the database.

    Returns:
        The name of the file that was put aside in that; None if there was none.

    Raises:
        OSError: a file cannot be renamed.
    """
    new = Path(f"{path}.new")
    for each in (path, new):
        set_strange_aside(each)
    if path.exists():
        files.delete(new)
        return None
    if not new.exists():
        return None
    _exchange(path, new, now)
    return next((each.name for each in reversed(files.put_aside(path))), None)


def _exchange(path: Path, new: Path, now: float) -> str:
    """Put a file with its log aside, as ``<path>.bad-<time>``, and a new one in its place.

    Returns:
        The name of the file put aside.
    """
    aside = files.name_aside(path, now)
    rename(path, aside)
    new.rename(path)
    files.sync_directory(path.parent)
    files.prune_aside(path)
    return aside.name
