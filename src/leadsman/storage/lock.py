"""A lock that one process has at a time (`flock(2)`): of a directory, or of a side file. It ends with the process."""

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

_UNSUPPORTED = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EINVAL})
"""Some network file systems have no locks."""


class Lock:
    """The lock of what is at a path.

    Args:
        path: what is locked.
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
        """Whether what is at the path is still what was locked. Another process may lock a new one."""
        with contextlib.suppress(OSError):
            return self._handle is not None and os.path.samestat(os.fstat(self._handle), self._path.stat())
        return False

    def release(self) -> None:
        """Let the next process have it."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
