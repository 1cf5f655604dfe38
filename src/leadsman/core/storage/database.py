"""A SQLite database in the state directory: its layout, how it is opened, what makes it ours, damage, and work on all
of its files at once. `leadsman.core.storage.salvage` replaces one that is damaged.

Others may have put something else in its place: a database whose views never end, a journal that names another file. So
anything but a regular file is set aside before the database is opened, and it is asked for nothing but its schema until
it has proved to be ours.
"""

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from leadsman.core.storage import files
from leadsman.core.text import describe, written_by_newer

APPLICATION = 0x6C64_736D
"""``PRAGMA application_id``, "ldsm": the database of another program is not taken for one of ours."""
MAX_STEPS = 1_000_000
"""Instructions of SQLite's machine that reading a schema may take. Ours take some hundreds."""
MAX_ROW_NUMBER = 1 << 62
"""The largest number of a row: SQLite has twice as many, and an app that gives out a million a second comes to it in
146,000 years."""
_MAX_OBJECTS = 100
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
        sqlite3.SQLITE_INTERRUPT,  # by `MAX_STEPS`
    }
)
"""Primary result codes (https://sqlite.org/rescode.html) that blame the file."""
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})

Object = tuple[object, object, object, object]
"""Type, name, name of the table and statement, as a schema has them."""

# What an error means.


class Damage(sqlite3.DatabaseError):
    """A check of our own found that a database is not ours, or not whole."""


class OtherLayout(Damage):
    """A database has a layout that cannot be brought up to date: that of another program, or of a version before the
    first release."""


class NewerLayout(sqlite3.DatabaseError):
    """A newer version of leadsman wrote a database. It is left as it is."""


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


def blame(error: Exception) -> str:
    """What is wrong with a database that is set aside, as the log says it."""
    return str(error) if isinstance(error, OtherLayout) else f"is damaged ({describe(error)})"


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


# Its layout.


class Layout(NamedTuple):
    """What leadsman makes a database of. The number of its layout is in ``PRAGMA user_version``."""

    tables: tuple[str, ...]
    """The statements that make layout 1."""
    migrations: tuple[tuple[str, ...], ...]
    """The statements that bring a file from layout 1 to 2, from 2 to 3, and so on."""
    settings: tuple[str, ...]
    """Statements for each connection that writes."""
    largest: int
    """Bytes of a row, at most."""
    wait: float
    """Seconds to wait for another process that has locked the file."""
    row: str
    """What a row is, as the log says it."""

    @property
    def number(self) -> int:
        """The newest layout, which this version writes."""
        return 1 + len(self.migrations)

    def objects(self, number: int) -> frozenset[Object]:
        """The schema of the layout with this number."""
        return _made_by((*self.tables, *chain.from_iterable(self.migrations[: number - 1])))


def check(database: sqlite3.Connection, layout: Layout) -> int:
    """Check that a database is one that this version can read, before anything else is asked of it.

    Returns:
        The number of its layout; 0 if it has no tables yet.

    Raises:
        NewerLayout: a newer version of leadsman wrote it.
        Damage: it has something else.
        sqlite3.Error: it is damaged, or cannot be read just now.
    """
    application, number = (_number(database, name) for name in ("application_id", "user_version"))
    if application == APPLICATION and number > layout.number:
        about = written_by_newer(number, layout.number)
        raise NewerLayout(f"it {about}; install that version again, or move the file away")
    found = schema(database, layout.largest)
    if not found:
        return 0
    if application != APPLICATION or number < 1:
        about = f"its application id is {application:#x}, its layout {number}"
        raise OtherLayout(f"is the database of another program, or has an older layout than 1 ({about})")
    strange = sorted(str(name) for _, name, _, _ in found - layout.objects(number))
    if strange:
        raise Damage(f"it contains {strange[0]!r}, which leadsman did not make")
    return number


def _number(database: sqlite3.Connection, name: str) -> int:
    rows: list[tuple[int]] = database.execute(f"PRAGMA {name}").fetchall()
    return rows[0][0]


def prepare(database: sqlite3.Connection, layout: Layout) -> None:
    """Check a database, apply the settings, and bring its tables up to date. The structure of a file is checked before
    its tables are changed.

    Raises:
        sqlite3.Error: see `check`.
    """
    found = check(database, layout)
    for setting in layout.settings:
        database.execute(setting).fetchall()
    if not found:
        database.execute(f"PRAGMA application_id = {APPLICATION}").fetchall()
    elif found < layout.number:
        check_structure(database)
    for number in range(found + 1, layout.number + 1):
        work = layout.tables if number == 1 else layout.migrations[number - 2]
        transact(database, [(statement, None) for statement in (*work, f"PRAGMA user_version = {number}")])


def check_structure(database: sqlite3.Connection) -> None:
    """Check the structure of the whole file, which is read for that.

    Raises:
        sqlite3.Error: it is damaged, or cannot be read just now.
    """
    found = database.execute("PRAGMA quick_check(1)").fetchall()
    if found != [("ok",)]:
        raise Damage(str(found[0][0]))


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
    return not os.access(path.parent, os.W_OK) and not Path(f"{path}{files.LOG}").exists()


def schema(database: sqlite3.Connection, largest: int) -> set[Object]:
    """The objects of a database that was just connected, before anything else is asked of it. Values of more than
    `largest` bytes are damage from then on.

    Raises:
        Damage: one of its counters has no numbers left.
        sqlite3.Error: it is damaged, or cannot be read just now.
    """
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, largest)
    database.set_progress_handler(lambda: 1, MAX_STEPS)
    try:
        database.execute("PRAGMA trusted_schema = OFF")
        found = set(_objects(database))
        if any(name == "sqlite_sequence" for _, name, _, _ in found):
            largest_number = database.execute("SELECT max(seq) FROM sqlite_sequence").fetchall()[0][0]
            if largest_number is not None and not (
                isinstance(largest_number, int) and largest_number <= MAX_ROW_NUMBER
            ):
                raise Damage("it has no numbers left")
    finally:
        database.set_progress_handler(None, 0)
    return found


def _objects(database: sqlite3.Connection) -> list[Object]:
    found = database.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE NOT (type = 'table' AND name GLOB ?) LIMIT ?",
        (f"{_STATISTICS}[0-9]", _MAX_OBJECTS),
    )
    return found.fetchall()


@lru_cache(maxsize=8)
def _made_by(statements: tuple[str, ...]) -> frozenset[Object]:
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


def set_strange_aside(path: Path) -> None:
    """Rename those of its files that are not ours, before it is opened: anything but a regular file, and a journal. A
    database of ours has a log instead of one; SQLite would apply a journal, and open the file that it names.

    Raises:
        OSError: one cannot be renamed.
    """
    for each in files.files_of(path):
        files.set_aside(each, always=each.name.endswith("-journal"))


def rename(path: Path, name: Path) -> None:
    """Rename it with its log, which SQLite finds beside the new name. There is no database at that name.

    Raises:
        OSError: it cannot be renamed.
    """
    Path(f"{path}{files.SHARED}").unlink(missing_ok=True)
    if path.exists():
        path.rename(name)
        files.sync_directory(path.parent)
    if (log := Path(f"{path}{files.LOG}")).exists():
        log.rename(f"{name}{files.LOG}")
    files.sync_directory(path.parent)


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


def _length(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


# One that is open to be written, and one that is looked at.


class Database:
    """A database that this process writes. All methods block.

    Args:
        path: the file. Its directory is there.
        layout: what it is made of.

    Raises:
        sqlite3.Error, OSError: from `connect`. `is_damage` says whether the file is to blame.
    """

    def __init__(self, path: Path, layout: Layout) -> None:
        self.path = path
        self.layout = layout
        self.connection: sqlite3.Connection | None = None
        """None while it is closed."""
        self.identities: tuple[object, object] | None = None
        """The result of `look` when it was connected."""

    def connect(self) -> sqlite3.Connection:
        """Open it, and make it where it is missing."""
        if not _length(self.path) and _length(Path(f"{self.path}{files.LOG}")):
            raise Damage("its log exists, but the file does not")  # SQLite would delete the log
        make_private(self.path)
        files.sync_directory(self.path.parent)
        self.connection = connect(self.path, self.layout.wait)
        try:
            prepare(self.connection, self.layout)
        except BaseException:
            self.close()
            raise
        self.identities = self.current_identities()
        return self.connection

    def current_identities(self) -> tuple[object, object]:
        """The identities that distinguish the file and its log from others with their names."""
        return identity(self.path), identity(Path(f"{self.path}{files.LOG}"))

    def close(self) -> None:
        """Close it."""
        if self.connection is not None:
            connection, self.connection = self.connection, None
            connection.close()


@contextlib.contextmanager
def reading(path: Path, layout: Layout) -> Iterator[sqlite3.Connection | None]:
    """A database that is there, to be read, also while another process writes it. Nothing is written. None if it has no
    tables yet.

    Raises:
        sqlite3.Error: it is damaged, or cannot be read just now.
    """
    if strange := next((each for each in files.files_of(path) if files.is_strange(each)), None):  # such as a pipe
        raise Damage(f"{strange} is not a regular file; remove it")
    with contextlib.closing(connect(path, layout.wait, read_only=True)) as database:
        yield database if check(database, layout) else None
