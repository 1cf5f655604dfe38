"""What Home Assistant is told of each kind of reading: an image, an event, a value behind filters, that of a device
without a name."""

import json
from collections.abc import AsyncIterator
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel

from leadsman import App, CircuitBreaker, Content, Context, Finds, Maximum, Mean, Rate, Round, Seen, Sensor
from leadsman.core.mqtt.topics import topic_matches
from leadsman.testing import Scripted, fail
from leadsman_rigs.stage import access_of

Press = Literal["single", "double"]


def components(running, device):
    """What the configuration of a device says of its entities."""
    running.run(9)
    return running.broker.retained[f"homeassistant/device/house/{device}/config"].json["cmps"]


async def accept(on: bool) -> dict[str, bool]:
    return {"on": on}


@pytest.mark.parametrize(("content_type", "shown"), [("image/png", True), ("application/pdf", False)])
def test_a_handler_that_gives_an_image_is_one(harness, content_type, shown):
    async def read() -> Annotated[bytes, Content(content_type)]:
        return b"x"

    app = App("house", discovery="homeassistant")
    app.add_telemetry("camera", read, interval="10s", field="image")

    kinds = {each["p"]: each for each in components(harness(app), "camera").values() if "img_t" in each}
    assert bool(kinds) is shown
    if shown:
        assert (kinds["image"]["img_t"], kinds["image"]["cont_type"]) == ("house/camera/image", "image/png")


def button_app(**options):
    app = App("house", discovery="homeassistant")

    @app.event("button", **options)
    async def button(context: Context) -> AsyncIterator[Press]:
        await context.sleep("30d")
        yield "single"

    return app


def test_a_source_of_events_is_an_event_and_what_triggers_an_automation(harness):
    found = components(harness(button_app(device_class="button", title="Bell")), "button")
    event = found["event_type"]
    assert event["p"] == "event"
    assert event["stat_t"] == "house/button/state"
    assert event["evt_typ"] == ["single", "double"]
    assert event["dev_cla"] == "button"
    assert event["name"] is None
    assert found["_on_single"] == {
        "p": "device_automation",
        "atype": "trigger",
        "t": "house/button/state",
        "type": "single",
        "stype": "Bell",
        "pl": "single",
        "val_tpl": "{{value_json.get('event_type')}}",
    }


def test_motion_is_an_event_that_triggers_nothing_as_a_device(harness):
    found = components(harness(button_app(device_class="motion")), "button")

    assert "device_automation" not in {each["p"] for each in found.values()}


def test_a_device_that_is_found_and_sends_events_is_one_and_its_finder_is_none(harness):
    class Action(BaseModel):
        event_type: Press

    app = App("house", discovery="homeassistant")

    @app.event("gateway", finds=Finds(Action))
    async def gateway(context: Context) -> AsyncIterator[None]:
        yield
        context.device("hall").publish(Action(event_type="single"))
        await context.sleep("30d")

    running = harness(app)
    assert components(running, "hall")["event_type"]["p"] == "event"
    assert "event" not in {each["p"] for each in components(running, "gateway").values()}


class Meter(BaseModel):
    power: Annotated[float, Sensor("W", device_class="power", state_class="measurement", deadband=5)]
    energy: Annotated[float, Sensor("kWh", device_class="energy", state_class="total_increasing")]


FILTERS = {
    "power": {"power": [Mean("1m"), Round(0)], "power_max": [Maximum("1m")], "power_seen": [Seen("1m", "10s")]},
    "energy": {"energy": [], "consumption": [Rate("1h"), Sensor("kW", device_class="power", precision=2)]},
}


def test_each_output_of_filters_is_an_entity(harness):
    app = App("house", discovery="homeassistant")

    @app.telemetry("meter", interval="10s", filters=FILTERS)
    async def meter() -> Meter:
        return Meter(power=100.0, energy=10.0)

    described = components(harness(app), "meter").values()
    sensors = {each["name"]: each.get("unit_of_meas") for each in described if each["p"] == "sensor"}
    assert not any("exp_aft" in each for each in described)  # a window is longer than three intervals
    assert sensors.items() >= {
        ("Power", "W"),
        ("Power max", "W"),
        ("Power seen", None),
        ("Energy", "kWh"),
        ("Consumption", "kW"),
    }


def test_what_a_sensor_hides_stays_hidden_behind_its_filters(harness):
    class Radio(BaseModel):
        rssi: Annotated[float, Sensor("dB", discoverable=False)]
        value: Annotated[float, Sensor(homeassistant={"enabled_by_default": False})]

    app = App("house", discovery="homeassistant")

    @app.telemetry("radio", interval="10s", filters={"rssi": [Round(0)], "value": [Round(1)]})
    async def radio() -> Radio:
        return Radio(rssi=-60.4, value=1.23)

    found = components(harness(app), "radio")
    assert "rssi" not in found
    assert found["value"]["en"] is False


def test_devices_of_one_handler_have_the_fields_that_each_is_given(harness):
    app = App("house", discovery="homeassistant")

    async def read() -> float:
        return 1.0

    for name in ("temperature", "humidity"):
        app.add_telemetry(name, read, interval="10s", field=name)
    running = harness(app)

    for name in ("temperature", "humidity"):
        assert name in components(running, name)


def test_a_handler_of_one_value_is_an_entity_with_what_its_annotation_says(harness):
    app = App("house", discovery="homeassistant")

    @app.telemetry("tank", interval="1s")
    async def tank() -> Annotated[float, Sensor("°C", name="Water")]:
        return 21.5

    entity = components(harness(app), "tank")["value"]
    assert (entity["name"], entity["unit_of_meas"]) == ("Water", "°C")


def test_the_root_device_is_described_by_its_own_topics_beside_one_that_it_finds(harness):
    app = App("gas", discovery="homeassistant")

    @app.source(None, finds=Finds(), silence=None)
    async def gateway(context: Context):
        context.device("attic").publish({"t": 1})
        yield {"heard": 1}
        await context.sleep("1h")

    running = harness(app)
    running.run(20)

    configuration = json.dumps(running.broker.retained["homeassistant/device/gas/gas/config"].json)
    assert running.broker.retained["gas/attic/state"].json == {"t": 1}
    assert '"gas/availability"' in configuration
    assert '"gas/health"' in configuration


def test_all_that_the_root_device_publishes_and_subscribes_to_is_in_the_access_list(harness):
    app = App("gas", discovery="homeassistant")
    app.add_telemetry(None, Scripted({"m3": 1}, *[fail()] * 20), interval=5, circuit_breaker=CircuitBreaker(2))
    app.add_command("lamp", accept)

    running = harness(app)
    running.at("20s", lambda: running.broker.send("gas/get", b""))
    running.at("25s", lambda: running.broker.send("gas/lamp/set", b"true"))
    running.run("2m")

    access = access_of(app)
    topics = {each.topic for each in running.broker.log}
    assert {"gas/state", "gas/error", "gas/availability", "gas/lamp/set/result"} <= topics
    assert [topic for topic in sorted(topics) if not any(topic_matches(each, topic) for each in access.publish)] == []
    heard = {each for client in running.broker._clients.values() for each in client.filters}
    assert [topic for topic in sorted(heard) if not any(topic_matches(each, topic) for each in access.subscribe)] == []
