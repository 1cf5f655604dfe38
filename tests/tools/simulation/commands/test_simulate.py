"""``leadsman simulate`` on the command line: what it prints and writes, and with which code it exits."""

import io
import json
import math
import re
import sys
from xml.etree import ElementTree

import pytest

from leadsman.tools.cli.main import main

HOUSE = """
from leadsman import App

app = App("house", mqtt="mqtt://nowhere.invalid")


@app.telemetry(["a", "b"], interval="10m")
async def read():
    return {"t": 1.0}
"""
ARGUMENTS = ("--day", "flaky", "--for", "12h")


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run the command with a house in the working directory. Returns the exit code, stdout and stderr."""
    (tmp_path / "house.py").write_text(HOUSE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "house", raising=False)

    def run(*arguments):
        try:
            code = main(["simulate", "house:app", *ARGUMENTS, *arguments])
        except SystemExit as ended:
            code = ended.code
        return code, *capsys.readouterr()

    yield run
    sys.modules.pop("house", None)


def test_a_day_is_shown_with_the_usual_policies_and_a_conclusion(run):
    code, out, err = run()

    assert (code, err) == (0, "")
    assert out.startswith("house: a flaky day\n2 devices, 12h from 2026-02-10 00:00 UTC, seed 1\n")
    assert [out.count(line) for line in ("as written: ", "\nretry=3\n", "\nUNTIL_NEXT_POLL\n")] == [1, 1, 1]
    assert "would do best" in out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80


def test_a_policy_that_changes_nothing_is_named_and_not_drawn_again(run):
    code, out, _ = run("--policy", "retry=0", "--policy", "retry=2", "--policy", "retry=2", "--policy", "never")

    assert code == 0
    assert [out.count(line) for line in ("as written: ", "\nretry=0\n", "\nretry=2\n", "\nnever\n")] == [1, 0, 1, 1]
    assert "retry=0 changes nothing: it is 'as written' again." in " ".join(out.split())
    assert "retry=2 changes nothing: it is 'retry=2' again." in " ".join(out.split())


def test_the_document_has_the_figures_the_faults_and_the_devices(run):
    code, out, _ = run("--json", "--policy", "retry=3")

    document = json.loads(out)
    written, retrying = document["policies"]
    assert code == 0
    assert written["slots"] == sum(device["slots"] for device in written["devices"].values()) == 144
    assert written["lost"] > retrying["lost"]
    assert len(written["devices"]["a"]["gaps"]) > 0
    assert {fault["of"] for fault in document["faults"]} == {"a", "b", "broker"}
    assert len(document["conclusion"]) == 1


def test_a_picture_is_written_and_the_same_seed_gives_the_same_bytes(run, tmp_path):
    for name, seed in (("one", "3"), ("two", "3"), ("three", "4")):
        assert run("--policy", "never", "--seed", seed, "--svg", f"{name}.svg")[0] == 0

    one, two, three = ((tmp_path / f"{name}.svg").read_bytes() for name in ("one", "two", "three"))
    assert ElementTree.fromstring(one).tag.endswith("svg")
    assert one == two != three


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--policy", "retri=3"), 2, "leadsman: --policy 'retri=3': 'retri' is unknown here; did you mean 'retry'?"),
        (("--policy", "gentel"), 78, "leadsman: --policy 'gentel': telemetry 'a': no policy is called 'gentel'"),
        (("c"), 78, "leadsman: no device 'c' is polled"),
        (("--stand-in", "c"), 78, "leadsman: no device 'c' is polled"),
        (("--svg", "nowhere/day.svg"), 1, "leadsman: --svg nowhere/day.svg: there is no directory nowhere"),
        (("--svg", "."), 1, "leadsman: --svg .: it is a directory"),
        (("--for", "1s"), 2, "leadsman: --for is 1 s; simulate between a minute and 31 days"),
        (("--for", "99d"), 2, "31 days"),
        (("--begins", "0001-01-01"), 2, "leadsman: --begins is in the year 1; write one from 1971 to 2999"),
        (("--begins", "tomorrow"), 2, "'tomorrow' is not a date; write 2026-10-25"),
        (("--day", "sunny"), 2, "invalid choice: 'sunny'"),
    ],
)
def test_what_is_wrong_is_named(run, arguments, code, said):
    found, out, err = run(*arguments)

    assert (found, out) == (code, "")
    assert said in err
    assert "Traceback (most" not in err


def test_a_picture_that_cannot_be_written_is_named(run, tmp_path, monkeypatch):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", full)

    code, _, err = run("--policy", "never", "--svg", "day.svg")

    assert code == 1
    assert "leadsman: --svg day.svg: [Errno 28] No space left on device" in err


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_shown_on_a_terminal_after_a_while_and_cleared_at_the_end(run, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("leadsman.tools.simulation.commands.simulate.PROGRESS_DELAY", 0.0)

    assert run("--policy", "retry=3", "--for", "1h")[0] == 0

    written = terminal.getvalue()
    assert re.search(r"\r\x1b\[Ksimulating policy [12] of 2, (as written|retry=3): \d+%", written)
    assert written.endswith("\r\x1b[K")


@pytest.mark.parametrize(("stream", "patience"), [(Terminal, math.inf), (io.StringIO, 0.0)])
def test_a_short_day_shows_no_progress_and_what_is_no_terminal_shows_none(run, monkeypatch, stream, patience):
    given = stream()
    monkeypatch.setattr(sys, "stderr", given)
    monkeypatch.setattr("leadsman.tools.simulation.commands.simulate.PROGRESS_DELAY", patience)

    assert run("--policy", "never", "--for", "1h")[0] == 0

    assert given.getvalue() == ""
