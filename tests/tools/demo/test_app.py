"""The devices of the demo, as Home Assistant is told about them."""

from leadsman.parts.discovery import registered_of
from leadsman.tools.demo.app import demo_app


def test_each_value_of_the_demo_has_a_state_class_and_its_unit_or_an_icon():
    app = demo_app("mqtt://127.0.0.1", "/dev/ttyUSB0", "homeassistant")
    devices = registered_of(app.plan({}))

    found = {name: devices.device(name).fields for name in devices.names}

    assert found.keys() >= {"meter", "load", "memory", "disk"}
    for fields in found.values():
        assert fields
        assert all(field.state_class and (field.unit or field.icon) for field in fields)
