"""The fixtures of the folders `system`, whose tests talk to real parts."""

import subprocess
import sys

import pytest

from leadsman.testing import Mosquitto
from leadsman_rigs.homeassistant import WHY_NOT, HomeAssistant
from leadsman_rigs.password_file import write_password_file
from leadsman_rigs.service import Service


@pytest.fixture(params=["mqtt5", "aiomqtt"])
def client(request, monkeypatch):
    """Both clients for real brokers, one after the other, here and in the apps that the test starts."""
    if request.param == "aiomqtt":
        monkeypatch.setenv("NOT_INSTALLED", "mqtt5")
        monkeypatch.setitem(sys.modules, "mqtt5", None)
        for name in ("leadsman.core.mqtt.codec", "leadsman.core.mqtt.codec_client"):
            monkeypatch.delitem(sys.modules, name, raising=False)
    return request.param


@pytest.fixture(scope="module")
def broker():
    """The broker of a file."""
    with Mosquitto() as broker:
        yield broker


@pytest.fixture(scope="module")
def home_assistant(broker, tmp_path_factory):
    """The Home Assistant of a file. Its start takes most of the time."""
    if WHY_NOT.exists():
        pytest.skip(WHY_NOT.read_text().strip())
    with HomeAssistant(tmp_path_factory.mktemp("home-assistant") / "configuration", broker.port) as home:
        yield home


@pytest.fixture
def home(home_assistant, broker, request):
    """A running Home Assistant. At the end it has had nothing to complain of. A test that runs once more begins with
    nothing of its first run."""
    if getattr(request.node, "execution_count", 1) > 1:
        everything = ("-t", "#", "--retained-only", "--remove-retained", "-W", "5")
        subprocess.run(["mosquitto_sub", "-p", str(broker.port), *everything], check=False, stdout=subprocess.DEVNULL)
    home_assistant.forget()
    yield home_assistant
    assert home_assistant.complaints == []


@pytest.fixture
def guarded(tmp_path):
    """A broker with passwords: house may do everything, as may guest."""
    passwords = tmp_path / "passwords"
    write_password_file(passwords, house="house-secret", guest="guest-secret")
    with Mosquitto(f"password_file {passwords}\n", anonymous=False) as broker:
        yield broker


@pytest.fixture
def service(tmp_path, guarded):
    service = Service(tmp_path, guarded).start()
    try:
        service.manager.wait_for("READY=1")
        service.wait_until_online()
        yield service
    finally:
        service.end()
