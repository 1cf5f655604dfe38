"""`scripts/home-assistant`, with a Python whose pip and uv only note what they are asked for."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path("scripts/home-assistant").absolute()
PYTHON = """\
case "$*" in
    -c*ensurepip*) exit $(cat "$STUB/too-old" 2>/dev/null || echo 0) ;;
    -c*package_constraints*) echo "constraints.txt" ;;
    --version) echo "Python ${0##*/python}.0" ;;
    "-m venv"*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; cp "$STUB/uv" "$3/bin/uv"; echo "${0##*/}" >"$3/from" ;;
    "-m pip install"*)
        echo "pip ${@:4}" >>"$STUB/asked"
        case "$*" in *homeassistant*) [ ! -e "$STUB/none-for-$(cat "${0%/*}/../from")" ] || exit 1 ;; esac
        exit $(cat "$STUB/pip-fails" 2>/dev/null || echo 0) ;;
esac
"""
UV = """\
echo "uv $*" >>"$STUB/asked"
[ ! -e "$STUB/none-for-$(cat "${0%/*}/../from")" ] || exit 1
exit $(cat "$STUB/uv-fails" 2>/dev/null || echo 0)
"""


class Machine:
    """A machine with one Python, and the script."""

    def __init__(self, path):
        self.path = path
        self.home_assistant = path / "ha"
        for tool in ("bash", "env", "seq", "mkdir", "cp", "tee", "cat", "rm"):
            (path / tool).symlink_to(shutil.which(tool))
        self.add("python3", PYTHON)
        self.add("uv", UV)

    def add(self, name, text):
        (self.path / name).write_text(f"#!{shutil.which('bash')}\n{text}")
        (self.path / name).chmod(0o755)

    def __call__(self, **variables):
        """Make the environment; returns what was asked of pip and uv, a line a call."""
        asked = self.path / "asked"
        asked.unlink(missing_ok=True)
        words = [shutil.which("bash"), SCRIPT, self.home_assistant]
        environment = {"PATH": os.fspath(self.path), "STUB": os.fspath(self.path), "HOME": "/nowhere", **variables}
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
        self.said = done.stderr
        assert done.returncode == 0, done.stderr
        return asked.read_text().splitlines() if asked.exists() else []

    @property
    def python(self):
        """The Python that the environment was made with."""
        return (self.home_assistant / "from").read_text().strip()

    def fails(self, what):
        (self.path / what).write_text("1")

    @property
    def why_not(self):
        path = self.home_assistant / "why-not"
        return path.read_text() if path.exists() else None


@pytest.fixture
def prepare(tmp_path):
    return Machine(tmp_path)


def test_home_assistant_is_installed_once_with_the_frontend_and_the_client_that_it_asks_for(prepare):
    pip, core, parts = prepare()

    assert pip.endswith(" uv")
    assert core.startswith("uv ")
    assert core.endswith(" homeassistant>=2025.1")
    assert parts.endswith(" home-assistant-frontend paho-mqtt aiohasupervisor --constraint constraints.txt")
    assert prepare.why_not is None
    assert (prepare(), prepare.said) == ([], "")


def test_the_newest_python_that_can_have_it_is_taken(prepare):
    for name in ("python3.15", "python3.14", "python3.13"):
        prepare.add(name, PYTHON)
    prepare.fails("none-for-python3.15")

    prepare()

    assert (prepare.python, prepare.why_not) == ("python3.14", None)


def test_another_release_can_be_chosen(prepare):
    prepare()

    asked = prepare(HOME_ASSISTANT="==2025.4.*")

    assert asked[1].endswith(" homeassistant==2025.4.*")
    assert prepare(HOME_ASSISTANT="==2025.4.*") == []


def test_where_uv_cannot_reach_the_index_pip_does_the_work(prepare):
    prepare.fails("uv-fails")

    asked = prepare()

    assert [line.split()[0] for line in asked] == ["pip", "uv", "pip", "uv", "pip"]
    assert prepare.why_not is None


def test_without_a_network_the_reason_is_said_and_left_for_the_tests(prepare):
    prepare.fails("pip-fails")

    prepare()

    assert prepare.why_not.startswith("Home Assistant cannot be had here: a package could not be fetched; ")
    assert prepare.said.endswith(prepare.why_not)


def test_without_a_newer_python_the_reason_names_it(prepare):
    prepare.fails("too-old")

    assert prepare() == []

    assert prepare.why_not == "Home Assistant cannot be had here: it needs Python 3.12 or newer, with venv\n"


def test_what_could_not_be_had_is_tried_again(prepare):
    prepare.fails("pip-fails")
    prepare()
    (prepare.path / "pip-fails").unlink()

    assert len(prepare()) == 3
    assert prepare.why_not is None
