import asyncio
import json
import time

import pytest

from airthings2mqtt import app
from airthings2mqtt.decoding import COMPANY, PLUS, RADON_24H, RADON_LONG_TERM, mini, plus, wave
from airthings2mqtt.settings import Settings
from airthings2mqtt.twin import CHARACTERISTICS
from leadsman.adapters.ble import BleRadio
from leadsman.errors import DeviceUnavailable, GarbledData
from leadsman.testing import BleTwin, Harness, TwinDevice
from leadsman_rigs.bluez import GattServer

ADDRESS = "F0:11:22:33:44:55"
WAVES = {"waves": {"bedroom": {"address": ADDRESS}, "cellar": {"address": "F0:11:22:33:44:66", "model": "plus"}}}
VALUES = {"2a6e": b"\x66\x08", "2a6f": b"\x94\x11", RADON_24H: b"\x2a\x00", RADON_LONG_TERM: b"\x26\x00"}
AIR = {"temperature": 21.5, "humidity": 45.0, "radon_24h_avg": 42, "radon_long_term_avg": 38}


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
    assert wave(b"\x00\x80", b"\xff\xff", b"\xff\xff", b"\x00\x40").model_dump() == dict.fromkeys(AIR)


@pytest.mark.parametrize("data", [b"", bytes(19), bytes(21), bytes.fromhex("02") + bytes(19)])
def test_a_wave_plus_that_says_something_else_is_a_named_error(data):
    with pytest.raises(GarbledData):
        plus(data)


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


def test_a_wave_in_the_air_is_read_over_a_real_stack(air):
    async def read(radio):
        async with radio:
            return wave(*await radio.read(ADDRESS, *VALUES))

    air.place(GattServer(ADDRESS, "wave", {"181a": VALUES}))
    air.place(GattServer("F0:11:22:33:44:66", "plus", {"181a": {PLUS: bytes(20)}}))

    assert asyncio.run(read(BleRadio())).model_dump() == AIR


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
        two = TwinDevice("F0:11:22:33:44:88", CHARACTERISTICS, manufacturer=advertised(2930123456))

        with self.heard(one, two) as harness:
            harness.run("1h")

            assert harness.states("2900123456") == [AIR, AIR, AIR]
            assert harness.states("2930123456")[0]["co2"] == 400
            assert harness.availability("2900123456") == ["online"]

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
