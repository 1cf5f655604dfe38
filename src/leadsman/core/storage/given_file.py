"""Files whose paths are settings or arguments. One may be a pipe, whose open waits for its other end, or a device that
never ends."""

import errno
import os
import stat
from pathlib import Path


def read_given(path: Path | str, most: int) -> bytes:
    """The first bytes of a file: one more than `most` if it has more than that.

    Raises:
        OSError: it cannot be read, or is a pipe.
    """
    with open(path, "rb", opener=_open_at_once) as file:
        if stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.ESPIPE, "it is a pipe, which may never end; write a regular file")
        return file.read(most + 1) or b""  # a terminal may have nothing yet


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting for the other end of a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)
