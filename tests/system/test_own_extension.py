"""An extension of somebody else: a package of its own, installed into an environment, on the public page alone."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from tests.test_public_surface import not_public

import leadsman

PACKAGE = Path(__file__).parents[1] / "extensions" / "of_somebody_else"
APP = """
import json, sys
from leadsman import App
from leadsman.testing import Harness, Scripted

app = App("house", mqtt="mqtt://broker"EXTENSIONS)
app.add_telemetry("boiler", Scripted({"t": 70}, {"t": 95}), interval="10s"OPTION)

if __name__ == "__main__":
    with Harness(app, settings=json.loads(sys.argv[1])) as harness:
        harness.run("2m")
        print(json.dumps(harness.status()))
"""
GIVEN = APP.replace("EXTENSIONS", ", extensions=[Alarm()]").replace("OPTION", ", alarm_above=90")
NAMED = APP.replace("EXTENSIONS", "").replace("OPTION", "")
pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The Python of an environment with the package, which finds leadsman and its libraries in this one."""
    target = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", target], check=True)
    libraries = Path(sysconfig.get_path("purelib", vars={"base": str(target)}))
    (libraries / "here.pth").write_text(f"{Path(leadsman.__file__).parents[1]}\n{sysconfig.get_path('purelib')}\n")
    copied, python = target / "package", target / "bin" / "python"
    shutil.copytree(PACKAGE, copied, ignore=shutil.ignore_patterns("__pycache__"))
    install = ["-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([sys.executable, *install, copied], check=True)
    return python


def ran(python, tmp_path, *arguments, program):
    """What it prints, with the exit code."""
    (tmp_path / "house.py").write_text(program)
    found = subprocess.run(
        [python, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False, env={**os.environ, "HOME": "/"}
    )
    return found.returncode, found.stdout, found.stderr


def status(python, tmp_path, program, **settings):
    """The last heartbeat of the app after two minutes."""
    code, printed, errors = ran(python, tmp_path, "house.py", json.dumps(settings), program=program)
    assert code == 0, errors
    return json.loads(printed.splitlines()[-1])


def test_the_package_is_short_and_imports_what_is_public():
    sources = [*PACKAGE.rglob("*.py")]

    assert sum(len(path.read_text().splitlines()) for path in [*sources, PACKAGE / "pyproject.toml"]) < 120
    assert [each for path in sources for each in not_public(path.read_text())] == []


def test_an_app_that_is_given_it_has_its_option_its_settings_and_its_part_of_the_heartbeat(python, tmp_path):
    program = "from leadsman_alarm import Alarm\n" + GIVEN

    assert status(python, tmp_path, program)["alarms"] == ["boiler"]
    assert status(python, tmp_path, program, **{"alarm.wait": "1h"})["alarms"] == []
    assert status(python, tmp_path, program, **{"alarm.field": "pressure"})["alarms"] == []


def test_it_joins_an_app_whose_settings_name_it_and_no_other(python, tmp_path):
    assert status(python, tmp_path, NAMED, **{"extensions.names": ["alarm"]})["alarms"] == []
    assert "alarms" not in status(python, tmp_path, NAMED)


def test_its_command_is_one_of_the_app(python, tmp_path):
    program = "from leadsman_alarm import Alarm\n" + GIVEN

    code, printed, errors = ran(python, tmp_path, "-m", "leadsman", "alarms", "house:app", program=program)

    assert (code, printed) == (0, "boiler 90\n"), errors


def test_a_misspelt_setting_of_it_is_named_before_anything_runs(python, tmp_path):
    program = "from leadsman_alarm import Alarm\n" + GIVEN
    (tmp_path / "leadsman.toml").write_text("[alarm]\nwiat = '1m'\n")

    code, printed, errors = ran(python, tmp_path, "-m", "leadsman", "check", "house:app", program=program)

    assert code != 0
    assert "leadsman.toml line 2); did you mean 'wait'?" in printed + errors


def test_its_check_is_one_of_the_doctor(python, tmp_path):
    program = "from leadsman_alarm import Alarm\n" + GIVEN.replace(", alarm_above=90", "")

    _, printed, errors = ran(python, tmp_path, "-m", "leadsman", "doctor", "house:app", program=program)

    assert "no device has a limit" in printed, errors
    assert "write alarm_above=90 at its decorator" in printed
