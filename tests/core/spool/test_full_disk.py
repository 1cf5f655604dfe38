"""A disk that is full: nothing is half written, and everything goes on when there is space again."""

import os
import shutil
import subprocess

import pytest

from leadsman.core.spool import file
from leadsman.core.spool.row import Quota
from leadsman.errors import SpoolFull

pytestmark = pytest.mark.system
LARGE = Quota(most_bytes=1 << 30, least_free=0)


def mounted(directory):
    """Whether a file system of 3 MiB could be mounted there, as root or with passwordless sudo."""
    command = ["mount", "-t", "tmpfs", "-o", f"size=3m,uid={os.getuid()}", "tmpfs", str(directory)]
    return any(
        shutil.which(each[0]) and not subprocess.run(each, capture_output=True).returncode
        for each in (command, ["sudo", "-n", *command])
    )


@pytest.fixture
def small_disk(tmp_path, monkeypatch):
    """A directory on a disk of 3 MiB; where none can be mounted, SQLite itself says that the file may not grow."""
    directory = tmp_path / "disk"
    directory.mkdir()
    if mounted(directory):
        yield directory
        command = ["umount", "-l", str(directory)]
        if subprocess.run(command, capture_output=True).returncode:
            subprocess.run(["sudo", "-n", *command], check=True)
        return
    prepare = file.prepare

    def prepare_small(database, path):
        prepare(database, path)
        database.execute("PRAGMA max_page_count = 2500")

    monkeypatch.setattr(file, "prepare", prepare_small)
    yield directory


def fill(spool, row):
    """Write until the disk is full. Returns what was written."""
    written = []

    def write():
        while len(written) < 100_000:
            rows = [row(len(written) + place, payload=b"x" * 300) for place in range(1, 11)]
            spool.write(rows, ())
            written.extend(rows)

    with pytest.raises(SpoolFull, match="is full"):
        write()
    return written


@pytest.fixture
def full(open_spool, small_disk, row):
    spool = open_spool(LARGE, at=small_disk / "outbox.db")
    return spool, fill(spool, row)


def test_a_full_disk_takes_thousands_of_readings_and_refuses_the_rest_whole(full, everything):
    spool, written = full

    assert len(written) > 3000
    assert everything(spool) == written
    assert sum(spool.topics().values()) == len(written)


def test_what_was_written_is_there_after_a_restart_on_the_full_disk(full, open_spool, everything):
    spool, written = full

    assert everything(open_spool(LARGE, at=spool.path)) == written


def test_readings_go_on_when_old_ones_are_settled(full, row, everything):
    spool, written = full
    settled = [each.id for each in written[:2000]]

    try:
        spool.write((), settled)
    except SpoolFull:  # the log had no page left; then what is there must stay whole
        assert everything(spool) == written
        spool.write((), [each.id for each in written])
        written = []
    else:
        written = written[2000:]
    spool.write([row(10**6)], ())

    assert everything(spool) == [*written, row(10**6)]


def test_a_file_of_which_nothing_is_needed_begins_again(full, row, everything, monkeypatch):
    """Its rows cannot be deleted for want of space."""
    spool, written = full
    real = file.transact

    def transact(database, work):
        if database is first:
            error = file.sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = file.sqlite3.SQLITE_FULL
            raise error
        real(database, work)

    first = spool._file.connection
    monkeypatch.setattr(file, "transact", transact)
    with pytest.raises(SpoolFull):
        spool.write((), [each.id for each in written[1:]])
    assert everything(spool) == written

    spool.write((), [each.id for each in written])

    assert everything(spool) == []
    spool.write([row(1)], ())
    assert everything(spool) == [row(1)]
    assert spool.topics() == {row(1).topic: 1}
