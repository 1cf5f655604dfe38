"""What `make dist` builds, installed where the checkout is not, with each Python that is here."""

import os
import re
import select
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from leadsman import __version__

ROOT = Path(__file__).parents[2]
APPS = sorted(each.parent.name for each in ROOT.glob("apps/*/pyproject.toml"))
CLASSIFIERS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
VERSIONS = [found[1] for each in CLASSIFIERS if (found := re.search(r":: (3\.\d+)$", each))]
NO_NETWORK = re.compile("name resolution|NewConnectionError|Network is unreachable|Connection refused", re.IGNORECASE)


def python_of(version):
    """An interpreter of this version that can make environments, or None."""
    places = [shutil.which(f"python{version}"), *Path.home().glob(f".pyenv/versions/{version}.*/bin/python")]
    for each in filter(None, places):
        if subprocess.run([each, "-c", "import ensurepip"], capture_output=True, check=False).returncode == 0:
            return str(each)
    return None


class Machine:
    """A folder that stands for a machine: a home, an empty environment, and the distributions."""

    def __init__(self, folder, python, built):
        self.folder, self.python, self.built = folder, python, built
        self.bin = folder / "venv" / "bin"
        self._variables = {
            "HOME": str(folder),
            "PATH": "/usr/bin:/bin:/usr/sbin",
            "PIP_CACHE_DIR": str(Path.home() / ".cache" / "pip"),
            "PIP_FIND_LINKS": str(built),
            "PIP_NO_COMPILE": "1",
            "PIPX_HOME": str(folder / "pipx"),
            "PIPX_BIN_DIR": str(folder / "bin"),
        }

    def wheel(self, name):
        """Named by its path, for on the index may be somebody else's package with the name of an app."""
        return self.built / f"{name}-{__version__}-py3-none-any.whl"

    def run(self, *command, code=0, at="."):
        done = subprocess.run(
            [str(each) for each in command],
            cwd=self.folder / at,
            env=self._variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
            check=False,
        )
        if done.returncode != code and NO_NETWORK.search(done.stdout):
            pytest.skip("needs the network: the libraries come from the index")
        assert done.returncode == code, done.stdout
        return done.stdout

    def install(self, *names):
        self.run(self.python, "-m", "venv", self.folder / "venv")
        self.run(self.bin / "pip", "install", *map(self.wheel, names))

    def first_reading(self, *command, at="."):
        """Start an app, and end it after its first reading, or after 30 seconds. Returns what it has printed."""
        process = subprocess.Popen(
            [str(each) for each in command],
            cwd=self.folder / at,
            env=self._variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            printed, deadline = b"", time.monotonic() + 30
            while b"first reading" not in printed and time.monotonic() < deadline:
                if select.select([process.stdout], [], [], 0.5)[0]:
                    if not (more := os.read(process.stdout.fileno(), 65536)):
                        break
                    printed += more
            return printed.decode()
        finally:
            process.terminate()
            process.communicate(timeout=20)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder that `make dist` makes."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, ROOT / "scripts" / "dist.py", folder], check=True, capture_output=True)
    return folder


@pytest.fixture(params=VERSIONS)
def machine(request, tmp_path, built):
    if (python := python_of(request.param)) is None:
        pytest.skip(f"no Python {request.param} with ensurepip is here")
    return Machine(tmp_path, python, built)


def test_leadsman_makes_an_app_whose_own_test_passes(machine):
    machine.install("leadsman")

    machine.run(machine.bin / "leadsman", "init", "house")
    machine.run(machine.bin / "pip", "install", "-e", ".[test]", at="house")

    assert " passed" in machine.run(machine.bin / "python", "-m", "pytest", at="house")
    assert "first reading" in machine.first_reading(machine.bin / "leadsman", "run", "house:app", at="house")
    code = "import leadsman; print(leadsman.__file__)"
    assert machine.run(machine.bin / "python", "-c", code).startswith(str(machine.folder))


def test_each_app_has_a_first_reading(machine):
    machine.install("leadsman", *APPS)

    printed = {name: machine.first_reading(machine.bin / name, "--demo") for name in APPS}

    assert {name: text for name, text in printed.items() if "first reading" not in text} == {}


def test_an_app_is_installed_by_pipx_and_says_what_to_type_for_what_it_lacks(machine):
    pipx = (sys.executable, "-m", "pipx")

    machine.run(*pipx, "install", "--python", machine.python, machine.wheel("airthings2mqtt"))

    app = machine.folder / "bin" / "airthings2mqtt"
    assert machine.run(app, "--version") == f"airthings2mqtt {__version__}\n"
    assert "first reading" in machine.first_reading(app, "--demo")
    refused = machine.run(app, "--http", "127.0.0.1:0", code=78)
    (typed,) = re.findall(r"type: (pipx .*?) \(", refused)
    machine.run(sys.executable, "-m", *shlex.split(typed))
    assert "first reading" in machine.first_reading(app, "--demo", "--http", "127.0.0.1:0")
