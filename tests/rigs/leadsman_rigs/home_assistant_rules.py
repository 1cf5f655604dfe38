"""The rules of the installed Home Assistant for what an app announces: the schemas and tables of its own code, asked in
its own environment. No server runs.

It judges the configuration of a device as the integration does when one arrives by MQTT, and then what only an entity
checks as it is added. https://www.home-assistant.io/integrations/mqtt/#mqtt-discovery
"""

import json
import subprocess

from leadsman_rigs.homeassistant import ENVIRONMENT

JUDGE = """
import asyncio, json, logging, sys
from importlib import import_module
import voluptuous as vol
from homeassistant.core import HomeAssistant
from homeassistant.helpers import frame
from homeassistant.components.mqtt.discovery import DEVICE_DISCOVERY_SCHEMA, SHARED_OPTIONS, _replace_all_abbreviations
from homeassistant.components.number.const import DEVICE_CLASS_UNITS as NUMBERS
from homeassistant.components.sensor.const import DEVICE_CLASS_STATE_CLASSES, DEVICE_CLASS_UNITS, SensorDeviceClass

class Heard(logging.Handler):
    def emit(self, record):
        heard.append(record.getMessage())

heard = []
logging.getLogger().addHandler(Heard())

def judge(payload):
    found = []
    _replace_all_abbreviations(payload)
    for name, each in [("device", None), *payload["components"].items()]:
        heard.clear()
        try:
            DEVICE_DISCOVERY_SCHEMA(payload) if each is None else component(dict(each))
        except (vol.Invalid, ValueError, TypeError) as error:
            found.append(f"{name}: {error}")
        found += [f"{name}: {line}" for line in heard]
    return found

def component(config):
    platform = config.pop("platform")
    if platform == "device_automation":
        return
    for option in SHARED_OPTIONS:
        if option in whole_payload and option not in config:
            config[option] = whole_payload[option]
    import_module(f"homeassistant.components.mqtt.{platform}").DISCOVERY_SCHEMA(config)
    if platform in ("sensor", "binary_sensor") and config.get("entity_category") == "config":
        raise ValueError("cannot be added as the entity category is set to config")
    kind, unit, state = (config.get(word) for word in ("device_class", "unit_of_measurement", "state_class"))
    units = {"sensor": DEVICE_CLASS_UNITS, "number": NUMBERS}.get(platform, {})
    if unit is not None and kind in units and unit not in units[kind]:
        raise ValueError(f"the unit {unit!r} is not valid with {kind}")
    if state is not None and kind is not None and state not in DEVICE_CLASS_STATE_CLASSES[kind]:
        raise ValueError(f"the state class {state!r} is impossible with {kind}")

def tables():
    return {
        "states": {str(kind): sorted(map(str, each)) for kind, each in DEVICE_CLASS_STATE_CLASSES.items()},
        "units": {str(kind): sorted(str(unit) for unit in each if unit) for kind, each in DEVICE_CLASS_UNITS.items()},
        "classes": sorted(map(str, SensorDeviceClass)),
    }

async def main():
    global whole_payload
    frame.async_setup(HomeAssistant(sys.argv[1]))  # templates are read for one
    for line in sys.stdin:
        whole_payload = json.loads(line)
        answer = tables() if whole_payload == "tables" else judge(whole_payload)
        print(json.dumps(answer), flush=True)

asyncio.run(main())
"""


class Rules:
    """The rules, inside a ``with`` block. Nothing is written to the directory."""

    def __init__(self, directory):
        self._directory = directory

    def __enter__(self):
        self._process = subprocess.Popen(
            [ENVIRONMENT / "bin" / "python", "-c", JUDGE, str(self._directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def complaints(self, payload):
        """What Home Assistant complains of in a configuration of a device, each with its component."""
        return self._ask(payload)

    def tables(self):
        """Its device classes of sensors, and the units and the state classes of each."""
        return self._ask("tables")

    def _ask(self, question):
        print(json.dumps(question), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())
