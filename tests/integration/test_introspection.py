import asyncio
import functools
import json
import re
from typing import Annotated
from unittest.mock import ANY

import pytest
from pydantic import BaseModel, ConfigDict, TypeAdapter
from typing_extensions import is_typeddict

from leadsman import App, CircuitBreaker, Delivery, OnChange, Sensor
from leadsman.core.introspection import document
from leadsman.core.introspection.declared import documents_of
from leadsman.core.introspection.document import Answer, CommandResult, RegistryDocument
from leadsman.core.introspection.pages import ENVELOPE, MAX_PAGE_BYTES, merge
from leadsman.core.introspection.retained import FIRST_AHEAD
from leadsman.core.introspection.service import MAX_LARGE_ANSWERS
from leadsman.core.introspection.topic_schemas import schemas
from leadsman.core.monitoring.document import FaultMessage, OutageMessage, Status
from leadsman.core.mqtt.connection import ConnAck
from leadsman.errors import InvalidType, InvalidValue
from leadsman.testing import Outages, Scripted, fail

READING = {"t": 21.5}


class Bus:
    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc_info): ...


class Target(BaseModel):
    degrees: float


async def steady():
    yield READING


def house():
    app = App("house", version="1.2", mqtt="mqtt://ann:hunter2@broker.lan", adapters={"main": Bus()})

    @app.telemetry("boiler", interval=10, retry=3, circuit_breaker=CircuitBreaker(2), publish=OnChange(0.5))
    async def boiler(bus: Bus):
        raise OSError("no answer from mqtt://ann:hunter2@gateway, password=hunter2")

    @app.command("boiler")
    async def target(target: Target): ...

    app.add_telemetry("air", Scripted(READING), schedule="*/10 * * * *", delivery=Delivery(expiry="1h"))
    app.add_source("meter", steady)
    app.add_periodic("cleanup", Scripted(None), interval="1h")
    app.add_telemetry("off", Scripted(READING), interval=10, enabled=False)
    return app


def asked(running, payload=b"", topic="house/introspect/response", at="house/introspect", **options):
    running.broker.send(at, payload, **options)
    running.run(0.1)
    return running.broker.messages(topic)[-1].json


for each in (*vars(document).values(), *documents_of()):
    if is_typeddict(each):
        each.__pydantic_config__ = ConfigDict(extra="forbid", strict=True)


def strictly(kind, value):
    return TypeAdapter(kind).validate_python(value)


def test_one_document_tells_registration_and_runtime_and_keeps_to_its_schema(harness):
    running = harness(house())
    running.run("2m1s")

    answer = asked(running)

    strictly(Answer, answer)
    data = strictly(documents_of().introspection, answer["data"])
    assert set(data) == {"app", "mqtt", "adapters", "devices", "jobs"}
    boiler = data["devices"]["boiler"]
    polled, commanded = boiler["registrations"]
    assert (polled["kind"], polled["interval"], polled["retry"], polled["retry_on"]) == (
        "telemetry",
        10,
        3,
        ["OSError", "TransientError"],
    )
    assert polled["backoff"].startswith("ExponentialBackoff(base=2.0")
    assert polled["circuit_breaker"].items() >= {"threshold": 2, "recovery": None}.items()
    assert polled["needs"] == ["Bus 'main'"]
    assert (commanded["kind"], commanded["queue"]) == ("command", 16)
    runtime = boiler["runtime"]
    assert runtime["status"] == "circuit_open"
    assert runtime["circuit"] in ("open", "half_open")
    assert runtime["consecutive_failures"] >= 2
    assert runtime["retries_since_success"] > 0
    assert runtime["opens"] >= 1
    assert runtime["opened_at"].startswith("2026-01-01T00:0")
    assert runtime["next_poll_at"] > runtime["opened_at"]
    assert runtime["commands"] == {"done": 0, "failed": 0, "refused": 0, "waiting": 0, "last_error": None}
    assert data["devices"]["meter"]["runtime"]["restarts"] > 0
    assert data["devices"]["air"]["registrations"][0]["schedule"] == "*/10 * * * *"
    assert data["devices"]["off"] == {"registrations": [data["devices"]["off"]["registrations"][0]]}
    assert data["jobs"]["cleanup"]["runtime"]["last_duration"] == 0.0
    assert data["adapters"][0]["adapter"] == "Bus 'main'"
    assert data["mqtt"]["connected"] is True
    assert data["mqtt"]["broker"] == "mqtt://broker.lan:1883"


def test_no_secret_is_in_it(harness):
    running = harness(house())
    running.run("1m")

    assert "hunter2" not in json.dumps(asked(running))
    assert not any(b"hunter2" in each.payload for each in running.broker.log)


def test_what_is_bound_into_a_handler_or_held_by_a_rule_is_not_told(harness):
    class Wait:
        def __init__(self, secret):
            self.secret = secret

        def __repr__(self):
            return f"Wait({self.secret!r})"

        def delay(self, attempt):
            return 1.0

    async def read(secret): ...

    app = App("house")
    app.add_telemetry("d", functools.partial(read, "hunter2"), interval=10, backoff=Wait("hunter2"))
    running = harness(app)
    running.run(1)

    (registered,) = asked(running)["data"]["devices"]["d"]["registrations"]
    assert registered["handler"].endswith("read")
    assert registered["backoff"].endswith("Wait")
    assert "hunter2" not in str(registered)


def test_looking_changes_nothing(harness):
    looked, alone = harness(house()), harness(house())
    looked.run("31s")
    alone.run("31s")
    for _ in range(100):
        asked(looked)
    alone.run("10s")

    assert len(looked.broker.messages("house/status")) == len(alone.broker.messages("house/status"))
    assert [each["event"] for each in looked.errors("boiler")] == [each["event"] for each in alone.errors("boiler")]


class Mains(BaseModel):
    volts: Annotated[float, Sensor("V", device_class="voltage", precision=1)]
    phases: list[float]
    load: float


class Panel(BaseModel):
    mains: Mains


def test_what_the_type_of_a_field_declares_is_told_if_a_request_asks_for_it(harness):
    app = App("plant")

    @app.telemetry("panel", interval="1s")
    async def panel() -> Panel | None:
        return None

    @app.telemetry("untyped", interval="1s")
    async def untyped() -> dict[str, float]:
        return {"volts": 230.0}

    running = harness(app)
    running.run("1s")
    answer = asked(running, {"sections": ["fields"]}, "plant/introspect/response", "plant/introspect")

    assert answer["data"]["fields"] == {
        "panel": {"mains.volts": {"unit": "V", "device_class": "voltage", "precision": 1}},
        "untyped": {},
    }


def test_the_title_of_a_device_is_told_and_its_topics_have_its_name(harness):
    app = App("house")

    @app.telemetry("bath", interval="1s", title="Bad")
    async def bath() -> dict[str, float]:
        return {"celsius": 21.5}

    running = harness(app)
    running.run("1s")
    answer = asked(running, {"sections": ["devices"]}, "house/introspect/response", "house/introspect")

    assert answer["data"]["devices"]["bath"]["registrations"][0]["title"] == "Bad"
    assert running.states("bath") != []


def test_a_poll_a_source_and_a_command_are_described_in_the_same_words(harness):
    async def read():
        return READING

    async def stream():
        yield READING
        await asyncio.sleep(3600)

    app = App("house")
    app.add_telemetry("poll", read, interval=10)
    app.add_command("poll", read)
    app.add_source("source", stream)
    app.add_command("valve", read)
    running = harness(app)
    running.run(1)

    devices = asked(running, {"sections": ["devices"]})["data"]["devices"]
    assert {name: [each["kind"] for each in device["registrations"]] for name, device in devices.items()} == {
        "poll": ["telemetry", "command"],
        "source": ["source"],
        "valve": ["command"],
    }
    found = {name: device["runtime"] for name, device in devices.items()}
    assert {(each["circuit"], each["attempts"], each["held"]) for each in found.values()} == {("closed", 0, False)}
    assert [name for name, each in found.items() if each["next_poll_at"] is not None] == ["poll"]
    assert [name for name, each in found.items() if "restarts" in each] == ["source"]
    assert [name for name, each in found.items() if "commands" in each] == ["poll", "valve"]


def test_sections_and_devices_can_be_chosen(harness):
    running = harness(house())
    running.run(1)

    answer = asked(running, {"sections": ["devices"], "devices": ["air"], "transaction": "x1"})

    assert answer["transaction"] == "x1"
    assert list(answer["data"]) == ["devices"]
    assert list(answer["data"]["devices"]) == ["air"]


def test_an_answer_goes_to_the_response_topic_with_its_correlation_data(harness):
    running = harness(house())
    running.run(1)

    asked(running, topic="house/tools/me", response_topic="house/tools/me", correlation=b"\x01")

    (message,) = running.broker.messages("house/tools/me")
    assert message.correlation == b"\x01"
    assert not message.retain
    assert running.broker.messages("house/introspect/response") == []


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (b"{", "broken JSON"),
        (b"[1]", "send nothing, or an object"),
        (b"5", "send nothing, or an object"),
        (b'{"section": ["app"]}', "did you mean 'sections'"),
        (b'{"sections": ["apps"]}', "did you mean 'app'"),
        (b'{"sections": "app"}', "list of names"),
        (b'{"devices": [5]}', "list of names"),
        (b'{"devices": ["aire"]}', "did you mean 'air'"),
        (b" " * 100_000, "are allowed"),
        (b"[" * 50_000, "nested deeper"),
    ],
)
def test_a_wrong_request_is_answered_with_what_is_wrong(harness, payload, told):
    running = harness(house())
    running.run(1)

    answer = asked(running, payload)

    assert (answer["status"], answer["data"]) == ("error", None)
    assert told in answer["error"]


def test_a_retained_request_is_ignored(harness):
    running = harness(house())
    running.run(1)
    running.broker.send("house/introspect", b"", retain=True)
    running.run(1)

    assert running.broker.messages("house/introspect/response") == []


def crowd(harness, devices, broker=None):
    app = App("house")
    app.add_telemetry([f"device{number}" for number in range(devices)], Scripted(READING), interval="1h")
    running = harness(app)
    if broker is not None:
        running.broker.connack = broker
    running.run(10)
    return running


def pages_of(running, payload=b"", correlation=None):
    running.broker.send("house/introspect", payload, response_topic="house/tools/me", correlation=correlation)
    running.run(5)
    return running.broker.messages("house/tools/me")


@pytest.mark.parametrize("largest", [None, 20_000])
def test_a_large_answer_comes_in_pages_that_the_broker_takes(harness, largest):
    running = crowd(harness, 1500, ConnAck(maximum_packet_size=largest))

    messages = pages_of(running, {"transaction": 7}, correlation=b"\x01")
    pages = [message.json for message in messages]

    assert len(pages) > 1
    assert [page["page"] for page in pages] == list(range(1, len(pages) + 1))
    assert {page["pages"] for page in pages} == {len(pages)}
    assert {(page["transaction"], page["status"]) for page in pages} == {(7, "ok")}
    assert {message.correlation for message in messages} == {b"\x01"}
    assert max(len(message.payload) for message in messages) < (largest or MAX_PAGE_BYTES + ENVELOPE)
    for page in pages:
        strictly(Answer, page)
    document = strictly(documents_of().introspection, merge(page["data"] for page in pages))
    assert list(document["devices"]) == [f"device{number}" for number in range(1500)]
    assert set(document) == {"app", "mqtt", "adapters", "devices", "jobs"}


def test_an_answer_about_few_of_many_devices_is_one_message_without_a_number(harness):
    running = crowd(harness, 1500)

    (message,) = pages_of(running, {"devices": ["device7", "device9"], "sections": ["devices"]})

    assert "page" not in message.json
    assert list(message.json["data"]["devices"]) == ["device7", "device9"]


def test_a_wrong_name_among_many_is_compared_with_a_few_names_only(harness):
    running = crowd(harness, 1500)

    (near,) = pages_of(running, {"devices": ["devicee7"]})
    far = pages_of(running, {"devices": ["kitchen"]})[-1]

    assert "did you mean 'device7'" in near.json["error"]
    assert "there are 1500, which the registry lists" in far.json["error"]


def test_more_than_a_few_large_answers_at_once_are_refused(harness):
    running = crowd(harness, 1500)
    for _ in range(MAX_LARGE_ANSWERS + 1):
        running.broker.send("house/introspect", b"", response_topic="house/tools/me")
    running.run(30)

    answers = [message.json for message in running.broker.messages("house/tools/me")]
    refused = [answer for answer in answers if answer["status"] == "error"]
    assert len(refused) == 1
    assert "ask again in a few seconds" in refused[0]["error"]
    assert sum(len(answer["data"]["devices"]) for answer in answers if answer["data"]) == 1500 * MAX_LARGE_ANSWERS
    assert len(pages_of(running)) > len(answers), "later ones are answered again"


def test_the_registry_is_retained_and_says_where_everything_is(harness):
    running = harness(house())
    running.run(1)

    registry = strictly(RegistryDocument, running.broker.retained["house/registry"].json)

    assert registry["devices"]["boiler"]["kinds"] == ["telemetry", "command"]
    assert registry["devices"]["boiler"]["topics"] == {
        "state": "house/boiler/state",
        "availability": "house/boiler/availability",
        "error": "house/boiler/error",
        "get": "house/boiler/get",
        "set": "house/boiler/set",
        "set_result": "house/boiler/set/result",
        "ledger": "house/boiler/ledger",
    }
    assert registry["devices"]["boiler"]["retained"] == ["state", "availability", "ledger"]
    assert "get" not in registry["devices"]["meter"]["topics"]
    assert {name: each.get("enabled") for name, each in registry["devices"].items()} == {
        **dict.fromkeys(("boiler", "air", "meter")),
        "off": False,
    }
    assert registry["devices"]["meter"]["kinds"] == ["source"]


def test_the_registry_of_many_devices_is_retained_in_pages(harness):
    running = crowd(harness, 4000)

    first = strictly(RegistryDocument, running.broker.retained["house/registry"].json)
    further = [f"house/registry/{number}" for number in range(2, first["pages"] + 1)]
    pages = [first, *(strictly(RegistryDocument, running.broker.retained[topic].json) for topic in further)]

    assert first["pages"] > 1
    assert [page["page"] for page in pages] == list(range(1, first["pages"] + 1))
    assert {page["introspect"] for page in pages} == {"house/introspect"}
    assert [name for page in pages for name in page["devices"]] == [f"device{number}" for number in range(4000)]
    retained = [topic for topic in running.broker.retained if topic.startswith("house/registry")]
    assert sorted(retained) == sorted(["house/registry", *further])
    assert max(len(running.broker.retained[topic].payload) for topic in retained) < MAX_PAGE_BYTES + ENVELOPE


def test_the_registry_comes_back_to_a_broker_that_lost_it(harness):
    running = harness(house())
    running.run(1)
    running.broker.stop(forget=True)
    running.run(5)
    running.broker.start()
    running.run(10)

    assert "house/registry" in running.broker.retained


def test_everything_that_is_published_keeps_to_the_schema_of_its_topic(harness):
    app = house()
    app.add_telemetry("flaky", Outages(READING, [("1m", "3m")]), interval=10)
    app.add_telemetry("wrong", Scripted(fail(1), READING), interval=10, publish=BrokenRule())
    running = harness(app)
    running.run("1s")
    running.broker.send("house/boiler/set", b'{"degrees": 20}')
    running.broker.send("house/boiler/set", b"{")
    running.run("10m")
    running.stop()

    kinds = {"status": Status, "registry": RegistryDocument, "result": CommandResult}
    seen = set()
    for message in running.broker.log:
        last = message.topic.rsplit("/", 1)[-1]
        if last == "error":
            strictly(FaultMessage if message.topic == "house/error" else OutageMessage, message.json)
        elif last in kinds:
            strictly(kinds[last], message.json)
        seen.add(last)
    assert {"status", "registry", "result", "error", "state", "availability"} <= seen


class BrokenRule(OnChange):
    def decide(self, previous, reading, now):
        raise ZeroDivisionError


# Sensors and schemas


class Air(BaseModel):
    co2: Annotated[int, Sensor("ppm", device_class="carbon_dioxide", state_class="measurement")]
    radon: Annotated[float | None, Sensor(unit="Bq/m³", precision=1, icon="mdi:radioactive")] = None


def test_the_schema_of_a_state_carries_what_its_fields_measure():
    app = App("house")

    @app.telemetry("air", interval="5m")
    async def air() -> Air | None: ...

    found = schemas(app.topics, app.telemetries, app.commands)["topics"]["house/air/state"]

    assert found["properties"]["co2"] == {
        "title": "Co2",
        "type": "integer",
        "unit": "ppm",
        "device_class": "carbon_dioxide",
        "state_class": "measurement",
    }
    assert found["properties"]["radon"]["precision"] == 1
    assert found["properties"]["radon"]["icon"] == "mdi:radioactive"


def test_every_topic_has_a_schema(harness):
    app = house()
    running = harness(app)
    running.run("10s")
    running.broker.send("house/boiler/set", b'{"degrees": 20}')
    running.broker.send("house/introspect", b"")
    running.run("1s")

    found = schemas(app.topics, app.telemetries | app.sources, app.commands)["topics"]

    topics = {message.topic for message in running.broker.log}
    ahead = f"house/registry/{FIRST_AHEAD}"
    assert topics <= {*found, ahead}
    assert found["house/boiler/set"]["direction"] == "in"
    assert "isolate" in found["house/air/circuit/set"]["properties"]["action"]["enum"]
    assert found["house/air/get"] == found["house/air/release/set"] == found["house/air/hold/set"]
    assert found["house/boiler/set"]["properties"]["degrees"]["type"] == "number"
    json.dumps(found)


def test_a_reading_in_a_typed_payload_leaves_nan_out_and_tells_it(harness, caplog):
    class Climate(BaseModel):
        t: float
        h: float

    app = App("house")
    app.add_telemetry("d", Scripted(Climate(t=float("nan"), h=40.0)), interval=10)
    running = harness(app)
    running.run(1)

    assert running.states("d") == [{"h": 40.0}]
    assert "fields left out because they are NaN or infinite: t" in caplog.text


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ({"unit": 5}, InvalidType),
        ({"unit": " "}, InvalidValue),
        ({"device_class": ""}, InvalidValue),
        ({"state_class": "sum"}, InvalidValue),
        ({"precision": 1.5}, InvalidType),
        ({"precision": True}, InvalidType),
        ({"precision": -1}, InvalidValue),
        ({"icon": 5}, InvalidType),
    ],
)
def test_wrong_sensors_are_refused(words, error):
    with pytest.raises(error):
        Sensor(**words)


class Told(Bus):
    """An adapter that says something of itself, and one day cannot."""

    def __init__(self, said):
        self._said = said

    @property
    def health(self):
        return self._said()


@pytest.mark.parametrize(
    ("said", "health"),
    [
        (lambda: {"discarded": 7}, {"discarded": 7}),
        (lambda: {"x": object()}, {"fault": ANY}),
        (dict, None),
    ],
)
def test_what_an_adapter_says_of_itself_is_there_whatever_it_is(harness, said, health):
    app = App("house", adapters=(Told(said),))
    app.add_telemetry("d", Scripted(READING), interval=10)
    running = harness(app)
    running.run("1s")

    answer = asked(running)

    assert answer["data"]["adapters"][0].get("health") == health


def test_a_bug_in_what_an_adapter_says_of_itself_has_its_place(harness):
    app = App("house", adapters=(Told(lambda: 1 / 0),))
    app.add_telemetry("d", Scripted(READING), interval=10)
    running = harness(app)
    running.run("1s")

    fault = asked(running)["data"]["adapters"][0]["health"]["fault"]

    assert re.fullmatch(r"ZeroDivisionError: division by zero \(test_introspection\.py:\d+\)", fault)
