"""``leadsman run --show`` on a real terminal, in a pipe, and where nobody reads."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import pytest

from leadsman.testing.mosquitto import free_port

APP = """
from typing import Annotated
from typing_extensions import TypedDict
from leadsman import App, Sensor

app = App("house")
calls = 0


class Inner(TypedDict):
    volts: Annotated[float, Sensor("V")]


class Power(TypedDict):
    watts: Annotated[float, Sensor("W")]
    label: str
    inner: Inner


@app.telemetry("meter", interval="100ms")
async def meter() -> Power:
    global calls
    calls += 1
    if calls == 2:
        raise OSError("away \\x1b[2J")
    return {"watts": float("nan") if calls == 3 else 412.5, "label": "\\x1b[2Jä", "inner": {"volts": 230.0}}


@app.telemetry("shaky", interval="1h", retry=1)
async def shaky():
    raise OSError("gone")
"""
FAST = """
from leadsman import App

app = App("house")


async def read():
    return {"text": "x" * 90}


for number in range(100):
    app.add_telemetry(f"d{number}", read, interval="100ms")
"""
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}  "
SLACK = 4.0
"""Seconds that a busy machine may take besides."""


@pytest.fixture
def start(tmp_path):
    """Start an app with ``--show`` and an stdout of one's own."""
    processes = []

    def start(code, url, stdout):
        (tmp_path / "house.py").write_text(code)
        environment = {
            **os.environ,
            "XDG_STATE_HOME": str(tmp_path / "state"),
            "TERM": "xterm",
            "PYTHONWARNINGS": "error",
        }
        command = [sys.executable, "-m", "leadsman", "run", "house:app", "--show", "--mqtt", url]
        with (tmp_path / "log").open("ab") as log:
            processes.append(
                subprocess.Popen(command, cwd=tmp_path, env=environment, stdin=log, stdout=stdout, stderr=log)
            )
        return processes[-1]

    yield start
    for each in processes:
        each.kill()
        each.wait()
    assert "Traceback (most" not in (tmp_path / "log").read_text()


def read_until(handle, *patterns, timeout=60.0):
    """What comes, until all these patterns have come."""
    text, deadline = "", time.monotonic() + timeout
    while not all(re.search(each, text) for each in patterns):
        assert time.monotonic() < deadline, text
        if select.select([handle], [], [], 0.1)[0]:
            piece = os.read(handle, 65536).decode()
            assert piece, f"the output has ended: {text}"
            text += piece
    return text


def end(process):
    before = time.monotonic()
    process.send_signal(signal.SIGTERM)
    return process.wait(60), time.monotonic() - before


@pytest.mark.parametrize("broker", [True, False])
def test_readings_and_failed_calls_come_as_plain_lines_in_a_pipe_with_a_broker_or_without(mosquitto, start, broker):
    url = mosquitto.url if broker else f"mqtt://127.0.0.1:{free_port()}"
    process = start(APP, url, subprocess.PIPE)

    text = read_until(
        process.stdout.fileno(),
        rf'(?m)^{TIME}meter  watts=412.5 W  label="\\u001b\[2Jä"  inner=\{{volts=230.0 V\}}$',
        rf"(?m)^{TIME}meter  OSError: away \\x1b\[2J",
        rf"(?m)^{TIME}meter  label=.*  watts is NaN or infinite$",
        rf"(?m)^{TIME}shaky  OSError: gone; again in ",
    )

    assert "\x1b" not in text
    assert end(process)[0] == 0
    process.stdout.close()


def test_on_a_terminal_they_have_colours(mosquitto, start):
    ours, theirs = pty.openpty()
    process = start(APP, mosquitto.url, theirs)

    text = read_until(ours, r"watts=412.5 W", r"\x1b\[1;31mOSError: away \\x1b\[2J", r"\x1b\[33mOSError: gone; again")

    assert re.search(r"\x1b\[1mmeter  \x1b\[0m", text)
    assert "\x1b[2J" not in text
    assert end(process)[0] == 0
    os.close(ours)
    os.close(theirs)


def test_a_terminal_that_takes_nothing_costs_no_reading_and_does_not_delay_the_end(mosquitto, listen, start):
    """As after Ctrl-S. A thousand readings a second go on, and what was left out is counted."""
    listener = listen(mosquitto.port)
    ours, theirs = pty.openpty()
    process = start(FAST, mosquitto.url, theirs)
    listener.wait_for("house/d99/state", 30)

    text = read_until(ours, r"… [\d,]+ lines left out: the output was too slow")
    at_once = len(listener.on("house/d99/state"))
    listener.wait_for("house/d99/state", at_once + 20)
    code, took = end(process)

    assert re.search(r'd99  \x1b\[0mtext="x{90}"', text)
    assert code == 0
    assert took <= 2 + SLACK
    os.close(ours)
    os.close(theirs)


def test_an_app_outlives_the_reader_of_its_pipe(mosquitto, listen, start):
    listener = listen(mosquitto.port)
    process = start(APP, mosquitto.url, subprocess.PIPE)
    read_until(process.stdout.fileno(), "watts=412.5")
    process.stdout.close()

    seen = len(listener.on("house/meter/state"))
    listener.wait_for("house/meter/state", seen + 10)

    assert end(process)[0] == 0
