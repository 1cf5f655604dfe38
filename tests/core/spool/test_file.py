"""The file of the spool: what is written is read again, by this process and by the next one."""

import fcntl
import gc
import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from leadsman.core.spool import tables
from leadsman.core.spool.file import EXPIRY_CHECK_INTERVAL, SpoolFile
from leadsman.core.spool.row import EXPIRED, FULL, SUPERSEDED, Evicted, Quota, TopicRows, crc, size
from leadsman.core.storage import database
from leadsman.errors import SpoolFull, SpoolLocked, SpoolReplaced, SpoolUnavailable

NOW = 1_800_000_000.0


def test_rows_are_read_as_they_were_written_in_the_order_of_their_ids(spool, row, everything):
    rows = [
        row(1, payload=b"", qos=0, retain=False),
        row(2, topic="α/β", payload=bytes(range(256)) * 20, qos=2, latest=True),
        row(9, taken_at=5.0, expires_at=NOW + 0.25, run=2**63 - 1),
        row(2**63 - 1),
    ]

    assert spool.write(rows[::-1], ()) == []

    assert everything(spool) == rows


def test_the_next_process_finds_what_is_there(open_spool, row):
    open_spool().write([row(4, topic="a", payload=b"xy"), row(6, topic="b", taken_at=NOW - 9)], ())

    found = open_spool().found

    assert found == (2, 7, None, 0, 0, 0)


def test_an_empty_file_begins_with_the_id_1(spool):
    assert spool.found == (0, 1, None, 0, 0, 0)
    assert spool.read(0, 10, 1000) == []
    assert spool.topics() == {}


def test_settled_rows_are_gone_and_unknown_ids_do_no_harm(spool, row, everything):
    spool.write([row(1), row(2), row(3, topic="b")], ())

    spool.write([row(4, topic="b")], [1, 3, 77])

    assert [each.id for each in everything(spool)] == [2, 4]
    assert spool.topics() == {"house/boiler/state": 1, "b": 1}


def test_batches_of_many_sizes_keep_few_statements_in_memory(spool, row, everything):
    """`sqlite3` keeps up to 128 compiled statements for each connection; one with 500 ids takes 100 kB."""
    before = statements()  # of other tests of this process
    for rows in range(1, 61):
        spool.write([row(rows * 1000 + number) for number in range(rows)], ())
    for rows in range(1, 61):
        spool.write((), [rows * 1000 + number for number in range(rows)])

    assert everything(spool) == []
    assert statements() - before < 40  # else more than 80


def statements():
    """How many compiled statements are in memory."""
    gc.collect()
    return sum(type(each).__name__ == "Statement" for each in gc.get_objects())


def test_more_rows_are_settled_than_one_question_asks_for(spool, row, everything):
    spool.write([row(number) for number in range(1, 252)], ())

    spool.write((), [*range(1, 251), 251, 251, 999])

    assert everything(spool) == []
    assert spool.topics() == {}


def test_a_write_may_be_repeated(open_spool, spool, row, everything):
    for _ in range(2):
        spool.write([row(1), row(2, latest=True)], [3])

    assert everything(spool) == [row(1), row(2, latest=True)]
    spool.write((), [1, 2])
    assert spool.topics() == {}
    assert open_spool().found.rows == 0


def test_a_page_ends_at_its_rows_or_its_bytes_but_has_one_row_at_least(spool, row):
    spool.write([row(number, payload=b"x" * 500) for number in range(1, 10)], ())

    assert [each.id for each in spool.read(2, 3, 10**9)] == [3, 4, 5]
    assert [each.id for each in spool.read(2, 9, 2 * size(row(1).topic, 500))] == [3, 4]
    assert [each.id for each in spool.read(2, 9, 1)] == [3]


def test_nothing_to_write_touches_no_disk(path, spool, row):
    before = path.with_name("outbox.db-wal").stat().st_size

    assert spool.write((), ()) == []

    assert path.with_name("outbox.db-wal").stat().st_size == before


def test_a_commit_of_one_reading_writes_few_small_pages(path, spool, row):
    spool.write([row(1, payload=b"x" * 150)], ())
    wal = path.with_name("outbox.db-wal")
    before = wal.stat().st_size

    spool.write([row(2, payload=b"x" * 150)], ())

    assert wal.stat().st_size - before <= 2 * (1024 + 24)


def test_only_this_user_can_read_the_files(path, row, open_spool):
    before = os.umask(0o022)
    try:
        open_spool().write([row(1)], ())
    finally:
        os.umask(before)

    modes = {each.name: oct(each.stat().st_mode & 0o777) for each in path.parent.iterdir()}
    assert modes == dict.fromkeys(("outbox.db", "outbox.db-wal", "outbox.db-shm", "outbox.db.lock"), "0o600")
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_file_that_others_could_read_is_theirs_no_more(path, row, open_spool):
    open_spool().close()
    path.chmod(0o644)

    open_spool().write([row(1)], ())

    assert path.stat().st_mode & 0o777 == 0o600


def test_a_symbolic_link_is_not_followed(path, tmp_path, open_spool, row):
    path.parent.mkdir()
    path.symlink_to(tmp_path / "elsewhere")

    open_spool().write([row(1)], ())

    assert not (tmp_path / "elsewhere").exists()
    assert path.with_name("outbox.db.strange").is_symlink()
    assert path.is_file()


def test_another_process_is_refused_until_this_one_ends(path, open_spool):
    program = (
        "import sys, pathlib\n"
        "from leadsman.core.spool.file import SpoolFile\n"
        "from leadsman.core.spool.row import Quota\n"
        f"spool = SpoolFile(pathlib.Path({str(path)!r}), Quota())\n"
        "spool.open()\n"
        "print('open', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(SpoolLocked, match="another process of this app runs"):
            open_spool()
        other.stdin.close()
        other.wait()

    assert open_spool().found.rows == 0


def test_the_lock_of_this_process_keeps_a_second_one_out_too(spool, path):
    with pytest.raises(SpoolLocked):
        SpoolFile(path, Quota()).open()


def test_a_file_of_an_older_layout_is_brought_up_to_date(path, open_spool, row, everything, monkeypatch):
    open_spool().write([row(1)], ())
    migration = ("CREATE TABLE more (x)", "INSERT INTO more VALUES (5)", "ALTER TABLE dead ADD COLUMN more")
    monkeypatch.setattr(tables, "LAYOUT", tables.LAYOUT._replace(migrations=(migration,)))

    assert everything(open_spool()) == [row(1)]

    open_spool().close()
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT x FROM more").fetchall() == [(5,)]
        assert file.execute("PRAGMA user_version").fetchall() == [(2,)]


def listed(path):
    """The topics that may have rows, as an app learns them before the rows are counted."""
    found = list[frozenset[str]]()
    spool = SpoolFile(path, Quota(least_free=0), lambda: NOW)
    spool.open(found.append)
    spool.close()
    return found


def test_the_topics_are_listed_before_the_rows_are_counted(path, row, monkeypatch):
    spool = SpoolFile(path, Quota(least_free=0), lambda: NOW)
    spool.open()
    spool.write([row(1, topic="a"), row(2, topic="b"), row(3, topic="a")], ())
    spool.close()
    connect, found = database.connect, list[object]()

    def traced(path, wait):
        connection = connect(path, wait)
        connection.set_trace_callback(lambda statement: found.append("counted") if "count(*)" in statement else None)
        return connection

    monkeypatch.setattr(database, "connect", traced)

    spool.open(found.append)
    spool.close()

    assert found == [{"a", "b"}, "counted"]


def test_a_topic_stays_in_the_list_until_it_had_no_rows_for_ten_minutes(path, open_spool, row, clock):
    spool = open_spool()
    spool.write([row(1, topic="a"), row(2, topic="b")], ())
    spool.write((), [1])
    spool.close()
    assert listed(path) == [{"a", "b"}]

    spool = open_spool()
    spool.write([row(3, topic="c")], ())
    spool.write((), [2])
    clock.now += EXPIRY_CHECK_INTERVAL
    spool.write([row(4, topic="d")], [3])
    spool.write([row(5, topic="c")], [5])
    spool.close()

    assert listed(path) == [{"c", "d"}]


def test_the_newest_row_of_which_only_the_newest_counts_is_known_and_can_be_read_alone(open_spool, row):
    spool = open_spool()
    spool.write([row(1, topic="a"), row(2, topic="b", latest=True), row(3, topic="c")], ())
    assert spool.by_topic() == {"a": TopicRows(1, 1), "b": TopicRows(1, 2, 2), "c": TopicRows(1, 3)}

    spool = open_spool()
    assert spool.by_topic()["b"] == TopicRows(1, 2, 2)
    assert spool.read_some([2, 9]) == [row(2, topic="b", latest=True)]


def test_the_first_row_after_another_has_its_time(spool, row):
    spool.write([row(2, taken_at=NOW + 2), row(5, taken_at=NOW + 5)], ())

    assert [spool.taken_at(after) for after in (0, 2, 4, 5)] == [NOW + 2, NOW + 5, NOW + 5, None]


def test_the_settings_of_sqlite_are_those_of_the_measurements(spool):
    def setting(name):
        return spool._file.connection.execute(f"PRAGMA {name}").fetchall()[0][0]

    found = {name: setting(name) for name in ("page_size", "journal_mode", "synchronous", "wal_autocheckpoint")}
    assert found == {"page_size": 1024, "journal_mode": "wal", "synchronous": 2, "wal_autocheckpoint": 256}
    assert setting("journal_size_limit") == 1024 * 1024


def test_below_the_floor_of_free_space_rows_are_refused_and_settled_ones_still_go(open_spool, row, everything):
    open_spool().write([row(1), row(2)], ())
    spool = open_spool(Quota(least_free=1 << 60))

    with pytest.raises(SpoolFull, match="MiB free, less than"):
        spool.write([row(3)], [1])
    assert [each.id for each in everything(spool)] == [1, 2]

    spool.write((), [1])
    assert [each.id for each in everything(spool)] == [2]


def test_the_oldest_rows_make_room_and_each_topic_keeps_its_newest(open_spool, row, everything):
    spool = open_spool(Quota(most_bytes=20 * size("a", 1000), least_free=0))
    spool.write([row(1, topic="quiet", payload=b"x" * 1000)], ())
    evicted = []

    for number in range(2, 41):
        evicted += spool.write([row(number, topic="a", payload=b"x" * 1000)], ())

    kept = [each.id for each in everything(spool)]
    gone = [number for each in evicted for number in each.ids]
    assert {(each.topic, each.reason) for each in evicted} == {("a", FULL)}
    assert kept[0] == 1
    assert sorted(kept + gone) == list(range(1, 41))
    assert gone == list(range(2, 2 + len(gone)))
    assert all(len(each.ids) >= 10 for each in evicted)


def test_the_file_does_not_grow_while_rows_are_evicted(path, open_spool, row):
    spool = open_spool(Quota(most_bytes=200_000, least_free=0))
    for number in range(1, 2000, 20):
        spool.write([row(each, payload=b"x" * 400) for each in range(number, number + 20)], ())
    spool.close()

    assert path.stat().st_size < 2 * 200_000


def test_the_room_is_what_the_quota_has_left_or_the_disk_above_its_floor(open_spool, row, monkeypatch):
    spool = open_spool(Quota(most_bytes=10_000, least_free=500))
    spool.write([row(1, topic="a", payload=b"x" * 100)], ())

    assert spool.room == 10_000 - size("a", 100)
    monkeypatch.setattr("leadsman.core.spool.file.free_bytes", lambda _: 600)
    assert spool.room == 100
    monkeypatch.setattr("leadsman.core.spool.file.free_bytes", lambda _: 400)
    assert spool.room == 0


def test_a_batch_that_is_larger_than_the_quota_is_not_written_whole(open_spool, row, everything):
    spool = open_spool(Quota(most_bytes=3 * size("a", 100), least_free=0))

    (evicted,) = spool.write([row(number, topic="a", payload=b"x" * 100) for number in range(1, 10)], ())

    assert evicted.ids == list(range(1, 9))
    assert [each.id for each in everything(spool)] == [9]


def test_rows_that_are_too_old_go_but_for_the_newest_of_a_topic(open_spool, row, clock, everything):
    spool = open_spool(Quota(most_age=3600, least_free=0))
    spool.write([row(1, topic="a"), row(2, topic="a"), row(3, topic="b")], ())
    clock.now += 3601

    evicted = spool.write([row(4, topic="c", taken_at=clock.now)], ())

    assert evicted == [Evicted("a", EXPIRED, [1])]
    assert [each.id for each in everything(spool)] == [2, 3, 4]


def test_a_reading_with_an_expiry_goes_then_even_if_it_is_the_newest(spool, row, clock, everything):
    spool.write([row(1, expires_at=NOW + 5), row(2, topic="b", expires_at=NOW + 10_000)], ())
    clock.now += EXPIRY_CHECK_INTERVAL

    assert spool.write([row(3, topic="c", expires_at=clock.now)], ()) == [
        Evicted("c", EXPIRED, [3]),
        Evicted("house/boiler/state", EXPIRED, [1]),
    ]

    assert [each.id for each in everything(spool)] == [2]


def test_a_reading_from_before_the_clock_was_set_has_no_age(open_spool, row, clock, everything):
    spool = open_spool(Quota(most_age=3600, least_free=0))
    rows = [row(1, taken_at=35.0), row(2, taken_at=36.0), row(3)]

    assert spool.write(rows, ()) == []

    assert everything(spool) == rows


def test_a_row_of_which_only_the_latest_counts_replaces_the_one_before(open_spool, row, everything):
    open_spool().write([row(1, latest=True), row(2), row(3, topic="b", latest=True)], ())
    spool = open_spool()

    evicted = spool.write([row(4, latest=True), row(5, latest=True)], ())

    assert evicted == [Evicted("house/boiler/state", SUPERSEDED, [1, 4])]
    assert [each.id for each in everything(spool)] == [2, 3, 5]


def test_a_refused_row_is_a_dead_letter(open_spool, row, everything):
    spool = open_spool()
    spool.write([row(1), row(2, latest=True)], ())
    spool.write((), (), [(row(2, latest=True), "packet too large"), (row(3), "quota exceeded")])

    first, second = open_spool().dead_letters()
    assert (first.row, first.why, first.died_at, first.damaged) == (row(2, latest=True), "packet too large", NOW, False)
    assert second.row == row(3)

    spool = open_spool()
    assert spool.found.next_id == 4
    assert everything(spool) == [row(1)]
    assert spool.topics() == {row(1).topic: 1}


def test_the_newest_thousand_dead_letters_are_kept(spool, row):
    spool.write((), (), [(row(number, payload=b""), "no") for number in range(1, 1006)])

    kept = spool.dead_letters()

    assert [kept[0].row.id, kept[-1].row.id, len(kept)] == [6, 1005, 1000]


def test_dead_letters_are_limited_to_eight_mebibytes_too(spool, row):
    for number in range(1, 5):
        spool.write((), (), [(row(number, payload=bytes(3_000_000)), "no")])

    assert [each.row.id for each in spool.dead_letters()] == [3, 4]


def test_a_file_that_is_deleted_while_open_is_noticed_before_the_next_row(path, spool, row, everything):
    spool.write([row(1)], ())
    path.unlink()

    with pytest.raises(SpoolReplaced):
        spool.write([row(2)], ())

    spool.open()
    spool.write([row(1), row(2)], ())
    assert everything(spool) == [row(1), row(2)]


@pytest.mark.parametrize("name", ["outbox.db.lock", "outbox.db-wal"])
def test_a_lock_or_a_log_that_is_deleted_while_open_costs_no_row(path, spool, row, everything, name, caplog):
    spool.write([row(number) for number in range(1, 50)], ())
    path.with_name(name).unlink()

    spool.write([row(50)], [7])

    assert [each.id for each in everything(spool)] == [*range(1, 7), *range(8, 51)]
    assert "no reading of it is lost" in caplog.text
    assert path.with_name("outbox.db.lock").exists()


def test_a_lock_that_is_deleted_and_taken_by_another_process_is_not_taken_back(path, spool, row):
    spool.write([row(1)], ())
    path.with_name("outbox.db.lock").unlink()

    with path.with_name("outbox.db.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(SpoolReplaced):
            spool.write([row(2)], ())
        with pytest.raises(SpoolLocked):
            spool.open()


def test_a_file_that_another_process_changed_after_its_lock_was_deleted_is_looked_at_anew(path, spool, row, clock):
    spool.write([row(1), row(2)], ())
    path.with_name("outbox.db.lock").unlink()
    other = SpoolFile(path, Quota(least_free=0), clock)
    other.open()
    other.write([row(3)], [1])
    other.close()

    with pytest.raises(SpoolReplaced):
        spool.read(0, 1, 1)


def test_a_directory_that_cannot_be_made_is_reported(tmp_path, open_spool):
    (tmp_path / "file").write_text("")

    with pytest.raises(SpoolUnavailable, match="cannot be used just now"):
        open_spool(at=tmp_path / "file" / "outbox.db")


def test_a_closed_file_says_so(spool, row):
    spool.close()

    with pytest.raises(SpoolUnavailable, match="is not open"):
        spool.write([row(1)], ())


def test_the_checksum_covers_every_field(row):
    one = row(1, expires_at=5.0)
    others = [
        one._replace(**change)
        for change in (
            {"id": 2},
            {"run": 8},
            {"topic": "house/boiler/stat"},
            {"payload": b"e21.5"},
            {"qos": 0},
            {"retain": False},
            {"taken_at": NOW + 1},
            {"expires_at": None},
            {"latest": True},
        )
    ]

    assert len({crc(each) for each in [one, *others]}) == len(others) + 1
