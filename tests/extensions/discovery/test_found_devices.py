"""Devices that a handler finds while the app runs, as Home Assistant is told of them."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated

from pydantic import BaseModel

from leadsman import App, Context, Discovery, Finds, Sensor
from leadsman.core.text.identifiers import identifier
from leadsman.testing import Harness


class Climate(BaseModel):
    temperature: Annotated[float, Sensor("°C", device_class="temperature")]


class Gateway:
    """What a gateway hears: at each time, seconds from the start, the reading of a sensor, or an action on it."""

    def __init__(self, *heard):
        self.heard = heard
        self.found = {}

    async def __call__(self, context: Context) -> AsyncIterator[None]:
        begin = asyncio.get_running_loop().time()
        for at, name, reading in self.heard:
            await context.sleep(max(0.0, begin + at - asyncio.get_running_loop().time()))
            device = self.found[name] = context.device(name)
            if callable(reading):
                reading(device)
            else:
                device.publish(reading)
            yield
        await context.sleep("365d")


def gateway_app(*heard, finds=None, keep_state=False, discovery="homeassistant"):
    app, gateway = App("house", keep_state=keep_state, discovery=discovery), Gateway(*heard)
    app.add_source("gateway", gateway, finds=finds or Finds(), silence=None)
    return app, gateway


def retained(harness, device):
    return sorted(topic for topic in harness.broker.retained if topic.startswith(f"house/{device}/"))


def registry(harness):
    return harness.broker.retained["house/registry"].json["devices"]


def configurations(harness):
    prefix = "homeassistant/device/house/"
    return {topic.split("/")[3]: each for topic, each in harness.broker.retained.items() if topic.startswith(prefix)}


def test_a_found_device_is_described_and_a_forgotten_one_withdrawn(harness):
    heard = [(10, "attic", {"temperature": 20}), (60, "attic", lambda device: device.forget())]
    app, _ = gateway_app(*heard, finds=Finds(Climate))

    running = harness(app)
    running.run(30)
    described = configurations(running)["attic"].json
    running.run(60)

    assert described["cmps"]["temperature"]["dev_cla"] == "temperature"
    assert "attic" not in configurations(running)
    assert retained(running, "attic") == []


def test_a_flood_costs_one_description_for_each_device_at_most(harness):
    flood = [(10 + number * 0.01, f"sensor{number}", {"temperature": 1}) for number in range(1000)]
    app, _ = gateway_app(*flood, finds=Finds(Climate, most=20))

    running = harness(app)
    running.run(60)

    sent = [each.topic for each in running.broker.log if each.topic.startswith("homeassistant/device/house/sensor")]
    assert len(sent) == len(set(sent)) == 20


def test_an_identifier_that_is_taken_is_refused(harness):
    app, gateway = gateway_app((1, "leadsman_app", {"t": 1}))

    running = harness(app)
    running.run(20)

    assert not gateway.found["leadsman_app"].accepted
    assert set(configurations(running)) == {"leadsman_app", "gateway"}
    assert json.loads(running.broker.retained["house/status"].payload)["state"] == "online"


def test_a_device_with_another_name_keeps_the_identity_of_its_former_name(harness):
    discovery = Discovery(ids={"new sensor": "old_sensor"})
    heard = (1, "old_sensor", {"t": 1}), (2, "new sensor", {"t": 2})
    app, gateway = gateway_app(*heard, discovery=discovery)

    running = harness(app)
    running.run(20)

    assert gateway.found["new sensor"].accepted
    assert not gateway.found["old_sensor"].accepted
    assert set(configurations(running)) == {"leadsman_app", "gateway", "old_sensor"}
    assert configurations(running)["old_sensor"].json["dev"]["name"] == "new sensor"


def test_a_device_with_another_name_takes_the_place_of_the_one_that_an_earlier_run_found(tmp_path):
    app, _ = gateway_app((1, "old", {"t": 1}), keep_state=True)
    with Harness(app, state_directory=tmp_path) as one:
        one.run("5m")
    app, _ = gateway_app((1, "new", {"t": 2}), keep_state=True, discovery=Discovery(ids={"new": "old"}))
    with Harness(app, state_directory=tmp_path) as two:
        two.broker.retained.update(one.broker.retained)
        two.run("5m")

        assert configurations(two)["old"].json["dev"]["name"] == "new"
        assert "house/new/state" in retained(two, "new")
        assert retained(two, "old") == []
        assert "old" not in registry(two)


def test_what_comes_and_goes_without_a_connection_is_described_with_the_next_one(harness):
    heard = [(10, "attic", {"t": 1}), (40, "attic", lambda device: device.forget())]
    heard += [(45 + number, f"sensor{number}", {"t": 1}) for number in range(5)]
    app, _ = gateway_app(*heard)

    running = harness(app)
    running.run(30)
    running.broker.stop()
    running.run(60)
    running.broker.start()
    running.run(60)

    found = {f"sensor{number}" for number in range(5)}
    assert set(configurations(running)) == {"leadsman_app", "gateway", *found}
    assert retained(running, "attic") == []
    assert running.faults() == []


def test_found_devices_are_described_again_after_a_restart(tmp_path):
    app, _ = gateway_app((1, "attic", {"t": 1}), keep_state=True)
    with Harness(app, state_directory=tmp_path) as one:
        one.run("1m")
    before = configurations(one)["attic"].payload
    app, _ = gateway_app(keep_state=True)

    with Harness(app, state_directory=tmp_path) as two:
        two.broker.retained.update({topic: each for topic, each in one.broker.retained.items() if "attic" in topic})
        two.run("1m")

        assert configurations(two)["attic"].payload == before
        assert [each.topic for each in two.broker.log if each.topic.endswith("attic/config")] == []


def test_two_names_of_one_identifier_are_one_device(harness):
    names = "Küche", identifier("Küche")
    heard = [(number, name, {"temperature": 1}) for number, name in enumerate(names, 1)]
    app, gateway = gateway_app(*heard, finds=Finds(Climate))

    running = harness(app)
    running.run(20)

    assert [gateway.found[name].accepted for name in names] == [True, False]
