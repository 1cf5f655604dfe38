"""Each app of this repository appears in Home Assistant with the values that it publishes."""

from importlib import import_module

import pytest

from leadsman.discovery.description import AppDescription, Device
from leadsman.discovery.fields import fields_of
from leadsman.discovery.homeassistant import HomeAssistant
from leadsman.introspection.schema import returned
from leadsman.mqtt.topics import Topics

from .entities import entities

APPS = ("airthings2mqtt", "caldates2mqtt", "gas2mqtt", "p1meter2mqtt", "vito2mqtt")


def registrations(name):
    return list(import_module(f"{name}.app").app.setup._record)


@pytest.mark.parametrize("name", APPS)
def test_each_value_of_an_app_is_an_entity_that_home_assistant_takes(name):
    convention = HomeAssistant(AppDescription(name, "1", "1", Topics(name), {}), ["d"], "homeassistant")

    for registration in registrations(name):
        if registration.kind != "command":
            fields = fields_of(returned(registration.handler))
            device = Device("d", fields, None, 90.0, read=True, polled=True, circuit=True)
            found = entities(convention.describe(device).payload)
            assert fields
            assert len([key for key in found if not key.startswith("_")]) == len(fields)


@pytest.mark.parametrize("name", APPS)
def test_each_number_of_an_app_has_a_unit_or_an_icon(name):
    found = [
        field for each in registrations(name) if each.kind != "command" for field in fields_of(returned(each.handler))
    ]

    assert [field.name for field in found if field.kind == "number" and not (field.unit or field.icon)] == []
