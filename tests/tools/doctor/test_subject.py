"""What is examined of an app."""

from pathlib import Path
from typing import Annotated

import pytest
from pydantic import BaseModel

from leadsman import App, Broker, Brokers, Content, Context
from leadsman.adapters.ble import BleRadio
from leadsman.adapters.caldav import CalDav
from leadsman.adapters.http import HttpClient
from leadsman.adapters.i2c import I2c
from leadsman.adapters.modbus import Modbus
from leadsman.adapters.onewire import OneWire
from leadsman.adapters.serial import SerialPort
from leadsman.adapters.serial.optolink import Optolink
from leadsman.testing import Harness
from leadsman.tools.doctor.subject import of_plan, of_prefix


class Air(BaseModel):
    co2: int


async def nothing() -> None:
    return None


async def adjust(degrees: float) -> None:
    return None


def subject_of(app):
    app.load()
    return of_plan(app.plan({"STATE_DIRECTORY": "/state"}))


def app_of(**options):
    return App("house", mqtt="mqtt://localhost", **options)


def test_every_topic_of_an_app_is_examined():
    app = app_of()
    app.add_telemetry("a", nothing, interval=1)
    app.add_telemetry("off", nothing, interval=1, enabled=False)
    app.periodic("job", interval=1)(nothing)
    app.command("b")(adjust)

    found = subject_of(app)

    own = {"house/status", "house/registry", "house/error", "house/introspect/response"}
    assert set(found.published) - own == {
        *("house/a/state", "house/a/availability", "house/a/error", "house/a/ledger"),
        *("house/b/state", "house/b/availability", "house/b/set/result"),
    }
    assert dict(found.filters) == {
        "house/introspect": None,
        "house/+/set": "house/doctor/set",
        "house/+/+/set": "house/doctor/doctor/set",
        "house/+/get": "house/doctor/get",
    }
    assert found.devices == {"a", "b", "off", "job"}


def test_what_discovery_and_subscriptions_need_is_examined():
    app = app_of(discovery="homeassistant")
    app.add_telemetry("a", nothing, interval=1)
    app.periodic("job", interval=1)(nothing)
    app.add_subscription("zigbee2mqtt/#", nothing)

    found = subject_of(app)

    assert found.elsewhere == ("zigbee2mqtt/#", "homeassistant/device/house/+/config", "homeassistant/status")
    config = "homeassistant/device/house/{}/config".format
    assert {"house/a/health", config("a"), config("leadsman_app")} <= set(found.published)
    assert not [topic for topic in found.published if "job" in topic]


def test_what_an_app_with_the_topics_of_the_examination_publishes_is_examined():
    app = app_of()
    app.add_telemetry("a", nothing, interval=1)
    app.command("b")(adjust)
    expected = set(subject_of(app).published)

    with Harness(app) as harness:
        harness.run("2s")

        sent = {message.topic for message in harness.broker.log}

    assert {topic for topic in sent if not topic.startswith("house/registry/")} <= expected


@pytest.mark.parametrize("word", ["set", "get", "doctor/set"])
def test_a_running_app_ignores_the_probes(word, caplog):
    app = app_of()
    app.add_telemetry("a", nothing, interval=1)
    app.command("b")(adjust)
    with Harness(app) as harness:
        harness.run("2s")
        caplog.clear()

        harness.broker.send(f"house/doctor/{word}", "leadsman doctor 12")
        harness.run("100ms")

        assert not [message for message in harness.broker.log if "doctor" in message.topic]
    assert "doctor" not in caplog.text


def test_what_other_devices_are_asked_is_not_ignored(caplog):
    app = app_of()
    app.command("b")(adjust)
    with Harness(app) as harness:
        harness.run("1s")
        harness.broker.send("house/doctors/set", "1")
        harness.run("100ms")

    assert "there is no command for the device 'doctors'" in caplog.text


def test_a_prefix_has_the_topics_that_all_apps_have():
    found = of_prefix(Brokers(Broker()), "attic/house")

    assert found.client_id == "attic/house"
    assert "attic/house/status" in found.published
    assert found.devices is None


def test_the_state_directory_is_examined_if_something_is_kept_there():
    async def with_store(context: Context) -> None:
        return None

    plain, keeping, storing = app_of(), app_of(keep_state=True), app_of()
    storing.add_telemetry("a", with_store, interval=1)

    assert [subject_of(app).state for app in (plain, keeping, storing)] == [None, Path("/state"), Path("/state")]


def test_adapters_say_what_they_need():
    radio, port, calendar = BleRadio("hci1"), SerialPort("/dev/a"), CalDav("https://ann:secret@cloud.example/dav")
    modbus, optolink = Modbus("/dev/b"), Optolink("/dev/c")
    inverter, any_server = HttpClient("http://ann:secret@[::1]:8080/api?key=secret"), HttpClient()
    chips, thermometers = I2c(1), OneWire()
    adapters = {
        "r": radio,
        "p": port,
        "c": calendar,
        "m": modbus,
        "o": optolink,
        "i": inverter,
        "a": any_server,
        "c1": chips,
        "t": thermometers,
    }
    app = app_of(adapters=adapters)

    needed = [(each.kind, each.name) for each in subject_of(app).resources]

    assert needed == [
        ("bluetooth", "hci1"),
        ("serial", "/dev/a"),
        ("calendars", "https://cloud.example/dav"),
        ("serial", "/dev/b"),
        ("serial", "/dev/c"),
        ("http", "http://[::1]:8080/api"),
        ("http", ""),
        ("i2c", "/dev/i2c-1"),
        ("onewire", "/sys/bus/w1/devices"),
    ]


def test_the_other_brokers_are_examined_without_the_machine():
    subject = subject_of(App("house", mqtt=["mqtt://a", "mqtt://b"], keep_state=True))
    other = subject.at(subject.replacements[0])

    assert (str(subject.broker), str(other.broker)) == ("mqtt://a:1883", "mqtt://b:1883")
    assert subject.state is not None
    assert (other.state, other.resources, other.replacements) == (None, (), ())
    assert other.published == subject.published


async def picture() -> Annotated[bytes, Content("image/jpeg")]:
    return b""


async def air() -> Air:
    return Air(co2=400)


def test_the_topics_of_values_and_of_bytes_are_examined():
    app = app_of()
    app.add_telemetry("air", air, interval=1, layout="fields")
    app.add_telemetry("both", nothing, interval=1, layout="both")
    app.add_telemetry("camera", picture, interval=1, field="image")

    found = set(subject_of(app).published)

    assert {
        "house/air/co2",
        "house/both/value",
        "house/both/state",
        "house/camera/image",
        "house/camera/state",
    } <= found
    assert "house/air/state" not in found
