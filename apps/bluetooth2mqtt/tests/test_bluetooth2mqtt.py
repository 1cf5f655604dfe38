import json
import subprocess
import sys

import pytest

from bluetooth2mqtt import app
from leadsman.adapters.ble import Decoders
from leadsman.core.settings.sources import Where
from leadsman.errors import InvalidValue, SettingsError
from leadsman.testing import BleTwin, Harness, TwinDevice
from leadsman_rigs.bluez import Scripted

BTHOME = "0000fcd2-0000-1000-8000-00805f9b34fb"
GOVEE, RUUVI, SEALED = "F0:11:22:33:44:66", "F0:11:22:33:44:77", "54:48:E6:8F:80:A5"
KEY = "231d39c1d7cc1ab1aee224cd096db932"
BEDROOM = {"sensors": {"bedroom": {"address": SEALED, "key": KEY}}}


def house(tmp_path, settings=None, devices=(), discovery=None):
    """The app in virtual time with the sensors of its twin, or with others."""
    adapters = (BleTwin(*devices), Decoders()) if devices else None
    overrides = {} if discovery is None else {"discovery.convention": discovery}
    return Harness(
        app, settings={**(settings or {}), **overrides}, twins=not devices, adapters=adapters, state_directory=tmp_path
    )


def govee(address, temperature=22.4):
    packed = (round(temperature * 10) * 1000 + 677).to_bytes(3, "big")
    return TwinDevice(address, name="GVH5075_4466", manufacturer={0xEC88: b"\x00" + packed + b"\x64\x00"})


def test_each_sensor_that_is_heard_is_a_device_with_what_it_measures(tmp_path):
    with house(tmp_path, BEDROOM) as harness:
        harness.run("1m")

        assert harness.states(GOVEE) == [{"temperature": 22.4, "humidity": 67.7, "battery": 100}]
        assert harness.states("bedroom") == [{"temperature": 25.06, "humidity": 50.55}]
        assert harness.states(RUUVI)[0]["pressure"] == 1000.44


def test_home_assistant_is_told_of_units_and_classes(tmp_path):
    with house(tmp_path, BEDROOM, discovery="homeassistant") as harness:
        harness.run("1m")

        retained = harness.broker.retained
        found = next(
            each.json for topic, each in retained.items() if topic.startswith("homeassistant") and "44" in topic
        )
        sealed = retained["homeassistant/device/bluetooth2mqtt/bedroom/config"].json
    assert found["dev"]["name"] == "Govee H5075 4466"
    assert found["cmps"]["battery"]["ent_cat"] == "diagnostic"
    assert sealed["dev"]["name"] == "bedroom"
    words = {"dev_cla": "temperature", "unit_of_meas": "°C", "stat_cla": "measurement"}
    assert words.items() <= sealed["cmps"]["temperature"].items()


def test_what_changes_is_published_and_what_does_not_every_ten_minutes(tmp_path):
    sensor = govee(GOVEE)
    with house(tmp_path, devices=[sensor]) as harness:
        harness.run("15m")
        assert len(harness.states(GOVEE)) == 2
        sensor.manufacturer = govee(GOVEE, 23.5).manufacturer
        harness.run("1m")
        assert harness.states(GOVEE)[-1]["temperature"] == 23.5


def test_without_discover_only_sensors_of_the_settings_are_published(tmp_path):
    settings = {"discover": False, "sensors": {"cellar": {"address": GOVEE.lower()}}}
    with house(tmp_path, settings) as harness:
        harness.run("1m")

        assert harness.states("cellar")[0]["temperature"] == 22.4
        devices = harness.broker.retained["bluetooth2mqtt/status"].json["devices"]
    assert devices.keys() == {"radio", "cellar"}


@pytest.mark.slow
def test_neighbours_do_not_take_the_place_of_a_sensor_of_the_settings(tmp_path):
    neighbours = [govee(f"AA:AA:AA:AA:AA:{number:02X}") for number in range(30)]
    settings = {"most": 5, "sensors": {"cellar": {"address": GOVEE}}}
    with house(tmp_path, settings, devices=[*neighbours, govee(GOVEE)]) as harness:
        harness.run("1m")

        devices = harness.broker.retained["bluetooth2mqtt/status"].json["devices"]
        assert len(devices) == 1 + 1 + 5
        assert harness.states("cellar") != []


def test_a_section_leaves_out_one_that_is_heard_or_names_it(tmp_path):
    settings = {"devices": {GOVEE: {"enabled": False}, RUUVI: {"name": "Garden"}}}
    with house(tmp_path, settings, discovery="homeassistant") as harness:
        harness.run("1m")

        assert harness.states(GOVEE) == []
        names = [each.json["dev"]["name"] for topic, each in harness.broker.retained.items() if "/device/" in topic]
    assert "Garden" in names


@pytest.mark.slow
def test_a_sensor_that_was_not_heard_yet_is_seen_and_offline_after_an_hour(tmp_path):
    settings = {"sensors": {"cellar": {"address": "AA:AA:AA:AA:AA:AA"}}}
    with house(tmp_path, settings) as harness:
        harness.run("65m")

        assert harness.broker.retained["bluetooth2mqtt/cellar/availability"].payload == b"offline"


@pytest.mark.slow
def test_a_silent_sensor_is_offline_and_back_with_its_next_advertisement(tmp_path):
    sensor = govee(GOVEE)
    with house(tmp_path, devices=[sensor, govee(RUUVI)]) as harness:
        harness.run("1m")
        sensor.silent = True
        harness.run("65m")
        assert harness.broker.retained[f"bluetooth2mqtt/{GOVEE}/availability"].payload == b"offline"
        sensor.silent = False
        harness.run("1m")
        assert harness.broker.retained[f"bluetooth2mqtt/{GOVEE}/availability"].payload == b"online"


@pytest.mark.slow
def test_a_sensor_of_which_only_the_name_is_heard_is_offline_and_publishes_nothing_old(tmp_path):
    sensor = govee(GOVEE)
    with house(tmp_path, devices=[sensor, govee(RUUVI)]) as harness:
        harness.run("1m")
        values, sensor.manufacturer = sensor.manufacturer, {}
        before = len(harness.states(GOVEE))
        harness.run("65m")
        assert harness.broker.retained[f"bluetooth2mqtt/{GOVEE}/availability"].payload == b"offline"
        assert len(harness.states(GOVEE)) == before
        sensor.manufacturer = values
        harness.run("1m")
        assert harness.broker.retained[f"bluetooth2mqtt/{GOVEE}/availability"].payload == b"online"


def test_after_a_restart_nothing_is_described_anew(tmp_path):
    with house(tmp_path, BEDROOM, discovery="homeassistant") as first:
        first.run("5m")
        kept = dict(first.broker.retained)
    with house(tmp_path, BEDROOM, discovery="homeassistant") as second:
        second.broker.retained.update(kept)
        second.run("5m")
        sent = [each.topic for each in second.broker.log if each.topic.startswith("homeassistant/device/")]
    assert sent == []


def test_a_key_that_is_none_is_named_and_not_shown():
    settings = {"sensors": {"bedroom": {"address": SEALED, "key": "5ecre7"}}}
    with pytest.raises(SettingsError, match=r"sensors\.bedroom\.key.*32 hexadecimal digits") as found:
        app.setup.unloaded().load(Where.nowhere(settings))
    assert "5ecre7" not in str(found.value)


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"local": False}, r"write a section such as \[proxies\.attic\]"),
        ({"local": False, "adapter": "hci1", "proxies": {"attic": {"host": "attic.local"}}}, "leave out one of them"),
        (
            {"sensors": {"a": {"address": GOVEE}, "b": {"address": GOVEE.lower()}}},
            r"sensors\.a and sensors\.b have one",
        ),
        ({"sensors": {"radio": {"address": GOVEE}}}, "choose another one"),
    ],
)
def test_settings_that_exclude_each_other_are_named(settings, advice):
    with pytest.raises((InvalidValue, SettingsError), match=advice):
        app.setup.unloaded().load(Where.nowhere(settings))


@pytest.mark.system
def test_a_board_in_another_room_is_the_radio_of_a_machine_without_an_adapter(program, mosquitto, listen):
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    board = [sys.executable, "-m", "leadsman_rigs.esphome_board", "0"]
    with subprocess.Popen(board, stdout=subprocess.PIPE, text=True, env=environment) as process:
        listener, port = listen(mosquitto.port), int(process.stdout.readline())
        proxies = {"attic": {"host": "127.0.0.1", "port": port}}
        running = program("bluetooth2mqtt", "--mqtt", mosquitto.url, local="false", proxies=json.dumps(proxies))

        listener.wait_for(
            "bluetooth2mqtt/F0:11:22:33:44:55/state", where=lambda each: b'"temperature":2' in each.payload
        )
        assert running.end()[0] == 0
        process.kill()


@pytest.mark.system
def test_sensors_in_the_air_reach_a_broker_over_a_real_bus(program, mosquitto, listen, air):
    """One that encrypts, with its key; one whose key is missing; and one without any."""
    sealed = {BTHOME: bytes.fromhex("41a47266c95f730011223378237214")}
    place = [Scripted(GOVEE, "GVH5075_4466", {}, manufacturer={0xEC88: bytes.fromhex("00036da56400")})]
    place += [Scripted(each, None, {}, service_data=sealed) for each in (SEALED, RUUVI)]
    for each in place:
        air.place(each)
    listener, settings = listen(mosquitto.port), json.dumps(BEDROOM["sensors"])

    running = program("bluetooth2mqtt", "--mqtt", mosquitto.url, "--discovery", "homeassistant", sensors=settings)

    listener.wait_for("bluetooth2mqtt/bedroom/state", where=lambda message: b'"temperature":25.06' in message.payload)
    listener.wait_for(f"bluetooth2mqtt/{GOVEE}/state", where=lambda message: b'"temperature":22.4' in message.payload)
    listener.wait_for(
        "homeassistant/device/bluetooth2mqtt/bedroom/config", where=lambda each: b'"temperature"' in each.payload
    )
    assert running.end()[0] == 0
    assert f"{RUUVI} (BTHome sensor): it encrypts its values; write its bind key in the settings" in running.log
    assert KEY not in running.log


@pytest.mark.system
def test_the_demo_needs_neither_radio_nor_broker(demonstrated):
    log = demonstrated("bluetooth2mqtt", 6)

    assert 'bluetooth2mqtt/bedroom/state  {"temperature":25.06,"humidity":50.55}' in log
    assert KEY not in log
