import json
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from leadsman import App, CircuitBreaker, Device, OnChange, Sensor
from leadsman.core.mqtt.topics import Identity, Topics, topic_matches
from leadsman.core.text.identifiers import shorten
from leadsman.errors import InvalidValue
from leadsman.extensions.discovery import description
from leadsman.extensions.discovery.description import RetainedMessage
from leadsman.extensions.discovery.homeassistant import HomeAssistant
from leadsman.extensions.discovery.registered import DescribedDevices
from leadsman.extensions.discovery.settings import DiscoverySettings

from .entities import command, entities, rendered, state


class Air(BaseModel):
    co2: Annotated[int | None, Sensor("ppm", device_class="carbon_dioxide", state_class="measurement", precision=0)]
    window: Annotated[bool | None, Sensor(device_class="window")] = None
    mode: Literal["eco", "boost"] | None = None
    note: str | None = None


class Target(BaseModel):
    temperature: Annotated[float, Field(ge=5, le=30), Sensor("°C", device_class="temperature", precision=1)]
    boost: bool = False


async def nothing():
    return {}


def annotated(handler, returns):
    async def copy():
        return await handler()

    copy.__annotations__ = {"return": returns}
    return copy


def convention(devices, prefix="house", ids=None):
    app = Identity("house", "1.2", "0.9", Topics(prefix), prefix)
    return HomeAssistant(app, devices, DiscoverySettings(ids=ids or {}))


def registered(app):
    read = {name: each for name, each in app.telemetries.items() if not each.job} | app.sources
    return DescribedDevices(read, app.commands)


def configuration(app, name="kitchen", **words):
    devices = registered(app)
    (message,) = convention(devices.names, **words).describe(devices.device(name))
    return message


def kitchen(**options):
    app = App("house")

    @app.telemetry("kitchen", interval="30s", **options)
    async def read() -> Air | None: ...

    return app


def test_a_device_has_one_configuration_with_its_entities():
    topic, payload = configuration(kitchen(circuit_breaker=CircuitBreaker(5)))

    found = entities(payload)
    assert topic == "homeassistant/device/house/kitchen/config"
    assert found.keys() == {
        *("co2", "window", "mode", "note"),
        *("_status", "_circuit", "_failures", "_success", "_poll", "_release", "_close"),
    }
    assert found["co2"] == {
        "platform": "sensor",
        "name": "CO₂",
        "state_topic": "house/kitchen/state",
        "value_template": "{{value_json.get('co2')}}",
        "unit_of_measurement": "ppm",
        "device_class": "carbon_dioxide",
        "state_class": "measurement",
        "suggested_display_precision": 0,
        "expire_after": 120,
        "unique_id": shorten("house--kitchen--co2"),
        "availability": [
            {"t": "house/status", "val_tpl": "{{value_json.state}}"},
            {"t": "house/kitchen/availability"},
        ],
    }


def test_a_field_that_is_none_or_absent_is_unknown():
    found = entities(configuration(kitchen()).payload)

    for key, value, shown in [
        ("co2", 400, "400"),
        ("window", True, "True"),
        ("mode", "eco", "eco"),
        ("note", "x", "x"),
    ]:
        assert state(found[key], {key: value}) == shown
        assert state(found[key], {key: None}) is None
        assert state(found[key], {}) is None


def test_a_text_is_not_longer_than_home_assistant_takes():
    found = entities(configuration(kitchen()).payload)

    assert state(found["note"], {"note": "x" * 1000}) == "x" * 255


def test_a_reading_that_is_not_published_again_does_not_expire():
    assert "expire_after" not in entities(configuration(kitchen(publish=OnChange())).payload)["co2"]


def test_what_says_how_the_device_is_stays_available_without_it():
    found = entities(configuration(kitchen(circuit_breaker=CircuitBreaker(5))).payload)

    for key in ("_status", "_circuit", "_failures", "_success", "_poll", "_release", "_close"):
        assert [each["t"] for each in found[key]["availability"]] == ["house/status"]
        assert found[key]["entity_category"] == "diagnostic"


def test_buttons_ask_at_the_topics_of_requests():
    found = entities(configuration(kitchen(circuit_breaker=CircuitBreaker(5))).payload)

    asked = {
        key: (each["command_topic"], json.loads(each["payload_press"]))
        for key, each in found.items()
        if "payload_press" in each
    }
    assert asked == {
        "_poll": ("house/kitchen/get", {}),
        "_release": ("house/kitchen/release/set", {"by": "Home Assistant"}),
        "_close": ("house/kitchen/circuit/set", {"action": "close", "by": "Home Assistant"}),
    }


def test_a_device_without_types_has_the_entities_of_leadsman():
    app = App("house")
    app.add_telemetry("kitchen", nothing, interval=30)

    assert entities(configuration(app).payload).keys() == {"_status", "_failures", "_success", "_poll", "_release"}


def commanded(annotation, returns=dict):
    app = App("house")

    def handle(value):
        return None

    handle.__annotations__ = {"value": annotation, "return": returns}
    app.add_command("kitchen", handle)
    return entities(configuration(app).payload)


@pytest.mark.parametrize(
    ("annotation", "platform", "given", "sent"),
    [
        (float, "number", "21.5", 21.5),
        (Annotated[int, Field(ge=0, le=100)], "number", "21", 21),
        (Literal["eco", "boost"], "select", "eco", "eco"),
        (Literal[1, 2], "select", "1", 1),
        (str, "text", 'say "hi" {{ 1 }}', 'say "hi" {{ 1 }}'),
    ],
)
def test_a_command_becomes_the_component_of_its_type(annotation, platform, given, sent):
    entity = commanded(annotation)["value"]

    assert entity["platform"] == platform
    assert entity["command_topic"] == "house/kitchen/set"
    assert json.loads(command(entity, given)) == sent


def test_a_boolean_command_is_a_switch():
    entity = commanded(bool)["value"]

    assert (entity["platform"], entity["payload_on"], entity["payload_off"]) == ("switch", "true", "false")


def test_a_command_without_payload_is_a_button():
    app = App("house")
    app.add_command("kitchen", nothing)

    assert entities(configuration(app).payload)["_run"]["platform"] == "button"


@pytest.mark.parametrize("titled", [False, True])
def test_a_switch_that_is_all_of_its_device_has_its_name_unless_the_author_gave_it_one(titled):
    class Fan(BaseModel):
        on: Annotated[bool, Field(title="Ventilation" if titled else None)]

    assert commanded(Fan)["on"]["name"] == ("Ventilation" if titled else None)


def test_a_switch_beside_other_values_has_a_name_of_its_own():
    class Fan(BaseModel):
        on: bool = False
        speed: int = 1

    assert commanded(Fan)["on"]["name"] == "On"


def test_a_button_that_is_all_of_its_device_has_its_name():
    app = App("house")
    app.add_command("beep", nothing)

    assert entities(configuration(app, "beep").payload)["_run"]["name"] is None


def test_a_field_of_a_command_is_sent_as_an_object():
    entity = commanded(Target)["temperature"]

    assert (entity["min"], entity["max"], entity["step"], entity["unit_of_measurement"]) == (5, 30, 0.1, "°C")
    assert json.loads(command(entity, "21.5")) == {"temperature": 21.5}


def test_a_command_with_several_required_values_does_not_appear():
    class Both(BaseModel):
        a: float
        b: float

    assert commanded(Both).keys() == {"_status"}


def test_a_value_that_can_be_set_shows_the_state_of_the_device():
    class State(BaseModel):
        temperature: float
        boost: bool

    app = App("house")

    @app.telemetry("kitchen", interval=30)
    async def read() -> State: ...

    @app.command("kitchen")
    async def heat(boost: bool) -> None: ...

    found = entities(configuration(app).payload)
    assert found["temperature"]["platform"] == "sensor"
    switch = found["boost"]
    assert switch["platform"] == "switch"
    assert state(switch, {"boost": True}) == switch["state_on"]
    assert state(switch, {"boost": False}) == switch["state_off"]


def test_a_value_with_statistics_stays_a_sensor_beside_what_sets_it():
    class State(BaseModel):
        volume: Annotated[float, Sensor("m³", device_class="gas", state_class="total_increasing")]

    class Setting(BaseModel):
        volume: Annotated[float, Field(ge=0, le=1_000_000), Sensor("m³", device_class="gas", precision=3)]

    app = App("house")
    app.add_telemetry("kitchen", annotated(nothing, State), interval=30)

    @app.command("kitchen")
    async def write(payload: Setting) -> None: ...

    found = entities(configuration(app).payload)
    sensor, number = found["volume"], found["_set_volume"]
    assert (sensor["platform"], sensor["state_class"]) == ("sensor", "total_increasing")
    assert (number["platform"], number["unit_of_measurement"], number["step"]) == ("number", "m³", 0.001)
    assert state(number, {"volume": 1.5}) == "1.5"
    assert json.loads(command(number, "2.5")) == {"volume": 2.5}


def test_a_text_that_is_none_is_empty_where_it_can_be_set():
    class State(BaseModel):
        note: str | None

    app = App("house")
    app.add_telemetry("kitchen", annotated(nothing, State), interval=30)

    @app.command("kitchen")
    async def write(note: str) -> None: ...

    entity = entities(configuration(app).payload)["note"]
    assert entity["platform"] == "text"
    assert [state(entity, reading) for reading in ({"note": "x" * 300}, {"note": None}, {})] == ["x" * 255, "", ""]


def test_the_app_is_a_device_that_the_others_name():
    described = convention(["kitchen"])
    topic, payload = described.describe_app()

    found = entities(payload)
    app = json.loads(payload)["dev"]
    assert topic == "homeassistant/device/house/leadsman_app/config"
    assert app["sw"] == "1.2"
    assert json.loads(configuration(kitchen()).payload)["dev"]["via_device"] in app["ids"]
    status = {
        "state": "online",
        "health": "ok",
        "session": 1_700_000_000_000,
        "version": "1.2",
        "mqtt": {"outbox": {"messages": 3}},
    }
    assert state(found["_problem"], status) == "OFF"
    assert state(found["_outbox"], status) == "3"
    assert state(found["_outbox"], {"state": "offline"}) is None


def test_devices_of_one_identifier_are_refused():
    with pytest.raises(InvalidValue, match="rename the device 'new'"):
        convention(["kitchen", "new"], ids={"new": "kitchen"})
    with pytest.raises(InvalidValue, match="leadsman_app"):
        convention(["leadsman_app"])


def test_a_renamed_device_keeps_its_identity():
    before, after = App("house"), App("house")
    for app, name in ((before, "kitchen"), (after, "galley")):
        app.add_telemetry(name, nothing, interval=30)
    old = configuration(before)
    new = configuration(after, "galley", ids={"galley": "kitchen"})

    assert new.topic == old.topic
    assert {e["unique_id"] for e in entities(new.payload).values()} == {
        e["unique_id"] for e in entities(old.payload).values()
    }
    assert json.loads(new.payload)["dev"]["name"] == "galley"


names = st.text(st.characters(exclude_categories=("Cc", "Cs", "Cn", "Co"), exclude_characters="+#/")).filter(
    lambda name: name == name.strip() and name and not name.startswith("$") and name.isprintable()
)


@given(
    st.lists(names, min_size=1, max_size=3, unique=True).map(tuple),
    st.one_of(st.integers(), st.text(min_size=1), st.none()),
)
def test_a_template_finds_a_value_behind_any_keys(path, value):
    field = description.Field(path, "text" if isinstance(value, str) else "number", "X")
    device = description.DeviceDescription("d", (field,), None, None, read=True, polled=True, circuit=False)
    (entity, *_) = entities(convention(["d"]).describe(device)[0].payload).values()

    reading = value
    for key in reversed(path):
        reading = {key: reading}
    assert state(entity, reading) == (None if value in (None, "None") else str(value)[:255])
    assert state(entity, {}) is None
    assert state(entity, {path[0]: None}) is None


@given(names, st.text())
def test_a_command_carries_any_key_and_text(key, value):
    field = description.Field((key,), "text", "X")
    device = description.DeviceDescription(
        "d", (), description.CommandDescription((field,), "p"), None, read=False, polled=False, circuit=False
    )
    (entity, *_) = entities(convention(["d"]).describe(device)[0].payload).values()

    assert json.loads(command(entity, value)) == {key: value}


@given(names)
def test_any_device_has_a_configuration_at_a_topic_that_home_assistant_takes(name):
    device = description.DeviceDescription(name, (), None, 30.0, read=True, polled=True, circuit=True)
    described = convention([name])
    (topic, payload), *_ = described.describe(device)

    head, node, key, tail = topic.rsplit("/", 3)
    assert (head, node, tail) == ("homeassistant/device", "house", "config")
    assert key.replace("_", "").replace("-", "").isalnum()
    assert key.isascii()
    assert json.loads(payload)["dev"]["name"] == name
    assert entities(payload)


# What the broker has


@pytest.mark.parametrize("prefix", ["house", "home/first floor", "häuser", "a-b"])
def test_the_filter_of_an_app_takes_in_its_configurations_and_no_others(prefix):
    described = convention(["kitchen"], prefix=prefix)

    assert list(described.topics.values()) == [None, "kitchen"]
    for topic in described.topics:
        assert topic_matches(described.own, topic)
        assert not topic_matches(convention(["kitchen"], prefix=f"{prefix}_2").own, topic)


def test_a_configuration_of_another_app_is_not_ours():
    ours = convention(["kitchen"])
    other = convention(["kitchen"], prefix="attic")

    assert ours.is_ours(ours.describe_app().payload)
    for payload in (other.describe_app().payload, b"", b"{", b"[1]", b'{"o": 3}', b"\xff", b"[" * 100_000):
        assert not ours.is_ours(payload)


def test_a_component_that_is_gone_is_removed_in_two_steps():
    described = convention(["kitchen"])
    wanted = configuration(kitchen())
    document = json.loads(wanted.payload)
    document["cmps"] |= {"humidity": {"p": "sensor", "uniq_id": "x"}, "note": {"p": "binary_sensor", "uniq_id": "y"}}

    first, second = described.steps(json.dumps(document).encode(), wanted)

    components = json.loads(first.payload)["cmps"]
    assert components["humidity"] == {"p": "sensor"}
    assert components["note"] == {"p": "binary_sensor"}
    assert components["co2"] == json.loads(wanted.payload)["cmps"]["co2"]
    assert second == wanted


platforms = st.dictionaries(st.text(max_size=3), st.sampled_from(["sensor", "switch", "button"]), max_size=5)


@given(platforms, platforms)
def test_the_steps_leave_the_components_that_are_wanted(before, after):
    def configured(components):
        return {"o": {"name": "leadsman house"}, "cmps": {k: {"p": p, "uniq_id": k} for k, p in components.items()}}

    there = {(key, platform) for key, platform in before.items()}
    found, wanted = (json.dumps(configured(each)).encode() for each in (before, after))
    steps = convention(["kitchen"]).steps(found, RetainedMessage("homeassistant/device/house/kitchen/config", wanted))
    for _, payload in steps:  # as Home Assistant does
        for key, component in json.loads(payload)["cmps"].items():
            (there.add if len(component) > 1 else there.discard)((key, component["p"]))

    assert there == {(key, platform) for key, platform in after.items()}


def test_a_configuration_that_is_there_already_is_not_sent():
    described, wanted = convention(["kitchen"]), configuration(kitchen())

    assert described.steps(wanted.payload, wanted) == ()
    assert described.steps(b"", wanted) == (wanted,)


def test_a_configuration_of_a_device_with_eight_fields_has_less_than_four_kilobytes():
    fields = tuple(
        description.Field(
            (f"temperature_{number}",),
            "number",
            f"Temperature {number}",
            unit="°C",
            device_class="temperature",
            state_class="measurement",
            precision=1,
        )
        for number in range(8)
    )
    device = description.DeviceDescription("living_room", fields, None, 95.0, read=True, polled=True, circuit=True)

    (message,) = convention(["living_room"], prefix="airthings2mqtt").describe(device)
    assert len(message.payload) <= 4096


class Named(BaseModel):
    on: Annotated[bool, Sensor(name="Lüfter an")]


def named(**options):
    app = App("house")

    @app.telemetry("fan", interval="30s", **options)
    async def read() -> Named | None: ...

    @app.command("fan", title="Ventilator")
    async def switch(on: bool) -> None: ...

    return app


@pytest.mark.parametrize(("options", "shown"), [({"title": "Lüfter"}, "Lüfter"), ({}, "Ventilator")])
def test_the_title_of_a_device_is_its_name_for_people_and_no_topic_changes(options, shown):
    topic, payload = configuration(named(**options), "fan")

    assert topic == "homeassistant/device/house/fan/config"
    assert json.loads(payload)["dev"]["name"] == shown
    assert json.loads(payload)["dev"]["ids"] == ["house--fan"]


def test_a_switch_keeps_the_name_that_its_field_declares():
    found = entities(configuration(named(), "fan").payload)

    assert (found["on"]["platform"], found["on"]["name"]) == ("switch", "Lüfter an")


def test_each_of_many_devices_has_its_own_title():
    app = App("house")
    rooms = {"bath": Device(title="Bad"), "hall": Device()}

    @app.telemetry(rooms, interval="30s")
    async def read() -> Air | None: ...

    names = [json.loads(configuration(app, name).payload)["dev"]["name"] for name in rooms]
    assert names == ["Bad", "hall"]


def test_the_area_of_a_device_is_suggested():
    app = App("house")
    rooms = {"bath": Device(area="Upstairs"), "hall": Device()}

    @app.telemetry(rooms, interval="30s")
    async def read() -> Air | None: ...

    @app.command("lamp", area="Attic")
    async def lamp(payload: bool): ...

    areas = [json.loads(configuration(app, name).payload)["dev"].get("sa") for name in (*rooms, "lamp")]
    assert areas == ["Upstairs", None, "Attic"]


@pytest.mark.parametrize(("root", "name"), [(None, "house app"), ("hall", "house")])
def test_the_app_is_called_otherwise_beside_a_root_device_which_has_its_name(root, name):
    app = App("house")

    @app.telemetry(root, interval="30s")
    async def read() -> Air | None: ...

    described = HomeAssistant(Identity("house", "1.2", "0.9", app.topics, "house"), ["house"], DiscoverySettings())
    assert json.loads(described.describe_app().payload)["dev"]["name"] == name
    assert json.loads(configuration(app, root or "house").payload)["dev"]["name"] == (root or "house")


class Detailed(BaseModel):
    power: Annotated[float, Sensor("W", homeassistant={"expire_after": 300, "force_update": True})]
    door: Annotated[bool, Sensor(homeassistant={"enabled_by_default": False})]
    serial_number: Annotated[str, Sensor(discoverable=False)]


def test_further_words_of_an_entity_are_taken_over_and_a_hidden_field_has_none():
    app = App("house")

    @app.telemetry("kitchen", interval="30s", stale_after="1m")
    async def read() -> Detailed: ...

    found = entities(configuration(app).payload)

    assert {key for key in found if not key.startswith("_")} == {"power", "door"}
    assert (found["power"]["expire_after"], found["power"]["force_update"]) == (300, True)
    assert (found["door"]["expire_after"], found["door"]["enabled_by_default"]) == (60, False)


def test_a_hidden_field_of_a_command_has_no_entity():
    app = App("house")

    class Options(BaseModel):
        speed: int = 1
        code: Annotated[str, Sensor(discoverable=False)] = ""

    @app.command("kitchen")
    async def set_them(payload: Options): ...

    assert {key for key in entities(configuration(app).payload) if not key.startswith("_")} == {"speed"}


class Event(BaseModel):
    title: str


class Dates(BaseModel):
    events: Annotated[list[Event] | None, Sensor(name="Termine", icon="mdi:calendar")]
    others: list[str] = []


def test_a_list_with_a_sensor_is_a_number_with_its_items_as_an_attribute():
    app = App("house")

    @app.telemetry("kitchen", interval="30s")
    async def read() -> Dates: ...

    found = entities(configuration(app).payload)

    assert {key for key in found if not key.startswith("_")} == {"events"}
    entity, reading = found["events"], {"events": [{"title": "Müll"}, {"title": "Arzt"}]}
    assert (entity["name"], entity["json_attributes_topic"]) == ("Termine", "house/kitchen/state")
    assert state(entity, reading) == "2"
    assert json.loads(rendered(entity["json_attributes_template"], value_json=reading)) == reading
    assert [state(entity, each) for each in ({"events": []}, {"events": None}, {})] == ["0", None, None]


def test_a_list_in_the_payload_of_a_command_has_no_entity():
    app = App("house")

    @app.command("kitchen")
    async def set_them(payload: Dates): ...

    assert {key for key in entities(configuration(app).payload) if not key.startswith("_")} == set()
