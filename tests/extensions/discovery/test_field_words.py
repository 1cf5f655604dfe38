"""What is said of the fields of a device at its registration, and in the settings."""

from collections.abc import AsyncIterator
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from leadsman import App, Context, Device, Finds, Sensor, Update
from leadsman.core.settings.sources import Where
from leadsman.errors import ConfigurationError


class Inner(BaseModel):
    co2: int = 600


class Air(BaseModel):
    flow: Annotated[float, Sensor("°C", name="Vorlauf", icon="mdi:water", category="diagnostic")] = 21.0
    inner: Inner = Inner()
    secret: str = "x"


class Wish(BaseModel):
    target: float = 20.0


def boiler(**options):
    app = App("house", discovery="homeassistant")

    @app.telemetry("boiler", interval="1h", **options)
    def read() -> Air:
        return Air()

    @app.command("boiler")
    def write(payload: Wish) -> None: ...

    return app


def shown(running, device="boiler"):
    """The components of a device, by their keys."""
    return running.broker.retained[f"homeassistant/device/house/{device}/config"].json["cmps"]


def started(harness, app, **settings):
    running = harness(app, settings=settings)
    running.run(5)
    return running


SAID = {"flow": {"name": "Flow", "icon": "mdi:radiator"}, "inner.co2": {"category": "diagnostic"}}


@pytest.mark.parametrize("where", ["code", "settings"])
def test_words_beat_those_beside_the_type_and_what_is_not_said_stays(where, harness):
    app = boiler(fields=SAID) if where == "code" else boiler()
    settings = {} if where == "code" else {"devices.boiler.fields": SAID}

    found = shown(started(harness, app, **settings))

    flow = found["flow"]
    assert (flow["name"], flow["ic"], flow["ent_cat"], flow["unit_of_meas"]) == (
        "Flow",
        "mdi:radiator",
        "diagnostic",
        "°C",
    )
    assert found["inner--co2"]["ent_cat"] == "diagnostic"
    assert found["inner--co2"]["name"] == "Inner CO₂"


def test_fields_are_hidden_and_those_of_the_payload_are_named(harness):
    settings = {"devices.boiler.fields": {"secret": {"discoverable": "false"}, "target": {"name": "Wunsch"}}}

    found = shown(started(harness, boiler(), **settings))

    assert "secret" not in found
    assert found["target"]["name"] == "Wunsch"


def test_further_words_for_home_assistant_are_said_in_the_settings(harness):
    settings = {"devices.boiler.fields": {"flow": {"homeassistant": {"expire_after": 300}}}}

    assert shown(started(harness, boiler(), **settings))["flow"]["exp_aft"] == 300


def test_a_variable_has_switches_and_numbers_as_text(harness):
    texts = {"DISCOVERABLE": "No", "HOMEASSISTANT__EXPIRE_AFTER": "300", "HOMEASSISTANT__FORCE_UPDATE": "on"}
    environment = {f"DEVICES__BOILER__FIELDS__FLOW__{name}": text for name, text in texts.items()}
    app = boiler()

    app.load(Where.nowhere({}, environment))

    words = app.telemetries["boiler"].fields["flow"]
    assert words.discoverable is False
    assert dict(words.homeassistant) == {"expire_after": 300, "force_update": True}


def test_a_device_is_hidden_by_the_settings(harness):
    running = started(harness, boiler(), **{"devices.boiler.discoverable": False})

    assert not [topic for topic in running.broker.retained if topic.startswith("homeassistant/device/house/boiler")]


def test_devices_that_share_a_handler_have_words_of_their_own(harness):
    app = App("house", discovery="homeassistant")
    names = {name: Device(fields={"flow": {"name": name.title()}}) for name in ("attic", "cellar")}

    @app.telemetry(names, interval="1h")
    def read() -> Air:
        return Air()

    running = started(harness, app)

    assert [shown(running, name)["flow"]["name"] for name in names] == ["Attic", "Cellar"]


def test_versions_that_have_words_are_one_update_all_the_same(harness):
    class Release(BaseModel):
        installed: str = "1"
        latest: str | None = None

    app = App("house", discovery="homeassistant")

    @app.telemetry("program", interval="1h", fields={"installed": {"name": "Runs"}})
    def read() -> Annotated[Release, Update()]:
        return Release()

    found = shown(started(harness, app), "program")

    assert {key for key in found if not key.startswith("_")} == set()
    assert found["_update"]["p"] == "update"


def test_the_names_are_those_of_introspection(harness):
    running = started(harness, boiler(), **{"devices.boiler.fields": SAID})

    running.broker.send("house/introspect", b'{"sections": ["devices", "fields"]}', response_topic="house/answers")
    running.run(1)

    data = running.broker.messages("house/answers")[-1].json["data"]
    assert data["fields"]["boiler"]["flow"] == {"unit": "°C", "name": "Flow"}
    assert data["devices"]["boiler"]["registrations"][0]["fields"] == SAID


def test_a_device_that_is_found_has_the_words_of_the_settings(harness):
    app = App("house", discovery="homeassistant")

    @app.source("gateway", finds=Finds(Air), silence=None)
    async def gateway(context: Context) -> AsyncIterator[None]:
        context.device("meter-1").publish(Air())
        yield
        await context.sleep("1d")

    running = started(harness, app, **{"devices.meter-*.fields": {"flow": {"name": "Flow"}}})

    assert shown(running, "meter-1")["flow"]["name"] == "Flow"


def test_words_of_a_pattern_of_a_name_and_of_the_code_are_joined(harness):
    app = boiler(fields={"flow": {"name": "In the code", "icon": "mdi:water"}, "secret": {"name": "In the code, too"}})
    pattern = {"flow": {"name": "By the pattern", "category": "diagnostic"}}
    settings = {"devices.*.fields": pattern, "devices.boiler.fields": {"flow": {"name": "By the name"}}}

    found = shown(started(harness, app, **settings))

    assert (found["flow"]["name"], found["flow"]["ic"]) == ("By the name", "mdi:water")
    assert found["flow"]["ent_cat"] == "diagnostic"
    assert found["secret"]["name"] == "In the code, too"


def test_a_field_that_is_unknown_has_the_place_of_the_section_that_names_it():
    settings = {"devices.*.fields": {"flwo": {"name": "a"}}, "devices.boiler.fields": {"flow": {"name": "b"}}}

    with pytest.raises(ConfigurationError, match=r"devices\.\*\.fields: fields names 'flwo'"):
        boiler().load(Where.nowhere(settings))


def test_a_pattern_passes_over_devices_without_the_field(harness):
    app = boiler()
    app.add_telemetry("other", lambda: None, interval="1h")

    found = shown(started(harness, app, **{"devices.*.fields": {"flow": {"name": "Flow"}}}))

    assert found["flow"]["name"] == "Flow"


def test_a_pattern_passes_over_devices_without_the_field_also_if_the_device_that_has_it_has_a_section_of_its_own(
    harness,
):
    app = boiler()
    app.add_telemetry("other", lambda: None, interval="1h")
    settings = {
        "devices.*.fields": {"flow": {"icon": "mdi:pipe"}},
        "devices.boiler.fields": {"flow": {"name": "Flow"}},
    }

    flow = shown(started(harness, app, **settings))["flow"]

    assert (flow["name"], flow["ic"]) == ("Flow", "mdi:pipe")


def test_a_pattern_may_name_a_field_that_only_a_device_has_that_is_found(harness):
    class Meter(BaseModel):
        energy: float = 1.0

    app = boiler()

    @app.source("gateway", finds=Finds(Meter), silence=None)
    async def gateway(context: Context) -> AsyncIterator[None]:
        context.device("meter-1").publish(Meter())
        yield
        await context.sleep("1d")

    running = started(harness, app, **{"devices.*.fields": {"energy": {"icon": "mdi:flash"}}})

    assert shown(running, "meter-1")["energy"]["ic"] == "mdi:flash"


WRONG = [
    ({"flwo": {"name": "Flow"}}, "fields names 'flwo', which the device does not have; did you mean 'flow'?"),
    ({"flow": {"nam": "Flow"}}, "fields: 'flow' has 'nam'; did you mean 'name'?"),
    ({"flow": {"unit": "W"}}, "fields: 'flow' has 'unit'"),
    ({"flow": "Flow"}, "fields: 'flow' is 'Flow'; write a section for each field"),
    ({"flow": {"name": ""}}, "name is empty"),
    ({"flow": {"name": "a\nb"}}, "printable"),
    ({"flow": {"name": 5}}, "write text"),
    ({"flow": {"icon": "radiator"}}, "such as 'mdi:water'"),
    ({"flow": {"category": "main"}}, "'config' or 'diagnostic'"),
    ({"flow": {"discoverable": "perhaps"}}, "write True or False"),
    ({"flow": {"homeassistant": {"expire": 1}}}, "expire_after"),
    ("flow", "fields is 'flow'; write a section for each field"),
    ("{ flow = { name = 'Flow' }", "write a section for each field"),
    (5, "fields is 5"),
]


@pytest.mark.parametrize(("fields", "reason"), WRONG)
def test_words_that_cannot_be_are_refused_with_their_place(fields, reason):
    with pytest.raises(ConfigurationError) as caught:
        boiler().load(Where.nowhere({"devices.boiler.fields": fields}))

    assert reason in str(caught.value)
    assert "devices.boiler.fields" in str(caught.value)


@pytest.mark.parametrize(("fields", "reason"), [each for each in WRONG if isinstance(each[0], dict)])
def test_words_in_code_that_cannot_be_are_refused(fields, reason):
    with pytest.raises(ConfigurationError) as caught:
        boiler(fields=fields).load(Where.nowhere({}))

    assert reason in str(caught.value)


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
words = st.sampled_from(["name", "icon", "category", "discoverable", "homeassistant", "unit"]) | st.text(max_size=4)
garbage = scalars | st.dictionaries(words, scalars | st.dictionaries(words, scalars, max_size=2), max_size=3)


@given(garbage | st.dictionaries(st.sampled_from(["flow", "inner.co2", "target"]) | st.text(max_size=4), garbage))
def test_whatever_is_said_of_fields_is_taken_or_refused_with_its_place(fields):
    refused = None

    try:
        boiler().load(Where.nowhere({"devices.boiler.fields": fields}))
    except ConfigurationError as error:
        refused = str(error)

    assert refused is None or "devices.boiler.fields" in refused
