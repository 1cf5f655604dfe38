"""What the end of a process leaves to the system. `tests/system/test_process.py` starts real ones."""

import asyncio
import gc
import socket
import sys

import pytest

from leadsman.core.wiring.process import no_search_until_built, only_memory


class Plain:
    pass


class WithFinalizer:
    def __del__(self):
        pass


async def read():
    return 1


async def fail():
    raise OSError("away")


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
    assert not only_memory([Plain(), WithFinalizer()])


def test_a_generator_counts_until_it_ends():
    suspended = numbers()
    next(suspended)
    assert not only_memory([suspended])

    suspended.close()
    assert only_memory([suspended])


def test_a_coroutine_a_task_and_its_loop_count_until_they_are_done(loop):
    coroutine = read()
    task = loop.create_task(coroutine)
    assert not any(only_memory([each]) for each in (coroutine, task, loop))

    loop.run_until_complete(task)
    loop.close()
    assert only_memory([coroutine, task, loop])


def test_a_task_whose_exception_nobody_has_seen_counts_since_it_logs_it(loop):
    task = loop.create_task(fail())
    loop.run_until_complete(asyncio.wait([task]))
    assert not only_memory([task])

    task.exception()
    assert only_memory([task])


def test_a_future_that_nobody_set_does_not_count(loop):
    assert only_memory([loop.create_future()])


def test_a_socket_is_closed_by_the_system():
    with socket.socket() as open_socket:
        assert only_memory([open_socket])


def test_objects_of_this_process_count(file):
    assert not only_memory(gc.get_objects())


@pytest.mark.parametrize("enabled", [True, False])
def test_nobody_searches_for_garbage_while_an_app_is_made_nor_in_what_was_made_while_it_runs(enabled):
    if not enabled:
        gc.disable()
    try:
        with no_search_until_built() as built:
            assert not gc.isenabled()
            built()
            assert gc.isenabled() is enabled
            assert gc.get_freeze_count() > 0
        assert (gc.isenabled(), gc.get_freeze_count()) == (enabled, 0)
    finally:
        gc.enable()


def test_the_search_goes_on_after_an_app_that_could_not_be_made():
    with pytest.raises(OSError, match="full"), no_search_until_built():
        raise OSError("full")

    assert gc.isenabled()
