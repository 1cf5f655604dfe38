"""What all apps have in common as programs."""

import importlib
import re
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import psutil
import pytest

from leadsman.core.settings.sources import Where

APPS = [
    "airthings2mqtt",
    "bluetooth2mqtt",
    "caldates2mqtt",
    "gas2mqtt",
    "meter2mqtt",
    "p1meter2mqtt",
    "vito2mqtt",
    "weather2mqtt",
]
ROOT = Path(__file__).parents[1]


def page(name):
    """The README of an app."""
    return (ROOT / "apps" / name / "README.md").read_text()


def commands_for(name):
    """The page with the commands that install any app, with the name of this one."""
    return (ROOT / "docs/how-to/deployment.md").read_text().replace("NAME", name)


@pytest.mark.parametrize("name", APPS)
def test_the_page_of_an_app_begins_with_its_installation_from_the_package_index(name):
    (typed, *_) = re.findall(r"^    (.*)$", page(name), re.MULTILINE)

    assert typed == f"pipx install {name}"


@pytest.mark.parametrize("name", APPS)
def test_an_app_runs_as_a_module_too(name):
    result = subprocess.run([sys.executable, "-m", name, "--version"], capture_output=True, text=True, check=True)

    assert result.stdout == f"{name} 0.1.0\n"


@pytest.mark.parametrize("name", APPS)
def test_an_app_that_is_not_rehearsed_loads_neither_its_twin_nor_the_testing_kit(name):
    code = f"import {name}, sys; print([each for each in sys.modules if each in ('leadsman.testing', '{name}.twin')])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout == "[]\n"


@pytest.mark.parametrize("name", APPS)
def test_an_app_is_found_under_the_name_by_which_the_unit_and_the_image_run_it(name):
    code = f"from leadsman.tools.cli.target import load_target; print(load_target('{name}:app').name)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout == f"{name}\n"


@pytest.mark.parametrize("name", APPS)
def test_the_settings_on_the_page_of_an_app_are_valid(name, tmp_path):
    first, *others = re.findall(r"```toml\n(.*?)```", page(name), re.DOTALL)
    (tmp_path / "leadsman.toml").write_text(first)
    app = importlib.import_module(f"{name}.app").app

    with app.unloaded():
        app.load(Where({}, tmp_path, secrets=tmp_path))
        assert app.setup.idle_reason is None
    assert all(re.search(r"topic_prefix|\[registers\.|\[proxies\.", each) for each in others)


@pytest.mark.system
@pytest.mark.parametrize("name", APPS)
def test_the_unit_of_an_app_is_valid_and_hardened_with_the_lines_that_its_page_adds(name, tmp_path):
    (source,) = re.findall(
        rf"cp /opt/{name}/lib/python3\*/site-packages/(\S+) \\\n +/etc/systemd/system/{name}\.service\n",
        commands_for(name),
    )
    (added,) = re.findall(r"```ini\n(.*?)```", page(name).partition("## Run it for years")[2], re.DOTALL)
    unit = tmp_path / f"{name}.service"
    shutil.copy(ROOT / "src" / source, unit)
    (tmp_path / f"{name}.service.d").mkdir()
    (tmp_path / f"{name}.service.d" / "override.conf").write_text(added)

    verified = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True)
    secured = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(unit)], capture_output=True, text=True
    )

    complaints = [line for line in verified.stderr.splitlines() if f"{name}.service" in line]
    assert complaints == [
        f"{name}.service: Command /opt/{name}/bin/leadsman is not executable: No such file or directory"
    ]
    assert secured.returncode == 0, secured.stdout[-300:]


@pytest.mark.system
@pytest.mark.parametrize("name", APPS)
def test_the_image_of_an_app_is_made_of_what_its_page_names(name, tmp_path):
    assert f"pip wheel --no-deps --wheel-dir wheels . ./apps/{name}\n" in commands_for(name)
    (dockerfile,) = re.findall(
        rf"docker build --build-arg APP={name} --tag {name} \\\n +--file (\S+) \.\n", commands_for(name)
    )
    assert "ARG APP\n" in (ROOT / dockerfile).read_text()

    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT / "apps" / name],
        capture_output=True,
        check=True,
    )

    (wheel,) = tmp_path.glob("*.whl")
    assert f"{name}/app.py" in zipfile.ZipFile(wheel).namelist()


@pytest.mark.system
@pytest.mark.parametrize("duration", ["1ms", "500ms"])
def test_a_demo_that_ends_before_it_runs_ends_well_and_leaves_no_broker_behind(
    program, tmp_path, monkeypatch, duration
):
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    running = program("gas2mqtt", "--demo", "--for", duration)

    assert running.process.wait(20) == 0, running.log
    deadline = time.monotonic() + 10  # a busy machine may take a moment to end what was killed
    while left := [each for each in commands() if str(tmp_path) in each]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def commands():
    """The command lines of all processes."""
    return [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
