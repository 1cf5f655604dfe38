import contextlib
import threading
import time

import pytest

from leadsman.adapters.serial.metering import P1Framer
from leadsman.errors import GarbledData
from leadsman.testing import Harness, SerialTwin, garbage
from leadsman_rigs.telegrams import DSMR as TELEGRAM
from p1meter2mqtt import app
from p1meter2mqtt.decoding import decode


def test_a_telegram_is_what_the_meter_says():
    assert decode(TELEGRAM).model_dump(mode="json", exclude_none=True) == {
        "energy_used_tariff_1": 123456.789,
        "energy_used_tariff_2": 123456.789,
        "energy_delivered_tariff_1": 123456.789,
        "energy_delivered_tariff_2": 123456.789,
        "power_used": 1.193,
        "power_delivered": 0.0,
        "tariff": 2,
        "volts_l1": 220.1,
        "volts_l2": 220.2,
        "volts_l3": 220.3,
        "amperes_l1": 1.0,
        "amperes_l2": 2.0,
        "amperes_l3": 3.0,
        "gas": 12785.123,
        "gas_at": "2010-12-09T10:25:00Z",
    }


@pytest.mark.parametrize(
    "telegram",
    [
        b"/X\r\n\r\n!\r\n",
        b"/X\r\n1-0:1.8.1(lots*kWh)\r\n!\r\n",
        b"/X\r\n0-1:24.2.1(101209112500W)(x*m3)\r\n!\r\n",
        b"\xff" * 50,
        b"0-0:96.14.0(0002.5)",
        b"0-0:96.14.0(nan)",
    ],
)
def test_a_telegram_that_makes_no_sense_is_a_named_error(telegram):
    with pytest.raises(GarbledData):
        decode(telegram)


def test_a_meter_is_published_every_ten_seconds_and_its_silence_is_an_outage():
    with Harness(app, settings={"port": "x"}, twins=True) as harness:
        twin = harness.adapter(SerialTwin)
        harness.at("5m", twin.unplug)
        harness.at("65m", twin.plug)
        harness.run("2h")

        times = [message.at for message in harness.broker.messages("p1meter2mqtt/meter/state")]
        assert 28 <= sum(at < 300 for at in times) <= 31
        assert min(at for at in times if at > 3900) - 3900 <= 61
        assert harness.errors("meter")[0]["event"] == "onset"
        assert [error["event"] for error in harness.errors("meter")][-1] == "recovered"


@pytest.mark.slow
def test_a_virtual_day_of_garbled_telegrams_and_an_hour_without_a_cable():
    number = 0

    def says():
        nonlocal number
        number += 1
        return 10.0, garbage(40) + TELEGRAM[: 300 if number % 7 == 0 else None]

    twin = SerialTwin(says=says, framer=P1Framer())
    with Harness(app, settings={"port": "x"}, twins=(twin,)) as harness:
        harness.at("5h", twin.unplug)
        harness.at("6h", twin.plug)
        harness.run("24h")

        times = [message.at for message in harness.broker.messages("p1meter2mqtt/meter/state")]
        assert min(at for at in times if at >= 6 * 3600) - 6 * 3600 <= 60 + 10  # and the meter speaks every ten seconds
        assert len(times) >= 23 * 360 * 6 / 7 - 10
        assert {error["type"] for error in harness.errors("meter")} == {"DeviceUnavailable"}


def test_a_meter_on_a_real_port_is_read_through_garbage_and_an_unplugged_cable(program, pty_device, mosquitto, listen):
    listener, talking = listen(mosquitto.port), True

    def talk():
        while talking:
            with contextlib.suppress(OSError, TimeoutError, TypeError):  # nobody reads, or nobody is there
                pty_device.send(garbage(50) + TELEGRAM, timeout=0.2)
            time.sleep(0.2)

    threading.Thread(target=talk, daemon=True).start()
    running = program("p1meter2mqtt", "--mqtt", mosquitto.url, port=pty_device.path, every="100ms")
    assert listener.wait_for("p1meter2mqtt/meter/state", 3)[0].payload.startswith(b'{"energy_used_tariff_1":123456.789')
    for _ in range(2):
        pty_device.unplug()
        time.sleep(1)
        before = len(listener.on("p1meter2mqtt/meter/state"))
        pty_device.plug()
        listener.wait_for("p1meter2mqtt/meter/state", before + 3)
    talking = False
    assert running.end()[0] == 0


def test_the_demo_needs_neither_meter_nor_broker(demonstrated):
    assert '"power_used":0.412' in demonstrated("p1meter2mqtt", 6)
