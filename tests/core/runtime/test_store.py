"""A store and its file, when the disk or somebody else interferes."""

import json
import os
import time
from pathlib import Path

import pytest

from leadsman.core.runtime.store import MAX_STORE_BYTES, Store, Stores
from leadsman.core.storage.directory import StateDirectory
from leadsman.errors import InvalidType, ResultError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "d.json"


@pytest.fixture
def reports():
    return []


@pytest.fixture
def directory(tmp_path, reports):
    """The state directory of an app. What fails there is in `reports`."""
    return StateDirectory(tmp_path, lambda file, error: reports.append(str(error)))


@pytest.fixture
def store(path, directory):
    return Store(path, directory)


def test_a_file_that_cannot_be_read_just_now_is_not_written_over(path, directory, reports, monkeypatch):
    path.write_text('{"count": 41, "kept": 1}')
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", lambda *_: (_ for _ in ()).throw(OSError(24, "Too many open files")))
        store = Store(path, directory)
        store["count"] = 1
        store.save()

    assert path.read_text() == '{"count": 41, "kept": 1}'
    store.save()

    assert json.loads(path.read_text()) == {"count": 1, "kept": 1}
    assert reports == ["[Errno 24] Too many open files", "None"]


def test_a_write_that_fails_leaves_no_half_file_beside(path, store, monkeypatch):
    store["count"] = 1
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        store.save()

    assert not list(path.parent.iterdir())
    store.save()
    assert json.loads(path.read_text()) == {"count": 1}


def test_a_file_that_was_removed_is_written_again_and_reported(path, store, caplog):
    store["count"] = 1
    store.save()
    path.unlink()

    store.save()

    assert json.loads(path.read_text()) == {"count": 1}
    assert caplog.text.count("was removed while the app ran") == 1


def test_a_huge_file_is_kept_aside_without_being_read_whole(path, directory, caplog):
    with path.open("wb") as file:
        file.write(b'{"a": "')
        file.truncate(500_000_000)  # holes: it takes no room
    began = time.process_time()

    store = Store(path, directory)

    assert dict(store) == {}
    assert time.process_time() - began < 0.5
    assert [each.stat().st_size for each in path.parent.glob(f"{path.name}.bad-*")] == [500_000_000]
    assert f"larger than {MAX_STORE_BYTES} bytes" in caplog.text


def test_a_store_that_grows_too_large_is_refused_after_the_first_bytes_not_after_all(store, reports):
    store["list"] = []
    store["list"].extend([1.5] * 3_000_000)
    began = time.process_time()

    store.save()

    assert time.process_time() - began < 1.0  # all of it takes several times as long
    assert ["it is larger than" in each for each in reports] == [True]


def test_a_store_can_be_changed_while_it_is_written(path, store, monkeypatch):
    store["count"] = 1
    write = os.fsync

    def change_meanwhile(handle):
        store["count"] = 2
        write(handle)

    monkeypatch.setattr(os, "fsync", change_meanwhile)
    store.save()
    changed = store.changed
    store.save()

    assert changed
    assert json.loads(path.read_text()) == {"count": 2}


def test_of_two_processes_the_second_reads_the_stores_and_leaves_the_files_alone(tmp_path):
    (tmp_path / "d.json").write_text('{"count": 5}')
    (tmp_path / "broken.json").write_text("{")
    first = StateDirectory(tmp_path, lambda *_: None)
    second = StateDirectory(tmp_path, lambda *_: None)
    first.may_write()
    second.may_write()

    stores = Stores(second)
    stores.of("d")["count"] += 1
    stores.of("broken")["a"] = 1
    stores.save()

    assert dict(stores.of("d")) == {"count": 6}
    assert (tmp_path / "d.json").read_text() == '{"count": 5}'
    assert (tmp_path / "broken.json").read_text() == "{"
    first.release()


def test_a_process_that_is_killed_while_it_writes_leaves_the_old_store(tmp_path, directory, monkeypatch):
    stores = Stores(directory)
    stores.of("d")["n"] = 1
    stores.save()
    stores.of("d")["n"] = 2
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            stores.save()

    assert dict(Stores(directory).of("d")) == {"n": 1}
    stores.of("d")["n"] = 3
    stores.save()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.json"]


def test_a_value_that_cannot_be_written_costs_no_other_store_and_is_tried_again(directory, reports):
    stores = Stores(directory)
    stores.of("bad")["list"] = []
    stores.of("bad")["list"].append(object())
    stores.of("good")["n"] = 1
    stores.save()
    stores.save()
    told = len(reports)
    stores.of("bad")["list"].clear()
    stores.save()

    assert told == 1
    assert dict(Stores(directory).of("good")) == {"n": 1}
    assert dict(Stores(directory).of("bad")) == {"list": []}


def test_a_store_is_written_once_the_disk_takes_it_again(tmp_path):
    (tmp_path / "state").write_text("in the way")
    directory = StateDirectory(tmp_path / "state", lambda *_: None)
    stores = Stores(directory)
    stores.of("d")["n"] = 1
    stores.save()
    waiting = stores.changed
    (tmp_path / "state").unlink()
    stores.save()

    assert waiting
    assert not stores.changed
    assert dict(Stores(directory).of("d")) == {"n": 1}


def test_a_store_takes_only_what_json_carries(store):
    for value in (float("nan"), object(), b"x", {1: 2}):
        with pytest.raises(ResultError):
            store["a"] = value
    with pytest.raises(InvalidType):
        store[1] = 2
    store["a"] = {"b": [1]}
    store["a"]["b"].append(2)
    del store["a"]["b"]
    assert dict(store) == {"a": {}}


def test_a_change_inside_a_value_is_written_at_the_end(directory):
    stores = Stores(directory)
    stores.of("d")["list"] = [1]
    stores.save()
    stores.of("d")["list"].append(2)
    stores.save()

    assert dict(Stores(directory).of("d")) == {"list": [1, 2]}


def test_a_device_name_leads_nowhere_else(tmp_path, directory):
    for name in ("..", "a.b", "ä ö", "%2f"):
        Stores(directory).of(name)["a"] = 1
        stores = Stores(directory)
        stores.of(name)["a"] = 1
        stores.save()
        assert dict(Stores(directory).of(name)) == {"a": 1}
    assert all(path.parent == tmp_path for path in tmp_path.rglob("*.json"))


def test_devices_with_names_of_the_greatest_length_have_files_of_their_own(tmp_path, directory):
    names = ["ü" * 100, "ü" * 99 + "ä", "x" * 200, "a b.c"]
    stores = Stores(directory)
    for number, name in enumerate(names):
        stores.of(name)["n"] = number
    stores.save()

    assert [dict(Stores(directory).of(name)) for name in names] == [{"n": number} for number in range(len(names))]
    assert sorted(each.name for each in tmp_path.iterdir())[-1] == "x" * 200 + ".json"
