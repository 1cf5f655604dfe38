"""Optional libraries: whatever needs one that is missing says which extra to install."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from leadsman.errors import missing

BLOCK = """
import sys
from importlib.machinery import PathFinder

class Blocked(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {blocked!r} else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Blocked
"""
IMPORT_ALL = """
import importlib, json, pkgutil, leadsman

failed = {}
for each in pkgutil.walk_packages(leadsman.__path__, "leadsman.", onerror=lambda name: None):
    if not each.name.endswith("__main__"):
        try:
            importlib.import_module(each.name)
        except ImportError as error:
            failed[each.name] = [type(error).__name__, str(error)]
print(json.dumps(failed))
"""
LIBRARIES = {
    "serial": ["serial", "serial_asyncio", "serial_asyncio_fast"],
    "sml": ["sml", "bitstring"],
    "ble": ["bleak", "dbus_fast"],
    "ble-decoders": ["bthome_ble", "habluetooth", "sensor_state_data", "switchbot"],
    "ble-proxies": ["aioesphomeapi"],
    "caldav": ["caldav", "icalendar", "recurring_ical_events", "niquests", "lxml"],
    "http-client": ["aiohttp"],
    "i2c": ["smbus2"],
    "http": ["uvicorn", "h11", "starlette", "anyio"],
    "metrics": ["prometheus_client"],
    "yaml": ["yaml"],
    "nats": ["nats"],
    "demo": ["psutil", "amqtt"],
}
"""The modules of each extra."""
APP = """
from leadsman import App

app = App("house")

@app.telemetry("kitchen", interval=1)
async def kitchen() -> dict[str, float]:
    return {"t": 1.0}

if __name__ == "__main__":
    app.run()
"""
RUN_LEADSMAN = "import runpy\nrunpy.run_module('leadsman', run_name='__main__', alter_sys=True)\n"
RUN_APP = "import runpy\nrunpy.run_path('house.py', run_name='__main__')\n"


def python(blocked, code, *arguments, directory=None, **environment):
    return subprocess.run(
        [sys.executable, "-c", BLOCK.format(blocked=set(blocked)) + code, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=directory,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("extra", LIBRARIES)
def test_each_module_that_needs_a_missing_library_names_its_extra(extra):
    done = python(LIBRARIES[extra], IMPORT_ALL)

    assert done.returncode == 0, done.stderr
    failed = json.loads(done.stdout)
    for module, (kind, text) in failed.items():
        named = "caldav" if extra == "yaml" else extra  # caldav needs PyYAML, too
        assert (kind, f'pip install "leadsman[{named}]"' in text) == ("NotInstalled", True), (module, text)
    assert failed or extra in ("serial", "sml", "ble", "yaml"), "it is imported when it is needed"


NEEDS = {
    "serial": ("from leadsman.adapters.serial import SerialPort", "SerialPort('/dev/ttyX')", {}),
    "sml": (
        "from leadsman.adapters.serial.sml import SmlMeter",
        "SmlMeter('socket://127.0.0.1:1')",
        {},
    ),
    "ble": ("from leadsman.adapters.ble import BleRadio", "BleRadio()", {}),
    "ble-decoders": ("from leadsman.adapters.ble import Decoders", "Decoders()", {}),
    "ble-proxies": (
        "from leadsman.adapters.ble import BleRadio; from leadsman.adapters.ble.proxy import Proxy",
        "BleRadio(local=False, proxies=[Proxy(host='attic')])",
        {},
    ),
    "caldav": ("from leadsman.adapters.caldav import CalDav", "CalDav('https://localhost/dav')", {}),
    "http-client": ("from leadsman.adapters.http import HttpClient", "HttpClient('http://inverter.lan')", {}),
    "i2c": ("from leadsman.adapters.i2c import I2c", "I2c(1)", {}),
    "http": ("", "", {"HTTP__BIND": "127.0.0.1:8080"}),
    "yaml": ("", "", {}),
    "nats": ("", "", {"CLUSTER__ENGINE": "nats://127.0.0.1:1"}),
}
"""What an app needs each extra for: an adapter that it imports and has, or settings."""
WITHOUT_AN_APP = {
    "metrics": "only the address /metrics of an app needs it",
    "demo": "only leadsman demo needs it",
}
WAYS = {
    "run": (RUN_LEADSMAN, ("run", "house:app")),
    "check": (RUN_LEADSMAN, ("check", "house:app")),
    "python house.py": (RUN_APP, ()),
}


def test_each_extra_is_looked_at():
    with (Path(__file__).parent.parent / "pyproject.toml").open("rb") as file:
        extras = set(tomllib.load(file)["project"]["optional-dependencies"])

    assert extras - {"all"} == set(NEEDS) | set(WITHOUT_AN_APP) == set(LIBRARIES)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("extra", NEEDS)
def test_an_app_without_an_extra_says_what_to_type_however_it_is_started(tmp_path: Path, extra, way):
    imports, adapter, variables = NEEDS[extra]
    code, arguments = WAYS[way]
    app = APP.replace("from leadsman import App", f"from leadsman import App\n{imports}")
    (tmp_path / "house.py").write_text(
        app.replace('App("house")', f'App("house", adapters=({adapter}{"," * bool(adapter)}))')
    )
    if extra == "yaml":
        (tmp_path / "leadsman.yaml").write_text("mqtt: {url: mqtt://127.0.0.1:1}")
    paths = {"STATE_DIRECTORY": str(tmp_path), "PYTHONPATH": str(tmp_path), "MQTT__URL": "mqtt://127.0.0.1:1"}

    done = python(LIBRARIES[extra], code, *arguments, directory=tmp_path, **paths, **variables)

    assert done.returncode == 78, done.stderr
    assert f'which is not installed; type: pip install "leadsman[{extra}]"' in done.stderr
    assert "(leadsman itself stays as it is)" in done.stderr
    assert "Traceback (most" not in done.stderr


def test_an_http_client_in_the_code_and_its_twin_load_no_library_until_the_app_starts():
    code = "from leadsman.adapters.http import HttpClient; from leadsman.testing import HttpTwin; import sys\n"
    code += "HttpClient('http://inverter.lan'); HttpTwin().check_installed(); print('aiohttp' in sys.modules)\n"
    code += "HttpClient().check_installed(); print('aiohttp' in sys.modules)"

    assert python((), code).stdout.split() == ["False", "True"]


def test_a_scan_without_its_extra_says_what_to_type(tmp_path: Path):
    done = python(LIBRARIES["ble"], RUN_LEADSMAN, "ble", "scan", directory=tmp_path)

    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr.splitlines() == [
        "leadsman: Bluetooth devices need bleak, which is not installed; "
        'type: pip install "leadsman[ble]" (leadsman itself stays as it is)'
    ]


def test_a_radio_without_proxies_loads_nothing_of_them():
    code = "from leadsman.adapters.ble import BleRadio; import sys; BleRadio()\n"
    code += "print([each for each in ('aioesphomeapi', 'leadsman.adapters.ble.proxy') if each in sys.modules])"

    assert python((), code).stdout.split() == ["[]"]


def test_the_demo_without_its_extra_says_what_to_type(tmp_path: Path):
    done = python(LIBRARIES["demo"], RUN_LEADSMAN, "demo", "--for", "1s", directory=tmp_path)

    assert done.returncode == 78, done.stderr
    assert 'which is not installed; type: pip install "leadsman[demo]"' in done.stderr
    assert "Traceback (most" not in done.stderr


def test_in_an_environment_of_pipx_the_command_is_that_of_pipx(tmp_path: Path, monkeypatch):
    environment = tmp_path / "gas2mqtt"
    environment.mkdir()
    monkeypatch.setattr(sys, "prefix", str(environment))
    assert '; type: pip install "leadsman[http]"' in str(missing("HTTP endpoints", "uvicorn", "http"))

    (environment / "pipx_metadata.json").touch()

    assert '; type: pipx runpip gas2mqtt install "leadsman[http]"' in str(missing("HTTP endpoints", "uvicorn", "http"))


@pytest.mark.parametrize(
    ("code", "arguments", "variables"),
    [
        (RUN_LEADSMAN, ("run", "house:app", "--http", "127.0.0.1:0"), {}),
        (RUN_LEADSMAN, ("check", "house:app", "--http", "127.0.0.1:0"), {}),
    ],
)
def test_an_app_with_http_and_without_uvicorn_says_what_to_type(tmp_path: Path, code, arguments, variables):
    (tmp_path / "house.py").write_text(APP)
    paths = {"STATE_DIRECTORY": str(tmp_path), "PYTHONPATH": str(tmp_path)}

    done = python(LIBRARIES["http"], code, *arguments, directory=tmp_path, **paths, **variables)

    assert done.returncode == 78, done.stderr
    assert 'HTTP endpoints need uvicorn, which is not installed; type: pip install "leadsman[http]"' in done.stderr
    assert "Traceback (most" not in done.stderr
