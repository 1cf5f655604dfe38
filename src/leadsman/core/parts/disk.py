"""Readings that wait for the broker are on disk."""

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from leadsman.core.parts.kinds import DISK, OnDisk
from leadsman.core.text import describe, log_fields
from leadsman.core.wiring.core import Core
from leadsman.core.wiring.plan import NoHome

if TYPE_CHECKING:
    from leadsman.core.spool.committer import Committer

STORED_AFTER = {"acked-or-durable": 0.15, "write-through": 0.01}
"""Seconds after which the write of a reading begins that the broker does not have, by ``outbox.durability``. The write
before it, and its own sync, come on top: a quarter of a second is promised of 99 of 100 (docs/how-to/durability.md)."""
FILE = "outbox.db"
"""In the state directory."""
MIN_FREE_BYTES = 64 * 1024
"""Bytes of room below which the file is opened at the start, so that a full disk is reported then."""

logger = logging.getLogger("leadsman")


def join(core: Core) -> None:
    """Write what the broker does not have soon enough, and send what an earlier run left."""
    try:
        path = core.plan.state_directory / FILE
    except NoHome as error:
        about = log_fields("no state directory", error=describe(error))
        logger.warning("readings wait in memory only: %s", describe(error), extra=about)
        return
    disk = ReadingsFile(core, path)
    core.offer(DISK, OnDisk(disk.left, disk.keeps_readings))
    core.life.joined.append(disk.begin)
    core.life.after_delivery.append(lambda _: disk.finish())


class ReadingsFile:
    """The file of readings, which is opened when it is needed.

    Args:
        core: the app.
        path: of the file.
    """

    def __init__(self, core: Core, path: Path) -> None:
        self._core = core
        self._path = path
        self._committer: Committer | None = None
        self.left = os.path.exists(path)  # Path.exists may raise
        """Whether an earlier run left the file."""

    def begin(self) -> None:
        """Have readings that wait written. What an earlier run left is sent first. That a directory cannot be written
        is reported now, and not when the broker is away."""
        self._core.link.store(STORED_AFTER[self._core.plan.sections.outbox.durability], self._write)
        if self.left or _is_unusable(self._path.parent):
            self._open().open()

    def keeps_readings(self) -> bool:
        """Whether the next run sends what the broker does not have."""
        return self._committer is None or self._committer.backlog.store in ("ok", "opening")

    async def finish(self) -> None:
        """Write the readings that the broker does not have as the app ends."""
        outbox = self._core.link.outbox
        if self._committer is not None or outbox.unstored(outbox.number):
            await self._open().finish()

    def _write(self, number: int) -> None:
        self._open().write(number)

    def _open(self) -> "Committer":
        if self._committer is None:
            from leadsman.core.spool.committer import Committer  # for the first reading that waits: most never do
            from leadsman.core.spool.row import Quota

            core, settings = self._core, self._core.plan.sections.outbox
            quota = Quota(settings.max_bytes, settings.max_age)
            clock, events = core.environment.clock, core.environment.events
            self._committer = Committer(core.link, self._path, quota, clock, events)
            core.resources.callback(self._committer.abandon)
            core.take_state_directory()
        return self._committer


def _is_unusable(path: Path) -> bool:
    """Whether nothing can be written in a directory, or it cannot be made, as far as that is known without an
    attempt."""
    there = path
    while not os.path.lexists(there) and there != there.parent:
        there = there.parent
    try:
        room = os.statvfs(there)
    except (OSError, AttributeError):  # not on Windows
        return not there.is_dir()
    may_write = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
    return not may_write or room.f_bavail * room.f_frsize < MIN_FREE_BYTES
