"""A store and its file, when the disk or somebody else interferes."""

import json
import os
import time
from pathlib import Path

import pytest

from leadsman.runtime.directory import StateDirectory
from leadsman.runtime.store import LARGEST, Store, Stores


@pytest.fixture
def path(tmp_path):
    return tmp_path / "d.json"


@pytest.fixture
def store(path):
    return Store(path)


def test_a_file_that_cannot_be_read_just_now_is_not_written_over(path, caplog, monkeypatch):
    path.write_text('{"count": 41, "kept": 1}')
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", lambda *_: (_ for _ in ()).throw(OSError(24, "Too many open files")))
        store = Store(path)
        store["count"] = 1
        store.save()

    assert path.read_text() == '{"count": 41, "kept": 1}'
    store.save()

    assert json.loads(path.read_text()) == {"count": 1, "kept": 1}
    assert caplog.text.count("Too many open files") == 1


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


def test_a_huge_file_is_kept_aside_without_being_read_whole(path, caplog):
    with path.open("wb") as file:
        file.write(b'{"a": "')
        file.truncate(500_000_000)  # holes: it takes no room
    began = time.process_time()

    store = Store(path)

    assert dict(store) == {}
    assert time.process_time() - began < 0.5
    assert path.with_suffix(".broken").stat().st_size == 500_000_000
    assert f"larger than {LARGEST} bytes" in caplog.text


def test_a_store_that_grows_too_large_is_refused_after_the_first_bytes_not_after_all(store, caplog):
    store["list"] = []
    store["list"].extend([1.5] * 3_000_000)
    began = time.process_time()

    store.save()

    assert time.process_time() - began < 1.0  # all of it takes several times as long
    assert caplog.text.count("it holds more than") == 1


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

    stores = Stores(tmp_path, second)
    stores.of("d")["count"] += 1
    stores.of("broken")["a"] = 1
    stores.save()

    assert dict(stores.of("d")) == {"count": 6}
    assert (tmp_path / "d.json").read_text() == '{"count": 5}'
    assert (tmp_path / "broken.json").read_text() == "{"
    first.release()
