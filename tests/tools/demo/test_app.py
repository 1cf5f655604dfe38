"""The devices of the demo: what they publish, and what Home Assistant is told about them."""

from leadsman.testing import Harness
from leadsman.tools.demo.app import SETTINGS, demo_app


def test_the_demo_has_an_event_an_aggregate_and_a_device_that_the_settings_have_changed():
    app = demo_app("mqtt://127.0.0.1", "/dev/ttyUSB0", "homeassistant")
    with Harness(app, settings=SETTINGS) as harness:
        harness.run("22s")
        described = {
            name: harness.broker.retained[f"homeassistant/device/leadsman-demo/{name}/config"].json
            for name in ("disk", "door")
        }

        assert harness.states("door")[:2] == [{"event_type": "opened"}, {"event_type": "shut"}]
        assert described["door"]["cmps"]["event_type"]["evt_typ"] == ["opened", "shut"]
        assert len(harness.states("memory")) == 4  # one of five seconds each
        assert len(harness.states("disk")) == 5  # its code says ten seconds
        assert described["disk"]["dev"]["name"] == "Root disk"


def test_each_value_of_the_demo_has_a_state_class_and_its_unit_or_an_icon():
    app = demo_app("mqtt://127.0.0.1", "/dev/ttyUSB0", "homeassistant")
    with Harness(app) as harness:
        harness.run("1m")
        retained = harness.broker.retained.items()
    values = {
        topic.split("/")[-2]: [each for each in message.json["cmps"].values() if "ent_cat" not in each]
        for topic, message in retained
        if topic.endswith("/config")
    }

    assert values.keys() >= {"meter", "load", "memory", "disk"}
    for name in ("meter", "load", "memory", "disk"):
        assert values[name]
        assert all(each["stat_cla"] and (each.get("unit_of_meas") or each.get("ic")) for each in values[name])
