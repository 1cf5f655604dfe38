"""Apps as processes: one whose code stands in the test, and one that is installed as a program."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HEADER = """\
import asyncio, os, sys, threading, time
sys.modules.update(dict.fromkeys(os.environ.get("NOT_INSTALLED", "").split()))
from leadsman import *
app = App("sys", mqtt=os.environ["URL"])
"""


class Process:
    """A process that writes to a file. It may be started again."""

    def __init__(self, command, log_path, **environment):
        self.command, self.log_path, self.environment = command, log_path, {**os.environ, **environment}
        self.start()

    def start(self):
        with self.log_path.open("ab") as stream:
            self.process = subprocess.Popen(self.command, env=self.environment, stdout=stream, stderr=stream)

    @property
    def log(self):
        return self.log_path.read_text()

    def wait_for(self, *words, timeout=60.0):
        """Wait until the log has all of these words."""
        deadline = time.monotonic() + timeout
        while not all(each in (log := self.log) for each in words):
            assert time.monotonic() < deadline, f"{words} did not come; the log is:\n{log}"
            time.sleep(0.02)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self, number=signal.SIGTERM, timeout=60.0):
        """Signal it; its exit code and how long it took, in seconds."""
        before = time.monotonic()
        self.process.send_signal(number)
        return self.process.wait(timeout), time.monotonic() - before


def app_process(code, url, log_path, state=None):
    """An app named ``sys`` with the registrations of `code`. A warning is an error in it. Its state is in a directory
    of its own unless `state` names one."""
    command = [sys.executable, "-c", HEADER + code + "\napp.run()\n"]
    state = str(state or Path(log_path).with_suffix(".state"))
    return Process(command, log_path, URL=url, PYTHONWARNINGS="error", XDG_STATE_HOME=state)


def program_process(name, arguments, log_path, **environment):
    """A program that is installed beside the Python of the tests."""
    return Process([Path(sys.executable).with_name(name), *arguments], log_path, **environment)
