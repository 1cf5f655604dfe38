"""Homie's convention, as a pure function of what is registered. The rules are in `leadsman_rigs.homie`."""

import json
from typing import Annotated, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from leadsman import App, Delivery, Light, Sensor
from leadsman.discovery import description
from leadsman.discovery.description import (
    AppDescription,
    CommandDescription,
    Condition,
    DeviceDescription,
    RetainedMessage,
)
from leadsman.discovery.homie import Homie, datatype, payload_of, value_of
from leadsman.discovery.registered import DescribedDevices
from leadsman.errors import InvalidValue, PayloadError
from leadsman.mqtt.topics import Topics, topic_matches
from leadsman_rigs.examples import examples
from leadsman_rigs.homie import FLOAT, INTEGER, violations

KITCHEN = "homie/5/house-kitchen"
WELL = Condition("ok", False, False, "closed", 0, "2026-11-22T20:00:00.000Z", None, None)


class Air(BaseModel):
    co2: Annotated[int, Sensor("ppm", device_class="carbon_dioxide")]
    temperature: float


class Reading(BaseModel):
    indoor: Air
    window_open: bool
    mode: Literal["eco", "boost"]
    note: str | None = None


class Wanted(BaseModel):
    mode: Literal["eco", "boost", "off"] = "eco"
    level: Annotated[int, Field(ge=10, le=50, multiple_of=5)] = 10


async def nothing():
    return {}


def convention(names, device, prefix="house", ids=None, number=7):
    app = AppDescription("house", "1.2", "0.9", Topics(prefix), ids or {})
    return Homie(app, names, "homie", device, number)


def of_app(app, **words):
    read = {name: each for name, each in app.telemetries.items() if not each.job} | app.sources
    registered = DescribedDevices(read, app.commands)
    return convention(registered.names, registered.device, **words)


def kitchen(**options):
    app = App("house")

    @app.telemetry("kitchen", interval="30s", **options)
    async def read() -> Reading | None: ...

    @app.command("kitchen")
    async def change(wanted: Wanted) -> None: ...

    return app


def described(homie, name="kitchen"):
    return json.loads(homie.describe(homie._device(name))[0].payload)


def published(homie, readings=()):
    """The tree that the broker has when everything was published."""
    tree = {}
    names = [name for name in homie.topics.values() if name is not None]
    steps = [step for name in names for step in homie.steps(b"", *homie.describe(homie._device(name)))]
    steps += homie.steps(b"", homie.describe_app())
    for name, fields in readings:
        steps += [RetainedMessage(each.topic, each.payload) for each in homie.values(name, fields) if each.retained]
    steps += [step for name in names for step in homie.condition(name, WELL)] + [homie.app_ready()]
    for topic, payload in steps:
        tree[topic] = payload
    return {topic: payload for topic, payload in tree.items() if payload}


def test_a_device_is_described_with_its_nodes_and_properties():
    assert described(of_app(kitchen())) == {
        "homie": "5.0",
        "version": 7,
        "name": "kitchen",
        "type": "leadsman/house",
        "root": "house",
        "parent": "house",
        "nodes": {
            "indoor": {
                "properties": {
                    "co2": {"name": "Indoor CO₂", "datatype": "integer", "unit": "ppm"},
                    "temperature": {"name": "Indoor temperature", "datatype": "float"},
                }
            },
            "values": {
                "properties": {
                    "window-open": {"name": "Window open", "datatype": "boolean"},
                    "mode": {"name": "Mode", "datatype": "enum", "format": "eco,boost,off", "settable": True},
                    "note": {"name": "Note", "datatype": "string"},
                }
            },
            "command": {
                "properties": {
                    "level": {
                        "name": "Level",
                        "datatype": "integer",
                        "format": "10:50:5",
                        "settable": True,
                        "retained": False,
                    }
                }
            },
        },
    }


def test_the_app_is_the_root_of_its_devices():
    homie = of_app(kitchen())

    document = json.loads(homie.describe_app().payload)

    assert document["children"] == ["house-kitchen"]
    assert "root" not in document
    assert list(homie.topics.items()) == [(f"{KITCHEN}/$description", "kitchen"), ("homie/5/house/$description", None)]


def test_a_reading_gives_each_value_a_topic():
    homie = of_app(kitchen())
    fields = {"indoor": {"co2": 400, "temperature": 1e16}, "window_open": False, "mode": "eco", "note": ""}

    found = {topic.removeprefix(f"{KITCHEN}/"): payload for topic, payload, _ in homie.values("kitchen", fields)}

    assert found == {
        "indoor/co2": b"400",
        "indoor/temperature": b"1e16",
        "values/window-open": b"false",
        "values/mode": b"eco",
        "values/note": b"\x00",
    }


def test_a_value_that_a_reading_does_not_have_is_removed():
    homie = of_app(kitchen())

    found = homie.values("kitchen", {"indoor": None, "note": None})

    assert {payload for _, payload, _ in found} == {b""}


def test_readings_that_the_broker_does_not_keep_are_events():
    homie = of_app(kitchen(delivery=Delivery(retain=False)))

    assert described(homie)["nodes"]["indoor"]["properties"]["co2"]["retained"] is False
    assert not any(each.retained for each in homie.values("kitchen", {"mode": "eco"}))
    assert f"{KITCHEN}/indoor/co2" not in homie.kept(f"{KITCHEN}/$description")


def test_a_value_that_is_set_becomes_a_command():
    homie = of_app(kitchen())

    shown = homie.command(f"{KITCHEN}/values/mode/set", b"off")
    alone = homie.command(f"{KITCHEN}/command/level/set", b"17")

    assert (shown.device, json.loads(shown.payload), shown.accepted) == ("kitchen", {"mode": "off"}, None)
    assert json.loads(alone.payload) == {"level": 15}
    assert alone.accepted == RetainedMessage(f"{KITCHEN}/command/level/$target", b"17")


@pytest.mark.parametrize(
    ("place", "payload", "words"),
    [
        ("values/mode", b"turbo", "send one of: eco, boost, off"),
        ("values/mode", b"\x00", "send one of"),
        ("values/mode", b"\xff", "is not UTF-8"),
        ("command/level", b"8e1", "send a whole number within 10:50:5"),
        ("command/level", b"53", "within 10:50:5"),
        ("command/level", b"", "send a whole number"),
        ("command/level", b"9" * 5000, "send a whole number"),
        ("values/note", b"x", "no property that can be set"),
        ("values/other", b"x", "no property that can be set"),
    ],
)
def test_what_does_not_fit_is_refused(place, payload, words):
    with pytest.raises(PayloadError, match=words):
        of_app(kitchen()).command(f"{KITCHEN}/{place}/set", payload)


def test_a_command_without_a_payload_runs_and_one_with_any_payload_takes_json():
    app = App("house")

    @app.command("bell")
    async def ring() -> None: ...

    class Pair(BaseModel):
        first: int
        second: int

    @app.command("pair")
    async def join(pair: Pair) -> None: ...

    homie = of_app(app)

    assert homie.command("homie/5/house-bell/command/run/set", b"run").payload == b"{}"
    assert homie.command("homie/5/house-pair/command/payload/set", b'{"first":1}').payload == b'{"first":1}'
    for topic, payload in (("house-bell/command/run", b"stop"), ("house-pair/command/payload", b"1")):
        with pytest.raises(PayloadError):
            homie.command(f"homie/5/{topic}/set", payload)
    assert violations(published(homie)) == []


def test_what_home_assistant_shows_as_one_light_can_be_set_field_by_field():
    class Lamp(BaseModel):
        on: bool = False
        brightness: Annotated[int, Field(ge=0, le=255)] = 0

    app = App("house")

    @app.command("lamp")
    async def change(lamp: Annotated[Lamp, Light(brightness="brightness")]) -> None: ...

    homie = of_app(app)

    assert homie.command("homie/5/house-lamp/command/on/set", b"true").payload == b'{"on":true}'
    assert homie.command("homie/5/house-lamp/command/brightness/set", b"40").payload == b'{"brightness":40}'
    assert violations(published(homie)) == []


def test_a_payload_that_is_one_value_is_sent_as_it_is():
    app = App("house")

    @app.command("lamp")
    async def dim(brightness: Annotated[int, Field(ge=0, le=100)]) -> None: ...

    found = of_app(app).command("homie/5/house-lamp/command/brightness/set", b"40")

    assert found.payload == b"40"


def test_a_description_changes_only_in_init_and_gets_a_higher_version():
    """Device Attributes: "this value may only change when the device $state is either init, disconnected, or lost";
    "Whenever the document changes, a new higher version must be assigned"."""
    homie = of_app(kitchen())
    (wanted,) = homie.describe(homie._device("kitchen"))
    before = {**json.loads(wanted.payload), "version": 900, "name": "old"}

    state, document = homie.steps(json.dumps(before).encode(), wanted)

    assert state == RetainedMessage(f"{KITCHEN}/$state", b"init")
    assert json.loads(document.payload) == {**json.loads(wanted.payload), "version": 901}


def test_a_description_that_is_there_already_is_not_sent():
    homie = of_app(kitchen(), number=900)

    found = of_app(kitchen(), number=3).describe_app()

    assert homie.steps(found.payload, homie.describe_app()) == ()


def test_a_property_that_is_gone_is_removed():
    """Device reconfiguration: "Devices can remove old properties and nodes by deleting the respective MQTT topics"."""
    homie = of_app(kitchen())
    (wanted,) = homie.describe(homie._device("kitchen"))
    before = json.loads(wanted.payload)
    before["nodes"]["indoor"]["properties"] |= {
        "radon": {"datatype": "float"},
        "x": {"datatype": "float", "retained": False},
    }

    steps = homie.steps(json.dumps(before).encode(), wanted)

    assert steps[1:-1] == (RetainedMessage(f"{KITCHEN}/indoor/radon", b""),)


def test_a_device_that_is_removed_loses_its_state_first():
    """Device Lifecycle: "remove the retained $state attribute from the broker ... any other retained attributes or
    property values should be cleared via the same method afterwards"."""
    homie = of_app(kitchen())
    tree = published(homie, [("kitchen", {"indoor": {"co2": 1, "temperature": 2}, "mode": "eco", "note": "x"})])
    topic = f"{KITCHEN}/$description"

    steps = homie.removal(topic, tree[topic])

    assert steps[0] == RetainedMessage(f"{KITCHEN}/$state", b"")
    assert {each.payload for each in steps} == {b""}
    assert not [each for each in tree if each.startswith(f"{KITCHEN}/") and each not in {step.topic for step in steps}]


def test_all_that_is_retained_is_listed_with_the_state_first():
    homie = of_app(kitchen())
    tree = published(homie, [("kitchen", {"indoor": {"co2": 1, "temperature": 2}, "mode": "eco", "note": "x"})])

    listed = {topic: homie.kept(topic) for topic in homie.topics}

    assert tree.keys() <= {each for topics in listed.values() for each in topics}
    assert all(topics[0].endswith("/$state") for topics in listed.values())
    assert all(topic_matches(homie.removes, each) for topics in listed.values() for each in topics)


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, b"ready"),
        ({"status": "starting", "last_success_at": None}, b"init"),
        ({"status": "error", "failures": 1}, b"ready"),
        ({"status": "error", "failures": 1, "offline": True}, b"lost"),
        ({"status": "stale", "offline": True}, b"lost"),
        ({"status": "circuit_open", "offline": True, "circuit": "open"}, b"lost"),
        ({"status": "deferred"}, b"sleeping"),
        ({"status": "deferred", "left": True, "offline": True}, b"disconnected"),
        ({"status": "held", "offline": True}, b"disconnected"),
    ],
)
def test_the_state_of_a_device_says_how_it_is(changes, state):
    *_, found = of_app(kitchen()).condition("kitchen", WELL._replace(**changes))

    assert found == RetainedMessage(f"{KITCHEN}/$state", state)


def test_an_outage_is_an_alert_until_it_is_over():
    """Alert topic: "once the situation is resolved ..., the device will delete the topics again"."""
    homie = of_app(kitchen())
    trouble = WELL._replace(status="circuit_open", circuit="open", failures=5, error="OSError: no answer")

    failing, circuit, _ = homie.condition("kitchen", trouble)
    over = homie.condition("kitchen", WELL)

    assert failing == RetainedMessage(f"{KITCHEN}/$alert/failing", b"kitchen fails: OSError: no answer")
    assert circuit == RetainedMessage(f"{KITCHEN}/$alert/circuit", b"kitchen is polled rarely: its circuit is open")
    assert over[:2] == (RetainedMessage(failing.topic, b""), RetainedMessage(circuit.topic, b""))


def test_the_will_is_that_of_the_root():
    """Last Will: "the LWT message MUST be set on the root device"."""
    assert of_app(kitchen()).app_lost() == RetainedMessage("homie/5/house/$state", b"lost")


def test_an_app_that_ends_disconnects_the_root_last():
    """Device Lifecycle: "disconnected: ... You must send this message before cleanly disconnecting"."""
    assert of_app(kitchen()).goodbye(["kitchen"]) == [
        RetainedMessage(f"{KITCHEN}/$state", b"disconnected"),
        RetainedMessage("homie/5/house/$state", b"disconnected"),
    ]


def test_a_description_of_another_program_is_not_ours():
    ours, other = of_app(kitchen()), of_app(kitchen(), prefix="flat")

    assert ours.is_ours(ours.describe_app().payload)
    for payload in (other.describe_app().payload, b"", b"{", b"[1]", b'"leadsman/house"', b"\xff", b"[" * 100_000):
        assert not ours.is_ours(payload)


def test_devices_with_one_identifier_are_an_error_that_names_both():
    with pytest.raises(InvalidValue, match="'Kitchen' and 'kitchen' have one identifier"):
        convention(["Kitchen", "kitchen"], None)


def test_a_renamed_device_keeps_its_identifier():
    assert of_app(kitchen(), ids={"kitchen": "Küche"}).topics.keys() == {
        *("homie/5/house-kuche/$description", "homie/5/house/$description")
    }


names = st.one_of(st.text(min_size=1, max_size=6), st.sampled_from(["a", "A", "a_b", "a-b", "values", "command", "é"]))
numbers = st.floats(allow_nan=False, allow_infinity=False, width=32) | st.none()
fields = st.builds(
    description.Field,
    path=st.lists(names, min_size=1, max_size=3).map(tuple),
    kind=st.sampled_from(["number", "text", "boolean", "enum", "timestamp", "date"]),
    name=names,
    unit=st.none() | st.just("°C"),
    options=st.lists(names, max_size=3, unique=True).map(tuple),
    whole=st.booleans(),
    minimum=numbers,
    maximum=numbers,
    step=numbers,
)
settable = fields.map(lambda field: field._replace(path=field.path[:1]))
finite = st.floats(allow_nan=False, allow_infinity=False)
plain = st.none() | st.booleans() | st.integers() | finite | st.text(max_size=5) | st.just("2026-11-22T20:00:00Z")


def unique(found):
    return tuple({each.path: each for each in found}.values())


devices = st.builds(
    DeviceDescription,
    name=st.just("kitchen"),
    fields=st.lists(fields, max_size=5).map(unique),
    command=st.none()
    | st.builds(CommandDescription, st.lists(settable, max_size=3).map(unique), st.just("wanted"), st.none()),
    stale_after=st.none(),
    read=st.booleans(),
    polled=st.booleans(),
    circuit=st.booleans(),
    retained=st.booleans(),
    update=st.none(),
)


@pytest.mark.parametrize(("step", "written"), [(5.0, "0:10:5"), (2.0**63, "0:10")])
def test_a_step_that_no_integer_of_the_convention_holds_is_left_out(step, written):
    field = description.Field(("level",), "number", "Level", whole=True, minimum=0, maximum=10, step=step)
    device = DeviceDescription("kitchen", (field,), None, None, read=True, polled=True, circuit=False)

    found = described(convention(["kitchen"], lambda _: device))["nodes"]["values"]["properties"]["level"]

    assert found["format"] == written


@settings(max_examples=examples(50))
@given(devices, st.lists(plain, min_size=5, max_size=5))
def test_whatever_a_device_is_its_tree_follows_the_convention(device, given_values):
    homie = convention(["kitchen"], lambda _: device)
    reading = {}
    for field, value in zip(device.fields, given_values, strict=False):
        inner = reading
        for key in field.path[:-1]:
            inner = inner.setdefault(key, {}) if isinstance(inner.get(key, {}), dict) else {}
        inner[field.path[-1]] = value

    tree = published(homie, [("kitchen", reading)])

    topics = [each.topic for each in homie.values("kitchen", {})]
    assert violations(tree) == []
    assert len(topics) == len(set(topics)) == len(device.fields)


@given(fields, plain)
def test_what_a_value_is_written_as_can_be_read_again(field, value):
    payload = payload_of(field, value)
    free = field._replace(minimum=None, maximum=None, step=None, quoted=isinstance(value, str))

    if payload and datatype(field) != "string":
        again = value_of(free, payload)
        assert again == (float(payload) if datatype(field) == "float" else value)


@given(fields, st.binary(max_size=8) | st.text("0123456789.-eE", max_size=8).map(str.encode))
def test_only_what_the_datatype_allows_is_taken(field, payload):
    try:
        value = value_of(field, payload)
    except PayloadError:
        return

    kind, text = datatype(field), payload.decode()
    if kind in ("integer", "float"):
        assert (INTEGER if kind == "integer" else FLOAT).fullmatch(text)
        assert field.minimum is None or value >= field.minimum
        assert field.maximum is None or value <= field.maximum
    elif kind == "boolean":
        assert text in ("true", "false")
    elif kind == "enum":
        assert text in field.options
    assert payload


def test_names_for_people_are_those_that_were_declared():
    class Bath(BaseModel):
        dew: Annotated[float, Sensor("°C", name="Taupunkt")]

    app = App("house")

    @app.telemetry("bath", interval="30s", title="Bad")
    async def read() -> Bath | None: ...

    document = described(of_app(app), "bath")
    assert document["name"] == "Bad"
    assert document["nodes"]["values"]["properties"]["dew"]["name"] == "Taupunkt"


def test_a_list_is_no_property():
    class Dates(BaseModel):
        events: Annotated[list[str], Sensor(name="Termine")]
        days: int

    app = App("house")

    @app.telemetry("bath", interval="30s")
    async def read() -> Dates | None: ...

    assert described(of_app(app), "bath")["nodes"]["values"]["properties"].keys() == {"days"}
