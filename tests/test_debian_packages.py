"""`scripts/debian-packages`, with an apt-get that only notes what it is asked for."""

import os
import shutil
import subprocess

import pytest

CANDIDATES = {"chromium": "147.0-1~deb12u1", "mosquitto-clients": "2.0.18-1"}
ADVICE = "install Google Chrome"


@pytest.fixture
def install(tmp_path):
    """Install programs on a machine that has some. Returns what apt-get installs, and what the script says."""
    for tool in ("bash", "env", "grep", "readlink", "sed"):
        (tmp_path / tool).symlink_to(shutil.which(tool))

    def program(name, text="exit 0"):
        path = tmp_path / name
        path.write_text(f"#!{shutil.which('bash')}\n{text}\n")
        path.chmod(0o755)
        return path

    def run(*wanted, has=(), candidates=CANDIDATES):
        asked = tmp_path / "asked"
        program("id", "echo 0")
        program("apt-get", f'echo "$@" >>{asked}')
        known = "".join(f"{name}) echo '  Candidate: {version}' ;; " for name, version in candidates.items())
        program("apt-cache", f"case $2 in {known} esac")
        for name, text in dict(has).items():
            program(name, text)
        done = subprocess.run(
            ["bash", "scripts/debian-packages", *wanted],
            env={"PATH": os.fspath(tmp_path)},
            executable=shutil.which("bash"),
            capture_output=True,
            text=True,
        )
        lines = asked.read_text().splitlines() if asked.exists() else []
        installed = [line.rsplit("--no-install-recommends ", 1)[1] for line in lines if line.startswith("install")]
        return done.returncode, installed, done.stderr

    return run


def test_what_is_there_is_not_installed(install):
    assert install("chromium", "mosquitto_rr=mosquitto-clients", has={"chromium": "", "mosquitto_rr": ""}) == (
        0,
        [],
        "",
    )


def test_what_is_missing_is_installed_by_the_name_of_its_package(install):
    code, installed, _ = install("chromium", "mosquitto_rr=mosquitto-clients")

    assert (code, installed) == (0, ["chromium mosquitto-clients"])


@pytest.mark.parametrize("candidates", [{}, {"chromium": "(none)"}, {"chromium": "2:1snap1-0ubuntu2"}])
def test_where_chromium_is_a_snap_nothing_is_installed_and_the_way_out_is_named(install, candidates):
    code, installed, said = install("chromium", candidates=candidates)

    assert (code, installed) == (1, [])
    assert ADVICE in said


def test_a_program_that_starts_a_snap_is_as_good_as_missing(install):
    stub = {"chromium": 'exec /snap/bin/chromium "$@"'}
    assert install("chromium", has=stub, candidates={})[0] == 1
    assert install("chromium", has={**stub, "google-chrome": ""}, candidates={}) == (0, [], "")


def test_a_package_that_apt_does_not_know_is_named(install):
    code, installed, said = install("mosquitto_rr=mosquitto-clients", candidates={})

    assert (code, installed) == (1, [])
    assert "mosquitto-clients" in said.splitlines()[-1]


def systemctl(tmp_path, knows_it):
    return {"systemctl": f'[ "$1" != cat ] || exit {0 if knows_it else 1}\necho "$@" >>{tmp_path}/done'}


SERVERS = pytest.mark.parametrize("package", ["prometheus", "influxdb", "ejabberd", "rabbitmq-server"])
PROGRAM = "program_of_a_server"
"""No machine has it, also not one that has these servers."""


@SERVERS
def test_a_server_that_debian_starts_with_the_machine_stays_off(install, tmp_path, package):
    note = systemctl(tmp_path, knows_it=False)

    code, installed, said = install(f"{PROGRAM}={package}", has=note, candidates={**CANDIDATES, package: "2.42.0"})

    assert (code, installed) == (0, [package]), said
    assert (tmp_path / "done").read_text() == f"--quiet mask {package}.service\n"
    assert f"systemctl unmask {package}" in said


@SERVERS
def test_a_server_that_was_there_before_stays_as_it_is(install, tmp_path, package):
    note = systemctl(tmp_path, knows_it=True)

    code, installed, said = install(f"{PROGRAM}={package}", has=note, candidates={**CANDIDATES, package: "2.42.0"})

    assert (code, installed) == (0, [package]), said
    assert not (tmp_path / "done").exists()
    assert f"{package} stays off" not in said
