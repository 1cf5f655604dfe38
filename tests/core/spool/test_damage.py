"""Files that are damaged in every way: they are put aside, never deleted, and what can be read goes on."""

import os
import random
import sqlite3
import struct
from contextlib import closing

import pytest

from leadsman.core.spool.file import SpoolFile
from leadsman.core.spool.row import DAMAGED, Quota
from leadsman.core.spool.tables import PAGE

ROWS = 400


@pytest.fixture
def rows(row):
    dice = random.Random(1)
    return [
        row(number, topic=f"house/{number % 7}/state", payload=dice.randbytes(dice.choice([0, 3, 150, 900, 5000])))
        for number in range(1, ROWS + 1)
    ]


@pytest.fixture
def stored(open_spool, path, rows):
    """A file with rows, closed: its log is part of it."""
    spool = open_spool()
    spool.write(rows, ())
    spool.close()
    assert not path.with_name("outbox.db-wal").exists()
    return path


@pytest.fixture
def asides(path):
    return lambda: sorted(each.name for each in path.parent.glob("*.bad-*"))


def overwrite(path, at, content):
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)


def leaf_pages(path):
    """The pages with rows, but not the first page of the file."""
    data = path.read_bytes()
    return [at for at in range(PAGE, len(data), PAGE) if data[at] == 0x0D]


def page_of(path, row):
    """The page with a row, or with its begin."""
    return path.read_bytes().index(row.topic.encode() + row.payload[:20]) // PAGE * PAGE


def small(rows):
    """Rows whose payloads are short, but long enough to be found."""
    return [row for row in rows if len(row.payload) == 150]


@pytest.mark.parametrize("damage", [b"x" * 100, bytes(PAGE), b"\xff" * 4 * PAGE])
def test_a_file_that_sqlite_cannot_read_is_kept_aside_and_the_spool_goes_on(
    stored, open_spool, row, everything, asides, caplog, damage
):
    before = stored.read_bytes()
    overwrite(stored, 0, damage)

    spool = open_spool()
    spool.write([row(ROWS + 1)], ())

    assert everything(spool) == [row(ROWS + 1)]
    assert asides() == [spool.found.quarantined]
    assert (spool.found.salvaged, spool.found.damaged, spool.found.unread) == (0, 0, None)
    assert stored.with_name(spool.found.quarantined).read_bytes() == damage + before[len(damage) :]
    assert "0 readings were saved from it, the number of those that could not be read is not known" in caplog.text


def test_a_number_in_the_header_that_changed_costs_no_row(stored, open_spool, rows, everything):
    """The number of the program that made it."""
    overwrite(stored, 68, b"x")

    spool = open_spool()

    assert (everything(spool), spool.found.salvaged, spool.found.unread) == (rows, ROWS, 0)


def test_damaged_pages_above_the_rows_cost_what_lies_below_them(stored, open_spool, rows, everything):
    data = stored.read_bytes()
    above = [at for at in range(PAGE, len(data), PAGE) if data[at] == 0x05]
    overwrite(stored, above[-1], b"\xff" * PAGE)

    spool = open_spool()

    assert set(everything(spool)) < set(rows)
    assert spool.found.quarantined


@pytest.mark.parametrize("part", [0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.99])
def test_a_file_that_was_cut_gives_what_sqlite_reads_of_it(stored, open_spool, rows, row, everything, part):
    """The pages above the rows are in its second half."""
    with stored.open("r+b") as file:
        file.truncate(int(stored.stat().st_size * part) + 77)

    spool = open_spool()
    found = everything(spool)

    assert (ROWS // 3 if part >= 0.7 else 0) <= len(found) < ROWS
    assert set(found) <= set(rows)
    assert spool.found.salvaged == len(found) == spool.found.rows
    assert spool.found.quarantined
    spool.write([row(ROWS + 1)], ())


@pytest.mark.parametrize("content", [b"# settings\nport = 1\n", b"\x00" * 5000, bytes(range(256)) * 40])
def test_another_file_is_kept_as_it_was_and_the_spool_goes_on(path, open_spool, row, everything, asides, content):
    path.parent.mkdir()
    path.write_bytes(content)

    spool = open_spool()
    spool.write([row(1)], ())

    assert everything(spool) == [row(1)]
    assert [path.with_name(name).read_bytes() for name in asides()] == [content]


def test_the_database_of_another_program_is_kept(path, open_spool, asides):
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE outbox (id, mail)")

    assert open_spool().found.rows == 0

    with closing(sqlite3.connect(path.with_name(asides()[0]))) as other:
        assert other.execute("SELECT * FROM outbox").fetchall() == []


@pytest.mark.parametrize(
    "planted",
    [
        ["CREATE VIEW others AS WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n) SELECT n FROM n"],
        ["ALTER TABLE topics RENAME TO others", "CREATE VIEW topics AS SELECT 'a' AS topic"],
        ["CREATE TRIGGER endless AFTER INSERT ON outbox BEGIN INSERT INTO dead SELECT * FROM dead; END"],
        ["CREATE INDEX other ON outbox(length(payload))"],
    ],
    ids=["view", "view for a table", "trigger", "index"],
)
def test_what_somebody_put_beside_the_rows_costs_none_of_them(stored, open_spool, rows, everything, planted, asides):
    with closing(sqlite3.connect(stored)) as database, database:
        for statement in planted:
            database.execute(statement)

    assert everything(open_spool()) == rows
    assert asides(), "the file is not used any more"


def test_a_table_of_rows_that_is_not_ours_is_not_asked(stored, open_spool, everything):
    with closing(sqlite3.connect(stored)) as database, database:
        database.execute("ALTER TABLE outbox ADD COLUMN more AS (zeroblob(100000000))")

    assert everything(open_spool()) == []


def test_one_bad_page_costs_its_rows_and_no_others(stored, open_spool, rows, everything):
    overwrite(stored, page_of(stored, random.Random(2).choice(small(rows)[5:-5])), b"\xff" * PAGE)

    spool = open_spool()

    assert ROWS - 40 < len(everything(spool)) < ROWS
    assert set(everything(spool)) < set(rows)
    assert spool.found.unread == ROWS - len(everything(spool))


def test_each_bad_page_costs_its_rows_and_no_others(stored, open_spool, rows, everything, caplog):
    for row in small(rows)[5:-5:7]:
        overwrite(stored, page_of(stored, row), b"\xff" * PAGE)

    spool = open_spool()
    found = everything(spool)

    assert ROWS // 2 < len(found) == spool.found.salvaged < ROWS
    assert spool.found.unread == ROWS - len(found)
    assert f"{len(found)} readings were saved from it, {ROWS - len(found)} could not be read" in caplog.text


@pytest.mark.parametrize("place", [0, -1])
def test_how_many_rows_were_at_a_bad_end_is_not_known(stored, open_spool, rows, everything, place):
    overwrite(stored, page_of(stored, [row for row in rows if row.payload][place]), b"\xff" * PAGE)

    spool = open_spool()

    assert ROWS - 40 < len(everything(spool)) < ROWS
    assert spool.found.unread is None


def test_a_row_whose_end_cannot_be_read_costs_no_other(stored, open_spool, rows, everything):
    """Its end is on pages of its own."""
    wanted = next(row for row in rows[50:] if len(row.payload) == 5000)
    overwrite(stored, stored.read_bytes().index(wanted.payload[-1300:-1200]) // PAGE * PAGE, b"\xff" * 4)

    spool = open_spool()

    assert everything(spool) == [row for row in rows if row != wanted]
    assert (spool.found.salvaged, spool.found.unread) == (ROWS - 1, 1)


@pytest.mark.parametrize("place", [0, 10, -1])
def test_rows_that_go_bad_later_were_counted_before(stored, open_spool, rows, everything, place):
    spool = open_spool()
    spool.write((), [row.id for row in rows[100:300]])
    spool._file.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    overwrite(stored, page_of(stored, small([*rows[:100], *rows[300:]])[place]), b"\xff" * PAGE)
    spool._file.connection.execute("PRAGMA shrink_memory")

    found = everything(spool)

    assert spool.found.unread == ROWS - 200 - len(found) > 0


def test_a_page_that_goes_bad_later_is_found_by_a_read(stored, open_spool, rows, row, everything, asides):
    spool = open_spool()
    overwrite(stored, leaf_pages(stored)[len(leaf_pages(stored)) // 2], b"\xff" * PAGE)
    spool._file.connection.execute("PRAGMA shrink_memory")
    assert spool.found.quarantined is None

    found = everything(spool)

    assert ROWS - 40 < len(found) < ROWS
    assert asides() == [spool.found.quarantined]
    assert sum(spool.topics().values()) == len(found)
    spool.write([row(ROWS + 1)], [found[0].id])
    assert [each.id for each in everything(spool)] == [*(each.id for each in found[1:]), ROWS + 1]


def test_a_page_that_goes_bad_later_is_found_by_a_write(stored, open_spool, rows, row, everything):
    spool = open_spool()
    with stored.open("r+b") as file:
        for at in leaf_pages(stored)[-3:]:
            file.seek(at)
            file.write(b"\xff" * PAGE)
    spool._file.connection.execute("PRAGMA shrink_memory")

    spool.write([row(ROWS + 1)], [1])

    assert spool.found.quarantined
    assert everything(spool)[0] == rows[1]
    assert everything(spool)[-1] == row(ROWS + 1)


def test_a_bit_that_flips_in_a_payload_makes_one_dead_letter(stored, open_spool, rows, everything):
    wanted = next(row for row in rows if len(row.payload) == 150)
    at = stored.read_bytes().index(wanted.payload)
    overwrite(stored, at, bytes([wanted.payload[0] ^ 1]))

    spool = open_spool()

    assert everything(spool) == [row for row in rows if row != wanted]
    (letter,) = spool.dead_letters()
    assert (letter.row.id, letter.why, letter.damaged) == (wanted.id, DAMAGED, True)
    assert (spool.found.damaged, spool.found.quarantined) == (1, None)
    assert sum(spool.topics().values()) == ROWS - 1


def test_damaged_rows_do_not_end_a_page(stored, open_spool, rows, everything):
    data = stored.read_bytes()
    flipped = [row for row in rows[:60] if len(row.payload) == 150]
    for row in flipped:
        overwrite(stored, data.index(row.payload), bytes([row.payload[0] ^ 1]))

    assert open_spool().read(0, 1, 1) == [next(row for row in rows if row not in flipped)]


def test_a_topic_that_changes_on_the_disk_confuses_no_counter(stored, open_spool, rows, everything):
    first = next(row for row in rows if row.topic == "house/3/state")
    overwrite(stored, stored.read_bytes().index(first.topic.encode() + first.payload), b"hause/3/state")
    spool = open_spool()
    changed = next(row.id for row in rows if row.id not in {each.id for each in everything(spool)})

    spool.write((), [changed, rows[0].id])

    assert sum(spool.topics().values()) == len(everything(spool))


def test_dead_letters_are_salvaged_too(stored, open_spool, rows):
    spool = open_spool()
    spool.write((), (), [(rows[0], "packet too large")])
    spool.close()
    overwrite(stored, leaf_pages(stored)[-4], b"\xff" * PAGE)

    spool = open_spool()

    assert spool.found.quarantined
    assert [(each.row, each.why) for each in spool.dead_letters()] == [(rows[0], "packet too large")]


def test_rows_that_were_settled_do_not_come_back(stored, open_spool, rows):
    spool = open_spool()
    spool.write((), [row.id for row in rows[100:300]])
    spool.close()
    overwrite(stored, 68, b"x")

    found = open_spool().read(0, ROWS, 10**9)

    assert len(found) == ROWS - 200
    assert not {row.id for row in found} & {row.id for row in rows[100:300]}


def test_the_log_counts_when_a_killed_process_left_one(open_spool, path, rows, everything, tmp_path):
    spool = open_spool()
    spool.write(rows[:200], ())
    spool.write(rows[200:], [row.id for row in rows[:10]])
    copy = tmp_path / "copy" / "outbox.db"
    copy.parent.mkdir()
    for name in ("outbox.db", "outbox.db-wal"):
        copy.with_name(name).write_bytes(path.with_name(name).read_bytes())
    log, whole = copy.with_name("outbox.db-wal").read_bytes(), open_spool(at=copy)
    assert everything(whole) == rows[10:]
    whole.close()
    copy.with_name("outbox.db-wal").write_bytes(log[: len(log) - 200])  # its last commit is torn
    overwrite(copy, 68, b"x")

    spool = open_spool(at=copy)

    assert set(rows[10:200]) <= set(everything(spool)) <= set(rows)


@pytest.mark.parametrize("content", [None, b""])
def test_a_log_without_its_file_is_kept_aside(open_spool, path, row, rows, everything, tmp_path, content):
    """SQLite would delete it."""
    open_spool().write(rows[:40], ())
    log = path.with_name("outbox.db-wal").read_bytes()
    copy = tmp_path / "copy" / "outbox.db"
    copy.parent.mkdir()
    copy.with_name("outbox.db-wal").write_bytes(log)
    if content is not None:
        copy.write_bytes(content)

    spool = open_spool(at=copy)
    spool.write([row(1)], ())

    assert (everything(spool), spool.found.unread) == ([row(1)], None)
    assert copy.with_name(f"{spool.found.quarantined}-wal").read_bytes() == log


def test_three_damaged_files_are_kept(path, open_spool, asides, clock):
    path.parent.mkdir()
    for number in range(6):
        path.with_name("outbox.db-wal").unlink(missing_ok=True)
        path.write_text(f"text {number}")
        open_spool().close()
        clock.now += number % 2  # sometimes two in one second

    assert {path.with_name(name).read_text() for name in asides()} == {"text 3", "text 4", "text 5"}


@pytest.mark.parametrize("renames", [0, 1])
def test_a_kill_in_the_middle_of_a_replacement_costs_nothing(
    stored, open_spool, rows, everything, monkeypatch, asides, clock, renames
):
    overwrite(stored, 68, b"x")
    killed, calls = RuntimeError("killed"), []

    def sync(directory):
        calls.append(directory)
        if len(calls) == 2 + renames:  # the first one follows the opening
            raise killed

    monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(RuntimeError):
        open_spool()
    monkeypatch.undo()

    spool = open_spool()

    assert everything(spool) == rows
    assert spool.found.quarantined == asides()[0]
    assert not stored.with_name("outbox.db.new").exists()


def test_a_new_file_that_was_not_finished_is_deleted(stored, open_spool, rows, everything):
    stored.with_name("outbox.db.new").write_bytes(b"half of it")

    assert everything(open_spool()) == rows
    assert not stored.with_name("outbox.db.new").exists()


@pytest.mark.parametrize("seed", range(40))
def test_no_damage_stops_the_spool_or_invents_a_row(stored, open_spool, rows, row, everything, seed):
    dice, length = random.Random(seed), stored.stat().st_size
    for _ in range(dice.randrange(1, 5)):
        at = dice.choice([0, dice.randrange(100), dice.randrange(length)])
        overwrite(stored, at, dice.randbytes(dice.choice([1, 20, PAGE, 8 * PAGE])))
    if dice.random() < 0.2:
        with stored.open("r+b") as file:
            file.truncate(dice.randrange(length))

    spool = open_spool()
    spool.write([row(ROWS + 1)], ())

    found = everything(spool)
    assert set(found) <= {*rows, row(ROWS + 1)}
    assert found[-1] == row(ROWS + 1)


def test_values_that_have_no_bytes_in_a_page_are_salvaged(path, open_spool, row, everything):
    """NULL, 0 and 1."""
    rows = [row(1, run=0, taken_at=0.0), row(2, run=1, taken_at=1.0), row(3, run=2, taken_at=2.0)]
    open_spool().write(rows, ())
    open_spool().close()
    overwrite(path, 68, b"x")

    spool = open_spool()

    assert (everything(spool), spool.found.salvaged) == (rows, 3)


def test_garbage_in_pages_is_no_row_and_no_error(path, open_spool, everything):
    dice = random.Random(3)
    path.parent.mkdir()
    for _ in range(20):
        pages = [b"\x0d" + dice.randbytes(2) + struct.pack(">H", 30) + dice.randbytes(PAGE - 5) for _ in range(30)]
        path.write_bytes(b"".join(pages))
        spool = open_spool()
        assert (everything(spool), spool.dead_letters(), spool.found.salvaged) == ([], [], 0)
        assert spool.found.quarantined is not None
        spool.close()


def test_a_spool_that_cannot_be_salvaged_for_want_of_space_stays_where_it_is(stored, rows, monkeypatch, asides):
    from leadsman.core.storage import salvage
    from leadsman.errors import SpoolFull

    overwrite(stored, 68, b"x")

    def exchange(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(salvage, "_exchange", exchange)
    with pytest.raises(SpoolFull):
        SpoolFile(stored, Quota()).open()
    monkeypatch.undo()

    spool = SpoolFile(stored, Quota())
    assert spool.open().salvaged == ROWS
    spool.close()
