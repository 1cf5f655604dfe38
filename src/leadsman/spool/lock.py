"""The lock that lets only one process use a file: a side file, locked with `flock(2)`. It ends with the process."""

import contextlib
import errno
import os
from pathlib import Path

from leadsman.errors import SpoolLocked
from leadsman.files import own_file

_UNSUPPORTED = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EINVAL})
"""Some network file systems have no locks."""


class Lock:
    """The lock of a file, in the side file ``<path>.lock``, which stays.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = Path(f"{path}.lock")
        self._handle: int | None = None

    def acquire(self) -> None:
        """Lock it. Where the system or the file system has no locks, nothing is locked.

        Raises:
            SpoolLocked: another process has it.
            OSError: the side file cannot be opened.
        """
        self.release()
        own_file.set_aside(self._path)
        handle = own_file.create(self._path)
        try:
            import fcntl  # not on Windows

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            name = self._path.with_suffix("")
            raise SpoolLocked(
                f"another process uses {name}; stop that one, or give this app another STATE_DIRECTORY"
            ) from None
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                os.close(handle)
                raise
        except ImportError:
            pass
        self._handle = handle

    def holds(self) -> bool:
        """Whether the side file is still the one that was locked. Another process may lock a new one."""
        with contextlib.suppress(OSError):
            return self._handle is not None and os.path.samestat(os.fstat(self._handle), self._path.stat())
        return False

    def release(self) -> None:
        """Let the next process have it."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
