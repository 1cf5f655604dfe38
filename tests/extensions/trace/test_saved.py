"""The rows of the trace in the file of the state: how many are kept, and whose."""

import sqlite3
from collections import Counter
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadsman.core.monitoring.trace_row import TraceRow
from leadsman.core.runtime.statefile import StateFile
from leadsman.extensions.trace.saved import ROW_BYTES, TraceTable
from leadsman.extensions.trace.trace import MAX_ROWS
from leadsman_rigs.examples import examples
from leadsman_rigs.trace_rows import trace_rows


class File(StateFile):
    """A file of the state in which a trace is kept."""

    def __init__(self, path):
        self.table = TraceTable([], dict)
        super().__init__(path, tables=[self.table])


def keep(file, rows):
    file.table.keep(rows)
    file.write({}, 0.0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "resilience.db"


@pytest.fixture
def file(path):
    file = File(path)
    yield file
    file.close()


def rows(count, traceback="x" * 900, handler="d"):
    return [TraceRow(number, 0.0, handler, "retry", traceback=traceback) for number in range(count)]


def test_the_same_traceback_is_stored_once_and_read_with_each_row(path, file):
    keep(file, rows(10, "first " * 100))
    keep(file, [*rows(10, "first " * 100), *rows(3, "second")])

    assert [row["traceback"].split()[0] for row in trace_rows(file.path)] == ["first"] * 20 + ["second"] * 3
    with closing(sqlite3.connect(path)) as database:
        (stored,) = database.execute("SELECT count(*) FROM trace WHERE document LIKE '%first%'").fetchone()
    assert stored == 1


def test_one_write_takes_a_bounded_number_of_bytes_of_the_trace_the_newest(path, file):
    keep(file, [row._replace(error_message="y" * 400) for row in rows(256, "z" * 3000)])

    found = trace_rows(file.path)
    assert sum(len(str(row["error_message"])) for row in found) < ROW_BYTES
    assert len(found) > 20
    assert found[0]["traceback"] == "z" * 3000


def test_the_file_keeps_a_bounded_number_of_rows(path, file, monkeypatch):
    monkeypatch.setattr("leadsman.extensions.trace.saved.ROWS", 100)
    monkeypatch.setattr("leadsman.extensions.trace.saved.TRIM", 50)
    for _ in range(20):
        keep(file, rows(40, None))

    assert 100 <= len(trace_rows(file.path)) <= 150


@settings(max_examples=examples(20))
@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 300), min_size=1))
def test_each_device_has_its_share_of_a_write_and_its_newest_rows(tmp_path_factory, counts):
    file = File(tmp_path_factory.mktemp("state") / "state.db")
    given = [row for name, count in counts.items() for row in rows(count, None, name)]
    keep(file, sorted(given, key=lambda row: row.number))

    found = Counter(row["handler"] for row in trace_rows(file.path))
    file.close()
    assert sum(found.values()) > 20 or found == counts
    assert all(found[name] in (count, max(found.values()), max(found.values()) - 1) for name, count in counts.items())


def test_beside_a_device_that_fails_each_second_another_one_keeps_all_its_rows(path, file, monkeypatch):
    """A quarter of an hour between two writes, for a day and a half."""
    monkeypatch.setattr("leadsman.extensions.trace.saved.ROWS", 1000)
    monkeypatch.setattr("leadsman.extensions.trace.saved.TRIM", 50)
    for _ in range(140):
        busy = [row._replace(error_message="y" * 100) for row in rows(900, None, "busy")]
        keep(file, [*busy, *rows(1, "the traceback", "quiet")])

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
            keep(file, [row for number in range(100) for row in rows(100, None, f"d{number}")])

    assert sum(map(len, file.table._rows.values())) == MAX_ROWS
