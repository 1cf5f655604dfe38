import asyncio
import json
import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airthings2mqtt import app
from airthings2mqtt.app import read
from airthings2mqtt.averages import believed
from airthings2mqtt.decoding import COMPANY, RADON_24H, RADON_LONG_TERM, SECOND, mini, plus, second, wave
from airthings2mqtt.payloads import Air
from airthings2mqtt.settings import Settings
from airthings2mqtt.twin import MODELS, WAVE
from leadsman.adapters.ble import BleRadio
from leadsman.core.settings.sources import Where
from leadsman.errors import DeviceUnavailable, GarbledData, PermanentError, SettingsError
from leadsman.testing import BleTwin, Harness, TwinDevice
from leadsman_rigs.bluez import GattServer

ADDRESS = "F0:11:22:33:44:55"
WAVES = {"waves": {"bedroom": {"address": ADDRESS}, "cellar": {"address": "F0:11:22:33:44:66"}}}
VALUES = {"2a6e": b"\x66\x08", "2a6f": b"\x94\x11", RADON_24H: b"\x2a\x00", RADON_LONG_TERM: b"\x26\x00"}
AIR = {"temperature": 21.5, "humidity": 45.0, "radon_24h_avg": 42, "radon_long_term_avg": 38}
AIR |= {"measurement_state": "ok", "sensor_reset_at": None}
FRAME = bytes.fromhex("01351d0028003a00a207ffffffffffff0000ffff")
"""What somebody read from a Wave 2."""


@pytest.fixture
def devices():
    """The app in virtual time with its twins; the devices in memory, to be disturbed."""
    with Harness(app, settings=WAVES, twins=True) as harness:
        harness.devices = harness.adapter(BleTwin).devices
        yield harness


def test_bytes_are_what_the_maker_means():
    assert wave(*VALUES.values()).model_dump() == AIR
    also = {"pressure": 1012.64, "co2": 400, "voc": 50}
    assert plus(bytes.fromhex("015a00002a0026006608c8c590013200ffffffff")).model_dump() == AIR | also


def test_a_mini_has_no_radon():
    data = bytes.fromhex("000019730000941132000000") + bytes(8)

    assert mini(data).model_dump() == {"temperature": 21.5, "humidity": 45.0, "voc": 50}
    with pytest.raises(GarbledData):
        mini(data[:-1])


def test_what_the_sensor_does_not_know_is_none():
    unknown = dict.fromkeys(AIR) | {"measurement_state": "ok"}
    assert wave(b"\x00\x80", b"\xff\xff", b"\xff\xff", b"\x00\x40").model_dump() == unknown


@pytest.mark.parametrize("decode", [plus, second])
@pytest.mark.parametrize("data", [b"", bytes(19), bytes(21), bytes.fromhex("02") + bytes(19)])
def test_a_wave_that_says_something_else_is_a_named_error(data, decode):
    with pytest.raises(GarbledData):
        decode(data)


@pytest.mark.parametrize(
    ("temperature", "humidity", "found"),
    [
        ("6608", "5a", (21.5, 45.0)),
        ("0cfe", "c8", (-5.0, 100.0)),
        ("ffff", "ff", (None, None)),
        ("0080", "c9", (None, None)),
    ],
)
def test_a_cold_garage_is_below_zero_and_more_than_all_humidity_is_none(temperature, humidity, found):
    data = bytes.fromhex(f"01{humidity}0000 2a002600 {temperature}ffff ffffffff 0000ffff")

    assert (second(data).temperature, second(data).humidity) == found


def test_a_wave_of_the_second_generation_has_one_characteristic():
    found = {"temperature": 19.54, "humidity": 26.5, "radon_24h_avg": 40, "radon_long_term_avg": 58}
    assert second(FRAME).model_dump() == AIR | found


def test_what_a_sensor_has_not_measured_since_its_battery_was_changed_is_none():
    for decode in (plus, second):
        found = decode(b"\x01" + b"\xff" * 19).model_dump()
        assert {value for name, value in found.items() if name != "measurement_state"} == {None}
    assert set(mini(b"\xff" * 20).model_dump().values()) == {None}


def reading(day, long_term):
    return Air(temperature=21.5, humidity=45, radon_24h_avg=day, radon_long_term_avg=long_term)


AVERAGE = st.one_of(st.none(), st.just(0), st.integers(0, 16383))


@given(st.lists(st.tuples(AVERAGE, AVERAGE, st.integers(0, 10_000_000)), max_size=30), st.integers(0, 60))
def test_no_placeholder_is_ever_published_and_the_state_says_how_far_the_averages_go(polls, days):
    memory, now, settle = None, datetime(2026, 1, 1, tzinfo=UTC), timedelta(days=days)
    for day, long_term, wait in polls:
        now += timedelta(seconds=wait)
        warmed_up = memory is None or memory["long_term"] != 0
        before, (air, memory) = memory, believed(reading(day, long_term), memory, now, settle)

        assert json.loads(json.dumps(memory)) == memory  # it survives a restart
        since = air.sensor_reset_at
        if day or long_term:
            assert (air.radon_24h_avg, air.radon_long_term_avg) == (day, long_term)
            assert air.measurement_state == ("ok" if since is None or now - since >= settle else "provisional")
        else:
            assert (air.radon_24h_avg, air.radon_long_term_avg, air.measurement_state) == (None, None, "warming_up")
            assert since == now if warmed_up else memory == before


def test_a_long_term_average_that_collapses_while_nobody_looked_is_a_reset():
    now = datetime(2026, 10, 2, tzinfo=UTC)
    _, memory = believed(reading(100, 113), None, now, timedelta(days=30))

    for long_term, state in ((110, "ok"), (29, "ok"), (4, "provisional")):
        assert believed(reading(95, long_term), memory, now, timedelta(days=30))[0].measurement_state == state
    small = {"long_term": 19, "reset_at": None}
    assert believed(reading(20, 1), small, now, timedelta(days=30))[0].measurement_state == "ok"


def test_a_change_of_the_battery_is_published_and_survives_a_restart(tmp_path, caplog):
    device = TwinDevice(ADDRESS, VALUES)

    def life():
        settings = {"waves.bedroom.address": ADDRESS, "settle_days": 2}
        return Harness(app, settings=settings, adapters=lambda _: (BleTwin(device),), state_directory=tmp_path)

    def averages(day, long_term):
        device.values |= {RADON_24H: day.to_bytes(2, "little"), RADON_LONG_TERM: long_term.to_bytes(2, "little")}

    with life() as harness:
        harness.run("10s")
        averages(0, 0)
        harness.run("51m")
        states = harness.states("bedroom")
        assert [state["measurement_state"] for state in states] == ["ok", "warming_up", "warming_up"]
        assert (states[-1]["radon_24h_avg"], states[-1]["radon_long_term_avg"]) == (None, None)
        assert states[-1]["sensor_reset_at"] == states[-2]["sensor_reset_at"] != states[0]["sensor_reset_at"]
    assert "bedroom began anew" in caplog.text
    assert "the last one was 38" in caplog.text
    averages(95, 4)
    with life() as harness:
        harness.run("10s")
        assert harness.states("bedroom")[-1]["measurement_state"] == "provisional"
        assert harness.states("bedroom")[-1]["radon_long_term_avg"] == 4
        harness.run("49h")
        assert harness.states("bedroom")[-1]["measurement_state"] == "ok"


def test_ten_requests_within_twenty_seconds_connect_once(devices):
    devices.run("1m")
    for _ in range(10):
        devices.broker.send("airthings2mqtt/bedroom/get", "")
        devices.run("2s")

    assert devices.devices[ADDRESS].connections == 2


@pytest.mark.parametrize("hide", [True, False])
def test_addresses_are_hidden_on_request(hide, caplog):
    settings = {"waves.bedroom.address": ADDRESS, "hide_addresses": hide}
    with Harness(app, settings=settings, adapters=lambda _: (BleTwin(),)) as harness:
        harness.run("5m")
        published = json.dumps([harness.errors("bedroom"), harness.status()])

    assert (ADDRESS in published) is (ADDRESS in caplog.text) is (not hide)
    assert ("*** was not heard" in published) is hide


def test_all_waves_are_published(devices):
    devices.run("10s")

    assert devices.states("bedroom") == [AIR]
    assert devices.states("cellar")[0]["co2"] == 400


def test_a_virtual_day_of_dropped_connections_costs_no_reading(devices):
    """Seven percent of connects are dropped, as people report it, and the device is away for an hour."""
    device, number = devices.devices[ADDRESS], 0
    connect = device.connect

    async def flaky(lost):
        nonlocal number
        number += 1
        if number % 14 == 0:
            device.hang_up()
            raise DeviceUnavailable("le-connection-abort-by-local")
        return await connect(lost)

    device.connect = flaky
    devices.at("5h", lambda: setattr(device, "silent", True))
    devices.at("6h", lambda: setattr(device, "silent", False))
    devices.run("24h")

    times = [message.at for message in devices.broker.messages("airthings2mqtt/bedroom/state")]
    back = [at for at in times if at >= 6 * 3600]
    assert back[0] - 6 * 3600 <= 60
    assert len(times) >= 24 * 60 / 25 - 4
    assert [error["event"] for error in devices.errors("bedroom")][-1] == "recovered"


def test_each_model_in_the_air_is_known_by_its_characteristics_over_a_real_stack(air):
    async def scenario(radio):
        async with radio:
            found = [await read(radio, f"F0:11:22:33:44:{last}") for last in ("55", "66", "77", "88")]
            with pytest.raises(PermanentError, match="44:99 has the characteristics of no Wave"):
                await read(radio, "F0:11:22:33:44:99")
            return found

    for last, values in zip(("55", "66", "77", "88"), MODELS, strict=True):
        air.place(GattServer(f"F0:11:22:33:44:{last}", "wave", {"181a": values}))
    air.place(GattServer("F0:11:22:33:44:99", "lamp", {"181a": {"2a6e": bytes(2)}}))

    first, other, radon, small = asyncio.run(scenario(BleRadio()))
    assert first.model_dump() == radon.model_dump() == AIR
    assert (other.co2, other.temperature) == (400, 21.5)
    assert small.model_dump() == {"temperature": 21.5, "humidity": 45.0, "voc": 50}


def test_a_battery_is_changed_on_a_real_stack(program, mosquitto, listen, air):
    frame = bytearray(FRAME)
    air.place(GattServer(ADDRESS, "wave", {"181a": {SECOND: lambda: bytes(frame)}}))
    listener, topic = listen(mosquitto.port), "airthings2mqtt/cellar/state"
    waves = json.dumps({"cellar": {"address": ADDRESS, "interval": "1s"}})
    running = program("airthings2mqtt", "--mqtt", mosquitto.url, waves=waves)
    listener.wait_for(topic, where=lambda message: b'"radon_long_term_avg":58' in message.payload)
    frame[4:8] = bytes(4)
    listener.wait_for(topic, where=lambda message: b'"radon_long_term_avg":null' in message.payload)
    frame[4:8] = b"\x5f\x00\x04\x00"
    listener.wait_for(topic, where=lambda message: b'"provisional"' in message.payload)
    assert b'"radon_24h_avg":95,"radon_long_term_avg":4' in listener.on(topic)[-1].payload
    assert running.end()[0] == 0


def test_a_model_in_the_settings_is_no_setting_any_more():
    with pytest.raises(SettingsError, match="model"), app.unloaded():
        app.load(Where.nowhere({"waves.cellar.address": ADDRESS, "waves.cellar.model": "plus"}))


def test_an_address_that_is_none_is_told_at_the_start():
    with pytest.raises(ValueError, match="not a Bluetooth address"):
        Settings(waves={"x": {"address": "AA:BB"}})


def test_waves_in_the_air_are_published_through_hang_ups_and_a_bluetooth_service_that_dies(
    program, mosquitto, listen, air
):
    listener = listen(mosquitto.port)
    topic = "airthings2mqtt/bedroom/state"
    server = air.place(GattServer(ADDRESS, "wave", {"181a": VALUES}))
    waves = json.dumps({"bedroom": {"address": ADDRESS, "interval": "1s"}})
    running = program("airthings2mqtt", "--mqtt", mosquitto.url, waves=waves)
    listener.wait_for(topic, 3)
    for _ in range(3):
        air.call(server.hang_up())
        listener.wait_for(topic, len(listener.on(topic)) + 1)
    air.call(air.daemon.stop())
    time.sleep(2)
    air.restart_daemon()
    before = len(listener.on(topic))
    listener.wait_for(topic, before + 2)
    assert running.end()[0] == 0


def test_the_demo_needs_neither_wave_nor_broker(demonstrated):
    log = demonstrated("airthings2mqtt", 6)

    assert 'airthings2mqtt/bedroom/state  {"temperature":21.5' in log
    assert '"co2":400' in log


def advertised(serial):
    return {COMPANY: serial.to_bytes(4, "little") + b"\x01\x00"}


class TestFinder:
    @staticmethod
    def heard(*devices, **settings):
        radio = BleTwin(*devices)
        return Harness(app, settings={"find": True, **settings}, adapters=lambda _: (radio,))

    def test_waves_in_range_become_devices_by_their_serial_numbers(self):
        one = TwinDevice("F0:11:22:33:44:77", VALUES, manufacturer=advertised(2900123456))
        two = TwinDevice("F0:11:22:33:44:88", MODELS[1], manufacturer=advertised(2930123456))
        three = TwinDevice("F0:11:22:33:44:99", MODELS[2], manufacturer=advertised(2950029677))

        with self.heard(one, two, three) as harness:
            harness.run("1h")

            assert harness.states("2900123456") == [AIR, AIR, AIR]
            assert harness.states("2930123456")[0]["co2"] == 400
            assert harness.availability("2900123456") == ["online"]
            assert harness.states("2950029677") == [AIR, AIR, AIR]

    def test_the_averages_of_one_that_was_found_are_remembered_by_its_serial_number(self):
        fresh = TwinDevice(ADDRESS, WAVE | {RADON_24H: bytes(2), RADON_LONG_TERM: bytes(2)})
        fresh.manufacturer = advertised(2900123456)

        with self.heard(fresh) as harness:
            harness.run("10s")
            assert harness.states("2900123456")[-1]["radon_24h_avg"] is None
            fresh.values |= TwinDevice(ADDRESS, WAVE).values
            harness.run("30m")
            assert harness.states("2900123456")[-1]["measurement_state"] == "provisional"

    def test_a_wave_with_a_section_and_what_is_no_wave_are_left_alone(self):
        mine = TwinDevice(ADDRESS, VALUES, manufacturer=advertised(2900123456))
        other = TwinDevice("F0:11:22:33:44:77", VALUES, manufacturer={COMPANY: b"\x01"})
        unknown = TwinDevice("F0:11:22:33:44:88", VALUES, manufacturer=advertised(17))

        with self.heard(mine, other, unknown, **{"waves.bedroom.address": ADDRESS}) as harness:
            harness.run("1h")

            assert harness.states("bedroom") != []
            assert set(harness.status()["devices"]) == {"bedroom", "finder"}

    def test_one_that_cannot_be_read_does_not_keep_the_others_from_it(self, caplog):
        broken = TwinDevice("F0:11:22:33:44:77", VALUES, manufacturer=advertised(2900000001))
        broken.refuses = DeviceUnavailable("busy")
        works = TwinDevice("F0:11:22:33:44:88", VALUES, manufacturer=advertised(2900000002))

        with self.heard(broken, works) as harness:
            harness.run("20m")

            assert harness.states("2900000002") == [AIR]
            assert harness.status()["devices"]["finder"]["status"] == "ok"
        assert "F0:11:22:33:44:77 was heard, but not read" in caplog.text
