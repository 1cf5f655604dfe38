"""The layout of each database in a state directory: one that leadsman knows is read, an older one is set aside with a
sentence and its rows counted, a newer one is refused and left as it is."""

import sqlite3
from contextlib import closing

import pytest

from leadsman.core.runtime.statefile import StateFile
from leadsman.core.spool.file import SpoolFile, contents
from leadsman.core.spool.row import Quota, SpoolRow
from leadsman.errors import SpoolUnavailable

NOW = 1_800_000_000.0
FURTHER_ROWS = (
    f"INSERT OR REPLACE INTO trace (number, at, handler, document) VALUES (1, {NOW}, '1', '{{}}')",
    "INSERT OR REPLACE INTO ledger VALUES (5, '1', '{}')",
)


class Outbox:
    """The file of readings."""

    table, first, rows = "outbox", "id", 3

    def __init__(self, directory):
        self.path = directory / "outbox.db"

    def write(self, *numbers):
        """Add rows; returns the numbers of all rows then."""
        with closing(SpoolFile(self.path, Quota(least_free=0), lambda: NOW)) as file:
            file.open()
            file.write([SpoolRow(each, 7, "a/state", b"21.5", 1, True, NOW, None, False) for each in numbers], ())
            return [row.id for row in file.read(0, 100, 10**6)]


class State:
    """The file of the failure state: a row of the trace, and one of a ledger, besides those of the devices."""

    table, first, rows = "handler", "name", 5

    def __init__(self, directory):
        self.path = directory / "resilience.db"

    def write(self, *numbers):
        with closing(StateFile(self.path, lambda: NOW)) as file:
            before = file.read()
            if numbers:
                file.write({str(each): "{}" for each in numbers}, NOW)
                if not before:
                    execute(self.path, *FURTHER_ROWS)
            return [int(name) for name in file.read()]


@pytest.fixture(params=[Outbox, State])
def file(request, tmp_path):
    return request.param(tmp_path)


def execute(path, *statements):
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        return [database.execute(statement).fetchall() for statement in statements][-1]


def asides(path):
    return list(path.parent.glob(f"{path.name}.bad-*[!lm]"))


def test_each_file_begins_at_layout_1_with_the_mark_of_leadsman(file):
    file.write(1)

    assert execute(file.path, "PRAGMA user_version") == [(1,)]
    assert execute(file.path, "PRAGMA application_id") == [(int.from_bytes(b"ldsm"),)]


@pytest.mark.parametrize("number", [2, 99, 2**31 - 1])
def test_a_newer_layout_is_refused_with_its_sentence_and_left_as_it_is(file, number):
    file.write(1, 2)
    execute(file.path, f"PRAGMA user_version = {number}", "CREATE TABLE newer (x)")
    before = file.path.read_bytes()

    with pytest.raises(
        (SpoolUnavailable, sqlite3.Error),
        match=rf"newer version of leadsman \(layout {number}, this one knows 1\); install that version again",
    ):
        file.write(3)

    assert file.path.read_bytes() == before
    assert not asides(file.path)
    execute(file.path, "DROP TABLE newer", "PRAGMA user_version = 1")
    assert file.write(3) == [1, 2, 3]


OLDER = {
    "no number": ["PRAGMA user_version = 0"],
    "no mark": ["PRAGMA application_id = 0", "PRAGMA user_version = 0"],
    "another mark, with a larger number": ["PRAGMA application_id = 0x4C454144", "PRAGMA user_version = 2"],
}


@pytest.mark.parametrize("numbers", OLDER)
def test_an_older_layout_with_the_same_tables_is_set_aside_and_costs_no_row(file, numbers, caplog):
    file.write(1, 2, 3)
    execute(file.path, *OLDER[numbers])

    assert file.write(4) == [1, 2, 3, 4]

    assert len(asides(file.path)) == 1
    noun = "readings" if file.table == "outbox" else "rows"
    assert "has an older layout than 1" in caplog.text
    assert f"{file.rows} {noun} were saved from it, 0 could not be read" in caplog.text
    assert "is damaged" not in caplog.text


@pytest.mark.parametrize("numbers", OLDER)
@pytest.mark.parametrize("change", ["ADD COLUMN older", "RENAME COLUMN {first} TO older"])
def test_an_older_layout_with_other_columns_is_set_aside_and_its_rows_are_counted(file, numbers, change, caplog):
    file.write(1, 2, 3)
    change = change.format(first=file.first)
    execute(file.path, *OLDER[numbers], "DROP TRIGGER IF EXISTS topic_of_row", f"ALTER TABLE {file.table} {change}")

    assert file.write(4) == [4]

    (aside,) = asides(file.path)
    assert execute(aside, f"SELECT count(*) FROM {file.table}") == [(3,)]
    assert "has an older layout than 1" in caplog.text
    assert "saved from it, 3 could not be read" in caplog.text


def test_who_looks_at_an_older_outbox_learns_it_and_changes_nothing(tmp_path):
    file = Outbox(tmp_path)
    file.write(1)
    execute(file.path, "PRAGMA user_version = 0")

    with pytest.raises(SpoolUnavailable, match="older layout than 1"):
        contents(file.path)

    assert not asides(file.path)


def test_a_file_in_whose_place_nothing_is_when_a_replacement_was_interrupted_is_put_there(file, monkeypatch):
    """Of the state as of the outbox: killed between the renames."""
    file.write(1, 2)
    execute(file.path, "PRAGMA user_version = 0")

    def kill(path, name):
        path.rename(name)
        raise KeyboardInterrupt

    monkeypatch.setattr("leadsman.core.storage.salvage.rename", kill)
    with pytest.raises(KeyboardInterrupt):
        file.write()
    monkeypatch.undo()
    assert not file.path.exists()

    assert file.write(3) == [1, 2, 3]
