import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.system.conftest import listen  # noqa: F401  # a fixture


@pytest.fixture(autouse=True)
def same_dice():
    """The jitter of every test is that of its last run."""
    random.seed(0)


class Program:
    """An app as a program of its own."""

    def __init__(self, name, arguments, log, environment):
        self.name, self.log_path = name, log
        self.environment = {**os.environ, **environment}
        self.arguments = arguments
        self.start()

    def start(self):
        executable = Path(sys.executable).with_name(self.name)
        with self.log_path.open("ab") as stream:
            self.process = subprocess.Popen(
                [executable, *self.arguments], env=self.environment, stdout=stream, stderr=stream
            )

    @property
    def log(self):
        return self.log_path.read_text()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        """Ask it to end; its exit code and how long it took, in seconds."""
        before = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(15), time.monotonic() - before


@pytest.fixture
def program(tmp_path):
    """Run an app with its settings: ``program("gas2mqtt", mqtt=url, bus=2)``."""
    started = []

    def start(name, *arguments, **settings):
        words = [word for key, value in settings.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]
        environment = {"STATE_DIRECTORY": str(tmp_path / "state")}
        started.append(Program(name, [*arguments, *words], tmp_path / f"{name}.log", environment))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.kill()
        assert "Traceback" not in each.log, each.log


@pytest.fixture
def demonstrated(program):
    """Run ``NAME --demo`` for some seconds; what it printed."""

    def run(name, seconds):
        running = program(name, "--demo", "--for", f"{seconds}s")
        assert running.process.wait(seconds + 20) == 0, running.log
        assert running.log.startswith("at mqtt://127.0.0.1:"), running.log  # where to subscribe
        return running.log

    return run
