"""A disk that loses its power: what was not synced is kept, lost or torn, sector by sector.

Usage: ``python tests/rigs/leadsman_rigs/power.py CUTS SEED`` prints the figures of so many cuts.

SQLite writes to it through a VFS of apsw. Only `SpoolFile.open` and `SpoolFile.write` are cut; what the disk has
afterwards is opened by the SQLite of Python's standard library, as after a restart. SQLite has no shared memory on such
a disk, so the simulated file is locked exclusively (https://sqlite.org/wal.html, "Use of WAL Without Shared-Memory").
"""

import json
import random
import sqlite3
import sys
import tempfile
from pathlib import Path
from unittest import mock

import apsw

from leadsman.core.spool.file import SpoolFile
from leadsman.core.spool.row import Quota, SpoolRow
from leadsman.core.storage import database
from leadsman.errors import SpoolError

SECTOR = 512
QUOTA = Quota(least_free=0)
NAME = "power"
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


class Disk:
    """What is safe of each file, what was written since, and how many operations are left until the power is cut."""

    def __init__(self, operations):
        self.operations = operations
        self.off = False
        """Whether nothing counts any more; a connection may be closed then."""
        self.safe = {}
        self.unsynced = {}

    def spend(self):
        """Use one operation. Returns whether the disk still has power."""
        if self.operations <= 0 and not self.off:
            raise apsw.IOError("the power is off")
        self.operations -= 1
        return not self.off

    def opened(self, name):
        self.safe.setdefault(name, b"")
        self.unsynced.setdefault(name, [])

    def changed(self, name, change):
        self.unsynced[name].append(change)

    def synced(self, name):
        for change in self.unsynced[name]:
            self.safe[name] = change(self.safe[name], None)
        self.unsynced[name] = []

    def deleted(self, name):
        self.safe.pop(name, None)
        self.unsynced.pop(name, None)

    def after_cut(self, dice, mood):
        """The contents of the files."""
        found = {}
        for name, safe in self.safe.items():
            for change in self.unsynced[name]:
                safe = change(safe, lambda: dice.choice(mood))
            found[name] = safe
        return found


def writing(data, offset):
    """A change that writes data. The fate of each sector is asked for; None keeps all."""

    def apply(content, fate):
        image = bytearray(content)
        image.extend(bytes(max(0, offset + len(data) - len(image))))
        for at in range(offset - offset % SECTOR, offset + len(data), SECTOR):
            start, end = max(at, offset), min(at + SECTOR, offset + len(data))
            kept = "kept" if fate is None else fate()
            if kept == "torn":
                end = start + (end - start) // 2
            if kept != "lost":
                image[start:end] = data[start - offset : end - offset]
        return bytes(image)

    return apply


def cutting_off(size):
    """A change that truncates a file."""
    return lambda content, fate: content[:size] if fate is None or fate() == "kept" else content


class PowerFile(apsw.VFSFile):
    """A file on the disk."""

    def __init__(self, disk, name, flags):
        self.disk, self.name = disk, name.filename() if isinstance(name, apsw.URIFilename) else name
        super().__init__("", name, flags)
        disk.opened(self.name)

    def xWrite(self, data, offset):
        if self.disk.spend():
            self.disk.changed(self.name, writing(bytes(data), offset))
        super().xWrite(data, offset)

    def xTruncate(self, size):
        if self.disk.spend():
            self.disk.changed(self.name, cutting_off(size))
        super().xTruncate(size)

    def xSync(self, flags):
        if self.disk.spend():
            self.disk.synced(self.name)


class PowerVFS(apsw.VFS):
    """Opens the files of the disk in use."""

    disk = None

    def __init__(self):
        super().__init__(NAME, "")

    def xOpen(self, name, flags):
        return PowerFile(self.disk, name, flags)

    def xDelete(self, name, sync_directory):
        if self.disk.spend():
            self.disk.deleted(name)
        super().xDelete(name, sync_directory)


class Rows(list):
    """All rows of a query, which look like a cursor of sqlite3."""

    def fetchall(self):
        return self

    def close(self):
        pass


class Database:
    """A connection of apsw that looks like one of sqlite3, as far as the spool uses it."""

    vfs = NAME

    def __init__(self, path, wait):
        self._connection = self._called(apsw.Connection, str(path), vfs=self.vfs)
        self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")

    def execute(self, statement, parameters=()):
        return self._called(lambda: Rows(self._connection.execute(statement, parameters)))

    def executemany(self, statement, parameters):
        return self._called(self._connection.executemany, statement, parameters)

    def setlimit(self, category, limit):
        return self._connection.limit(category, limit)

    def set_progress_handler(self, handler, steps):
        self._connection.set_progress_handler(handler, steps)

    def close(self):
        """Close it. As with sqlite3, this never fails; what it writes without power does not count."""
        try:
            self._called(self._connection.close)
        except sqlite3.Error:
            PowerVFS.disk.off = True
            self._connection.close()

    def _called(self, call, *arguments, **options):
        try:
            return call(*arguments, **options)
        except apsw.Error as error:
            translated = sqlite3.OperationalError(str(error))
            translated.sqlite_errorcode = getattr(error, "extendedresult", apsw.SQLITE_IOERR)
            raise translated from None


def row(number):
    """The row with this id. New topics come, and old ones have no rows any more."""
    return SpoolRow(number, 5, f"t/{number // 9}", b"%d " % number * (number % 90), 1, False, 1.8e9, None, False)


MOODS = (("kept", "lost", "torn"), ("kept", "lost"), ("lost",), ("kept", "kept", "kept", "torn"))


class Run:
    """One history that ends with a cut."""

    def __init__(self, directory, seed):
        self.dice = random.Random(seed)
        self.disk = PowerVFS.disk = Disk(self.dice.choice([30, 100, 600, 1500]) * self.dice.random())
        self.path = directory / "before" / "outbox.db"
        self.after = directory / "after" / "outbox.db"
        self.sure, self.maybe, self.commits = set(), set(), 0

    def write(self):
        """Write until the power is cut."""
        spool = SpoolFile(self.path, QUOTA, lambda: 1.8e9)
        with mock.patch.object(database, "connect", Database):
            try:
                spool.open()
                while not self.disk.off:
                    self.write_batch(spool)
                    if self.dice.random() < 0.02:
                        spool.close()
                        spool.open()
            except SpoolError:
                spool.close()

    def write_batch(self, spool):
        first = max(self.sure, default=0) + 1
        count = self.dice.choice([0, 1, 1, 3, 20])
        settled = {number for number in self.sure if self.dice.random() < 0.1}
        self.maybe = (self.sure | set(range(first, first + count))) - settled
        spool.write([row(number) for number in range(first, first + count)], sorted(settled))
        self.sure = self.maybe
        self.commits += 1

    def found(self):
        """The rows on the disk after the cut, and whether the file was damaged."""
        self.after.parent.mkdir()
        for name, content in self.disk.after_cut(self.dice, self.dice.choice(MOODS)).items():
            (self.after.parent / Path(name).name).write_bytes(content)
        spool, listed = SpoolFile(self.after, QUOTA, lambda: 1.8e9), []
        damaged = spool.open(listed.append).quarantined is not None
        rows = spool.read(0, 10**6, 10**9)
        damaged = damaged or any(each != row(each.id) or each.topic not in listed[0] for each in rows)
        spool.write([row(10**6)], ())
        spool.close()
        return {each.id for each in rows}, damaged


def run(cuts, seed):
    """The figures of so many cuts."""
    vfs = PowerVFS()
    figures = {"cuts": cuts, "commits": 0, "rows_lost": 0, "rows_invented": 0, "files_damaged": 0}
    for number in range(cuts):
        with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
            one = Run(Path(directory), f"{seed} {number}")
            one.write()
            found, damaged = one.found()
        figures["commits"] += one.commits
        figures["files_damaged"] += damaged and one.commits > 0
        if found != one.maybe:
            figures["rows_lost"] += len(one.sure - found)
            figures["rows_invented"] += len(found - one.sure - one.maybe)
    vfs.unregister()
    return figures


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(int(sys.argv[1]), sys.argv[2])) + "\n")
