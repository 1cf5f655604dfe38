"""`scripts/environment`, with a Python whose pip only notes what it is asked for."""

import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

PYTHON = f"""#!/bin/bash
case "$*" in
    -c*'import pip'*) exit $(cat "$STUB/old-pip" 2>/dev/null || echo 0) ;;
    -c*version_info*) cat "$0.version" 2>/dev/null || echo 3.12; exit $(cat "$STUB/too-old" 2>/dev/null || echo 0) ;;
    -c*find_spec*) cat "$STUB/origin" 2>/dev/null || echo "$PWD/src/leadsman/__init__.py"; exit ;;
    "-m venv"*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; exit $(cat "$STUB/no-venv" 2>/dev/null || echo 0) ;;
    "-m pip install"*)
        echo "${{@:4}}" >>"$STUB/asked"
        cat "$STUB/pip-says" 2>/dev/null
        exit $(cat "$STUB/pip-fails" 2>/dev/null || echo 0)
        ;;
esac
exec {sys.executable} "$@"
"""
OFFLINE = """\
WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError: Temporary failure in name resolution'
ERROR: No matching distribution found for aiomqtt
"""


class Checkout:
    """A checkout of leadsman with one app, and the script."""

    def __init__(self, path):
        self.path = path
        (path / "scripts").mkdir()
        shutil.copy("scripts/environment", path / "scripts")
        shutil.copy("pyproject.toml", path)
        (path / "tests" / "rigs").mkdir(parents=True)
        shutil.copy("tests/rigs/pyproject.toml", path / "tests" / "rigs")
        (path / "apps" / "one").mkdir(parents=True)
        (path / "apps" / "one" / "pyproject.toml").write_text('[project]\nname = "one"\n')
        self.stub("python3", PYTHON).chmod(0o755)

    def stub(self, name, text):
        (self.path / name).write_text(text)
        return self.path / name

    def __call__(self, *parts):
        """Prepare the environment; returns the words for pip, a line a call."""
        (self.path / "asked").unlink(missing_ok=True)
        done = subprocess.run(
            ["scripts/environment", ".venv", f"{self.path}/python3", *parts],
            cwd=self.path,
            env={"PATH": "/usr/bin:/bin", "STUB": str(self.path)},
            capture_output=True,
            text=True,
        )
        self.exit_code, self.said = done.returncode, done.stderr
        asked = self.path / "asked"
        return asked.read_text().splitlines() if asked.exists() else []


@pytest.fixture
def prepare(tmp_path):
    return Checkout(tmp_path)


def groups(line):
    words = line.split()
    return [after for word, after in pairwise(words) if word == "--group"]


def test_the_demo_needs_no_group_and_no_newer_pip(prepare):
    prepare.stub("old-pip", "1")

    (line,) = prepare("demo")

    assert line.endswith("--editable .[demo]")
    assert prepare.exit_code == 0


def test_groups_need_a_pip_that_knows_them(prepare):
    prepare.stub("old-pip", "1")

    newer, packages, _ = prepare("demo", "test")

    assert newer.endswith("pip>=25.1")
    assert groups(packages) == ["test"]


@pytest.mark.parametrize("wanted", [["demo"], ["demo", "test"], ["test"], ["test", "demo"]])
def test_nothing_is_installed_where_nothing_is_missing(prepare, wanted):
    prepare("demo", "test")

    assert prepare(*wanted) == []
    assert (prepare.exit_code, prepare.said) == (0, "")


def test_an_environment_that_grows_keeps_what_it_had(prepare):
    prepare("demo", "check")

    packages, _ = prepare("demo", "test")

    assert groups(packages) == ["check", "test"]
    assert prepare("check") == []


def test_only_what_has_a_pyproject_is_an_app(prepare):
    (prepare.path / "apps" / "__pycache__").mkdir()

    _, apps = prepare("demo", "test")

    assert apps.split()[-4:] == ["--editable", "tests/rigs", "--editable", "apps/one"]
    assert "__pycache__" not in apps


def test_apps_are_installed_with_what_they_need(prepare):
    _, apps = prepare("demo", "test")

    assert "--no-deps" not in apps


def test_a_new_requirement_is_installed_into_all_that_is_there(prepare):
    prepare("demo", "test")
    with (prepare.path / "apps" / "one" / "pyproject.toml").open("a") as project:
        project.write('dependencies = ["smbus2"]\n')

    packages, _ = prepare("demo")

    assert groups(packages) == ["test"]


def test_what_a_tool_is_configured_to_do_installs_nothing(prepare):
    prepare("demo")
    with (prepare.path / "pyproject.toml").open("a") as project:
        project.write("\n[tool.ruff.format]\npreview = true\n")

    assert prepare("demo") == []


def test_a_copy_of_leadsman_is_replaced_by_the_checkout(prepare):
    prepare("demo")
    prepare.stub("origin", "/somewhere/.venv/lib/python3.12/site-packages/leadsman/__init__.py\n")

    (line,) = prepare("demo")

    assert line.endswith("--editable .[demo]")


def test_a_missing_network_is_one_line(prepare):
    prepare.stub("pip-says", OFFLINE)
    prepare.stub("pip-fails", "1")

    prepare("demo")

    assert prepare.exit_code == 1
    assert prepare.said.splitlines()[1:] == [
        "the first run needs the network: a package could not be fetched; .venv/install.log has the details"
    ]
    assert (prepare.path / ".venv" / "install.log").read_text() == OFFLINE


def test_an_environment_that_could_not_grow_still_has_what_it_had(prepare):
    prepare("demo")
    prepare.stub("pip-says", OFFLINE)
    prepare.stub("pip-fails", "1")
    prepare("demo", "test")

    assert prepare("demo") == []
    assert prepare.exit_code == 0


@pytest.mark.parametrize("fails", ["0", "1"])
def test_an_error_of_pip_is_shown_whether_pip_fails_by_it_or_not(prepare, fails):
    prepare.stub("pip-says", "ERROR: gas2mqtt 0.1.0 requires smbus2, which is not installed.\n")
    prepare.stub("pip-fails", fails)

    prepare("demo")

    assert "ERROR: gas2mqtt 0.1.0 requires smbus2" in prepare.said
    assert prepare.exit_code == int(fails)


def test_where_there_is_no_python_its_package_is_named(prepare):
    (prepare.path / "python3").unlink()

    prepare("test")

    assert prepare.exit_code == 1
    assert "python3' is not installed; on Debian type: sudo apt-get install python3-venv\n" in prepare.said


def test_a_python_that_is_too_old_is_named_with_what_to_type(prepare):
    prepare.stub("too-old", "1")

    assert prepare("demo") == []

    assert prepare.exit_code == 1
    assert "write: make PYTHON=python3.11" in prepare.said


def test_an_environment_of_another_python_is_left_alone_and_named(prepare):
    prepare("demo")
    prepare.stub(".venv/bin/python.version", "3.11\n")

    assert prepare("demo", "test") == []

    assert prepare.exit_code == 1
    assert ".venv is not of Python 3.12" in prepare.said


def test_a_python_without_venv_leaves_no_half_environment_behind(prepare):
    prepare.stub("no-venv", "1")

    prepare("demo")

    assert prepare.exit_code == 1
    assert "apt-get install python3-venv" in prepare.said
    assert not Path(prepare.path / ".venv").exists()
