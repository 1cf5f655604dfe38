"""Copies of the file, and looking at it beside the app."""

import os
from pathlib import Path

import pytest

from leadsman.errors import SpoolLocked, SpoolUnavailable
from leadsman.spool.file import backup, look, restore
from leadsman.spool.row import size

NOW = 1_800_000_000.0


@pytest.fixture
def copy(tmp_path):
    return tmp_path / "copy.db"


def test_one_may_look_while_the_app_writes(spool, path, row):
    spool.write([row(1, taken_at=5.0), row(2, topic="b")], (), [(row(3), "no")])

    found = look(path)

    assert found[:4] == (
        2,
        size(row(1).topic, 4) + size("b", 4),
        5.0,
        {row(1).topic: 1, "b": 1},
    )
    assert [each.why for each in found.dead] == ["no"]
    spool.write([row(4)], ())
    assert look(path).rows == 3


def test_a_backup_is_made_while_the_app_writes_and_is_one_private_file(spool, path, row, copy):
    spool.write([row(number) for number in range(1, 100)], (), [(row(100), "no")])

    found = backup(path, copy)
    spool.write([row(101)], ())

    assert (found.rows, len(found.dead)) == (99, 1)
    assert sorted(each.name for each in copy.parent.iterdir()) == ["copy.db", "state"]
    assert copy.stat().st_mode & 0o777 == 0o600


def test_a_backup_takes_the_place_of_an_older_one(spool, path, row, copy):
    copy.write_text("older")
    spool.write([row(1)], ())

    backup(path, copy)

    assert look(copy).rows == 1


def test_a_restored_copy_is_what_the_next_app_finds(open_spool, path, row, copy, everything):
    spool = open_spool()
    spool.write([row(1), row(2)], ())
    backup(path, copy)
    spool.write([row(3)], [1])
    spool.close()

    found, aside = restore(path, copy, NOW)

    assert found.rows == 2
    assert everything(open_spool()) == [row(1), row(2)]
    assert aside is not None
    assert look(path.with_name(aside)).rows == 2


def test_what_was_put_aside_can_be_restored_too(open_spool, path, row, copy, everything):
    open_spool().write([row(1)], ())
    backup(path, copy)
    spool = open_spool()
    spool.write([row(2)], ())
    spool.close()
    _, aside = restore(path, copy, NOW)

    restore(path, path.with_name(aside), NOW)

    assert everything(open_spool()) == [row(1), row(2)]


def test_a_copy_is_restored_where_nothing_was(open_spool, path, row, copy, everything, tmp_path):
    open_spool().write([row(1)], ())
    backup(path, copy)
    elsewhere = tmp_path / "elsewhere" / "outbox.db"

    assert restore(elsewhere, copy, NOW)[1] is None

    assert everything(open_spool(at=elsewhere)) == [row(1)]
    assert not list(elsewhere.parent.glob("*.bad-*"))


def test_a_restore_that_is_killed_between_two_names_is_finished_by_the_next_start(
    open_spool, path, row, copy, everything, monkeypatch
):
    spool = open_spool()
    spool.write([row(1), row(2), row(3)], ())
    backup(path, copy)
    spool.close()

    def killed(old, new):
        if old.name == f"{path.name}.new":
            os._exit(0)
        return rename(old, new)

    rename = Path.rename
    monkeypatch.setattr(Path, "rename", killed)
    if (child := os.fork()) == 0:
        restore(path, copy, NOW)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    monkeypatch.undo()

    assert not path.exists()
    assert everything(open_spool()) == [row(1), row(2), row(3)]


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_a_pipe_beside_the_file_is_named_and_not_waited_for(open_spool, path, suffix):
    open_spool().close()
    os.mkfifo(f"{path}{suffix}")

    with pytest.raises(SpoolUnavailable, match=f"{path.name}{suffix} is not a regular file; remove it"):
        look(path)


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_a_copy_does_not_take_the_place_of_the_file_of_an_app(spool, path, row, suffix):
    spool.write([row(1)], ())

    with pytest.raises(SpoolUnavailable, match="belongs to the outbox; name another file for the copy"):
        backup(path, path.with_name(f"{path.name}{suffix}"))
    spool.write([row(2)], ())

    assert look(path).rows == 2


def test_no_copy_is_restored_under_a_running_app(spool, path, row, copy, everything):
    spool.write([row(1)], ())
    backup(path, copy)
    spool.write([row(2)], ())

    with pytest.raises(SpoolLocked):
        restore(path, copy, NOW)

    assert everything(spool) == [row(1), row(2)]


@pytest.mark.parametrize("content", [None, b"", b"text", b"damaged"])
def test_a_damaged_copy_changes_nothing(open_spool, path, row, copy, everything, content):
    spool = open_spool()
    spool.write([row(number, payload=b"x" * 500) for number in range(1, 50)], ())
    backup(path, copy)
    spool.close()
    if content is None:
        copy.unlink()
    elif content == b"damaged":
        data = bytearray(copy.read_bytes())
        data[5 * 1024 : 7 * 1024] = b"\xff" * 2048
        copy.write_bytes(data)
    else:
        copy.write_bytes(content)

    with pytest.raises(SpoolUnavailable, match="there is no .*copy.db; name a copy|damaged, or is not an outbox"):
        restore(path, copy, NOW)

    assert len(everything(open_spool())) == 49
    assert sorted(each.name for each in path.parent.iterdir() if "outbox.db-" not in each.name) == [
        "outbox.db",
        "outbox.db.lock",
    ]


def test_there_is_nothing_to_look_at_before_an_app_made_it(path, copy):
    with pytest.raises(SpoolUnavailable, match="there is no .*outbox.db"):
        look(path)
    with pytest.raises(SpoolUnavailable, match="there is no"):
        backup(path, copy)
    assert not copy.exists()
    assert not path.parent.exists()
