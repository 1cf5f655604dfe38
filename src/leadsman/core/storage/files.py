"""The files of the state directory, and their lock. Others may have put something else there: a pipe whose open waits
for its other end, a device that never ends, a link to the file of another program.

Anything but a regular file is set aside before it is opened. Someone who exchanges files just then is not defended
against: he may write there in any case.
"""

import contextlib
import errno
import logging
import os
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from leadsman.core.text import log_fields

LOG, SHARED = "-wal", "-shm"
_BESIDE = ("", LOG, SHARED, "-journal")
"""What SQLite adds to the name of a database: the files that belong to it."""
MAX_DAMAGED_FILES = 3
"""Damaged files that are kept of each: the newest."""
_UNSUPPORTED = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EINVAL})
"""Some network file systems have no locks."""

logger = logging.getLogger("leadsman")


def is_strange(path: Path) -> bool:
    """Whether something is there that is not a regular file; a link is not one."""
    try:
        return not stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def set_aside(path: Path, *, always: bool = False) -> None:
    """Rename a path if it is no regular file, or in any case, and log its new name.

    Raises:
        OSError: it cannot be renamed.
    """
    if not (is_strange(path) or (always and os.path.lexists(path))):
        return
    aside = free_name(f"{path}.strange")
    path.rename(aside)
    logger.warning(
        "%s is not a file of leadsman; it is kept as %s, and a new one is begun",
        path,
        aside.name,
        extra=log_fields("state damaged", file=str(path)),
    )


def files_of(path: Path) -> list[Path]:
    """A file, and those that SQLite has beside it if it is a database."""
    return [Path(f"{path}{suffix}") for suffix in _BESIDE]


def delete(path: Path) -> None:
    """Delete a file with those beside it, if there are any."""
    for each in files_of(path):
        if os.path.lexists(each):  # a file system that cannot be written refuses to delete what is not there
            each.unlink()


def name_aside(path: Path, now: float) -> Path:
    """The name of a file that is damaged, and is put aside at `now`, epoch seconds."""
    return free_name(f"{path}.bad-{datetime.fromtimestamp(now, UTC):%Y%m%dT%H%M%S}")


def put_aside(path: Path) -> list[Path]:
    """The damaged files that were put aside, oldest first."""
    names = {str(each).removesuffix(LOG).removesuffix(SHARED) for each in path.parent.glob(f"{path.name}.bad-*")}
    return sorted(map(Path, names), key=_age)


def prune_aside(path: Path) -> None:
    """Delete all damaged files that were put aside but the newest."""
    with contextlib.suppress(OSError):
        for name in put_aside(path)[:-MAX_DAMAGED_FILES]:
            delete(name)


def _age(name: Path) -> tuple[float, str]:
    with contextlib.suppress(OSError):
        return name.stat().st_ctime, name.name
    return 0.0, name.name


def free_name(stem: str) -> Path:
    """The first name that begins so and that neither a file has nor a log; of a hundred, the last is taken anyway."""
    names = [stem, *(f"{stem}.{number}" for number in range(1, 100))]
    free = (name for name in names if not os.path.lexists(name) and not os.path.lexists(f"{name}{LOG}"))
    return Path(next(free, names[-1]))


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


def sync_directory(directory: Path) -> None:
    """Make the names in a directory survive a power cut, where the file system can."""
    with contextlib.suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class FileLock:
    """A lock that one process has at a time (`flock(2)`): of a directory, or of a side file. It ends with the process.

    Args:
        path: the directory or the side file.
        open_path: opens it, and makes it where that is wanted. Returns its descriptor.
    """

    def __init__(self, path: Path, open_path: Callable[[Path], int]) -> None:
        self._path = path
        self._open = open_path
        self._handle: int | None = None

    def acquire(self) -> None:
        """Lock it. Where the system or the file system has no locks, nothing is locked.

        Raises:
            BlockingIOError: another process has it.
            OSError: it cannot be opened.
        """
        if self.holds():
            return
        self.release()
        handle = self._open(self._path)
        try:
            import fcntl  # not on Windows

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                os.close(handle)
                raise
        except ImportError:
            pass
        self._handle = handle

    def holds(self) -> bool:
        """Whether the path still leads to the locked inode. Another process may lock a new one."""
        with contextlib.suppress(OSError):
            return self._handle is not None and os.path.samestat(os.fstat(self._handle), self._path.stat())
        return False

    def release(self) -> None:
        """Let the next process have it."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
