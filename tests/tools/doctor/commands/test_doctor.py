"""What `leadsman doctor` prints."""

import io
import subprocess
import sys

from leadsman.tools.cli.terminal import Progress
from leadsman.tools.doctor.checks import Finding
from leadsman.tools.doctor.commands.doctor import lines, of_replacement

FOUND = [
    Finding("broker", "address", "ok", "it answers"),
    Finding("topics", "publish", "fail", "a\x1b[2Jb " + "word " * 30, "do this"),
    Finding("topics", "orphans", "warn", "kept", "remove it"),
    Finding("topics", "clock", "unknown", "nobody says"),
]


def test_findings_are_grouped_wrapped_and_counted(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    shown = list(lines(FOUND, 2.04))

    assert shown[0] == "broker"
    assert shown[1] == "  ok      address         it answers"
    assert "\ntopics" in shown
    assert all(len(line) <= 80 for line in shown)
    assert f"{'':26}→ do this" in shown
    assert shown[-1] == "1 ok, 1 unknown, 1 warning, 1 failed, in 2.0 s"


STUBBORN = """
import asyncio, contextlib, sys
from leadsman.core.adapters.resource import Resource
from leadsman.tools.doctor.commands.doctor import examine
from leadsman.tools.doctor import examination
from leadsman.tools.doctor.subject import Subject
from leadsman.core.mqtt.broker import Broker
from leadsman.core.mqtt.topics import Topics

async def log_in():
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)

examination.DEADLINE = examination.CLEARING = 0.3
calendar = Resource("calendars", "https://cloud.example", log_in)
broker = Broker.from_url("mqtt://127.0.0.1:1")
sys.exit(examine(Subject("house", broker, "house", Topics("house"), (), {}, resources=(calendar,)), as_json=True))
"""


def test_an_adapter_that_ignores_its_cancellation_does_not_keep_the_command():
    done = subprocess.run([sys.executable, "-c", STUBBORN], capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stderr) == (4, "")
    assert "not done after" in done.stdout


def test_what_comes_from_outside_cannot_drive_the_terminal():
    assert "\x1b" not in "".join(lines(FOUND, 1.0))


def test_progress_is_for_terminals_only(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    file, terminal = io.StringIO(), Terminal()
    for stream in (file, terminal):
        with Progress(stream) as progress:
            progress.show("examining broker: access list")

    assert file.getvalue() == ""
    assert terminal.getvalue() == "\r\x1b[Kexamining broker: a\r\x1b[K"


def test_of_a_replacement_only_what_the_app_would_need_there_is_shown():
    found = [
        Finding("broker", "address", "fail", "cannot connect", "start it"),
        Finding("topics", "publish", "ok", "7 of 7 topics", ""),
        Finding("topics", "running app", "fail", "is not here", ""),
        Finding("machine", "disk", "ok", "plenty", ""),
    ]

    shown = of_replacement(found, "mqtt://b:1883")

    assert [(each.group, each.check) for each in shown] == [
        ("replacement mqtt://b:1883", "address"),
        ("replacement mqtt://b:1883", "publish"),
    ]
