"""A command that says what it sets as a whole, such as a lamp, is one control."""

import json
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, create_model

from leadsman import App, Climate, Cover, Fan, Light, Lock, Sensor, Siren, Valve

from .entities import entities, rendered
from .test_homeassistant import configuration


class Lamp(BaseModel):
    on: bool
    brightness: Annotated[int, Field(ge=0, le=100)] | None = None
    effect: Literal["none", "rainbow"] = "none"


class Heating(BaseModel):
    target: Annotated[float, Field(ge=5, le=30), Sensor("°C", device_class="temperature")] | None = None
    mode: Literal["heat", "off"] | None = None
    measured: Annotated[float, Sensor("°C", device_class="temperature", state_class="measurement")] | None = None
    boost: bool | None = None


DIMMED = Annotated[Lamp, Light(brightness="brightness")]
HEATED = Annotated[Heating, Climate(mode="mode", current="measured")]


def described(annotation, returns):
    """The entities of a device with such a command, and readings of the type that it returns."""
    app = App("house")

    async def handle(payload): ...

    handle.__annotations__ = {"payload": annotation, "return": returns}
    app.add_command("kitchen", handle)
    return entities(configuration(app).payload)


def test_a_lamp_is_one_light_and_other_fields_keep_their_entities():
    found = described(DIMMED, Lamp)

    assert {key for key in found if not key.startswith("_")} == {"effect"}
    light = found["_light"]
    assert (light["platform"], light["schema"], light["name"]) == ("light", "template", None)
    assert (light["command_topic"], light["state_topic"]) == ("house/kitchen/set", "house/kitchen/state")


@pytest.mark.parametrize(
    ("brightness", "sent"),
    [
        ({}, {"on": True}),
        ({"brightness": 255}, {"on": True, "brightness": 100}),
        ({"brightness": 128}, {"on": True, "brightness": 50}),
        ({"brightness": 1}, {"on": True, "brightness": 1}),
    ],
)
def test_a_lamp_is_switched_on_with_a_brightness_or_without(brightness, sent):
    light = described(DIMMED, Lamp)["_light"]

    assert json.loads(rendered(light["command_on_template"], **brightness)) == sent
    assert json.loads(rendered(light["command_off_template"])) == {"on": False}


def test_a_brightness_from_0_to_1_has_decimals():
    payload = create_model("Share", on=(bool, ...), share=(float | None, Field(default=None, le=1.0)))
    light = described(Annotated[payload, Light(brightness="share")], payload)["_light"]

    assert json.loads(rendered(light["command_on_template"], brightness=51)) == {"on": True, "share": 0.2}
    assert rendered(light["brightness_template"], value_json={"share": 0.2}) == "51"


@pytest.mark.parametrize(
    ("reading", "on", "brightness"),
    [
        ({"on": True, "brightness": 100}, "on", "255"),
        ({"on": True, "brightness": 50}, "on", "128"),
        ({"on": False, "brightness": 0}, "off", ""),
        ({"on": True, "brightness": None}, "on", ""),
        ({"on": None}, "None", ""),
        ({}, "None", ""),
    ],
)
def test_the_state_of_a_lamp_is_that_of_its_readings(reading, on, brightness):
    light = described(DIMMED, Lamp)["_light"]

    assert rendered(light["state_template"], value_json=reading) == on
    assert rendered(light["brightness_template"], value_json=reading) == brightness


def test_a_lamp_without_readings_or_brightness_has_none():
    light = described(Annotated[Lamp, Light()], Heating)["_light"]

    assert not light.keys() & {"state_template", "brightness_template"}
    assert json.loads(rendered(light["command_on_template"])) == {"on": True}


@given(st.text(min_size=1).filter(lambda name: name != "b"))
def test_a_field_of_a_lamp_may_have_any_name(name):
    fields = {"a": (bool, Field(alias=name)), "b": (int | None, Field(default=None, le=10))}
    light = described(Annotated[create_model("Odd", **fields), Light(on=name, brightness="b")], dict)["_light"]

    assert json.loads(rendered(light["command_on_template"], brightness=255)) == {name: True, "b": 10}
    assert json.loads(rendered(light["command_off_template"])) == {name: False}


def test_a_thermostat_is_one_climate_control_and_what_it_measures_keeps_its_statistics():
    found = described(HEATED, Heating)

    assert {key for key in found if key != "_status" and not key.startswith("_set_")} == {
        "_climate",
        "measured",
        "boost",
    }
    climate = found["_climate"]
    reading = {"target": 21.5, "mode": "heat", "measured": 20.25}
    shown = [climate[f"{each}_state_template"] for each in ("temperature", "mode")]
    assert [rendered(each, value_json=reading) for each in shown] == ["21.5", "heat"]
    assert [rendered(each, value_json={}) for each in shown] == ["None", "None"]
    assert rendered(climate["current_temperature_template"], value_json=reading) == "20.25"
    assert (climate["min_temp"], climate["max_temp"], climate["temperature_unit"]) == (5, 30, "C")
    assert climate["modes"] == ["heat", "off"]


def test_a_thermostat_sends_its_target_or_its_mode_alone():
    climate = described(HEATED, Heating)["_climate"]

    assert json.loads(rendered(climate["temperature_command_template"], value=22.5)) == {"target": 22.5}
    assert json.loads(rendered(climate["mode_command_template"], value="off")) == {"mode": "off"}


def test_a_thermostat_without_modes_heats():
    climate = described(Annotated[Heating, Climate()], Heating)["_climate"]

    assert (climate["modes"], climate["mode_state_template"]) == (["heat"], "heat")
    assert "mode_command_topic" not in climate


class Shutter(BaseModel):
    position: Annotated[int, Field(ge=0, le=100)] | None = None
    stop: bool | None = None


class Blind(BaseModel):
    position: Annotated[int, Field(ge=0, le=100)]


class Ventilator(BaseModel):
    on: bool | None = None
    speed: Annotated[int, Field(ge=0, le=3)] | None = None


class Door(BaseModel):
    locked: bool


class Horn(BaseModel):
    on: bool


class Tap(BaseModel):
    position: Annotated[int, Field(ge=0, le=90)]


class Exact(BaseModel):
    """Limits that pydantic takes for a whole number, and Home Assistant does not."""

    position: Annotated[int, Field(ge=0.0, le=100.0)] | None = None
    on: bool | None = None
    speed: Annotated[int, Field(ge=0.0, le=3.0)] | None = None


@pytest.mark.parametrize(
    ("kind", "word", "largest"),
    [
        (Cover(), "position_open", 100),
        (Valve(), "position_open", 100),
        (Fan(speed="speed"), "speed_range_max", 3),
    ],
)
def test_the_largest_value_of_whole_numbers_is_a_whole_number(kind, word, largest):
    found = described(Annotated[Exact, kind], Exact)[f"_{type(kind).__name__.lower()}"]

    assert repr(found[word]) == repr(largest)


def control(control, payload, returns):
    found = described(Annotated[payload, control], returns)
    (entity,) = (found[key] for key in found if key == f"_{type(control).__name__.lower()}")
    assert entity["name"] is None
    assert not {key for key in found if not key.startswith("_")}
    return entity


def test_a_cover_is_opened_closed_stopped_and_set():
    cover = control(Cover(stop="stop"), Shutter, Shutter)

    sent = [json.loads(cover[f"payload_{word}"]) for word in ("open", "close", "stop")]
    assert sent == [{"position": 100}, {"position": 0}, {"stop": True}]
    assert json.loads(rendered(cover["set_position_template"], position=30)) == {"position": 30}
    shown = [rendered(cover["position_template"], value_json={"position": each}) for each in (30, 0, None)]
    assert shown == ["30", "0", ""]


def test_a_cover_that_shows_no_position_is_opened_and_closed():
    cover = control(Cover(), Blind, None)

    assert cover["payload_stop"] is None
    assert not {"set_position_topic", "position_topic"} & cover.keys()


def test_a_fan_has_speeds():
    fan = control(Fan(speed="speed"), Ventilator, Ventilator)

    sent = [json.loads(rendered(fan["command_template"], value=word)) for word in ("ON", "OFF")]
    assert sent == [{"on": True}, {"on": False}]
    assert json.loads(rendered(fan["percentage_command_template"], value=2)) == {"speed": 2}
    assert fan["speed_range_max"] == 3
    states = [rendered(fan["state_value_template"], value_json={"on": each}) for each in (True, False, None)]
    assert states == ["ON", "OFF", "None"]
    assert rendered(fan["percentage_value_template"], value_json={"speed": 2}) == "2"


def test_a_lock_is_locked_and_unlocked():
    lock = control(Lock(), Door, Door)

    assert [json.loads(lock[f"payload_{word}"]) for word in ("lock", "unlock")] == [{"locked": True}, {"locked": False}]
    states = [rendered(lock["value_template"], value_json={"locked": each}) for each in (True, False, None)]
    assert states == ["LOCKED", "UNLOCKED", "None"]


def test_a_siren_sounds():
    siren = control(Siren(), Horn, Horn)

    sent = [json.loads(rendered(siren["command_template"], value=word)) for word in ("ON", "OFF")]
    assert sent == [{"on": True}, {"on": False}]
    assert rendered(siren["state_value_template"], value_json={"on": True}) == "ON"


def test_a_valve_has_a_position():
    valve = control(Valve(), Tap, Tap)

    assert json.loads(rendered(valve["command_template"], value=45)) == {"position": 45}
    assert (valve["reports_position"], valve["position_open"]) == (True, 90)
    assert rendered(valve["value_template"], value_json={"position": 45}) == "45"
