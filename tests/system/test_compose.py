"""What ``leadsman init --compose`` writes: read as an engine reads it, and run without one."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import yaml

from leadsman.testing.mosquitto import free_port
from leadsman_rigs.listener import Listener
from leadsman_rigs.processes import Process
from leadsman_rigs.published_schema import complaints

NOBODY = 65534
SEARCH = f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin"


def written(directory):
    """The folder that the command writes."""
    subprocess.run(
        [sys.executable, "-m", "leadsman", "init", "house", "--compose", "--directory", directory],
        check=True,
        capture_output=True,
    )
    return directory


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    return written(tmp_path_factory.mktemp("compose") / "house")


@pytest.fixture(scope="module")
def composed(house):
    return yaml.safe_load((house / "compose.yaml").read_text())


def environment(house, service):
    """The variables of a container."""
    lines = (house / service["env_file"]).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line[0] != "#") | service.get("environment", {})


def test_the_password_is_new_each_time_and_only_in_a_file_that_git_ignores(house, tmp_path):
    password = environment(house, {"env_file": ".env"})["MQTT__PASSWORD"]
    other = environment(written(tmp_path / "house"), {"env_file": ".env"})["MQTT__PASSWORD"]
    files = [each for each in house.iterdir() if each.is_file()]

    assert re.fullmatch(r"[\w-]{32}", password)
    assert password != other
    assert [each.name for each in files if password in each.read_text()] == [".env"]
    assert ".env" in (house / ".gitignore").read_text().split()
    assert (house / ".env").stat().st_mode & 0o777 == 0o600


def test_no_container_may_do_more_than_it_needs(house, composed):
    dockerfile = (house / "Dockerfile").read_text()

    for name, service in composed["services"].items():
        user = service.get("user") or re.search(r"^USER (.+)", dockerfile, re.MULTILINE)[1]
        assert user.partition(":")[0] not in ("0", "root"), name
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"]), name
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["restart"] == "unless-stopped"
    for port in composed["services"]["broker"]["ports"]:
        assert port.startswith("127.0.0.1:")
    assert "\nHEALTHCHECK " in dockerfile


def test_what_the_file_names_is_there(house, composed):
    services = composed["services"]
    mounts = [mount.split(":") for service in services.values() for mount in service["volumes"]]
    listener = re.search(r"^listener (\d+)", (house / "mosquitto.conf").read_text(), re.MULTILINE)[1]

    assert {mount[0] for mount in mounts if mount[0][0] != "."} == set(composed["volumes"])
    for source, _, *mode in (mount for mount in mounts if mount[0][0] == "."):
        assert (house / source).is_file()
        assert mode == ["ro"]
    assert set(services["app"]["build"]["args"]) == set(
        re.findall(r"^ARG (\w+)", (house / "Dockerfile").read_text(), re.M)
    )
    assert services["app"]["environment"]["MQTT__URL"] == f"mqtt://broker:{listener}"
    assert services["broker"]["ports"][0].endswith(f":{listener}")
    assert set(re.findall(r"\$\$(\w+)", services["broker"]["command"][-1])) == set(
        environment(house, services["broker"])
    )


def test_it_follows_the_specification_of_compose(house, tmp_path):
    assert complaints("compose-spec", house / "compose.yaml") == ""

    (tmp_path / "wrong.yaml").write_text((house / "compose.yaml").read_text().replace("read_only", "readonly"))
    assert "'readonly' was unexpected" in complaints("compose-spec", tmp_path / "wrong.yaml")


def test_compose_accepts_it(house):
    checked = subprocess.run(["docker-compose", "config", "--quiet"], cwd=house, capture_output=True, text=True)

    assert checked.returncode == 0, checked.stderr


@pytest.fixture
def broker(house, composed):
    """The port of the broker of the file, in a folder that stands for its container. It runs as a user that is not
    root, and has only its own variables."""
    service = composed["services"]["broker"]
    place = Path(tempfile.mkdtemp())
    port = free_port()
    moved = {"/tmp/": f"{place}/", "/mosquitto/data/": f"{place}/", "/mosquitto/config/": f"{place}/", "$$": "$"}
    configuration = (house / "mosquitto.conf").read_text().replace("listener 1883", f"listener {port} 127.0.0.1")
    program, option, line = service["command"]
    for there, here in moved.items():
        configuration, line = configuration.replace(there, here), line.replace(there, here)
    (place / "mosquitto.conf").write_text(configuration)
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
    if user:
        os.chown(place, NOBODY, NOBODY)
    running = subprocess.Popen(
        [program, option, line],
        env={"PATH": SEARCH, **environment(house, service)},
        cwd="/",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        **user,
    )
    yield port
    running.terminate()
    printed = running.communicate(timeout=30)[0]
    shutil.rmtree(place)
    assert running.returncode == 0, printed


@pytest.mark.system
def test_the_app_reaches_its_broker_which_refuses_others(house, composed, broker, tmp_path):
    variables = environment(house, composed["services"]["app"])
    shown = {**variables, "MQTT__URL": variables["MQTT__URL"].replace("broker:1883", f"127.0.0.1:{broker}")}
    state = {"STATE_DIRECTORY": str(tmp_path), "LEADSMAN_HEALTH_FILE": str(tmp_path / "health.json")}
    run = Process(
        ["sh", "-c", f'cd "{house}" && exec "{sys.executable}" -m leadsman run house:app'],
        tmp_path / "log",
        **shown,
        **state,
    )
    try:
        listener = Listener(broker)
        listener.client.username_pw_set(variables["MQTT__USERNAME"], variables["MQTT__PASSWORD"])
        deadline = time.monotonic() + 60
        while True:  # the broker makes its file first
            try:
                listener.client.connect("127.0.0.1", broker)
                break
            except OSError:
                assert time.monotonic() < deadline, run.log
                time.sleep(0.05)
        with listener:
            assert listener.wait_for("house/root/state")
        health = [sys.executable, "-m", "leadsman", "health"]
        assert subprocess.run(health, env={**os.environ, **state}, capture_output=True).returncode == 0
        refused = subprocess.run(
            ["mosquitto_pub", "-p", str(broker), "-u", "house", "-P", "wrong", "-t", "house/x", "-m", "1"],
            capture_output=True,
            text=True,
        )
        assert refused.returncode != 0
        assert "not authori" in refused.stderr.lower()
    finally:
        run.process.terminate()
        run.process.wait(20)
