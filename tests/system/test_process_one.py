"""An app as process 1, as in a container without an init: in a namespace of processes of its own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest

import leadsman

pytestmark = pytest.mark.system

LONG = 60.0
"""Seconds that nothing here takes, also on a busy machine."""
PUMPS = """
    from leadsman import App
    from leadsman.adapters.program import Programs

    app = App("pumps", adapters=(Programs(timeout="30s"),))

    @app.telemetry("sump", interval="200ms")
    async def sump(programs: Programs) -> dict[str, float]:
        # a tool that leaves a helper behind for a moment, and fails or not
        text = "sleep 0.01 </dev/null >/dev/null 2>&1 & echo 3"
        return {"level": float(await programs.run("sh", "-c", text))}
"""


HEARS_CTRL_C = ("env", "--default-signal=INT")
"""What a shell starts in the background ignores SIGINT, and so do its children."""


class ProcessOne:
    """A program as process 1."""

    def __init__(self, directory, *words):
        root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        here = f"{directory}:{Path(leadsman.__file__).parents[1]}"
        self.unshare = subprocess.Popen(
            [*HEARS_CTRL_C, "unshare", *root, "--pid", "--fork", "--mount-proc", "--kill-child", *words],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": here, "STATE_DIRECTORY": f"{directory}/state", "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.unshare.kill()
        self.unshare.communicate()

    def wait_for(self, text, times=1):
        """Wait until it has printed this in so many lines."""
        for line in self.unshare.stdout:
            times -= text in line
            if times == 0:
                return
        raise AssertionError(f"it ended without {text!r}")

    @property
    def pid(self):
        """As this side of the namespace numbers it."""
        return children(self.unshare.pid)[0]

    def end(self, number=None):
        """The exit code, after a signal."""
        if number is not None:
            os.kill(self.pid, number)
        self.unshare.stdout.read()
        return self.unshare.wait(LONG)


def children(pid):
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def zombies(pid):
    states = [Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[0] for each in children(pid)]
    return states.count("Z")


@pytest.fixture
def process_one(tmp_path):
    def start(program, *words):
        (tmp_path / "pumps.py").write_text(dedent(program))
        return ProcessOne(tmp_path, sys.executable, *words)

    return start


RUN = ("-m", "leadsman", "run", "pumps:app", "--show")


def test_what_its_programs_leave_behind_is_waited_for_and_their_own_output_comes(process_one):
    with process_one(PUMPS, *RUN) as app:
        app.wait_for("level=3", times=20)
        deadline = time.monotonic() + LONG
        while zombies(app.pid):  # one may have ended just now
            assert time.monotonic() < deadline
            app.wait_for("level=3")

        assert app.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_the_imports_ends_it(process_one, number):
    program = """
        import time
        print("importing")
        time.sleep(1000)
    """
    with process_one(program, *RUN) as app:
        app.wait_for("importing")

        assert app.end(number) == 128 + number


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("import os\nos._exit(79)", 79),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", 128 + 9),
    ],
)
def test_it_ends_with_the_code_of_the_app(process_one, program, code):
    with process_one(program, *RUN) as app:
        assert app.end() == code


def test_a_program_of_its_own_has_the_same_duties(process_one):
    program = PUMPS + "\n    from leadsman import command_line\n    raise SystemExit(command_line(app)(['--show']))\n"

    with process_one(program, "pumps.py") as app:
        app.wait_for("level=3", times=5)
        assert len(children(app.pid)) >= 1
        assert app.end(signal.SIGTERM) == 0


def test_the_app_of_an_ordinary_process_has_no_other_one_above_it(process_one, tmp_path):
    (tmp_path / "one.py").write_text("import os\nprint('parent', os.getppid())\nraise SystemExit(7)\n")

    ended = subprocess.run(
        [sys.executable, "-m", "leadsman", "run", "one:app"], cwd=tmp_path, capture_output=True, text=True
    )

    assert f"parent {os.getpid()}" in ended.stdout
