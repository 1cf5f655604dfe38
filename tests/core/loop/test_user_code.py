import asyncio
import json
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

import leadsman
from leadsman.core.loop.user_code import blocked_at, frames_of, place_of, waiting_at


def raised(function):
    try:
        function()
    except Exception as error:
        return error


def parse():
    return json.loads("{")


def test_the_place_of_an_error_is_the_innermost_line_of_the_user_not_of_a_library():
    line = parse.__code__.co_firstlineno + 1

    assert place_of(raised(parse)) == f"test_user_code.py:{line}"


def test_the_frames_go_on_into_the_library_that_raised():
    frames = "\n".join(frames_of(raised(parse)))

    assert "in parse" in frames
    assert "json" in frames


@pytest.mark.parametrize("folder", [Path(leadsman.__file__).parent, Path(json.__file__).parent.parent])
def test_a_folder_whose_name_only_begins_like_that_of_a_library_is_the_users(folder):
    code = compile("def fail():\n    return json.loads('{')", f"{folder}-house/plant.py", "exec")
    space = {"json": json}
    exec(code, space)

    assert place_of(raised(space["fail"])) == "plant.py:2"


def test_an_error_that_was_never_raised_has_no_place():
    assert place_of(OSError("made, not raised")) is None
    assert frames_of(OSError("made, not raised")) == []


def test_a_recursion_shows_its_last_frames_only():
    def deeper(depth):
        return deeper(depth + 1) if depth < sys.getrecursionlimit() // 2 else {}["y"]

    assert len(frames_of(raised(lambda: deeper(0)))) < 40


def test_where_a_task_waits_is_the_innermost_line_of_the_user():
    async def inner():
        await asyncio.sleep(60)

    async def outer():
        await inner()

    async def look():
        task = asyncio.create_task(outer())
        await asyncio.sleep(0)
        where = waiting_at(task)
        task.cancel()
        return where

    line = inner.__code__.co_firstlineno + 1
    assert asyncio.run(look()) == f"test_user_code.py:{line}"


def test_what_a_proxy_awaits_without_end_is_not_followed_forever():
    class Proxy:
        @property
        def cr_await(self):
            return Proxy()

    assert waiting_at(SimpleNamespace(get_coro=Proxy)) is None


def test_where_a_thread_is_blocked_is_the_innermost_line_of_the_user_below_a_library():
    inside, end = threading.Event(), threading.Event()

    def block():
        inside.set()
        end.wait()

    thread = threading.Thread(target=block)
    thread.start()
    inside.wait()
    try:
        assert blocked_at(thread.ident) == f"test_user_code.py:{block.__code__.co_firstlineno + 2}"
    finally:
        end.set()
        thread.join()
    assert blocked_at(thread.ident) is None


def test_a_thread_outside_of_the_users_code_has_no_place():
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        assert blocked_at(thread.ident) is None
    finally:
        end.set()
        thread.join()
