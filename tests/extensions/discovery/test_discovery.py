"""An app describes its devices to Home Assistant: at its start, after a restart, and when Home Assistant starts."""

import asyncio
import json
import logging
from typing import Annotated

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from leadsman import App, CircuitBreaker, Context, Delivery, Device, Discovery, Finds, Sensor
from leadsman.core.introspection.retained import FIRST_AHEAD
from leadsman.core.introspection.topic_schemas import schemas
from leadsman.errors import ConfigurationError, InvalidType, InvalidValue
from leadsman.testing import Harness, Outages, Scripted, fail, hang
from leadsman.testing.loop import START
from leadsman_rigs.examples import examples

OWN = "homeassistant/device/house"
READING = {"t": 21.5}
TOLD = 1.001
"""Seconds within which a change by time is told, and what floats round."""


class Air(BaseModel):
    co2: Annotated[int, Sensor("ppm", device_class="carbon_dioxide")]
    temperature: float | None = None


class OnlyCo2(BaseModel):
    co2: int


async def read() -> Air:
    return Air(co2=400)


async def nothing() -> None: ...


async def read_co2() -> OnlyCo2:
    return OnlyCo2(co2=400)


def house(*names, handler=read, discovery="homeassistant", **options):
    app = App("house", discovery=discovery)
    for name in names or ("kitchen",):
        app.add_telemetry(name, handler, **{"interval": "30s", **options})
    return app


def described(broker):
    """The devices that the broker has configurations of."""
    return {topic.split("/")[-2] for topic in broker.retained if topic.startswith("homeassistant/device/")}


def configured(running, key):
    return running.broker.retained[f"{OWN}/{key}/config"].json


def sent(running, key="kitchen"):
    return running.broker.messages(f"{OWN}/{key}/config")


def health(running, device="kitchen"):
    return [message.json for message in running.broker.messages(f"house/{device}/health")]


def restarted(before, harness, app):
    """Another run, at the broker of the run before."""
    after = Harness(app)
    after.broker.retained.update(before.broker.retained)
    return after


def test_the_devices_and_the_app_are_described_within_two_seconds_of_the_start(harness):
    running = harness(house("kitchen", "attic"))

    running.run("2s")

    assert described(running.broker) == {"kitchen", "attic", "leadsman_app"}
    assert configured(running, "kitchen")["cmps"].keys() > {"co2", "temperature"}


def test_without_discovery_nothing_is_described(harness):
    running = harness(house(discovery=None))

    running.run("1m")

    assert described(running.broker) == set()
    assert health(running) == []


def test_others_are_not_told_of_a_device_that_is_not_discoverable(harness):
    app = house("kitchen")
    app.add_telemetry("safe", read, interval="30s", discoverable=False)
    app.add_command("safe", nothing)
    running = harness(app)

    running.run("10s")

    assert described(running.broker) == {"kitchen", "leadsman_app"}
    assert running.broker.retained["house/safe/state"].json["co2"] == 400
    assert "house/safe/health" not in running.broker.retained


def test_a_device_that_is_found_is_as_discoverable_as_what_finds_it(harness):
    app = App("house", discovery="homeassistant")

    @app.telemetry("radio", interval="30s", finds=Finds(), discoverable=False)
    async def radio(context: Context) -> None:
        await context.device("cellar").publish({"co2": 400})

    running = harness(app)

    running.run("10s")

    assert described(running.broker) == {"leadsman_app"}
    assert "house/cellar/state" in running.broker.retained


def test_a_dry_run_is_not_described():
    with Harness(house(), dry_run=True) as running:
        running.run("1m")

        assert [message.topic for message in running.broker.log if "homeassistant" in message.topic] == []


def test_the_settings_switch_it_on_and_off():
    with Harness(house(discovery=None), settings={"discovery.convention": "homeassistant"}) as running:
        running.run("2s")
        assert described(running.broker) == {"kitchen", "leadsman_app"}
    with Harness(house(), settings={"discovery.convention": "off"}) as running:
        running.run("2s")
        assert described(running.broker) == set()


def test_a_variable_switches_it_on():
    with Harness(house(discovery=None), environment={"DISCOVERY__CONVENTION": "homeassistant"}) as running:
        running.run("2s")

        assert described(running.broker) == {"kitchen", "leadsman_app"}


def test_the_prefix_of_home_assistant_is_a_setting():
    with Harness(house(), settings={"discovery.prefix": "ha/lab"}) as running:
        running.run("2s")

        assert "ha/lab/device/house/kitchen/config" in running.broker.retained


def test_the_settings_give_a_renamed_device_the_identity_of_its_former_name():
    app = house("lounge", discovery=Discovery(ids={"lounge": "replaced"}))
    with Harness(app, settings={"discovery.ids.lounge": "salon"}) as running:
        running.run("2s")

        assert described(running.broker) == {"salon", "leadsman_app"}
        assert configured(running, "salon")["dev"]["name"] == "lounge"
        assert ("discovery.ids.lounge", "'salon'", "flag discovery.ids.lounge") in app.setup.rows


def test_a_variable_names_several_former_names():
    variables = {"DISCOVERY__IDS": '{"a": "b", "c": "d"}'}
    with Harness(house("a", "c"), environment=variables) as running:
        running.run("2s")

        assert described(running.broker) == {"b", "d", "leadsman_app"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"discovery.ids": "salon"}, "discovery.ids: ids is 'salon'; write the former names by the present ones"),
        ({"discovery.ids.kitchen": 3}, "(from flag discovery.ids.kitchen)"),
        ({"discovery.ids.kitchn": "old"}, "did you mean 'kitchen'? (from flag discovery.ids.kitchn)"),
        ({"discovery.prefix.a": "b"}, "discovery.prefix: it is a section; write a value, prefix = …"),
        ({"discovery.convention": "homeasistant"}, "did you mean 'homeassistant'?"),
        ({"discovery.prefix": "a/+/b"}, "discovery.prefix: prefix is 'a/+/b'"),
        ({"discovery.convetion": "off"}, "did you mean 'convention'?"),
    ],
)
def test_a_wrong_setting_is_reported_with_what_to_write(settings, message):
    with pytest.raises(ConfigurationError) as raised, Harness(house(), settings=settings):
        pass

    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("discovery", "error", "message"),
    [
        ("homeassistent", InvalidValue, "unknown"),
        (True, InvalidType, "write 'homeassistant' or Discovery"),
    ],
)
def test_a_wrong_argument_is_refused_at_once(discovery, error, message):
    with pytest.raises(error, match=message):
        App("house", discovery=discovery)


def test_wrong_identities_are_refused_when_the_settings_are_loaded():
    with pytest.raises(InvalidType, match="write the former names by the present ones"):
        Discovery(ids=["kitchen"])
    with pytest.raises(InvalidValue, match="which is not a device; did you mean 'kitchen'"):
        house(discovery=Discovery(ids={"kitchn": "old"})).load()
    with pytest.raises(InvalidValue, match="have one identifier, 'kitchen'"):
        house("kitchen", "attic", discovery=Discovery(ids={"attic": "kitchen"})).load()


def test_names_of_all_kinds_are_described(harness):
    names = ["Küche", "living room", "🔥", "a-b", "under_score"]
    running = harness(house(*names))

    running.run("2s")

    found = {message.json["dev"]["name"] for topic, message in running.broker.retained.items() if topic.startswith(OWN)}
    assert found == {*names, "house"}


# What the broker has from before


def test_a_restart_publishes_no_configuration_again():
    with Harness(house()) as before:
        before.run("2s")
    with restarted(before, Harness, house()) as after:
        after.run("10s")

        assert sent(after) == []
        assert described(after.broker) == {"kitchen", "leadsman_app"}


def test_a_device_that_is_gone_is_removed():
    with Harness(house("kitchen", "attic")) as before:
        before.run("2s")
    with restarted(before, Harness, house("kitchen")) as after:
        after.run("2s")

        assert described(after.broker) == {"kitchen", "leadsman_app"}


def test_a_device_that_is_disabled_is_removed_too():
    with Harness(house("kitchen", "attic")) as before:
        before.run("2s")
    app = App("house", discovery="homeassistant")
    app.add_telemetry({"kitchen": Device(), "attic": Device(enabled=False)}, read, interval=30)
    with restarted(before, Harness, app) as after:
        after.run("2s")

        assert described(after.broker) == {"kitchen", "leadsman_app"}


def test_a_field_that_is_gone_is_removed_in_two_steps():
    with Harness(house()) as before:
        before.run("2s")
    with restarted(before, Harness, house(handler=read_co2)) as after:
        after.run("5s")

        first, second = (message.json["cmps"] for message in sent(after))
        assert first["temperature"] == {"p": "sensor"}
        assert first["co2"] == second["co2"]
        assert "temperature" not in second


def test_both_steps_reach_a_slow_broker():
    with Harness(house()) as before:
        before.run("2s")
    with restarted(before, Harness, house(handler=read_co2)) as after:
        after.at(0.5, after.broker.freeze)  # before the app describes anything
        after.at(4, after.broker.thaw)
        after.run("10s")

        assert len(sent(after)) == 2


def test_a_renamed_device_takes_over_the_configuration_of_its_former_name():
    with Harness(house("salon")) as before:
        before.run("2s")
    with restarted(before, Harness, house("lounge", discovery=Discovery(ids={"lounge": "salon"}))) as after:
        after.run("2s")

        assert described(after.broker) == {"salon", "leadsman_app"}
        assert configured(after, "salon")["dev"]["name"] == "lounge"


def test_a_configuration_of_another_program_is_left_alone(caplog):
    with Harness(house("kitchen", "attic")) as before:
        before.run("2s")
    foreign = json.dumps({"o": {"name": "somebody"}, "cmps": {}}).encode()
    for key in ("kitchen", "guest"):
        topic = f"{OWN}/{key}/config"
        before.broker.retained[topic] = before.broker.retained[f"{OWN}/attic/config"]._replace(
            topic=topic, payload=foreign
        )
    with restarted(before, Harness, house("kitchen", "attic")) as after:
        after.run("2s")
        after.broker.send("homeassistant/status", "online")
        after.run("20s")

        assert sent(after) == []
        assert configured(after, "guest") == json.loads(foreign)
        assert sent(after, "attic") != []
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [line for line in lines if f"{OWN}/kitchen/config" in line and "remove that configuration" in line]


def test_what_a_slow_broker_sends_late_is_compared_too(harness):
    running = harness(house())
    running.run("5s")
    gone = json.dumps({**configured(running, "kitchen"), "dev": {"ids": ["x"]}})

    running.broker.send(f"{OWN}/attic/config", gone, retain=True)
    running.broker.send(f"{OWN}/kitchen/config", gone, retain=True)
    running.run("1s")

    assert running.broker.messages(f"{OWN}/attic/config")[-1].payload == b""
    assert len(sent(running)) == 2


def test_a_broker_that_forgot_gets_the_configurations_again(harness):
    running = harness(house())
    running.at("10s", lambda: running.broker.stop(forget=True))
    running.at("20s", running.broker.start)

    running.run("40s")

    assert described(running.broker) == {"kitchen", "leadsman_app"}


@pytest.mark.parametrize("late", [-0.5, 0.01, 0.03])
def test_a_connection_that_breaks_meanwhile_costs_no_configuration(harness, late):
    names = [f"d{number}" for number in range(200)]
    with Harness(house(*names)) as whole:
        whole.run("10s")
        began = min(message.at for message in whole.broker.log if message.topic.startswith(OWN))
    running = harness(house(*names))
    running.at(began + late, running.broker.cut)

    running.run("10s")

    assert described(running.broker) == {*names, "leadsman_app"}


# Home Assistant starts


def test_a_birth_brings_configuration_availability_and_health_again(harness):
    running = harness(house())
    running.run("10s")
    before = len(sent(running)), len(running.broker.messages("house/kitchen/availability")), len(health(running))

    running.broker.send("homeassistant/status", "online")
    running.run(5 + 2)

    after = len(sent(running)), len(running.broker.messages("house/kitchen/availability")), len(health(running))
    assert [later - earlier for earlier, later in zip(before, after, strict=True)] == [1, 1, 1]


def test_a_birth_is_answered_after_a_delay(harness):
    running = harness(house())
    running.run("10s")

    running.broker.send("homeassistant/status", "online")
    running.run(0.9)

    assert len(sent(running)) == 1


@pytest.mark.parametrize(("payload", "retain"), [("online", True), ("offline", False), ("", False), (b"\xff", False)])
def test_what_is_no_birth_brings_nothing(harness, payload, retain):
    running = harness(house())
    running.run("10s")

    running.broker.send("homeassistant/status", payload, retain=retain)
    running.run("20s")

    assert len(sent(running)) == 1


def test_a_birth_before_a_reconnect_leaves_the_configuration_of_another_program_alone(monkeypatch):
    monkeypatch.setattr("random.uniform", lambda low, high: (low + high) / 2)  # it is answered three seconds later
    monkeypatch.setattr("random.random", lambda: 0.5)
    with Harness(house("kitchen", "attic")) as before:
        before.run("5s")
    topic = f"{OWN}/kitchen/config"
    foreign = json.dumps({"o": {"name": "somebody"}, "cmps": {}}).encode()
    before.broker.retained[topic] = before.broker.retained[topic]._replace(payload=foreign)
    with restarted(before, Harness, house("kitchen", "attic")) as after:
        after.at("10s", lambda: after.broker.send("homeassistant/status", "online"))
        after.at("11.5s", after.broker.cut)
        after.run("30s")

        assert 12 < after.broker.connects[-1][0] < 13  # then what the broker has comes within a second
        assert sent(after) == []
        assert sent(after, "attic") != []


def test_a_flood_of_births_brings_the_configurations_at_most_twice(harness):
    running = harness(house())
    running.run("10s")

    for number in range(1000):
        running.at(10 + number * 0.001, lambda: running.broker.send("homeassistant/status", "online"))
    running.run("30s")

    assert len(sent(running)) in (2, 3)
    running.broker.send("homeassistant/status", "online")
    running.run("10s")
    assert len(sent(running)) in (3, 4)


# How a device is


def test_health_is_published_when_it_changes(harness):
    app = house(handler=Scripted({"co2": 1}, fail(3), {"co2": 2}), circuit_breaker=CircuitBreaker(2), interval="10s")
    running = harness(app)

    running.run("2m")

    said = [(each["status"], each["circuit"], each["consecutive_failures"]) for each in health(running)]
    assert said[0][0] == "ok"
    assert ("error", "closed", 1) in said
    assert ("circuit_open", "open", 2) in said
    assert said[-1] == ("ok", "closed", 0)


def test_a_stale_device_says_so_though_nothing_happens(harness):
    running = harness(house(handler=Outages({"co2": 1}, [(5, 600)]), interval="20s", stale_after="25s"))

    running.run("39s")

    assert [each["status"] for each in health(running)] == ["ok", "error", "stale"]


def test_the_last_success_is_said_once_a_minute(harness):
    running = harness(house(interval="1s"))

    running.run("10m")

    assert 9 <= len(health(running)) <= 12
    assert health(running)[-1]["last_success_at"] > health(running)[0]["last_success_at"]


def test_a_side_job_has_neither_configuration_nor_health(harness):
    app = house()
    app.add_periodic("clean", Scripted(fail(1), {}), interval="1s")
    running = harness(app)

    running.run("10s")

    assert health(running, "clean") == []
    assert described(running.broker) == {"kitchen", "leadsman_app"}


# Very many devices


def test_a_thousand_devices_are_described_within_ten_seconds_and_no_reading_is_late(harness):
    app = App("house", discovery="homeassistant")
    app.add_telemetry([f"d{number}" for number in range(1000)], read, interval="5s", delivery=Delivery(qos=1))
    running = harness(app)

    running.run("11s")

    configurations = [m for m in running.broker.log if m.topic.startswith(f"{OWN}/d")]
    assert len(configurations) == 1000
    assert max(message.at for message in configurations) <= 10
    assert max(len(message.payload) for message in configurations) <= 4096
    late = [m.at + START - m.taken_at for m in running.broker.log if m.taken_at is not None]
    assert max(late) <= 0.1


class Power(BaseModel):
    watts: float


async def typed() -> Power:
    return Power(watts=1)


async def loose() -> dict[str, float]:
    return {"watts": 1.0}


async def hears(context: Context):
    yield None
    await asyncio.Event().wait()


def test_devices_whose_values_home_assistant_cannot_show_are_named_once_at_the_start(caplog):
    app = App("house", discovery="homeassistant")
    app.add_telemetry("typed", typed, interval=1)
    app.add_telemetry("silent", nothing, interval=1)
    app.add_command("loose_command", loose)
    app.add_source("gateway", hears, finds=Finds())
    for number in range(7):
        app.add_telemetry(f"loose{number}", loose, interval=1)

    with Harness(app) as harness:
        harness.run("10s")

    (said,) = [each.getMessage() for each in caplog.records if "no value of" in each.getMessage()]
    assert "homeassistant shows no value of loose0, loose1, loose2, loose3, loose4 and 3 more: the handler" in said


def test_nothing_is_said_where_all_is_described_or_discovery_is_off(caplog):
    for how, handler in (("homeassistant", typed), (None, loose)):
        app = App("house", discovery=how)
        app.add_telemetry("kitchen", handler, interval=1)
        with Harness(app) as harness:
            harness.run("1s")

    assert caplog.records == []


seconds = st.floats(1.0, 50.0).map(lambda number: round(number, 2))


@settings(max_examples=examples(15))
@given(seconds, seconds, seconds)
def test_health_is_stale_within_a_second_of_the_heartbeat_and_the_availability(stale_after, interval, other):
    app = App("house", discovery="homeassistant")
    app.add_telemetry("silent", Scripted(READING, hang(999)), interval=1, timeout=None, stale_after=stale_after)
    app.add_telemetry("other", Scripted(READING, fail(), READING, fail()), interval=interval, stale_after=other)
    with Harness(app) as running:
        running.run(stale_after + 3)
        due = running.broker.messages("house/silent/state")[-1].at + stale_after

        def told(topic, is_stale):
            return next(each.at for each in running.broker.messages(topic) if is_stale(each))

        at = told("house/status", lambda each: each.json["devices"]["silent"]["status"] == "stale")
        offline = told("house/silent/availability", lambda each: each.payload == b"offline")
        stale = told("house/silent/health", lambda each: each.json["status"] == "stale")
        assert all(0 <= moment - due <= TOLD for moment in (at, offline, stale))


def test_a_birth_that_comes_again_describes_the_devices_once_more_at_the_most():
    with Harness(house(), settings={"outbox.durability": "acked-or-durable"}) as running:
        broker = running.broker
        broker.keep_sessions = True
        running.run("5s")
        described = len(sent(running))
        broker.unheard = True
        broker.send("homeassistant/status", b"online")
        running.run("30s")
        broker.unheard = False
        once = len(sent(running))
        broker.cut()
        running.run("5s")
        again = len(sent(running))
        broker.cut()
        running.run("5s")
        assert (described, once) == (1, 2)
        assert len(sent(running)) - again == again - once  # as with any connection


def test_every_topic_of_an_app_that_is_described_has_a_schema(harness):
    app = house("air")
    app.add_command("boiler", nothing)
    running = harness(app)
    running.run("10s")
    running.broker.send("house/boiler/set", b"")
    running.broker.send("house/introspect", b"")
    running.run("1s")

    found = schemas(app.topics, app.telemetries | app.sources, app.commands)["topics"]

    topics = {message.topic for message in running.broker.log}
    ahead = f"house/registry/{FIRST_AHEAD}"
    assert {topic for topic in topics if not topic.startswith("homeassistant/")} <= {*found, ahead}
    assert "house/air/health" in topics
