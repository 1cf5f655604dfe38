"""What the end of a process leaves to the system. `tests/system/test_process.py` starts real ones."""

import gc
import sys

import pytest

from leadsman.process import only_memory


class Plain:
    pass


class WithFinalizer:
    def __del__(self):
        pass


def numbers():
    yield 1
    yield 2


@pytest.fixture
def file(tmp_path):
    with open(tmp_path / "file", "w") as file:
        yield file


def test_objects_without_a_finalizer_are_only_memory():
    assert only_memory([Plain(), Plain, {}, [], numbers, only_memory, sys])


def test_the_standard_streams_are_flushed_by_the_interpreter(monkeypatch, file):
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    monkeypatch.setattr(sys, "stdout", file)

    assert only_memory([file, file.buffer, file.buffer.raw])


def test_a_file_counts_until_it_is_closed(file):
    assert not only_memory([Plain(), file])
    assert not only_memory([file.buffer])
    file.close()
    assert only_memory([Plain(), file])


def test_anything_with_a_finalizer_counts():
    suspended = numbers()
    next(suspended)

    assert not only_memory([Plain(), WithFinalizer()])
    assert not only_memory([suspended])


def test_objects_of_this_process_count(file):
    assert not only_memory(gc.get_objects())
