"""``leadsman diff`` on the command line: what it prints, and with which code it exits."""

import json
import os
import shlex
import sys
from pathlib import Path

import pytest

import leadsman
from leadsman.tools.cli.main import main

HOUSE = """
import os
import random
from typing import Annotated

from pydantic import BaseModel

from leadsman import App, Sensor


class Settings(BaseModel):
    offset: float = 0.0


class Air(BaseModel):
    co2: Annotated[int, Sensor("ppm", device_class="carbon_dioxide")]
    temperature: Annotated[float, Sensor("°C", device_class="temperature")]
    chance: float


app = App("house", version="1.0.0", settings=Settings)


@app.telemetry("air", interval="10m")
async def air(settings: Settings) -> Air:
    print("reading")
    os.write(1, b"from below")
    return Air(co2=400, temperature=21.5 + settings.offset, chance=random.random())
"""
SESSION = """\
{"session": 1, "app": "scale", "began": "2026-11-27T20:40:00.000Z"}
{"at": 0.204, "wire": "serial /dev/ttyS0", "n": 1, "event": "open"}
{"at": 0.219, "n": 1, "event": "opened"}
{"at": 0.22, "wire": "serial /dev/ttyS0", "n": 2, "event": "send", "text": "P?\\\\r\\\\n"}
{"at": 0.337, "n": 2, "event": "received", "text": "21,5\\\\r\\\\n"}
{"at": 9.0, "event": "end"}
""".replace("\\\\", "\\")
SCALE = """
from leadsman import App
from leadsman.adapters.serial import SerialPort

app = App("scale", adapters=(SerialPort("/dev/ttyS0"),))


@app.telemetry("scale", interval="10s")
async def scale(port: SerialPort):
    line = await port.request(b"P?\\r\\n")
    return {"kg": float(line.replace(b",", b"."))}
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run the command beside the code of yesterday. Returns the exit code, stdout and stderr."""
    here = tmp_path / "today"
    for folder in (here, tmp_path / "yesterday"):
        folder.mkdir()
        (folder / "house.py").write_text(HOUSE)
    monkeypatch.chdir(here)
    monkeypatch.setenv("PYTHONPATH", str(Path(leadsman.__file__).parents[1]))

    def run(*arguments, target="house:app", length="1h"):
        try:
            code = main(["diff", target, *arguments, *(() if length is None else ("--for", length))])
        except SystemExit as ended:
            code = ended.code
        return code, *capsys.readouterr()

    return run


def change(old, new, file="house.py"):
    """Change the code of today."""
    text = Path(file).read_text()
    assert old in text
    Path(file).write_text(text.replace(old, new))


def test_the_same_code_changes_nothing_and_chance_is_not_compared(run):
    code, out, err = run("--before", "../yesterday")

    assert (code, err) == (0, "")
    assert "Nothing changes" in out
    assert "run to run" not in out


def test_chance_beside_a_change_is_counted(run):
    change("co2", "carbon")

    code, out, _ = run("--before", "../yesterday")

    assert code == 1
    assert "chance" not in out
    assert "1 value differs from run to run" in out


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ('"air"', '"wind"', ["+ house/wind/state", "- house/air/state", "+ house/wind co2"]),
        ("co2", "carbon", ["+ house/air/state carbon", "- house/air/state co2", "+ house/air carbon"]),
        ("co2=400", "co2=401", ["~ house/air/state co2: 400 → 401"]),
        ("chance: float", "chance: str", ["~ house/air/state chance: number → text"]),
        ('"°C"', '"K"', ['~ house/air temperature unit_of_meas: "°C" → "K"']),
        (
            "co2=400",
            "co2='x'",
            ["fails now:", "  house/air: ValidationError: 1 validation error for Air co2 Input should be"],
        ),
        ("offset: float = 0.0", "offset: float = 0.0\n    height: int = 3", ["+ height"]),
        ("10m", "5m", ["~ house/air/state messages: 7 → 13"]),
        ('version="1.0.0"', 'version="1.0.1"', None),
    ],
)
def test_a_change_of_the_code_is_shown(run, old, new, lines):
    change(old, new)
    if "str" in new:
        change("random.random()", "'x'")

    code, out, err = run("--before", "../yesterday")

    assert (code, err) == ((0, "") if lines is None else (1, ""))
    assert [each for each in lines or () if each not in out] == []


def test_other_settings_are_shown_with_what_they_change(run):
    Path("new.toml").write_text("offset = 1.0\n")
    Path("old.toml").write_text("offset = 0.0\n")

    code, out, _ = run("--before-settings", "old.toml", "--config", "new.toml")

    assert code == 1
    assert '~ offset: "0.0" → "1.0"' in out
    assert "~ house/air/state temperature: 21.5 → 22.5" in out


def environment(tmp_path, command):
    """A folder with an environment, whose interpreter is this shell command."""
    python = tmp_path / "environment" / "bin" / "python"
    python.parent.mkdir(parents=True)
    (tmp_path / "environment" / "pyvenv.cfg").write_text("")
    python.write_text(f"#!/bin/sh\n{command}\n")
    python.chmod(0o755)
    return str(tmp_path / "environment")


def test_another_environment_runs_the_code_that_is_here(run, tmp_path):
    path = shlex.quote(os.environ["PYTHONPATH"])
    folder = environment(tmp_path, f'PYTHONPATH={path} exec {shlex.quote(sys.executable)} "$@"')

    code, out, err = run("--before", folder)

    assert (code, err) == (0, "")
    assert "Nothing changes" in out


def test_an_environment_without_the_command_is_a_sentence(run, tmp_path):
    folder = environment(tmp_path, "echo \"ModuleNotFoundError: No module named 'leadsman'\" >&2; exit 1")

    code, out, err = run("--before", folder)

    assert (code, out) == (1, "")
    assert "has no leadsman with this command; install a newer one there" in err


def test_a_picture_of_today_is_compared_tomorrow(run):
    assert run("--write", "today.json") == (0, "", "")
    change("co2", "carbon")

    code, out, _ = run("--before", "today.json", "--json", length=None)

    document = json.loads(out)
    assert code == 1
    assert document["after"]["length"] == document["before"]["length"] == 3600
    assert ("payload fields", "house/air/state carbon", "appears") in [
        (each["group"], each["name"], each["how"]) for each in document["changes"]
    ]


def test_an_app_runs_on_what_was_recorded_and_its_values_are_compared(run):
    Path("scale.session").write_text(SESSION)
    for folder in (".", "../yesterday"):
        Path(folder, "scale.py").write_text(SCALE)
    change('{"kg": float(', '{"kg": 2 * float(', "scale.py")

    code, out, err = run("--before", "../yesterday", "--session", "scale.session", target="scale:app", length=None)

    assert (code, err) == (1, "")
    assert "~ scale/scale/state kg: 21.5 → 43.0" in out


def test_an_app_that_asks_its_device_otherwise_than_the_session_is_named_with_its_side(run):
    Path("scale.session").write_text(SESSION)
    for folder in (".", "../yesterday"):
        Path(folder, "scale.py").write_text(SCALE)
    change("P?", "Q?", "scale.py")

    code, out, err = run("--before", "../yesterday", "--session", "scale.session", target="scale:app", length=None)

    assert (code, out) == (1, "")
    assert "leadsman: after: " in err
    assert "scale.session line 4" in err


def test_an_app_without_twins_and_without_a_session_is_told_what_to_do(run):
    Path("scale.py").write_text(SCALE)

    code, _, err = run("--write", "x.json", target="scale:app")

    assert code == 78
    assert "write App(…, twins=…), or give a session that leadsman record wrote: --session FILE" in err


def test_an_app_that_touches_something_real_is_named(run):
    change('print("reading")', 'open("/var/tmp/house.txt", "w")')

    code, _, err = run("--write", "x.json")

    assert code == 1
    assert "house.py" in err
    assert "a comparison touches nothing real" in err


def test_an_endpoint_of_the_settings_does_not_listen(run):
    Path("leadsman.toml").write_text('[http]\nbind = "127.0.0.1:1"\n')

    assert run("--write", "x.json") == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "name what to compare with"),
        (("--before", "nowhere"), 1, "there is no folder nowhere"),
        (("--before", "house.py"), 1, "house.py is no picture of an app"),
        (("--before", "../yesterday", "--for", "60d"), 2, "compare between a second and 31 days"),
        (("--before", "../yesterday", "--config", "no.toml"), 78, "before: "),
    ],
)
def test_what_is_wrong_is_a_sentence(run, arguments, code, said):
    got, out, err = run(*arguments, length=None)

    assert (got, out) == (code, "")
    assert said in err
