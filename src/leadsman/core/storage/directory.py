"""The state directory, and the lock that lets only one process write to it.

Two processes that write the same files destroy each other's work. So an app that keeps any state locks its state
directory itself (`flock(2)`): no file is left behind, and the lock ends with the process, however that ends. An app
that finds the directory locked waits a moment, since a predecessor may be about to end. Then it reports the lock, reads
the files, and writes nothing for the rest of its life.
"""

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from leadsman.core.storage import owner
from leadsman.core.storage.files import FileLock
from leadsman.core.text import log_fields
from leadsman.errors import StateInUse

NOWHERE = Path("/nonexistent")
"""The home of those who have none (Debian Policy §9.2.3). Nothing is there."""
LOCK_TIMEOUT = 5.0
"""Seconds that the start waits for another process to end."""
LOCK_CHECK_INTERVAL = 0.5
"""Seconds between two looks."""

logger = logging.getLogger("leadsman")

Report = Callable[[Path, Exception | None], None]
"""Called with a file or directory and its error at the first failure, and with None when it is written again. From any
thread."""


class StateDirectory:
    """A directory, and whether this process may write to it.

    Args:
        path: where. It need not exist.
        report: called once when another process has it, and by those who keep files here.
        unusable: why nothing can be written here; None if that is to be tried.
        app: the app, which is written down there; None: nothing is.
    """

    def __init__(self, path: Path, report: Report, unusable: str | None = None, app: owner.Owner | None = None) -> None:
        self.path = path
        self.app = app
        """See `app`."""
        self._is_written = False
        self._unusable = unusable
        self.foreign = False
        """Whether another process had it when it was asked for; then nothing is written here."""
        self.newer: str | None = None
        """Why the stores and what else has no layout of its own are neither read nor written: a newer version of
        leadsman wrote them. None if none did."""
        self.report = report
        self._flock = FileLock(path, _open_directory)
        self._released = False
        self._lock = threading.Lock()

    async def claim(self, stopping: asyncio.Event) -> None:
        """Lock the directory, if there is anything in it. Waits `LOCK_TIMEOUT` at most for another process, or
        until `stopping`.

        Does not report yet that another process has it: see `announce`.
        """
        loop = asyncio.get_running_loop()
        deadline, waits = loop.time() + LOCK_TIMEOUT, False
        while self._holds_anything() and not self._locked():
            if not waits:
                waits = True
                about = log_fields("state locked", file=str(self.path))
                logger.info("%s; waiting %g s for it to end", owner.in_use(self.path), LOCK_TIMEOUT, extra=about)
            if stopping.is_set() or loop.time() >= deadline:
                self.foreign = True
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOCK_CHECK_INTERVAL):
                    await stopping.wait()

    def announce(self) -> None:
        """Report that another process has it, if `claim` found one."""
        if self.foreign:
            self.report(self.path, StateInUse(owner.in_use(self.path)))

    def lock(self) -> bool:
        """Lock the directory if it is there, and answer whether no other process has it."""
        with self._lock:
            return self._released or self._locked()

    def occupy(self) -> None:
        """Make the directory where it is missing, lock it if no other process has it, and write down in it which app
        this is. Blocks.

        Raises:
            OSError: it cannot be made or written.
        """
        if self._unusable is not None:
            raise OSError(self._unusable)
        with self._lock:
            if not self.foreign and not self._released:
                self._occupy()

    def may_write(self) -> bool:
        """Make the directory where it is missing, lock it, and answer whether this process may write to it. Blocks.

        Raises:
            OSError: it cannot be made.
        """
        if self._unusable is not None:
            raise OSError(self._unusable)
        with self._lock:
            if not self.foreign and not self._released and not self._occupy():
                self.foreign = True
                self.announce()
            return not self.foreign and not self._released

    def release(self) -> None:
        """Let the next process have it. A thread that was left behind writes nothing here any more."""
        with self._lock:
            self._released = True
            self._flock.release()

    def _occupy(self) -> bool:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._locked():
            return False
        if self.app is not None and not self._is_written and self.newer is None:
            with contextlib.suppress(OSError):  # of the disk, on which those who ask now will find it, too
                owner.write(self.path, self.app)
                self._is_written = True
        return True

    def _holds_anything(self) -> bool:
        try:
            with os.scandir(self.path) as found:
                return next(found, None) is not None
        except OSError:
            return False

    def _locked(self) -> bool:
        """Whether no other process has it. A directory that was removed is another one when it is made again."""
        try:
            self._flock.acquire()
        except BlockingIOError:
            return False
        except OSError:
            pass  # nothing to lock, or no way to
        return True


def _open_directory(path: Path) -> int:
    return os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
