"""A disk whose power can be cut below a whole app: what was synced of each file of SQLite lies in a directory of its
own.

The app calls `install` before it opens its outbox. When it was killed, `cut_power` leaves what a power cut leaves: what
was synced, and of what was written since then each sector whole, torn or not at all. SQLite has no shared memory here,
as in `leadsman_rigs.power`.
"""

import os
from pathlib import Path

import apsw

from leadsman.core.storage import database
from leadsman_rigs.power import MOODS, SECTOR, Database

NAME = "synced"
FILES = ("outbox.db", "outbox.db-wal")


class SyncedFile(apsw.VFSFile):
    """A file, and the copy of what was synced of it. At the first sync all of it is copied, since a process before this
    one may have written, too."""

    def __init__(self, directory, name, flags):
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        super().__init__("", name, flags)
        self._copy = os.open(directory / Path(path).name, os.O_RDWR | os.O_CREAT, 0o600)
        self._changes = None

    def xWrite(self, data, offset):
        super().xWrite(data, offset)
        if self._changes is not None:
            self._changes.append((offset, bytes(data)))

    def xTruncate(self, size):
        super().xTruncate(size)
        if self._changes is not None:
            self._changes.append((size, None))

    def xSync(self, flags):
        if self._changes is None:
            size = self.xFileSize()
            self._changes = [(0, self.xRead(size, 0)), (size, None)]
        for at, data in self._changes:
            if data is None:
                os.ftruncate(self._copy, at)
            else:
                os.pwrite(self._copy, data, at)
        self._changes = []

    def xClose(self):
        super().xClose()
        os.close(self._copy)


class SyncedVFS(apsw.VFS):
    """Opens files with copies in a directory."""

    def __init__(self, directory):
        self._directory = directory
        super().__init__(NAME, "")

    def xOpen(self, name, flags):
        return SyncedFile(self._directory, name, flags)

    def xDelete(self, name, sync_directory):
        super().xDelete(name, sync_directory)
        (self._directory / Path(name).name).unlink(missing_ok=True)


class SyncedDatabase(Database):
    """A connection to a file on this disk."""

    vfs = NAME

    def close(self):
        self._called(self._connection.close)


def install(directory):
    """Let the outbox of this process write to this disk. Returns what must live as long as the process."""
    directory = Path(directory)
    directory.mkdir(exist_ok=True)
    database.connect = SyncedDatabase
    return SyncedVFS(directory)


def cut_power(state, directory, dice):
    """Leave in the directory `state` what a power cut leaves. Nothing may have the files open."""
    mood = dice.choice(MOODS)
    for path in (state / name for name in FILES):
        if path.exists():
            copy = directory / path.name
            safe = copy.read_bytes() if copy.exists() else b""
            found = after_cut(safe, path.read_bytes(), lambda: dice.choice(mood))
            path.write_bytes(found)
            copy.write_bytes(found)


def after_cut(safe, written, fate):
    """The content of a file of which `safe` was synced, and `written` stood there when the power failed. `fate` says
    for each sector that differs whether it is kept, lost or torn."""
    image = bytearray(safe)
    if len(written) < len(safe) and fate() == "kept":
        del image[len(written) :]
    for start in range(0, len(written), SECTOR):
        end = min(start + SECTOR, len(written))
        if written[start:end] == safe[start:end] or (kept := fate()) == "lost":
            continue
        if kept == "torn":
            end = start + (end - start) // 2
        image.extend(bytes(max(0, end - len(image))))
        image[start:end] = written[start:end]
    return bytes(image)
