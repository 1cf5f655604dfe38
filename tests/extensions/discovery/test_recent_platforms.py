"""Dates, times and versions, as Home Assistant is told of them."""

import json
from datetime import UTC, date, datetime, time
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AwareDatetime, BaseModel, create_model

from leadsman import App, Light, Sensor, Update
from leadsman.errors import InvalidType, InvalidValue
from leadsman.extensions.discovery.homeassistant import MAX_CONFIGURATION_BYTES

from .entities import command, entities, state
from .test_homeassistant import annotated, convention, nothing, registered


class Holiday(BaseModel):
    start: AwareDatetime | None = None
    day: date | None = None
    wake: time | None = None
    note: str | None = None


def app_of(annotation, returns):
    app = App("house")

    async def handle(payload): ...

    handle.__annotations__ = {"payload": annotation, "return": returns}
    app.add_command("kitchen", handle)
    return app


def messages(app, name="kitchen"):
    """The configurations of a device, by the last part of their topics."""
    devices = registered(app)
    found = convention(devices.names).describe(devices.device(name))
    return {each.topic.split("/")[-2]: each.payload for each in found}


def test_what_an_older_release_would_refuse_is_in_a_message_of_its_own():
    found = messages(app_of(Holiday, Holiday))

    assert list(found) == ["kitchen", "kitchen--recent"]
    assert {"note", "_status"} <= entities(found["kitchen"]).keys()
    moments = entities(found["kitchen--recent"])
    platforms = {key: each["platform"] for key, each in moments.items()}
    assert platforms == {"start": "datetime", "day": "date", "wake": "time"}
    assert json.loads(found["kitchen"])["dev"] == json.loads(found["kitchen--recent"])["dev"]


@given(st.datetimes(timezones=st.just(UTC)) | st.dates() | st.times())
def test_what_a_person_sets_is_what_the_type_of_the_payload_takes_and_is_shown(value):
    key = "start" if isinstance(value, datetime) else "day" if isinstance(value, date) else "wake"
    entity = entities(messages(app_of(Holiday, Holiday))["kitchen--recent"])[key]

    taken = Holiday.model_validate_json(command(entity, value))

    assert getattr(taken, key) == value
    assert state(entity, {key: value.isoformat()}) == value.isoformat()
    assert state(entity, {key: None}) is None
    assert state(entity, {}) is None


def test_many_dates_are_in_several_messages_of_which_none_is_too_long():
    names = [f"the_day_on_which_{number}_takes_place_in_the_house" for number in range(40)]
    many = create_model("Many", **dict.fromkeys(names, (date | None, None)))

    found = messages(app_of(many, many))

    recent = {name: payload for name, payload in found.items() if name != "kitchen"}
    assert len(recent) > 1
    assert all(name.startswith("kitchen--recent") for name in recent)
    assert all(len(payload) <= MAX_CONFIGURATION_BYTES + 10 for payload in found.values())
    assert {key for payload in recent.values() for key in entities(payload)} == set(names)


def test_a_single_date_is_set_as_it_is():
    found = entities(messages(app_of(date, dict))["kitchen--recent"])

    assert command(found["payload"], date(2026, 12, 24)) == '"2026-12-24"'


def test_a_date_of_a_reading_alone_stays_a_sensor():
    class Waste(BaseModel):
        day: date
        at: time

    app = App("house")
    app.add_telemetry("kitchen", annotated(nothing, Waste), interval="1h")

    (payload,) = messages(app).values()

    found = entities(payload)
    assert (found["day"]["platform"], found["day"]["device_class"]) == ("sensor", "date")
    assert found["at"]["platform"] == "sensor"
    assert state(found["at"], {"at": "06:30:00"}) == "06:30:00"


class Release(BaseModel):
    installed: str
    latest: str | None = None


class Charger(Release):
    watts: float = 0.0


def read(annotation):
    app = App("house")
    app.add_telemetry("kitchen", annotated(nothing, annotation), interval="1h")
    return app


def test_versions_are_one_update_and_other_fields_keep_their_entities():
    (payload,) = messages(read(Annotated[Charger, Update()])).values()

    found = entities(payload)
    assert {key for key in found if not key.startswith("_")} == {"watts"}
    update = found["_update"]
    assert (update["platform"], update["name"]) == ("update", "Update")
    assert state(update, {"installed": "1.10", "latest": None}) == "1.10"
    latest = {**update, "value_template": update["latest_version_template"]}
    assert state(latest, {"installed": "1.10", "latest": "1.11"}) == "1.11"
    assert state(latest, {"installed": "1.10", "latest": None}) == ""


def test_versions_alone_have_the_name_of_the_device():
    (payload,) = messages(read(Annotated[Release, Update()])).values()

    assert entities(payload)["_update"]["name"] is None


@pytest.mark.parametrize(
    ("annotation", "error", "message"),
    [
        (Annotated[Release, Update(latest="newest")], InvalidValue, "latest is 'newest', which is not a field of Rele"),
        (Annotated[Charger, Update(latest="watts")], InvalidType, "latest is 'watts', which must be text"),
        (Annotated[Charger, Update(latest="watts")] | None, InvalidType, "latest is 'watts', which must be text"),
    ],
)
def test_versions_that_a_reading_does_not_have_are_refused_at_the_registration(annotation, error, message):
    with pytest.raises(error, match="telemetry 'kitchen': Update: ") as raised:
        read(annotation)

    assert message in str(raised.value)


def test_versions_without_brackets_are_refused_at_the_registration():
    with pytest.raises(InvalidType, match=r"telemetry 'kitchen': .*with brackets: Update\(\)"):
        read(Annotated[Release, Update])


def test_a_reading_with_versions_may_be_none():
    (payload,) = messages(read(Annotated[Release, Update()] | None)).values()

    assert entities(payload)["_update"]["platform"] == "update"


@pytest.mark.parametrize("annotation", [Annotated[Release, Update()], Annotated[Release, Update()] | None])
def test_versions_beside_a_payload_are_refused(annotation):
    async def handle(release=None): ...

    handle.__annotations__ = {"release": annotation}
    for register in (
        lambda: app_of(annotation, dict),
        lambda: App("house").add_telemetry("kitchen", handle, interval="1h", request="release"),
    ):
        with pytest.raises(InvalidType, match=r"for readings; write it beside what the handler returns"):
            register()


def test_a_control_beside_a_result_is_no_update():
    class Lamp(BaseModel):
        on: bool

    assert registered(app_of(Lamp, Annotated[Lamp, Light()])).device("kitchen").update is None


def test_a_dict_beside_which_a_sensor_stands_is_a_number_with_attributes():
    class Prices(BaseModel):
        prices: Annotated[dict[str, float], Sensor(name="Prices")]
        plain: dict[str, float] = {}

    (payload,) = messages(read(Prices)).values()

    found = entities(payload)
    assert "plain" not in found
    reading = {"prices": {"08:00": 0.25, "it's": 0.5}}
    assert state(found["prices"], reading) == "2"
    attributes = {**found["prices"], "value_template": found["prices"]["json_attributes_template"]}
    assert json.loads(state(attributes, reading)) == reading
