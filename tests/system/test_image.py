"""The Dockerfile carried out: for an app of a user, for one of this repository, and for an add-on of Home Assistant."""

import json
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from leadsman_rigs.image import Image, missing

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "src/leadsman/tools/cli/templates/Dockerfile"
NO_NETWORK = re.compile("name resolution|NewConnectionError|Network is unreachable|Connection refused", re.IGNORECASE)
APPS = ("house", "gas2mqtt")
pytestmark = pytest.mark.system


def wheel(project, folder):
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, project]
    subprocess.run(build, check=True, capture_output=True)


@pytest.fixture
def place(tmp_path):
    """The folder for the copy of this machine's files."""
    (folder := tmp_path / "place").mkdir()
    if reason := missing(folder):
        pytest.skip(reason)
    return folder


@contextmanager
def running(image, app, listener, log, *where, **given):
    """The image, until the app has told its status."""
    process = image.start(*where, log, **given)
    try:
        while not listener.on(f"{app}/status"):
            if process.poll() is not None:
                if NO_NETWORK.search(log.read_text()):
                    pytest.skip("needs the network: the libraries come from the index")
                pytest.fail(log.read_text())
            time.sleep(0.1)
        yield
        assert "connected" in image.healthy()
        assert image.stop() == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("app", APPS)
def test_one_recipe_makes_an_image_of_any_app_that_runs_confined(app, mosquitto, listen, place, tmp_path):
    project = ROOT / "apps" / app
    if app == "house":
        project = tmp_path / app
        subprocess.run(
            [sys.executable, "-m", "leadsman", "init", app, "--directory", project], check=True, capture_output=True
        )
    for each in (ROOT, project):
        wheel(each, tmp_path / "context" / "wheels")
    image = Image(DOCKERFILE, APP=app)

    with running(
        *(image, app, listen(mosquitto.port), tmp_path / "log", tmp_path / "context", place), MQTT__URL=mosquitto.url
    ):
        assert image.user == "65534"


def test_an_addon_of_home_assistant_has_its_options_its_file_and_its_state(mosquitto, listen, place, tmp_path):
    for each in (ROOT, ROOT / "apps" / "gas2mqtt"):
        wheel(each, tmp_path / "dist")
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, 'scripts'); import addons; "
        "addons.WHEELS = Path(sys.argv[1]); addons.write(Path('apps/gas2mqtt').absolute(), Path(sys.argv[2]))"
    )
    folder = tmp_path / "gas2mqtt"
    subprocess.run([sys.executable, "-c", code, tmp_path / "dist", folder], cwd=ROOT, check=True)
    (tmp_path / "mounts" / "data").mkdir(parents=True)
    (tmp_path / "mounts" / "config").mkdir()
    options = {"raw": True, "mqtt": {"url": mosquitto.url}}
    (tmp_path / "mounts" / "data" / "options.json").write_text(json.dumps(options))
    (tmp_path / "mounts" / "config" / "leadsman.toml").write_text("level = -4000\n")
    listener, log = listen(mosquitto.port), tmp_path / "log"

    with running(Image(folder / "Dockerfile"), "gas2mqtt", listener, log, folder, place, mounts=tmp_path / "mounts"):
        assert "settings from /config/leadsman.toml" in log.read_text()
        (registry,) = listener.wait_for("gas2mqtt/registry")
        assert "magnetometer" in json.loads(registry.payload)["devices"]  # which `raw` adds
        while not any(each.topic.startswith("homeassistant/") for _, each in listener.messages):
            time.sleep(0.1)
