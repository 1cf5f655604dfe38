"""One-wire: the files of a directory, as the kernel writes them, and the twin."""

import asyncio
import contextlib
import errno
import os
import shutil
import threading
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman import App, Context, Finds
from leadsman.adapters.onewire import OneWire, degrees
from leadsman.errors import (
    DeviceError,
    DeviceTimeout,
    DeviceUnavailable,
    GarbledData,
    InvalidType,
    InvalidValue,
    PermanentError,
)
from leadsman.testing import Harness, OneWireTwin
from leadsman.testing.twins import content_of

FLOW, RETURN, ROOM = "28-000005e2fdc3", "28-00000634f1a0", "10-000802b4ba0e"
MEASURED = """\
72 01 4b 46 7f ff 0e 10 57 : crc=57 YES
72 01 4b 46 7f ff 0e 10 57 t=23125
"""
"""As w1_therm writes it for a DS18B20."""


def scratchpad(start, verdict="YES", value=0):
    data = bytes.fromhex(start).ljust(9, b"\x10").hex(" ")
    return f"{data} : crc=10 {verdict}\n{data} t={value}\n"


FAULTS = {
    "": (DeviceUnavailable, "does not answer; check the cable"),
    scratchpad("50 05 4b 46 7f ff 0c", value=85000): (GarbledData, "85 °C is the value after power-on"),
    scratchpad("aa 00 4b 46 ff ff 0c", value=85000): (GarbledData, "85 °C is the value after power-on"),
    scratchpad("ff 07 4b 46 7f ff 0c", value=127937): (GarbledData, "0x7FF is the value of too little power"),
    scratchpad("72 01 4b 46 7f ff 0e", "NO", 23125): (GarbledData, "the checksum is wrong"),
    scratchpad("ff ff ff ff ff ff ff", "NO", -62): (GarbledData, "the checksum is wrong"),
    "00 " * 9 + ": crc=00 YES\n" + "00 " * 9 + "t=0\n": (GarbledData, "only zeros"),
    scratchpad("72 7f 4b 46 7f ff 0e", value=999999): (GarbledData, "999.999 °C is out of its range, -55 to 125 °C"),
    scratchpad("72 7f 4b 46 7f ff 0e", value=-55001): (GarbledData, "out of its range"),
    scratchpad("72 01 4b 46 7f ff 0e", value="nan"): (GarbledData, "has another form"),
    scratchpad("72 01 4b 46 7f ff 0e", value="9" * 400): (GarbledData, "has another form"),
    MEASURED[:30]: (GarbledData, "has another form"),
    MEASURED * 100: (GarbledData, "has another form"),
    "\0\x1b[2J\n" * 3: (GarbledData, "has another form"),
}


@pytest.fixture(params=["directory", "twin"])
def there(request, tmp_path):
    """Three thermometers, a master and another chip, and what changes them."""
    if request.param == "twin":
        twin = OneWireTwin({FLOW: MEASURED, RETURN: content_of(-10.125), ROOM: 21.5}, timeout="30s")
        return SimpleNamespace(bus=twin, write=twin.measures.__setitem__, remove=twin.measures.pop)

    def write(name, content):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "w1_slave").write_text(content)

    for name, content in ((FLOW, MEASURED), (RETURN, content_of(-10.125)), (ROOM, content_of(21.5))):
        write(name, content)
    for name in ("w1_bus_master1", "00-400000000000", "3a-000000123456", "28-short"):
        (tmp_path / name).mkdir()
    return SimpleNamespace(
        bus=OneWire(tmp_path, timeout="30s"), write=write, remove=lambda name: shutil.rmtree(tmp_path / name)
    )


def run(bus, scenario):
    async def entered():
        async with bus:
            return await asyncio.wait_for(scenario(bus), 60)

    return asyncio.run(entered())


class TestBoth:
    """What files and a twin both do."""

    def test_the_thermometers_are_listed_and_read(self, there):
        async def scenario(bus):
            return {name: await bus.temperature(name) for name in await bus.thermometers()}

        assert run(there.bus, scenario) == {ROOM: 21.5, FLOW: 23.125, RETURN: -10.125}
        assert there.bus.health["thermometers"] == 3

    @pytest.mark.parametrize("content", FAULTS)
    def test_what_was_not_measured_is_a_named_error_and_the_others_are_well(self, there, content):
        kind, words = FAULTS[content]
        there.write(FLOW, content)

        async def scenario(bus):
            with pytest.raises(kind, match=words) as found:
                await bus.temperature(FLOW)
            assert FLOW in str(found.value)
            assert "\x1b" not in str(found.value)
            return await bus.temperature(RETURN)

        assert run(there.bus, scenario) == -10.125

    def test_one_that_is_pulled_out_is_named_with_those_that_are_left(self, there):
        async def scenario(bus):
            there.remove(FLOW)
            with pytest.raises(DeviceUnavailable, match=f"{FLOW} is not on the bus; there is {ROOM} and {RETURN}"):
                await bus.temperature(FLOW)
            there.remove(RETURN)
            with pytest.raises(DeviceUnavailable, match=f"is not on the bus; there is {ROOM}$"):
                await bus.temperature(FLOW)
            there.remove(ROOM)
            with pytest.raises(DeviceUnavailable, match="is not on the bus; nothing is: check the cable"):
                await bus.temperature(FLOW)
            assert await bus.thermometers() == []
            with pytest.raises(DeviceUnavailable, match="there is no thermometer in"):
                await bus.resource.log_in()
            there.write(FLOW, MEASURED)
            await bus.resource.log_in()
            return await bus.temperature(FLOW)

        assert run(there.bus, scenario) == 23.125

    def test_a_thousand_thermometers_are_read(self, there):
        names = [f"28-{number:012x}" for number in range(1000)]
        for name in names:
            there.write(name, MEASURED)

        async def scenario(bus):
            found = await bus.thermometers()
            with pytest.raises(DeviceUnavailable, match="000000000003 and 998 more"):
                await bus.temperature("28-ffffffffffff")
            return await asyncio.gather(*map(bus.temperature, set(found) - {ROOM, RETURN, FLOW}))

        assert run(there.bus, scenario) == [23.125] * 1000


@given(st.integers(-55 * 16, 125 * 16))
def test_each_temperature_that_is_measured_is_returned_85_degrees_too(sixteenths):
    value = sixteenths / 16

    assert content_of(23.125) == MEASURED
    assert degrees(FLOW, content_of(value)) == pytest.approx(value, abs=0.001)


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda data: data.decode("ascii", "replace")))
def test_whatever_a_file_has_is_a_temperature_or_a_named_error(content):
    with contextlib.suppress(DeviceError):
        assert -55 <= degrees(FLOW, content) <= 125


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("../../etc/passwd", InvalidValue),
        ("28-000005E2FDC3", InvalidValue),
        (f"{FLOW}\n", InvalidValue),
        (28, InvalidType),
    ],
)
def test_what_is_no_thermometer_is_refused(name, error):
    with pytest.raises(error, match="such as '28-000005e2fdc3'"):
        run(OneWireTwin(), lambda bus: bus.temperature(name))


def test_a_directory_that_is_not_there_says_how_to_turn_one_wire_on(tmp_path):
    with pytest.raises(DeviceUnavailable, match=r"does not exist; turn one-wire on: dtoverlay=w1-gpio in config.txt"):
        run(OneWire(tmp_path / "w1"), lambda bus: bus.probe())
    with pytest.raises(DeviceUnavailable, match="turn one-wire on"):
        run(OneWire(tmp_path / "w1"), lambda bus: bus.temperature(FLOW))
    with pytest.raises(InvalidType, match="root is 5"):
        OneWire(5)


def test_a_thermometer_without_its_driver_names_the_driver(tmp_path):
    (tmp_path / FLOW).mkdir()

    with pytest.raises(DeviceUnavailable, match="its driver is missing: sudo modprobe w1-therm"):
        run(OneWire(tmp_path), lambda bus: bus.temperature(FLOW))


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.EACCES, PermanentError, "let the user of the app read it"),
        (errno.EIO, DeviceUnavailable, "check the cable"),
        (errno.ENODEV, DeviceUnavailable, "check the cable"),
    ],
)
def test_an_error_of_the_kernel_is_named(number, kind, words):
    twin = OneWireTwin({FLOW: OSError(number, os.strerror(number))})

    with pytest.raises(kind, match=f"{FLOW} does not answer: .*{os.strerror(number)}; {words}"):
        run(twin, lambda bus: bus.temperature(FLOW))


def test_a_pipe_instead_of_a_file_is_an_error(tmp_path):
    (tmp_path / FLOW).mkdir()
    os.mkfifo(tmp_path / FLOW / "w1_slave")

    with pytest.raises(DeviceUnavailable, match="it is a pipe"):
        run(OneWire(tmp_path), lambda bus: bus.temperature(FLOW))


def test_a_kernel_that_does_not_answer_holds_up_neither_the_loop_nor_the_next_thermometer():
    release = threading.Event()

    class Hanging(dict):
        def __getitem__(self, name):
            if name == FLOW:
                release.wait(60)
            return super().__getitem__(name)

    twin = OneWireTwin(timeout="1s")
    twin.measures = Hanging({FLOW: 1.0, ROOM: 21.5})

    async def scenario(bus):
        with pytest.raises(DeviceTimeout, match="one-wire took longer than 1s"):
            await bus.temperature(FLOW)
        return await bus.temperature(ROOM)

    assert run(twin, scenario) == 21.5
    release.set()


def test_thermometers_become_devices_and_one_that_fails_leaves_the_others(tmp_path):
    found = Finds(dict[str, float], most=2)
    app = App("house", adapters=(OneWire(),), keep_state=True)

    @app.telemetry("bus", interval="1m", finds=found)
    async def bus(onewire: OneWire, context: Context) -> None:
        for name in await onewire.thermometers():
            device = context.device(name)
            try:
                device.publish({"t": await onewire.temperature(name)})
            except DeviceError as error:
                device.unavailable(str(error))

    twin = OneWireTwin({FLOW: 20.0})
    with Harness(app, twins=(twin,), state_directory=tmp_path) as harness:
        harness.run("1s")
        twin.measures |= {RETURN: 30.0, FLOW: ""}
        harness.run("1m")
        twin.measures[FLOW] = 25.0
        harness.run("1m")
        assert harness.availability(FLOW) == ["online", "offline", "online"]
        assert harness.states(RETURN)[-1] == {"t": 30.0}
        twin.measures |= {f"28-{number:012x}": 1.0 for number in range(1000)}
        harness.run("3m")
        assert harness.states(FLOW)[-1] == {"t": 25.0}
        assert len(harness.status()["devices"]) == 3
        harness.kill()

    with Harness(app, twins=(OneWireTwin({FLOW: 26.0}),), state_directory=tmp_path) as harness:
        harness.run("1s")
        assert harness.states(FLOW)[-1] == {"t": 26.0}
