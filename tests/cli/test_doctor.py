"""What `leadsman doctor` prints."""

import io

from leadsman.cli.doctor import Progress, lines
from leadsman.doctor.findings import Finding

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


def test_what_comes_from_outside_cannot_drive_the_terminal():
    assert "\x1b" not in "".join(lines(FOUND, 1.0))


def test_progress_is_for_terminals_only(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    file, terminal = io.StringIO(), Terminal()
    for stream in (file, terminal):
        progress = Progress(stream)
        progress.say("broker: access list")
        progress.clear()

    assert file.getvalue() == ""
    assert terminal.getvalue() == "\r\x1b[Kexamining broker: a\r\x1b[K"
