"""What a real Home Assistant makes of a real app. It starts once for this file, which takes most of the time."""

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from datetime import datetime
from itertools import permutations
from pathlib import Path

import pytest

from leadsman import Sensor
from leadsman.errors import InvalidValue
from leadsman_rigs.homeassistant import ENVIRONMENT

pytestmark = pytest.mark.home_assistant

ROOM = """
from datetime import datetime, timezone
from typing import Annotated, Literal
from pydantic import BaseModel, Field

class Room(BaseModel):
    temperature: Annotated[
        float | None, Sensor("°C", device_class="temperature", state_class="measurement", precision=1)
    ]
    window: bool | None
    mode: Literal["heat", "off"] | None
    note: str | None
    since: datetime | None
    polls: int
    process: Annotated[int, Sensor(category="diagnostic")]
"""
APP = """
class Target(BaseModel):
    degrees: Annotated[float, Field(ge=5, le=30), Sensor("°C", device_class="temperature")]

app = App("{name}", mqtt=os.environ["URL"], discovery="homeassistant")
first = dict(temperature=21.5, window=True, mode="heat", note="warm", since=datetime(2026, 1, 1, tzinfo=timezone.utc))
readings = []

@app.telemetry("kitchen", interval="1h")
def kitchen() -> Room:
    readings.append(dict.fromkeys(first) if readings else first)
    return Room(**readings[-1], polls=len(readings), process=os.getpid())

@app.command("heating")
def heating(payload: Target) -> Target:
    return payload
"""
ATTIC = """
@app.telemetry("attic", interval="1h")
def attic() -> dict[str, float]:
    return {"celsius": 20.5}
"""
FIRST = {
    "temperature": "21.5",
    "window": "on",
    "mode": "heat",
    "note": "warm",
    "since": "2026-01-01T00:00:00+00:00",
    "polls": "1",
}


def kitchen(name, **states):
    """What `HomeAssistant.wait_for` takes, for the kitchen of the app with this name."""
    return {f"{name}--kitchen--{field}": state for field, state in states.items()}


def test_the_devices_of_an_app_appear_with_their_states_and_units(home, broker, start_app):
    running = start_app(ROOM + APP.format(name="named"), broker.url)

    states = home.wait_for(kitchen("named", **FIRST, process=str(running.process.pid), _status="ok"))

    temperature = states["named--kitchen--temperature"]["attributes"]
    assert temperature["unit_of_measurement"] == "°C"
    assert temperature["device_class"] == "temperature"
    assert temperature["state_class"] == "measurement"
    assert states["named--kitchen--mode"]["attributes"]["options"] == ["heat", "off"]
    assert home.entities()["named--kitchen--process"]["entity_category"] == "diagnostic"
    devices = home.devices()
    assert devices["named--kitchen"]["name"] == "kitchen"
    assert devices["named--kitchen"]["via_device_id"] == devices["named--leadsman_app"]["id"]


LAID_OUT = """
app = App("plain", mqtt=os.environ["URL"], discovery="homeassistant")
readings = []

class Whole(Room):
    tags: Annotated[list[str], Sensor(icon="mdi:tag")]

@app.telemetry("kitchen", interval="1h", layout="fields")
def kitchen() -> Whole:
    readings.append(1)
    if len(readings) > 1:
        none = dict.fromkeys(("temperature", "window", "mode", "note", "since"))
        return Whole(**none, polls=len(readings), process=1, tags=[])
    since = datetime(2026, 1, 1, tzinfo=timezone.utc)
    values = dict(temperature=21.5, window=False, mode="heat", note="0", since=since)
    return Whole(**values, polls=1, process=1, tags=["a", "b"])
"""


def test_values_at_topics_of_their_own_show_the_same_as_json(home, broker, start_app):
    start_app(ROOM + LAID_OUT, broker.url)

    states = home.wait_for(kitchen("plain", **FIRST | {"window": "off", "note": "0"}, tags="2", _status="ok"))
    assert states["plain--kitchen--tags"]["attributes"]["tags"] == ["a", "b"]
    assert states["plain--kitchen--temperature"]["attributes"]["unit_of_measurement"] == "°C"

    home.call("button.press", "plain--kitchen--_poll")
    gone = dict.fromkeys(("temperature", "window", "mode", "note", "since"), "unknown")
    home.wait_for(kitchen("plain", **gone, polls="2", tags="0"))


def waited(running):
    """Seconds in which an app waited for a processor that others had (https://docs.kernel.org/scheduler/sched-stats.html)."""
    return int(Path(f"/proc/{running.process.pid}/schedstat").read_text().split()[1]) / 1e9


def test_ten_entities_of_an_app_have_their_states_within_five_seconds_of_its_start(home, broker, start_app):
    for name in ("soon", "soon_again"):
        begin = time.monotonic()
        running = start_app(ROOM + APP.format(name=name), broker.url)
        about = {"_status": "ok", "_failures": "0", "_poll": "unknown", "_release": "unknown"}
        expected = kitchen(name, **FIRST, **about, process=str(running.process.pid))
        home.wait_for(expected)
        took = time.monotonic() - begin - waited(running)
        assert len(expected) >= 10
        if took <= 5:
            break
        running.end()

    assert took <= 5


def test_the_demo_appears_with_names_units_icons_and_buttons(home, broker):
    command = [sys.executable, "-m", "leadsman", "demo", "--discovery", "--broker", broker.url]
    demo = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        states = home.wait_for(
            {"leadsman-demo--disk--_status": "ok", "leadsman-demo--disk--_poll": "unknown"}
            | {"leadsman-demo--leadsman_app--_version": "demo"}
        )
        home.wait_for_attributes("leadsman-demo--door--event_type", {"event_type": "opened"})
        home.call("button.press", "leadsman-demo--disk--_poll")
        pressed = home.states()["leadsman-demo--disk--_poll"]["state"]
    finally:
        demo.send_signal(signal.SIGINT)
        assert demo.wait(60) == 0

    found = states["leadsman-demo--disk--used_percent"]
    assert found["attributes"]["friendly_name"] == "Root disk Used"
    assert found["attributes"]["unit_of_measurement"] == "%"
    assert found["attributes"]["icon"] == "mdi:harddisk"
    assert float(found["state"]) > 0
    assert pressed.startswith("20")  # the time at which it was pressed
    devices = home.devices()
    assert [devices[f"leadsman-demo--{name}"]["name"] for name in ("meter", "load", "disk")] == [
        "meter",
        "load",
        "Root disk",  # as the settings of the demo say
    ]


def test_the_devices_of_each_app_of_this_repository_appear_even_while_their_hardware_is_away(home, broker, program):
    wave = json.dumps({"cellar": {"address": "F0:11:22:33:44:66"}})
    meters = json.dumps({"house": {"table": "sdm630"}})
    waste = json.dumps({"waste": {"calendar": "Waste", "schedule": "0 * * * *"}})
    settings = {
        "airthings2mqtt": {"waves": wave},
        "bluetooth2mqtt": {},
        "caldates2mqtt": {"servers__home__url": "https://calendar.invalid", "calendars": waste},
        "gas2mqtt": {"bus": 99},
        "meter2mqtt": {"port": "/dev/null/rs485", "meters": meters},
        "p1meter2mqtt": {"port": "/dev/null/p1"},
        "vito2mqtt": {"port": "/dev/null/vito"},
        "weather2mqtt": {
            "url": "http://127.0.0.1:9",
            "places": json.dumps({"berlin": {"latitude": 1, "longitude": 2}}),
        },
    }

    for name, words in settings.items():
        program(name, "--discovery", "homeassistant", mqtt__url=broker.url, **words)

    states = home.wait_for(
        {
            "airthings2mqtt--cellar--radon_24h_avg": "unavailable",
            "bluetooth2mqtt--leadsman_app--_version": "0.1.0",
            "caldates2mqtt--waste--days_left": "unavailable",
            "caldates2mqtt--waste--events": "unavailable",
            "gas2mqtt--gas_counter--consumption_m3": "unavailable",
            "gas2mqtt--gas_counter--_set_consumption_m3": "unavailable",
            "meter2mqtt--house--energy_import": "unavailable",
            "p1meter2mqtt--leadsman_app--_version": "0.1.0",
            "vito2mqtt--diagnosis--_poll": "unknown",
            "vito2mqtt--heating_floor--party_mode": "unknown",
            "weather2mqtt--berlin--temperature": "unavailable",
        }
    )
    gas = states["gas2mqtt--gas_counter--consumption_m3"]["attributes"]
    assert (gas["device_class"], gas["state_class"], gas["unit_of_measurement"]) == ("gas", "total_increasing", "m³")


def test_a_person_polls_a_device_and_what_is_none_becomes_unknown(home, broker, start_app):
    start_app(ROOM + APP.format(name="asked"), broker.url)
    home.wait_for(kitchen("asked", **FIRST))

    home.call("button.press", "asked--kitchen--_poll")

    home.wait_for(kitchen("asked", **dict.fromkeys(FIRST, "unknown") | {"polls": "2"}))


def test_a_command_goes_there_and_its_state_comes_back(home, broker, start_app):
    start_app(ROOM + APP.format(name="told"), broker.url)
    number = "told--heating--degrees"
    states = home.wait_for({number: "unknown"})
    assert (states[number]["attributes"]["min"], states[number]["attributes"]["max"]) == (5, 30)

    home.call("number.set_value", number, value=22.5)

    home.wait_for({number: "22.5"})


def test_what_an_app_measures_is_unavailable_while_it_is_away(home, broker, start_app):
    running = start_app(ROOM + APP.format(name="away"), broker.url)
    home.wait_for(kitchen("away", **FIRST))

    running.end()
    home.wait_for(kitchen("away", **dict.fromkeys(FIRST, "unavailable")))
    running.start()

    home.wait_for(kitchen("away", **FIRST, process=str(running.process.pid)))


def test_an_outage_of_the_broker_passes(home, broker, start_app):
    start_app(ROOM + APP.format(name="outage"), broker.url)
    home.wait_for(kitchen("outage", **FIRST))

    broker.kill()
    home.wait_for(kitchen("outage", **dict.fromkeys(FIRST, "unavailable")))
    broker.start()

    home.wait_for(kitchen("outage", **FIRST))


@pytest.mark.parametrize("order", [*permutations(["app", "broker", "home"])], ids="-".join)
def test_app_broker_and_home_assistant_restart_in_any_order(home, broker, start_app, order):
    name = "".join(each[0] for each in order)
    running = start_app(ROOM + APP.format(name=name), broker.url)
    home.wait_for(kitchen(name, **FIRST))
    stop = {"app": running.end, "broker": broker.stop, "home": home.stop}
    start = {"app": running.start, "broker": broker.start, "home": home.start}

    for each in order:
        stop[each]()
    for each in order:
        start[each]()

    home.wait_for(kitchen(name, **FIRST, process=str(running.process.pid)))


def test_a_device_and_a_field_that_an_app_no_longer_has_are_gone(home, broker, start_app):
    running = start_app(ROOM + APP.format(name="smaller") + ATTIC, broker.url)
    home.wait_for(kitchen("smaller", **FIRST) | {"smaller--attic--_status": "ok"})
    running.end()

    start_app(ROOM.replace("    note: str | None\n", "") + APP.format(name="smaller"), broker.url)

    home.wait_for(kitchen("smaller", **FIRST | {"note": None}) | {"smaller--attic--_status": None})
    assert "smaller--attic" not in home.devices()
    assert "smaller--attic--_status" not in home.entities()


def test_nothing_is_left_and_nothing_is_complained_of_when_discovery_is_switched_off(home, broker, start_app, listen):
    code = ROOM + APP.format(name="private") + ATTIC
    running = start_app(code, broker.url)
    home.wait_for(kitchen("private", **FIRST) | {"private--attic--_status": "ok"})
    running.end()
    heard = listen(broker.port)

    start_app(code.replace(', discovery="homeassistant"', ""), broker.url)

    home.wait_for(kitchen("private", **dict.fromkeys(FIRST)) | {"private--leadsman_app--_version": None})
    heard.wait_for("private/attic/health", where=lambda message: not message.payload)
    assert not {"private--kitchen", "private--attic", "private--leadsman_app"} & home.devices().keys()


ROOT = """
from pydantic import BaseModel

class Celsius(BaseModel):
    celsius: float = 20.5

app = App("alone", mqtt=os.environ["URL"], discovery="homeassistant")

@app.telemetry(None, interval="1h")
def alone() -> Celsius:
    return Celsius()

@app.telemetry("roof", interval="1h", title="Dach", area="Attic")
def roof() -> Celsius:
    return Celsius()

@app.telemetry("secret", interval="1h", discoverable=False)
def secret() -> Celsius:
    return Celsius()
"""


def test_a_root_device_and_its_app_have_names_and_entity_ids_of_their_own(home, broker, start_app):
    start_app(ROOT, broker.url)
    home.wait_for(
        {"alone--alone--celsius": "20.5", "alone--alone--_status": "ok"} | {"alone--leadsman_app--_problem": "off"}
    )

    devices, entities = home.devices(), home.entities()
    assert (devices["alone--alone"]["name"], devices["alone--leadsman_app"]["name"]) == ("alone", "alone app")
    ids = [entities[f"alone--{name}"]["entity_id"] for name in ("alone--celsius", "alone--_status")]
    assert ids == ["sensor.alone_celsius", "sensor.alone_status"]
    assert entities["alone--leadsman_app--_problem"]["entity_id"] == "binary_sensor.alone_app_problem"


def test_a_device_has_its_title_and_its_area_and_one_that_is_not_discoverable_is_not_there(home, broker, start_app):
    start_app(ROOT, broker.url)
    home.wait_for({"alone--roof--celsius": "20.5", "alone--roof--_status": "ok"})

    roof = home.devices()["alone--roof"]
    areas = {each["area_id"]: each["name"] for each in home.ask("config/area_registry/list")}
    assert (roof["name"], areas[roof["area_id"]]) == ("Dach", "Attic")
    assert "alone--secret" not in home.devices()


SHORT = """
from typing import Annotated
from pydantic import BaseModel

class Momentary(BaseModel):
    watts: Annotated[float, Sensor("W", homeassistant={"expire_after": 2})] = 5.0
    door: Annotated[bool, Sensor(homeassistant={"enabled_by_default": False})] = True
    code: Annotated[str, Sensor(discoverable=False)] = "1234"
    events: Annotated[list[dict[str, str]], Sensor(name="Dates")] = [{"title": "Müll"}, {"title": "{{ 1 }}"}]

app = App("short", mqtt=os.environ["URL"], discovery="homeassistant")

@app.telemetry("meter", interval="1h")
def meter() -> Momentary:
    return Momentary()
"""


def test_further_words_of_an_entity_do_in_home_assistant_what_they_say(home, broker, start_app):
    start_app(SHORT, broker.url)
    home.wait_for({"short--meter--_status": "ok", "short--meter--watts": "unavailable"})

    home.call("button.press", "short--meter--_poll")
    home.wait_for({"short--meter--watts": "5.0"})
    home.wait_for({"short--meter--watts": "unavailable"})

    entities = home.entities()
    assert entities["short--meter--door"]["disabled_by"] == "integration"
    assert "short--meter--code" not in entities


def test_a_list_is_a_number_and_its_items_are_an_attribute(home, broker, start_app):
    start_app(SHORT, broker.url)

    states = home.wait_for({"short--meter--_status": "ok", "short--meter--events": "2"})

    assert states["short--meter--events"]["attributes"]["events"] == [{"title": "Müll"}, {"title": "{{ 1 }}"}]


WORDS = """
import json
from homeassistant.components.mqtt import binary_sensor, sensor
schemas = sensor._PLATFORM_SCHEMA_BASE, binary_sensor.DISCOVERY_SCHEMA
print(json.dumps([[str(word) for word in each.schema] for each in schemas]))
"""


def test_home_assistant_knows_each_further_word_of_an_entity(home):
    command = [ENVIRONMENT / "bin" / "python", "-c", WORDS]
    done = subprocess.run(command, check=True, capture_output=True, text=True)

    with pytest.raises(InvalidValue, match="write one of ") as refused:
        Sensor(homeassistant={"zzzzzzzz": 1})
    taken = set(str(refused.value).partition("write one of ")[2].split(", "))

    assert "expire_after" in taken
    for known in json.loads(done.stdout):
        assert taken <= set(known)


MANY = """
from pydantic import create_model

names = [f"temperature_of_the_room_{{number}}" for number in range({fields})]
Readings = create_model("Readings", **dict.fromkeys(names, (float, 20.5)))
app = App("many", mqtt=os.environ["URL"], discovery="homeassistant")

@app.telemetry("cellar", interval="1h")
def cellar() -> Readings:
    return Readings()
"""


def cellar(fields):
    return {f"many--cellar--temperature_of_the_room_{number}": "20.5" for number in range(fields)}


def test_a_device_that_grows_beyond_one_message_stays_one_device_with_what_people_have_set(home, broker, start_app):
    running = start_app(MANY.format(fields=6), broker.url)
    home.wait_for(cellar(6))
    for name in cellar(6):
        home.name(name, f"mine: {name[-1]}")
    before = home.entities()
    running.end()

    running = start_app(MANY.format(fields=31), broker.url)
    home.wait_for(cellar(31))

    after, devices = home.entities(), home.devices()
    assert [after[name]["name"] for name in cellar(6)] == [f"mine: {number}" for number in range(6)]
    assert [after[name]["entity_id"] for name in cellar(6)] == [before[name]["entity_id"] for name in cellar(6)]
    assert {after[name]["device_id"] for name in cellar(31)} == {devices["many--cellar"]["id"]}
    assert devices["many--cellar"]["via_device_id"] == devices["many--leadsman_app"]["id"]
    running.end()

    arguments = ["clean", "--prefix", "many", "--all", "--mqtt", broker.url]
    subprocess.run([sys.executable, "-m", "leadsman", *arguments], check=True, stdout=subprocess.DEVNULL)

    home.wait_for(dict.fromkeys(cellar(31)))
    assert "many--cellar" not in home.devices()
    assert not set(cellar(31)) & home.entities().keys()


HEARD = """
DEGREES = {"temperature": Annotated[float, Sensor("°C", device_class="temperature")]}
BOTH = {**DEGREES, "humidity": Annotated[float, Sensor("%", device_class="humidity")]}
app = App("heard", mqtt=os.environ["URL"], discovery="homeassistant", keep_state=True)
readings = Buffer(10)

@app.subscribe("air")
async def air(reading: dict[str, float]):
    readings.put(reading)

@app.source("gateway", finds=Finds(), silence=None)
async def gateway(context: Context):
    async for reading in readings:
        fields = BOTH if "humidity" in reading else DEGREES
        context.device("shelf", fields=fields, title="H5075 1234").publish(reading)
        yield
"""


def test_a_found_device_gets_a_field_and_keeps_what_people_have_set_over_a_restart(home, broker, start_app, listen):
    air = listen(broker.port)
    running = start_app("from typing import Annotated\n" + HEARD, broker.url)
    air.wait_for("heard/registry")
    air.client.publish("air", '{"temperature": 21.5}', 1).wait_for_publish(10)
    home.wait_for({"heard--shelf--temperature": "21.5"})
    home.name("heard--shelf--temperature", "mine")
    before = home.entities()
    assert "heard--shelf--humidity" not in before

    air.client.publish("air", '{"temperature": 22.5, "humidity": 50.5}', 1).wait_for_publish(10)
    home.wait_for({"heard--shelf--temperature": "22.5", "heard--shelf--humidity": "50.5"})
    running.end()
    running.start()
    air.wait_for("heard/status", where=lambda message: "shelf" in json.loads(message.payload).get("devices", {}))
    home.wait_for({"heard--shelf--temperature": "22.5", "heard--shelf--humidity": "50.5"})

    after = home.entities()
    assert after["heard--shelf--temperature"]["name"] == "mine"
    assert after["heard--shelf--temperature"]["entity_id"] == before["heard--shelf--temperature"]["entity_id"]
    assert home.devices()["heard--shelf"]["name"] == "H5075 1234"


def test_nothing_is_left_of_an_app_and_nothing_is_complained_of_after_leadsman_clean(home, broker, start_app):
    running = start_app(ROOM + APP.format(name="retired"), broker.url)
    home.wait_for(kitchen("retired", **FIRST))
    running.end()

    arguments = ["clean", "--prefix", "retired", "--all", "--mqtt", broker.url]
    subprocess.run([sys.executable, "-m", "leadsman", *arguments], check=True, stdout=subprocess.DEVNULL)

    home.wait_for(kitchen("retired", **dict.fromkeys(FIRST)) | {"retired--leadsman_app--_version": None})
    assert not {"retired--kitchen", "retired--leadsman_app"} & home.devices().keys()


CONTROLS = """
from typing import Annotated, Literal
from pydantic import BaseModel, Field

class Lamp(BaseModel):
    on: bool
    brightness: Annotated[int, Field(ge=0, le=100)] | None = None

class Heating(BaseModel):
    target: Annotated[float, Field(ge=5, le=30)] | None = None
    mode: Literal["heat", "off"] | None = None

class Measured(Heating):
    celsius: float = 19.5

app = App("controls", mqtt=os.environ["URL"], discovery="homeassistant")
state = dict(target=20.0, mode="off")

@app.command("lamp")
def lamp(payload: Annotated[Lamp, Light(brightness="brightness")]) -> Lamp:
    return payload

@app.command("heating")
def heating(payload: Annotated[Heating, Climate(mode="mode", current="celsius")]) -> Measured:
    state.update(payload.model_dump(exclude_none=True))
    return Measured(**state)
"""


def test_a_lamp_is_dimmed_and_a_thermostat_is_set(home, broker, start_app):
    start_app("from leadsman import Climate, Light\n" + CONTROLS, broker.url)
    light, climate = "controls--lamp--_light", "controls--heating--_climate"
    home.wait_for({light: "unknown", climate: "unknown"})

    home.call("light.turn_on", light, brightness=128)
    states = home.wait_for({light: "on"})
    home.call("light.turn_off", light)
    home.wait_for({light: "off"})

    assert states[light]["attributes"]["brightness"] == 128
    assert states[light]["attributes"]["friendly_name"] == "lamp"

    home.call("climate.set_temperature", climate, temperature=22.5)
    home.wait_for({climate: "off"})
    home.call("climate.set_hvac_mode", climate, hvac_mode="heat")
    states = home.wait_for({climate: "heat"})

    shown = states[climate]["attributes"]
    assert (shown["temperature"], shown["current_temperature"]) == (22.5, 19.5)
    assert (shown["min_temp"], shown["max_temp"], shown["hvac_modes"]) == (5, 30, ["heat", "off"])


KINDS = """
from typing import Annotated
from pydantic import BaseModel, Field

class Shutter(BaseModel):
    position: Annotated[int, Field(ge=0, le=100)] | None = None
    stop: bool | None = None

class Ventilator(BaseModel):
    on: bool | None = None
    speed: Annotated[int, Field(ge=0, le=3)] | None = None

class Door(BaseModel):
    locked: bool | None = None

class Horn(BaseModel):
    on: bool

class Tap(BaseModel):
    position: Annotated[int, Field(ge=0, le=90)] | None = None

app = App("kinds", mqtt=os.environ["URL"], discovery="homeassistant")
air = dict(on=False, speed=1)

@app.command("shutter")
def shutter(payload: Annotated[Shutter, Cover(stop="stop")]) -> Shutter:
    return Shutter(position=50) if payload.stop else payload

@app.command("ventilator")
def ventilator(payload: Annotated[Ventilator, Fan(speed="speed")]) -> Ventilator:
    air.update(payload.model_dump(exclude_none=True))
    return Ventilator(**air)

@app.command("door")
def door(payload: Annotated[Door, Lock()]) -> Door:
    return payload

@app.command("horn")
def horn(payload: Annotated[Horn, Siren()]) -> Horn:
    return payload

@app.command("tap")
def tap(payload: Annotated[Tap, Valve()]) -> Tap:
    return payload
"""


def test_a_cover_a_fan_a_lock_a_siren_and_a_valve_are_set_and_show_their_state(home, broker, start_app):
    start_app("from leadsman import Cover, Fan, Lock, Siren, Valve\n" + KINDS, broker.url)
    cover, fan, lock = "kinds--shutter--_cover", "kinds--ventilator--_fan", "kinds--door--_lock"
    siren, valve = "kinds--horn--_siren", "kinds--tap--_valve"
    home.wait_for(dict.fromkeys((cover, fan, lock, siren, valve), "unknown"))

    for service, entity, words, state in (
        ("cover.open_cover", cover, {}, {"current_position": 100}),
        ("cover.set_cover_position", cover, {"position": 30}, {"current_position": 30}),
        ("cover.stop_cover", cover, {}, {"current_position": 50}),
        ("cover.close_cover", cover, {}, "closed"),
        ("fan.turn_on", fan, {}, "on"),
        ("fan.set_percentage", fan, {"percentage": 66}, {"percentage": 66}),
        ("fan.turn_off", fan, {}, "off"),
        ("lock.lock", lock, {}, "locked"),
        ("lock.unlock", lock, {}, "unlocked"),
        ("siren.turn_on", siren, {}, "on"),
        ("siren.turn_off", siren, {}, "off"),
        ("valve.set_valve_position", valve, {"position": 50}, {"current_position": 50}),
        ("valve.open_valve", valve, {}, {"current_position": 100}),
        ("valve.close_valve", valve, {}, "closed"),
    ):
        home.call(service, entity, **words)
        if isinstance(state, str):
            home.wait_for({entity: state})
        else:
            home.wait_for_attributes(entity, state)
    assert home.states()[lock]["attributes"]["friendly_name"] == "door"


EVENTS = """
from typing import Literal

app = App("events", mqtt=os.environ["URL"], discovery="homeassistant")

@app.subscribe("wall/bell", event="bell", device_class="doorbell", title="Front door")
async def bell(action: str) -> Literal["single", "double press"]:
    return action

@app.subscribe("wall/hall", event="hall", device_class="motion")
async def hall(action: str) -> Literal["motion"]:
    return action
"""


def test_an_event_is_shown_and_triggers_an_automation_and_none_is_seen_twice(home, broker, start_app, listen):
    bell, hall = "events--bell--event_type", "events--hall--event_type"
    start_app(EVENTS, broker.url)
    home.wait_for({bell: "unknown", hall: "unknown", "events--bell--_status": "ok"})
    device = home.devices()["events--bell"]["id"]
    offered = [
        each for each in home.ask("device_automation/trigger/list", device_id=device) if each["domain"] == "mqtt"
    ]
    shown = {(each["subtype"], each["type"]) for each in offered}
    assert shown == {("Front door", "single"), ("Front door", "double press")}
    wall = listen(broker.port).client
    home.subscribe_to(next(each for each in offered if each["type"] == "double press"))

    wall.publish("wall/bell", b'"single"', 1)
    home.wait_for_attributes(bell, {"event_type": "single", "device_class": "doorbell"})
    first = home.states()[bell]
    wall.publish("wall/bell", b'"double press"', 1)
    home.wait_for_attributes(bell, {"event_type": "double press", "friendly_name": "Front door"})
    fired = home.wait_for_trigger()
    wall.publish("wall/hall", b'"motion"', 1)
    home.wait_for_attributes(hall, {"event_type": "motion", "event_types": ["motion"]})

    assert datetime.fromisoformat(first["state"]) < datetime.fromisoformat(home.states()[bell]["state"])
    assert fired["payload_json"] == {"event_type": "double press"}
    late = listen(broker.port)
    time.sleep(0.5)
    assert late.on("events/bell/state") == []


CAMERA = """
app = App("seen", mqtt=os.environ["URL"], discovery="homeassistant")
PICTURES = [b"\\xff\\xd8first", b"\\xff\\xd8second"]

@app.telemetry("door", interval="1h", field="image")
def door() -> Annotated[bytes, Content("image/jpeg")]:
    return PICTURES.pop(0) if len(PICTURES) > 1 else PICTURES[0]
"""


def test_an_image_is_shown_and_follows(home, broker, start_app):
    start_app("from typing import Annotated\nfrom leadsman import Content\n" + CAMERA, broker.url)
    home.wait_for({"seen--door--_status": "ok"})

    def wait_for_picture(expected):
        deadline = time.monotonic() + 60
        while True:
            states, entity, picture = home.states(), None, None
            if "seen--door--_image" in states:
                entity = states["seen--door--_image"]
                path = entity["attributes"]["entity_picture"]
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{home.port}{path}", timeout=10) as answer:
                        picture = answer.headers["Content-Type"], answer.read()
                except urllib.error.HTTPError:
                    pass  # it has none yet
            if picture == ("image/jpeg", expected):
                return entity
            assert time.monotonic() < deadline, (entity, picture, home.log)
            time.sleep(0.1)

    entity = wait_for_picture(b"\xff\xd8first")
    assert entity["attributes"]["friendly_name"] == "door"
    assert "seen--door--size" not in home.states()
    home.call("button.press", "seen--door--_poll")
    wait_for_picture(b"\xff\xd8second")
