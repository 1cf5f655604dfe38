"""The Dockerfile carried out, for an app of a user and for one of this repository."""

import re
import subprocess
import sys
import time
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


@pytest.mark.parametrize("app", APPS)
def test_one_recipe_makes_an_image_of_any_app_that_runs_confined(app, mosquitto, listen, tmp_path):
    (place := tmp_path / "place").mkdir()
    if reason := missing(place):
        pytest.skip(reason)
    project = ROOT / "apps" / app
    if app == "house":
        project = tmp_path / app
        subprocess.run(
            [sys.executable, "-m", "leadsman", "init", app, "--directory", project], check=True, capture_output=True
        )
    for each in (ROOT, project):
        wheel(each, tmp_path / "context" / "wheels")
    listener, log = listen(mosquitto.port), tmp_path / "log"
    image = Image(DOCKERFILE, APP=app)

    running = image.start(tmp_path / "context", place, log, MQTT__URL=mosquitto.url)
    try:
        while not listener.on(f"{app}/status"):
            if running.poll() is not None:
                if NO_NETWORK.search(log.read_text()):
                    pytest.skip("needs the network: the libraries come from the index")
                pytest.fail(log.read_text())
            time.sleep(0.1)
        assert "connected" in image.healthy()
        assert image.user == "65534"
        assert image.stop() == 0, log.read_text()
    finally:
        running.kill()
        running.wait()
