import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gas2mqtt import app
from gas2mqtt.decoding import Trigger
from gas2mqtt.magnetometer import CONTINUOUS, CONTROL, Measurement, measure
from gas2mqtt.settings import Settings
from gas2mqtt.twin import Chip
from leadsman.core.settings.sources import Where
from leadsman.errors import ConfigurationError, GarbledData
from leadsman.testing import Harness, I2cRegisters, I2cTwin


class Meter:
    """A wheel that turns as the test says, beside a chip."""

    def __init__(self):
        self.z, self.temperature = -7000, 100
        self.chip = Chip(lambda: Measurement(1, 2, self.z, self.temperature))


@pytest.fixture
def meter():
    return Meter()


@pytest.fixture
def running(meter, tmp_path):
    """A life of the app over the meter; its store is that of the life before."""

    def life(**settings):
        twins = (I2cTwin({0x0D: meter.chip}),)
        return Harness(app, settings=settings, twins=twins, state_directory=tmp_path)

    return life


def turn(harness, meter, times):
    for _ in range(times):
        meter.z = -3000
        harness.run("2s")
        meter.z = -7000
        harness.run("2s")


@given(st.lists(st.integers(-8000, -2000), max_size=60))
def test_the_trigger_rises_once_for_each_time_the_value_crosses_the_whole_gap(values):
    trigger, high, rises = Trigger(False), False, 0
    for value in values:
        trigger = trigger.after(value, -5000, 700)
        if not high and value > -4300:
            high, rises = True, rises + 1
            assert trigger.rose
        else:
            high = high and value >= -5700
            assert not trigger.rose
        assert trigger.high == high


def test_noise_inside_the_gap_is_no_edge():
    trigger = Trigger(True)
    for value in (-5000, -4400, -5600, -5000):
        trigger = trigger.after(value, -5000, 700)
        assert trigger == Trigger(True)


def test_the_temperature_is_calibrated_and_follows_slowly(meter, running):
    with running(temperature_scale=0.01, temperature_offset=20.0, temperature_interval="10m", smoothing=600) as harness:
        harness.run("2s")
        meter.temperature = 200
        harness.run("10m")

        values = [state["temperature"] for state in harness.states("temperature")]
        assert values == [21.0, 21.6]  # after one time constant it has followed 63 % of the step


def test_the_temperature_goes_on_where_the_life_before_left_it(meter, running):
    with running() as harness:
        harness.run("2s")
        assert harness.states("temperature") == [{"temperature": 21.1}]
    meter.temperature = 1000
    with running() as harness:
        harness.run("2s")
        assert harness.states("temperature")[-1]["temperature"] < 22


def test_a_chip_at_another_address_is_read(meter, tmp_path):
    twins = (I2cTwin({0x2C: meter.chip}),)
    with Harness(app, settings={"address": 0x2C}, twins=twins, state_directory=tmp_path) as harness:
        harness.run("2s")
        assert harness.states("gas_counter")[-1]["trigger"] == "OPEN"


def test_the_page_shows_the_defaults(tmp_path):
    page = (Path(__file__).parents[1] / "README.md").read_text()
    (tmp_path / "leadsman.toml").write_text(page.partition("```toml\n")[2].partition("```")[0])

    with app.unloaded():
        app.load(Where({}, tmp_path, secrets=tmp_path))
        assert app.settings == Settings()


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("address", 0x99, "address.*119"),
        ("temperature_scale", 0, "factor is 0"),
        ("temperature_scale", float("nan"), "factor"),
        ("temperature_interval", "often", "often"),
        ("hysteresis", -1, "hysteresis"),
    ],
)
def test_a_setting_that_makes_no_sense_is_told_at_the_start(setting, value, message):
    with pytest.raises(ConfigurationError, match=message), app.unloaded():
        app.load(Where.nowhere({setting: value}))


def test_turns_are_counted_and_only_edges_are_told(meter, running):
    with running() as harness:
        harness.run("2s")
        turn(harness, meter, 5)
        harness.run("1m")

        states = harness.states("gas_counter")
        assert states[-1] == {"counter": 5, "trigger": "OPEN", "consumption_m3": 0.05}
        assert len(states) == 11
        assert bytes(meter.chip.memory[CONTROL : CONTROL + 3]) == CONTINUOUS + b"\0\1"


def test_no_tick_is_lost_nor_counted_twice_by_a_life_that_ends_without_a_goodbye(meter, running):
    with running() as harness:
        harness.run("2s")
        turn(harness, meter, 3)
        harness.kill()
    with running() as harness:
        harness.run("2s")
        assert harness.states("gas_counter")[-1]["counter"] == 3
        turn(harness, meter, 2)
        assert harness.states("gas_counter")[-1]["counter"] == 5


def test_the_counter_begins_again_and_the_consumption_does_not(meter, running):
    with running() as harness:
        harness.run("2s")
        harness.broker.send("gas2mqtt/gas_counter/set", {"consumption_m3": 12345.678})
        harness.run("2s")
        turn(harness, meter, 1)
        assert harness.states("gas_counter")[-1]["consumption_m3"] == 12345.688
        harness.broker.send("gas2mqtt/gas_counter/set", {"consumption_m3": -1})
        harness.run("2s")
        assert harness.broker.messages("gas2mqtt/gas_counter/set/result")[-1].json["status"] == "error"


def test_a_bus_that_fails_is_read_again_within_seconds(meter, running):
    with running() as harness:
        harness.run("10s")
        harness.at("20s", lambda: setattr(meter.chip, "fault", OSError(121, "Remote I/O error")))
        harness.at("80s", lambda: setattr(meter.chip, "fault", None))
        harness.run("73s")
        before = harness.states("gas_counter")[-1]["counter"]
        turn(harness, meter, 1)

        assert harness.states("gas_counter")[-1]["counter"] == before + 1
        assert [error["event"] for error in harness.errors("gas_counter")][-1] == "recovered"


@pytest.mark.slow
def test_a_virtual_day_with_a_bus_that_is_dead_for_an_hour(meter, running):
    """With a poll every two minutes: each waits for a real thread."""
    with running(interval="2m") as harness:
        harness.at("5h", lambda: setattr(meter.chip, "fault", OSError(121, "Remote I/O error")))
        harness.at("6h", lambda: setattr(meter.chip, "fault", None))
        harness.run("6h1m")
        assert harness.status()["devices"]["temperature"]["status"] == "ok"
        harness.run("17h59m")

        assert harness.status()["devices"]["gas_counter"]["status"] == "ok"
        assert {error["type"] for error in harness.errors("temperature")} == {"DeviceUnavailable"}


@pytest.fixture
def read():
    """Read a chip as often as the test says, with what it does in between."""

    def reading(chip, *between):
        async def run():
            async with I2cTwin({0x0D: chip}, timeout="30s") as twin:
                found = [await measure(twin, 0x0D)]
                for each in between:
                    each(chip)
                    found.append(await measure(twin, 0x0D))
                return found

        return asyncio.run(run())

    return reading


def test_a_sensor_that_lost_its_power_is_set_up_again(read):
    chip = Chip(lambda: Measurement(1, 2, 3, 4))

    found = read(chip, lambda chip: chip.put(CONTROL, b"\0"))

    assert found == [(1, 2, 3, 4)] * 2
    assert bytes(chip.memory[CONTROL : CONTROL + 3]) == CONTINUOUS + b"\0\1"


def test_a_field_that_is_too_strong_and_another_chip_are_named_errors(read):
    with pytest.raises(GarbledData, match="stronger"):
        read(Chip(lambda: Measurement(1, 2, 32767, 4)))
    with pytest.raises(GarbledData, match="chip id 0x00 at 0x0D; a QMC5883L says 0xFF"):
        read(I2cRegisters())


def test_the_demo_needs_neither_meter_nor_broker_and_counts_nothing_for_real(demonstrated, tmp_path):
    log = demonstrated("gas2mqtt", 12)

    assert not (tmp_path / "state").exists()
    assert "watch it with: mosquitto_sub -h 127.0.0.1 -p " in log
    assert "DRY RUN" not in log
    assert 'gas2mqtt/gas_counter/state  {"counter":1,"trigger":"CLOSED","consumption_m3":0.01}' in log
