"""The state directory belongs to one process at a time."""

import asyncio
import shutil
import threading

import pytest

from leadsman.core.storage.directory import LOCK_TIMEOUT, StateDirectory
from leadsman.core.storage.owner import in_use


class Reports:
    def __init__(self):
        self.texts = []

    def __call__(self, file, error):
        self.texts.append(f"{file.name}: {error}")


@pytest.fixture
def make(tmp_path):
    """Makes a view of one directory, as another process would have it."""
    made = []

    def one():
        made.append(StateDirectory(tmp_path / "house", Reports()))
        return made[-1]

    yield one
    for each in made:
        each.release()


def claim(loop, directory):
    """Claims it, with a file in it; seconds that took."""
    began = loop.time()
    if directory.path.exists():
        (directory.path / "d.json").touch()
    loop.run_until_complete(directory.claim(asyncio.Event()))
    return loop.time() - began


def test_the_first_may_write_and_the_second_reports_once_that_it_may_not(make):
    first, second = make(), make()

    assert [first.may_write(), first.may_write()] == [True, True]
    assert [second.may_write(), second.may_write()] == [False, False]
    assert second.report.texts == [f"house: {in_use(second.path)}"]
    assert first.report.texts == []


def test_the_second_writes_nothing_for_the_rest_of_its_life_even_when_the_first_has_ended(make):
    first, second = make(), make()
    first.may_write()
    second.may_write()
    first.release()

    assert not second.may_write()
    assert make().may_write()


def test_the_start_waits_for_a_predecessor_that_ends(make, loop):
    first, second = make(), make()
    first.may_write()
    loop.call_later(2, first.release)

    assert claim(loop, second) <= 3
    assert not second.foreign


def test_the_start_does_not_wait_longer_than_its_patience(make, loop, caplog):
    caplog.set_level("INFO")
    first, second = make(), make()
    first.may_write()

    assert claim(loop, second) == pytest.approx(LOCK_TIMEOUT)
    assert second.foreign
    assert caplog.messages == [f"{in_use(second.path)}; waiting 5 s for it to end"]


def test_a_stop_ends_the_wait(make, loop):
    first, second, stopping = make(), make(), asyncio.Event()
    first.may_write()
    (first.path / "d.json").touch()
    loop.call_later(1, stopping.set)

    loop.run_until_complete(second.claim(stopping))

    assert loop.time() == 1


def test_a_thread_that_outlives_the_app_writes_nothing_more(make):
    first = make()
    first.may_write()
    first.release()

    assert not first.may_write()
    assert make().may_write()


def test_an_app_that_keeps_nothing_waits_for_nobody(make, loop):
    first, second = make(), make()
    first.may_write()

    loop.run_until_complete(second.claim(asyncio.Event()))

    assert loop.time() == 0
    assert not second.foreign


def test_claiming_a_directory_that_is_not_there_makes_none(make, loop, tmp_path):
    directory = make()

    assert claim(loop, directory) == 0
    assert not (tmp_path / "house").exists()


def test_a_directory_that_was_removed_is_made_and_locked_again(make, tmp_path):
    first, second = make(), make()
    first.may_write()
    shutil.rmtree(tmp_path / "house")

    assert first.may_write()
    assert not second.may_write()


def test_of_many_threads_that_ask_at_once_all_may_write_when_one_may(make):
    directory, answers = make(), []
    threads = [threading.Thread(target=lambda: answers.append(directory.may_write())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert answers == [True] * 8
