"""A file of the spool with a clock of its own, and rows for it."""

import pytest

from leadsman.core.spool.file import SpoolFile
from leadsman.core.spool.row import Quota, SpoolRow

NOW = 1_800_000_000.0


class Clock:
    """A wall clock that tests set."""

    now = NOW

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "outbox.db"


@pytest.fixture
def open_spool(path, clock):
    """Opens the file, as often as asked for; the one before is closed."""
    opened = []

    def open_(quota=Quota(least_free=0), at=path):
        for each in opened:
            each.close()
        spool = SpoolFile(at, quota, clock)
        opened.append(spool)
        spool.open()
        return spool

    yield open_
    for each in opened:
        each.close()


@pytest.fixture
def spool(open_spool):
    return open_spool()


@pytest.fixture
def row():
    def make(number, topic="house/boiler/state", payload=b"21.5", **fields):
        defaults = {"run": 7, "qos": 1, "retain": True, "taken_at": NOW, "expires_at": None, "latest": False}
        return SpoolRow(id=number, topic=topic, payload=payload, **(defaults | fields))

    return make


@pytest.fixture
def everything():
    """All rows of a file, page by page."""

    def read(spool):
        rows = []
        while page := spool.read(rows[-1].id if rows else 0, 100, 4096):
            rows += page
        return rows

    return read
