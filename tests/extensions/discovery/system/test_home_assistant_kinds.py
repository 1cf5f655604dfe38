"""Kinds of entities in a real Home Assistant: what is set there arrives at the app, and what the app says is shown."""

import re
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.home_assistant


SIMPLE = """
from typing import Annotated, Literal
from pydantic import BaseModel, Field

class Settings(BaseModel):
    note: Annotated[str, Field(max_length=20, pattern="[a-z {}]*")] | None = None
    mode: Literal["eco", "party"] | None = None
    boost: bool | None = None
    level: Annotated[int, Field(ge=0, le=9)] | None = None

app = App("simple", mqtt=os.environ["URL"], discovery="homeassistant")
now = {}

@app.command("boiler")
def boiler(payload: Settings) -> Settings:
    now.update(payload.model_dump(exclude_none=True))
    return Settings(**now)
"""


def test_a_text_a_select_a_switch_and_a_number_are_set_and_read_back(home, broker, start_app):
    start_app(SIMPLE, broker.url)
    names = {each: f"simple--boiler--{each}" for each in ("note", "mode", "boost", "level")}
    home.wait_for(dict.fromkeys(names.values(), "unknown"))

    for service, field, words, state in (
        ("text.set_value", "note", {"value": "warm {}"}, "warm {}"),
        ("select.select_option", "mode", {"option": "party"}, "party"),
        ("switch.turn_on", "boost", {}, "on"),
        ("number.set_value", "level", {"value": 7}, "7"),
        ("switch.turn_off", "boost", {}, "off"),
        ("text.set_value", "note", {"value": ""}, ""),
    ):
        home.call(service, names[field], **words)
        home.wait_for({names[field]: state})

    assert home.states()[names["note"]]["attributes"]["max"] == 20


def page_code(word, name):
    """The code of the page about Home Assistant in which this word is, for an app of this name."""
    page = Path("docs/how-to/home-assistant.md").read_text()
    (code,) = [each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if word in each]
    code = code.replace(' discovery="homeassistant"', ' mqtt=os.environ["URL"], discovery="homeassistant"')
    return code.replace('App("house"', f'App("{name}"')


def test_dates_and_times_are_set_as_on_the_page_where_home_assistant_knows_them(home, broker, start_app):
    start_app(page_code("AwareDatetime", "dates"), broker.url)
    back_at, last_day, wake_up = moments = [f"dates--holiday--{each}" for each in ("back_at", "last_day", "wake_up")]
    home.wait_for({"dates--holiday--_status": "ok"})

    if not home.knows("datetime"):  # it refuses the message that has them, and that alone
        deadline = time.monotonic() + 60
        while not home.complaints and time.monotonic() < deadline:
            time.sleep(0.05)
        assert home.complaints
        assert all("holiday--recent" in each for each in home.complaints)
        assert not [each for each in moments if each in home.entities()]
        home.forget()
        return
    home.wait_for(dict.fromkeys(moments, "unknown"))
    for service, entity, words, state in (
        ("datetime.set_value", back_at, {"datetime": "2026-12-24 18:30:00+00:00"}, "2026-12-24T18:30:00+00:00"),
        ("date.set_value", last_day, {"date": "2026-12-24"}, "2026-12-24"),
        ("time.set_value", wake_up, {"time": "06:30:00"}, "06:30:00"),
    ):
        home.call(service, entity, **words)
        home.wait_for({entity: state})


def test_an_update_of_the_app_is_shown_as_on_the_page(home, broker, start_app):
    start_app(page_code("Update(", "newest"), broker.url)

    states = home.wait_for({"newest--program--_update": "on"})

    shown = states["newest--program--_update"]["attributes"]
    assert (shown["installed_version"], shown["latest_version"]) == ("1.10", "1.11")


RELEASES = """
from typing import Annotated
from pydantic import BaseModel

class Release(BaseModel):
    installed: str
    latest: str | None

class Charger(Release):
    watts: float

app = App("releases", mqtt=os.environ["URL"], discovery="homeassistant")
newest = iter([None, "1.10", "1.11"])

@app.telemetry("program", interval="1h", throttle=0)
def program() -> Annotated[Release, Update()]:
    return Release(installed="1.10", latest=next(newest))

@app.telemetry("charger", interval="1h")
def charger() -> Annotated[Charger, Update()]:
    return Charger(installed="7", latest="8", watts=3.5)
"""


def test_an_update_is_shown_when_there_is_one_and_unknown_while_nobody_knows(home, broker, start_app):
    start_app("from leadsman import Update\n" + RELEASES, broker.url)
    program, charger = "releases--program--_update", "releases--charger--_update"
    home.wait_for({program: "unknown", charger: "on", "releases--charger--watts": "3.5"})

    poll = "releases--program--_poll"
    home.call("button.press", poll)
    home.wait_for({program: "off"})
    home.call("button.press", poll)
    states = home.wait_for({program: "on"})

    shown = states[program]["attributes"]
    assert (shown["installed_version"], shown["latest_version"]) == ("1.10", "1.11")
    assert shown["friendly_name"] == "program"
    assert states[charger]["attributes"]["friendly_name"] == "charger Update"
    assert not [
        each for each in ("releases--program--installed", "releases--charger--latest") if each in home.entities()
    ]


NESTED = """
from typing import Annotated
from pydantic import BaseModel

class Event(BaseModel):
    title: str
    days: int

class Inner(BaseModel):
    events: Annotated[list[Event], Sensor(name="Dates", icon="mdi:calendar")]
    count: int

class Calendar(BaseModel):
    waste: Inner
    prices: Annotated[dict[str, float] | None, Sensor(name="Prices")]
    hidden: dict[str, float]

app = App("nested", mqtt=os.environ["URL"], discovery="homeassistant")
prices = iter([{"08:00": 0.25, "it's {{ 1 }}": 0.5}, None])

@app.telemetry("calendar", interval="1h", throttle=0)
def calendar() -> Calendar:
    events = [Event(title="Müll", days=1), Event(title="Papier", days=3)]
    return Calendar(waste=Inner(events=events, count=2), prices=next(prices), hidden={"a": 1})
"""


def test_a_nested_list_and_a_dict_are_numbers_with_attributes(home, broker, start_app):
    start_app(NESTED, broker.url)
    events, prices = "nested--calendar--waste--events", "nested--calendar--prices"

    states = home.wait_for({events: "2", prices: "2", "nested--calendar--waste--count": "2"})

    shown = states[events]["attributes"]
    assert shown["events"] == [{"title": "Müll", "days": 1}, {"title": "Papier", "days": 3}]
    assert shown["icon"] == "mdi:calendar"
    assert states[prices]["attributes"]["prices"] == {"08:00": 0.25, "it's {{ 1 }}": 0.5}
    assert "nested--calendar--hidden" not in states
    home.call("button.press", "nested--calendar--_poll")
    home.wait_for({prices: "unknown"})


FLOW = """
from typing import Annotated
from pydantic import BaseModel

class Boiler(BaseModel):
    flow: Annotated[float, Sensor("°C", device_class="temperature")] = 55.5
    runs: int = 7
    code: str = "1234"
    target: float = 50.0

class Wish(BaseModel):
    target: float

app = App("named_by_hand", mqtt=os.environ["URL"], discovery="homeassistant")

@app.telemetry("boiler", interval="1h")
def boiler() -> Boiler:
    return Boiler()

@app.command("boiler")
def wish(payload: Wish) -> None: ...

@app.telemetry("secret", interval="1h")
def secret() -> Boiler:
    return Boiler()
"""


def test_who_runs_an_app_names_and_hides_devices_and_fields_as_on_the_page(home, broker, start_app, tmp_path):
    page = Path("docs/how-to/home-assistant.md").read_text()
    (settings,) = re.findall(r"```toml\n(\[devices\.boiler\]\n.*?)```", page, re.DOTALL)
    (tmp_path / "leadsman.toml").write_text(settings)
    start_app(f"os.chdir({str(tmp_path)!r})\n" + FLOW, broker.url)
    flow, runs, target = (f"named_by_hand--boiler--{each}" for each in ("flow", "runs", "target"))

    states = home.wait_for({flow: "55.5", runs: "7", target: "50.0", "named_by_hand--boiler--_status": "ok"})

    assert states[flow]["attributes"]["friendly_name"] == "Heating in the cellar Flow to the radiators"
    assert states[flow]["attributes"]["icon"] == "mdi:radiator"
    assert states[target]["attributes"]["friendly_name"] == "Heating in the cellar Wished"
    entities, devices = home.entities(), home.devices()
    assert entities[runs]["entity_category"] == "diagnostic"
    assert "named_by_hand--boiler--code" not in entities
    assert "named_by_hand--secret" not in devices
    areas = {each["area_id"]: each["name"] for each in home.ask("config/area_registry/list")}
    assert areas[devices["named_by_hand--boiler"]["area_id"]] == "Cellar"
