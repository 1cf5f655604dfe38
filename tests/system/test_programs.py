"""Whole programs: nothing keeps a process that ends, and a second app in it has a log of its own."""

import os
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest

import leadsman

BROKER = '[mqtt]\nurl = "mqtt://127.0.0.1:1"\n'


def run(tmp_path, program, settings="", timeout=20):
    (tmp_path / "leadsman.toml").write_text(BROKER + settings)
    (tmp_path / "program.py").write_text(dedent(program))
    began = time.monotonic()
    here = str(Path(leadsman.__file__).parents[1])
    environment = {**os.environ, "STATE_DIRECTORY": str(tmp_path / "state"), "PYTHONPATH": here}
    ended = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, env=environment, timeout=timeout, capture_output=True, text=True
    )
    return ended, time.monotonic() - began


def test_a_thread_of_a_library_does_not_keep_an_app_that_ends_because_nothing_is_fresh(tmp_path):
    ended, took = run(
        tmp_path,
        """
        import threading, time
        from leadsman import App
        app = App("house")
        threading.Thread(target=time.sleep, args=(15,)).start()
        @app.telemetry("m", interval=0.2, on_failure="stop")
        async def m():
            raise OSError("gone")
        app.run()
        """,
    )
    assert ended.returncode == 69
    assert took < 10


def test_a_call_that_keeps_the_lock_of_the_interpreter_for_a_while_is_a_hang(tmp_path):
    ended, _ = run(
        tmp_path,
        """
        import time
        from leadsman import App
        app = App("house")
        @app.telemetry("m", interval=0.5)
        async def m():
            end = time.monotonic() + 40
            while time.monotonic() < end:
                sum(range(40_000_000))
        app.run()
        """,
        '[supervision]\nexit_when_hung = "5s"\n',
        timeout=50,
    )
    assert ended.returncode == 79, ended.stderr


def test_a_listener_that_hangs_does_not_keep_a_program_with_a_loop_of_its_own(tmp_path):
    ended, took = run(
        tmp_path,
        """
        import asyncio, time
        from leadsman import App
        from leadsman.notices import DeviceFailed
        app = App("house")
        @app.on(DeviceFailed)
        def hang(notice):
            time.sleep(15)
        @app.telemetry("m", interval=0.2)
        async def m():
            raise OSError
        async def main():
            serving = asyncio.create_task(app.serve())
            await asyncio.sleep(1)
            app.stop()
            await serving
        asyncio.run(main())
        """,
    )
    assert ended.returncode == 0
    assert took < 10


@pytest.mark.parametrize("level", ["debug", "info"])
def test_a_second_app_of_a_program_writes_each_line_once_and_at_its_own_level(level, tmp_path):
    ended, _ = run(
        tmp_path,
        """
        import os, threading
        from leadsman import App
        for name in ("one", "two"):
            app = App(name)
            @app.telemetry("m", interval=0.2)
            async def m():
                return {"a": 1}
            threading.Timer(1.0, os.kill, (os.getpid(), 15)).start()
            app.run()
        """,
        f'[log]\npath = "house.log"\n[log.devices]\nm = "{level}"\n',
    )
    lines = (tmp_path / "house.log").read_text().splitlines()
    assert ended.returncode == 0
    assert sum("two starts" in line for line in lines) == 1
    assert not [line for line in lines if "DEBUG" in line and " m: " not in line]
