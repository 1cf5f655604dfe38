"""Each app of this repository appears in Home Assistant with the values that it publishes."""

from importlib import import_module

import pytest

from leadsman.core.introspection.fields import fields_of
from leadsman.core.introspection.schema import result_schema
from leadsman.core.mqtt.topics import Identity, Topics
from leadsman.core.settings.sources import Where
from leadsman.extensions.discovery.description import DeviceDescription
from leadsman.extensions.discovery.homeassistant import HomeAssistant
from leadsman.extensions.discovery.registered import DescribedDevices
from leadsman.extensions.discovery.settings import DiscoverySettings

from .entities import entities

APPS = (
    "airthings2mqtt",
    "bluetooth2mqtt",
    "caldates2mqtt",
    "gas2mqtt",
    "meter2mqtt",
    "p1meter2mqtt",
    "vito2mqtt",
    "weather2mqtt",
)

SETTINGS = {
    "airthings2mqtt": {"waves": {"cellar": {"address": "F0:11:22:33:44:66"}}},
    "bluetooth2mqtt": {"sensors": {"bedroom": {"address": "F0:11:22:33:44:66"}}},
    "caldates2mqtt": {
        "servers.home.url": "https://calendar.invalid",
        "calendars": {"waste": {"calendar": "Waste", "schedule": "0 * * * *"}},
    },
    "gas2mqtt": {},
    "meter2mqtt": {"port": "/dev/null/rs485", "meters": {"house": {"table": "sdm630"}}},
    "p1meter2mqtt": {"port": "/dev/null/p1"},
    "vito2mqtt": {"port": "/dev/null/vito"},
    "weather2mqtt": {"places": {"berlin": {"latitude": 52.52, "longitude": 13.41}}},
}
"""What each app needs to know its devices."""


SEVERAL = {
    "p1meter2mqtt": {"meter": 2},
    "meter2mqtt": {"house": 2},
    "vito2mqtt": {"diagnosis": 3, "heating_radiator": 2, "heating_floor": 2},
}
"""The devices with several messages: `house` has 18 fields, and `diagnosis` 31."""
NONE = {"type": "object"}
"""The readings of a handler that only finds devices."""


def registrations(name):
    return list(import_module(f"{name}.app").app.setup._record)


@pytest.mark.parametrize("name", APPS)
def test_each_value_of_an_app_is_an_entity_that_home_assistant_takes(name):
    convention = HomeAssistant(Identity(name, "1", "1", Topics(name), name), ["d"], DiscoverySettings())

    for registration in registrations(name):
        readings = result_schema(registration.handler)
        if registration.kind != "command" and readings != NONE:
            fields = fields_of(readings)
            device = DeviceDescription("d", fields, None, 90.0, read=True, polled=True, circuit=True)
            found = {}
            for message in convention.describe(device):
                found |= entities(message.payload)
            assert fields
            assert len([key for key in found if not key.startswith("_")]) == len(fields)


@pytest.mark.parametrize("name", APPS)
def test_a_message_about_a_device_of_an_app_has_less_than_four_kilobytes(name):
    app = import_module(f"{name}.app").app.setup.unloaded()
    app.load(Where.nowhere(SETTINGS[name]))
    registered = DescribedDevices({**app.registry.telemetries, **app.registry.sources}, app.registry.commands)
    description = Identity(name, "0.1.0", "0.1.0", Topics(name), name)
    convention = HomeAssistant(description, registered.names, DiscoverySettings())

    devices = map(registered.device, registered.names)
    messages = {each.name: [len(message.payload) for message in convention.describe(each)] for each in devices}

    assert max(size for sizes in messages.values() for size in sizes) <= 4096
    assert {name: len(sizes) for name, sizes in messages.items() if len(sizes) > 1} == SEVERAL.get(name, {})


@pytest.mark.parametrize("name", APPS)
def test_each_number_of_an_app_has_a_unit_or_an_icon(name):
    found = [
        field
        for each in registrations(name)
        if each.kind != "command"
        for field in fields_of(result_schema(each.handler))
    ]

    assert [field.name for field in found if field.kind == "number" and not (field.unit or field.icon)] == []
