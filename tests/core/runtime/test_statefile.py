"""The file of the state: what is damage, what is not, and what is written after either."""

import os
import random
import resource
import shutil
import sqlite3
from collections import Counter
from contextlib import closing, contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadsman.core.runtime.statefile import ROW_BYTES, StateFile
from leadsman.extensions.trace.trace import MAX_ROWS, TraceRow
from leadsman_rigs.examples import examples
from leadsman_rigs.trace_rows import trace_rows


@pytest.fixture
def path(tmp_path):
    return tmp_path / "resilience.db"


@pytest.fixture
def file(path):
    file = StateFile(path)
    yield file
    file.close()


def rows(count, traceback="x" * 900, handler="d"):
    return [TraceRow(number, 0.0, handler, "retry", traceback=traceback) for number in range(count)]


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
    with closing(StateFile(path)) as before:
        before.write({"a": "{}"}, rows(50), 0.0)
    damage(path, "trace")

    assert list(file.read()) == ["a"]
    file.write({"b": "{}"}, rows(1), 1.0)
    file.write({"c": "{}"}, rows(1), 2.0)

    assert list(StateFile(path).read()) == ["a", "b", "c"]
    assert asides(path)
    assert caplog.text.count("is damaged") == 1


def test_a_damaged_file_is_not_kept_with_the_log_of_an_earlier_one(path):
    with closing(StateFile(path)) as before:
        before.write({"a": "{}"}, rows(50), 0.0)
    damage(path, "trace")
    damaged = path.read_bytes()
    earlier = path.with_name("resilience.db.bad-20270115T080000-wal")
    earlier.write_bytes(b"earlier")

    with closing(StateFile(path, lambda: 1_800_000_000.0)) as file:
        file.write({"b": "{}"}, rows(1), 1.0)

    assert path.with_name("resilience.db.bad-20270115T080000.1").read_bytes() == damaged
    assert earlier.read_bytes() == b"earlier"


DEVICES = {f"d{number}": '{"n": "%s"}' % (str(number) * 90) for number in range(400)}


@pytest.fixture
def full(path):
    """A closed file with rows on many pages."""
    with closing(StateFile(path)) as before:
        ledger = {(name, key): f'{{"of": "{name}"}}' for name in DEVICES for key in (1, 2)}
        before.write(DEVICES, rows(20), 0.0, ledger)
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
    assert len(file.ledgers()) == 400
    assert len(trace_rows(full)) == 20
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
    file.ledgers()
    file.write({"new": "{}"}, rows(1), 1.0, {("new", 3): "{}"})
    found = {name: saved.document for name, saved in StateFile(full).read().items()}

    assert found.pop("new") == "{}"
    assert len(found) <= len(DEVICES)


def test_a_file_that_begins_again_holds_all_that_is_known(path, file):
    file.write({"a": "1"}, [], 0.0)
    file.write({"b": "2"}, rows(50), 0.0)
    damage(path, "trace")
    file.close()

    file.write({"b": "3"}, rows(1), 0.0)

    assert handlers(path) == {"a": "1", "b": "3"}


def test_a_file_that_is_damaged_again_and_again_is_an_error_not_a_new_file_each_time(path, file):
    file.write({"a": "1"}, rows(50), 0.0)
    for _ in range(2):
        damage(path, "trace")
        file.close()
        try:
            file.write({"a": "2"}, rows(50), 0.0)
        except sqlite3.DatabaseError as error:
            failure = error

    assert "malformed" in str(failure)


@pytest.mark.parametrize("act", [lambda file: file.read(), lambda file: file.write({"b": "{}"}, [], 0.0)])
def test_a_process_without_descriptors_leaves_the_file_and_its_log_alone(path, act):
    first = StateFile(path)
    first.write({"held": "{}"}, [], 0.0)  # still in the log
    before = sorted(each.name for each in path.parent.iterdir())

    with no_more_descriptors(), pytest.raises((sqlite3.OperationalError, OSError)):
        act(StateFile(path))

    assert sorted(each.name for each in path.parent.iterdir()) == before
    assert list(StateFile(path).read()) == ["held"]
    first.close()


def test_what_could_not_be_written_is_written_the_next_time(path, file):
    file.write({"a": "{}"}, [], 0.0)
    file.close()
    with no_more_descriptors(), pytest.raises((sqlite3.OperationalError, OSError)):
        file.write({"b": "{}"}, rows(1), 0.0)

    file.write({}, [], 1.0)

    assert list(file.read()) == ["a", "b"]
    assert len(trace_rows(file.path)) == 1


def test_a_locked_file_is_no_damaged_one(path, file):
    file.write({"a": "{}"}, [], 0.0)
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
        copy.write({"z": "{}"}, [], 0.0)
    other.replace(path)


@pytest.mark.parametrize("happens", [remove_file, remove_directory, restore_another])
def test_a_file_that_is_removed_or_replaced_while_it_is_open_is_written_again_and_reported(path, file, caplog, happens):
    file.write({"a": "1"}, [], 0.0)

    happens(path)
    file.write({"b": "2"}, [], 0.0)

    assert handlers(path).items() >= {"a": "1", "b": "2"}.items()
    assert caplog.text.count("was removed or replaced") == 1


def test_a_file_in_a_read_only_directory_is_read(path, file, monkeypatch):
    file.write({"a": "{}"}, rows(1), 0.0)
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
    file.write({"a": "{}", "b": "{}"}, [], 0.0)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE handler SET document = CAST(x'ff00' AS TEXT) WHERE name = 'b'")

    assert file.read()["a"].document == "{}"


def test_the_same_traceback_is_stored_once_and_read_with_each_row(path, file):
    file.write({}, rows(10, "first " * 100), 0.0)
    file.write({}, [*rows(10, "first " * 100), *rows(3, "second")], 0.0)

    assert [row["traceback"].split()[0] for row in trace_rows(file.path)] == ["first"] * 20 + ["second"] * 3
    with closing(sqlite3.connect(path)) as database:
        (stored,) = database.execute("SELECT count(*) FROM trace WHERE document LIKE '%first%'").fetchone()
    assert stored == 1


def test_one_write_takes_a_bounded_number_of_bytes_of_the_trace_the_newest(path, file):
    file.write({}, [row._replace(error_message="y" * 400) for row in rows(256, "z" * 3000)], 0.0)

    found = trace_rows(file.path)
    assert sum(len(str(row["error_message"])) for row in found) < ROW_BYTES
    assert len(found) > 20
    assert found[0]["traceback"] == "z" * 3000


def test_the_file_keeps_a_bounded_number_of_rows(path, file, monkeypatch):
    monkeypatch.setattr("leadsman.core.runtime.statefile.ROWS", 100)
    monkeypatch.setattr("leadsman.core.runtime.statefile.TRIM", 50)
    for _ in range(20):
        file.write({}, rows(40, None), 0.0)

    assert 100 <= len(trace_rows(file.path)) <= 150


@settings(max_examples=examples(20))
@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 300), min_size=1))
def test_each_device_has_its_share_of_a_write_and_its_newest_rows(tmp_path_factory, counts):
    file = StateFile(tmp_path_factory.mktemp("state") / "state.db")
    given = [row for name, count in counts.items() for row in rows(count, None, name)]
    file.write({}, sorted(given, key=lambda row: row.number), 0.0)

    found = Counter(row["handler"] for row in trace_rows(file.path))
    file.close()
    assert sum(found.values()) > 20 or found == counts
    assert all(found[name] in (count, max(found.values()), max(found.values()) - 1) for name, count in counts.items())


def test_beside_a_device_that_fails_each_second_another_one_keeps_all_its_rows(path, file, monkeypatch):
    """A quarter of an hour between two writes, for a day and a half."""
    monkeypatch.setattr("leadsman.core.runtime.statefile.ROWS", 1000)
    monkeypatch.setattr("leadsman.core.runtime.statefile.TRIM", 50)
    for _ in range(140):
        busy = [row._replace(error_message="y" * 100) for row in rows(900, None, "busy")]
        file.write({}, [*busy, *rows(1, "the traceback", "quiet")], 0.0)

    found = Counter(row["handler"] for row in trace_rows(file.path))
    assert found["quiet"] == 140
    assert 1000 - 140 <= found["busy"] <= 1050
    assert all(row["traceback"] == "the traceback" for row in trace_rows(file.path) if row["handler"] == "quiet")


def test_rows_that_wait_for_the_disk_are_bounded(path, file, monkeypatch):
    def refuse(*_):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("leadsman.core.runtime.statefile.transact", refuse)
    for _ in range(3):
        with pytest.raises(sqlite3.OperationalError, match="full"):
            file.write({}, [row for number in range(100) for row in rows(100, None, f"d{number}")], 0.0)

    assert sum(map(len, file._rows.values())) == MAX_ROWS
