"""The file of the state: what is damage, what is not, and what is written after either."""

import os
import random
import resource
import shutil
import sqlite3
import time
from contextlib import closing, contextmanager

import pytest

from leadsman.core.runtime.statefile import FurtherTable, StateFile


class Kept(FurtherTable):
    """What a part of the app keeps: texts in one table, and rows of devices in another."""

    query = "SELECT name, key FROM ledger"

    def __init__(self):
        self.texts, self.rows, self.selected, self.begun = [], [], [], 0

    def found(self, rows):
        self.selected = rows

    @property
    def waits(self):
        return bool(self.texts or self.rows)

    def work(self, gone):
        return [
            ("INSERT INTO trace (at, handler, document) VALUES (0, 'd', ?)", [(text,) for text in self.texts]),
            ("DELETE FROM ledger WHERE name = ?", gone),
            ("INSERT INTO ledger VALUES (?, ?, '{}')", self.rows),
        ]

    def written(self):
        self.texts, self.rows = [], []

    def begin_again(self):
        self.begun += 1


class File(StateFile):
    """A file in which a part of the app keeps something."""

    def __init__(self, path, now=time.time):
        self.kept = Kept()
        super().__init__(path, now, [self.kept])

    def add(self, handlers, texts=(), rows=(), gone=()):
        self.kept.texts += texts
        self.kept.rows += rows
        self.write(handlers, 0.0, gone)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "resilience.db"


@pytest.fixture
def file(path):
    file = File(path)
    yield file
    file.close()


def texts(count):
    return ["x" * 900] * count


def texts_in(path):
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT count(*) FROM trace").fetchone()[0]


def damage(path, table):
    """Write garbage over the first page of a table."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    with path.open("r+b") as handle:
        handle.seek((page - 1) * 4096)
        handle.write(os.urandom(4096))


def asides(path):
    """The files that were put aside."""
    return list(path.parent.glob(f"{path.name}.bad-*"))


def handlers(path):
    with closing(sqlite3.connect(path)) as database:
        return dict(database.execute("SELECT name, document FROM handler"))


@contextmanager
def no_more_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_damaged_page_that_only_a_write_finds_costs_the_file_once(path, file, caplog):
    with closing(File(path)) as before:
        before.add({"a": "{}"}, texts(50))
    damage(path, "trace")

    assert list(file.read()) == ["a"]
    file.add({"b": "{}"}, texts(1))
    file.add({"c": "{}"}, texts(1))

    assert list(StateFile(path).read()) == ["a", "b", "c"]
    assert asides(path)
    assert caplog.text.count("is damaged") == 1


def test_a_damaged_file_is_not_kept_with_the_log_of_an_earlier_one(path):
    with closing(File(path)) as before:
        before.add({"a": "{}"}, texts(50))
    damage(path, "trace")
    damaged = path.read_bytes()
    earlier = path.with_name("resilience.db.bad-20270115T080000-wal")
    earlier.write_bytes(b"earlier")

    with closing(File(path, lambda: 1_800_000_000.0)) as file:
        file.add({"b": "{}"}, texts(1))

    assert path.with_name("resilience.db.bad-20270115T080000.1").read_bytes() == damaged
    assert earlier.read_bytes() == b"earlier"


DEVICES = {f"d{number}": '{"n": "%s"}' % (str(number) * 90) for number in range(400)}


@pytest.fixture
def full(path):
    """A closed file with rows on many pages."""
    with closing(File(path)) as before:
        before.add(DEVICES, texts(20), [(key, name) for name in DEVICES for key in (1, 2)])
    return path


def overwrite(path, at, content):
    with path.open("r+b") as handle:
        handle.seek(at)
        handle.write(content)


def test_a_damaged_page_of_the_devices_costs_those_on_it_and_no_others(full, file, caplog):
    overwrite(full, full.read_bytes().index(DEVICES["d200"].encode()) // 4096 * 4096, b"\xff" * 4096)

    found = {name: saved.document for name, saved in file.read().items()}

    assert 350 < len(found) < 400
    assert found.items() <= DEVICES.items()
    file.read_tables()
    assert len(file.kept.selected) == 800
    assert texts_in(full) == 20
    assert f"{len(found) + 820} rows were saved from it, {400 - len(found)} could not be read" in caplog.text


def test_a_damaged_file_that_cannot_be_replaced_for_want_of_space_stays_where_it_is(full, file, monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    overwrite(full, full.read_bytes().index(DEVICES["d200"].encode()) // 4096 * 4096, b"\xff" * 4096)
    before = full.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("leadsman.core.runtime.statefile.transact", refuse)
        with pytest.raises(OSError, match="No space"):
            file.read()

    assert full.read_bytes() == before
    assert not full.with_name("resilience.db.new").exists()
    assert len(file.read()) > 350


@pytest.mark.parametrize("seed", range(30))
def test_no_damage_stops_the_file_or_invents_a_device(full, file, seed):
    dice, length = random.Random(seed), full.stat().st_size
    for _ in range(dice.randrange(1, 5)):
        at = dice.choice([0, dice.randrange(100), dice.randrange(length)])
        overwrite(full, at, dice.randbytes(dice.choice([1, 20, 4096, 30_000])))
    if dice.random() < 0.2:
        with full.open("r+b") as handle:
            handle.truncate(dice.randrange(length))

    file.read()
    file.read_tables()
    file.add({"new": "{}"}, texts(1), [(3, "new")])
    found = {name: saved.document for name, saved in StateFile(full).read().items()}

    assert found.pop("new") == "{}"
    assert len(found) <= len(DEVICES)


def test_a_file_that_begins_again_holds_all_that_is_known(path, file):
    file.add({"a": "1"})
    file.add({"b": "2"}, texts(50))
    damage(path, "trace")
    file.close()

    file.add({"b": "3"}, texts(1))

    assert handlers(path) == {"a": "1", "b": "3"}


def test_a_file_that_is_damaged_again_and_again_is_an_error_not_a_new_file_each_time(path, file):
    file.add({"a": "1"}, texts(50))
    for _ in range(2):
        damage(path, "trace")
        file.close()
        try:
            file.add({"a": "2"}, texts(50))
        except sqlite3.DatabaseError as error:
            failure = error

    assert "malformed" in str(failure)


@pytest.mark.parametrize("act", [lambda file: file.read(), lambda file: file.write({"b": "{}"}, 0.0)])
def test_a_process_without_descriptors_leaves_the_file_and_its_log_alone(path, act):
    first = StateFile(path)
    first.write({"held": "{}"}, 0.0)  # still in the log
    before = sorted(each.name for each in path.parent.iterdir())

    with no_more_descriptors(), pytest.raises((sqlite3.OperationalError, OSError)):
        act(StateFile(path))

    assert sorted(each.name for each in path.parent.iterdir()) == before
    assert list(StateFile(path).read()) == ["held"]
    first.close()


def test_what_could_not_be_written_is_written_the_next_time(path, file):
    file.write({"a": "{}"}, 0.0)
    file.close()
    with no_more_descriptors(), pytest.raises((sqlite3.OperationalError, OSError)):
        file.add({"b": "{}"}, texts(1))

    file.add({})

    assert list(file.read()) == ["a", "b"]
    assert texts_in(path) == 1


def test_a_locked_file_is_no_damaged_one(path, file):
    file.write({"a": "{}"}, 0.0)
    file.close()
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError) as refused:
            file.read()

    assert refused.value.sqlite_errorcode == sqlite3.SQLITE_BUSY
    assert list(file.read()) == ["a"]


def remove_file(path):
    path.unlink()


def remove_directory(path):
    shutil.rmtree(path.parent)


def restore_another(path):
    for suffix in ("-wal", "-shm"):
        path.with_name(f"{path.name}{suffix}").unlink()
    other = path.parent / "other.db"
    with closing(StateFile(other)) as copy:
        copy.write({"z": "{}"}, 0.0)
    other.replace(path)


@pytest.mark.parametrize("happens", [remove_file, remove_directory, restore_another])
def test_a_file_that_is_removed_or_replaced_while_it_is_open_is_written_again_and_reported(path, file, caplog, happens):
    file.add({"a": "1"})

    happens(path)
    file.add({"b": "2"})

    assert handlers(path).items() >= {"a": "1", "b": "2"}.items()
    assert caplog.text.count("was removed or replaced") == 1


def test_a_file_in_a_read_only_directory_is_read(path, file, monkeypatch):
    file.add({"a": "{}"}, texts(1))
    file.close()
    monkeypatch.setattr(os, "access", lambda *_: False)

    assert list(file.read()) == ["a"]
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_reading_makes_no_file(path, file):
    assert file.read() == {}
    assert not list(path.parent.iterdir())


def test_a_file_whose_first_writer_was_killed_is_empty_not_broken(path, file):
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = WAL")

    assert file.read() == {}
    assert not asides(path)


def test_text_that_is_no_utf_8_costs_one_row_not_the_file(path, file):
    file.write({"a": "{}", "b": "{}"}, 0.0)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE handler SET document = CAST(x'ff00' AS TEXT) WHERE name = 'b'")

    assert file.read()["a"].document == "{}"
