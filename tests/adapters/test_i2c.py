"""I²C: smbus2 over the requests of a kernel in memory, and the twin."""

import asyncio
import contextlib
import errno
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman import App
from leadsman.adapters.i2c import I2c
from leadsman.errors import (
    DeviceTimeout,
    DeviceUnavailable,
    GarbledData,
    InvalidType,
    InvalidValue,
    PermanentError,
)
from leadsman.testing import Harness, I2cRegisters, I2cTwin
from leadsman_rigs.i2c import I2C, SMBUS, Kernel


def opened(path):
    """The descriptors of this process that are open on a file."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found += [each.name] * (os.readlink(each).removesuffix(" (deleted)") == str(path))
    return found


def run(bus, scenario):
    async def entered():
        async with bus:
            return await asyncio.wait_for(scenario(bus), 60)

    return asyncio.run(entered())


@pytest.fixture(params=["smbus2", "smbus2 without I²C", "twin"])
def there(request, tmp_path, monkeypatch):
    """A bus with a chip at 0x40 and one at 0x41, and what holds them."""
    chips = {0x40: I2cRegisters({0: b"\x01\x02\x03"}), 0x41: I2cRegisters({0: b"\xf1\xf2\xf3"})}
    twin = I2cTwin(chips, timeout="30s")
    if request.param == "twin":
        impatient = I2cTwin(timeout="1s")
        impatient.chips = twin.chips
        yield SimpleNamespace(bus=twin, impatient=impatient, twin=twin, unplug=twin.unplug, plug=twin.plug, path=None)
        return
    path = tmp_path / "i2c-1"
    path.touch()
    kernel = Kernel(path, twin, SMBUS if "without" in request.param else I2C)
    kernel.install(monkeypatch)
    yield SimpleNamespace(
        bus=I2c(path, timeout="30s"),
        impatient=I2c(path, timeout="1s"),
        twin=twin,
        unplug=path.unlink,
        plug=path.touch,
        path=path,
        kernel=kernel,
    )
    assert opened(path) == []


class TestBoth:
    """What smbus2 and a twin both do."""

    def test_registers_of_two_chips_are_written_and_read(self, there):
        async def scenario(bus):
            await bus.write_register(0x40, 1, b"\x0a\x0b")
            await bus.write_register(0x41, 250, b"\xff")
            return [await bus.read_register(address, 0, 3) for address in (0x40, 0x41)], await bus.read_register(
                0x41, 250
            )

        assert run(there.bus, scenario) == ([b"\x01\x0a\x0b", b"\xf1\xf2\xf3"], b"\xff")

    @pytest.mark.parametrize(
        ("number", "kind", "words"),
        [
            (errno.EREMOTEIO, DeviceUnavailable, "nothing answers at 0x40 on /.*; check its power, wiring"),
            (errno.ENXIO, DeviceUnavailable, "nothing answers at 0x40"),
            (errno.ETIMEDOUT, DeviceTimeout, "hangs at 0x40; a chip holds a line low"),
            (errno.EAGAIN, DeviceUnavailable, "another controller"),
            (errno.EIO, DeviceUnavailable, "the transfer with 0x40 on /.* failed: .*Input/output error"),
            (errno.ENODEV, DeviceUnavailable, "has gone; is its adapter plugged in"),
            (errno.EOPNOTSUPP, PermanentError, "cannot do such a transfer with 0x40"),
        ],
    )
    def test_a_transfer_that_fails_is_a_named_error_and_the_next_one_is_well(self, there, number, kind, words):
        async def scenario(bus):
            there.twin.chips[0x40].fault = OSError(number, os.strerror(number))
            for _ in range(20):
                with pytest.raises(kind, match=words):
                    await bus.read_register(0x40, 0)
            assert await bus.read_register(0x41, 0) == b"\xf1"
            there.twin.chips[0x40].fault = None
            return await bus.read_register(0x40, 0)

        assert run(there.bus, scenario) == b"\x01"

    def test_nothing_at_an_address_names_it(self, there):
        async def scenario(bus):
            with pytest.raises(DeviceUnavailable, match="nothing answers at 0x76"):
                await bus.read_register(0x76, 0)

        run(there.bus, scenario)

    def test_a_chip_that_a_driver_of_the_kernel_has_is_named_with_its_files(self, there):
        there.twin.busy.add(0x40)

        async def scenario(bus):
            with pytest.raises(PermanentError, match=r"a driver .* has 0x40 .* /sys/bus/i2c/devices/(1|\*)-0040"):
                await bus.read_register(0x40, 0)
            return await bus.read_register(0x41, 0)

        assert run(there.bus, scenario) == b"\xf1"

    def test_a_bus_that_is_unplugged_between_two_transfers_is_there_again_when_it_is_plugged_in(self, there):
        async def scenario(bus):
            await bus.read_register(0x40, 0)
            there.unplug()
            with pytest.raises(DeviceUnavailable, match="has gone"):
                await bus.read_register(0x40, 0)
            with pytest.raises(DeviceUnavailable, match="does not exist; (turn I²C on|there is /dev)"):
                await bus.read_register(0x40, 0)
            with pytest.raises(DeviceUnavailable, match="does not exist"):
                await bus.probe()
            there.plug()
            await bus.probe()
            return await bus.read_register(0x40, 0)

        assert run(there.bus, scenario) == b"\x01"

    @pytest.mark.parametrize("how", ["late", "cancelled"])
    def test_a_bus_that_hangs_holds_up_neither_the_loop_nor_the_next_transfer(self, there, how):
        release, entered = threading.Event(), threading.Event()

        def hang(data, count):
            entered.set()
            release.wait(60)
            return bytes(count)

        async def scenario(bus):
            well, there.twin.chips[0x40] = there.twin.chips[0x40], hang
            reading = asyncio.create_task(bus.read_register(0x40, 0))
            await asyncio.to_thread(entered.wait, 60)
            if how == "cancelled":
                reading.cancel()
            with pytest.raises(asyncio.CancelledError if how == "cancelled" else DeviceTimeout):
                await reading
            there.twin.chips[0x40] = well
            answer = await bus.read_register(0x40, 0)
            release.set()
            while there.path and len(opened(there.path)) > 1:
                await asyncio.sleep(0.01)
            return answer

        assert run(there.impatient if how == "late" else there.bus, scenario) == b"\x01"

    def test_transfers_take_turns(self, there):
        under_way, most = [], []

        def slow(data, count):
            under_way.append(1)
            most.append(len(under_way))
            threading.Event().wait(0.001)
            under_way.pop()
            return bytes(count)

        async def scenario(bus):
            there.twin.chips[0x41] = slow
            await asyncio.gather(*(bus.read_register(0x41, 0) for _ in range(50)))

        run(there.bus, scenario)
        assert most == [1] * 50


def test_a_chip_without_registers_gets_a_command_and_is_read_later(tmp_path, monkeypatch):
    async def scenario(bus):
        await bus.transfer(0x44, b"\x24\x00")
        return await bus.transfer(0x44, count=6), await bus.transfer(0x44, b"\xe0\x00", 300)

    def chip(data, count):
        return (data or b"answer").ljust(count, b"!")

    kernel = Kernel(tmp_path / "i2c-1", I2cTwin({0x44: chip}), I2C)
    kernel.path.touch()
    kernel.install(monkeypatch)

    assert run(I2c(kernel.path), scenario) == (b"answer", b"\xe0\x00" + b"!" * 298)
    kernel.functions = SMBUS
    with pytest.raises(PermanentError, match="cannot do such a transfer with 0x44"):
        run(I2c(kernel.path), lambda bus: bus.transfer(0x44, count=6))


def test_a_file_that_is_no_bus_and_one_that_may_not_be_opened_are_named(tmp_path):
    (tmp_path / "file").write_text("no bus")

    async def scenario(bus):
        for _ in range(20):
            with pytest.raises(PermanentError, match="is no I²C bus; name a file such as /dev/i2c-1"):
                await bus.read_register(0x40, 0)

    run(I2c(tmp_path / "file"), scenario)
    assert opened(tmp_path / "file") == []
    with pytest.raises(PermanentError, match="is no I²C bus"):
        run(I2c(tmp_path), lambda bus: bus.probe())
    twin = I2cTwin()
    twin.refuses = OSError(errno.EACCES, "Permission denied")
    with pytest.raises(PermanentError, match=r"add the user to the group i2c: sudo usermod -aG i2c USER"):
        run(twin, lambda bus: bus.probe())


def test_a_bus_that_does_not_exist_names_those_that_do(tmp_path):
    (tmp_path / "i2c-7").touch()

    with pytest.raises(DeviceUnavailable, match=r"i2c-1 does not exist; there is /.*/i2c-7$"):
        run(I2c(tmp_path / "i2c-1"), lambda bus: bus.probe())


def test_an_answer_of_another_length_is_garbled():
    with pytest.raises(GarbledData, match="0x40 on /dev/i2c-twin sent 5 bytes instead of 2"):
        run(I2cTwin({0x40: lambda data, count: b"12345"}), lambda bus: bus.read_register(0x40, 0, 2))


@pytest.mark.parametrize(
    ("bus", "error", "words"),
    [
        (-1, InvalidValue, "a number such as 1"),
        ("1", InvalidValue, "a number such as 1, or a path"),
        ("/dev/\0", InvalidValue, "a path"),
        (True, InvalidType, "a number"),
        (1.5, InvalidType, "a number"),
        (None, InvalidType, "a number"),
    ],
)
def test_a_bus_that_is_none_is_refused(bus, error, words):
    with pytest.raises(error, match=words):
        I2c(bus)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda bus: bus.read_register(0xEC, 0), InvalidValue, "0x08 to 0x77; did you mean 0x76"),
        (lambda bus: bus.read_register(0x07, 0), InvalidValue, "address is 0x07; it must be 0x08 to 0x77$"),
        (lambda bus: bus.read_register("0x76", 0), InvalidType, "a number such as 0x76"),
        (lambda bus: bus.read_register(float("nan"), 0), InvalidType, "address is nan"),
        (lambda bus: bus.read_register(0x40, 256), InvalidValue, r"0 to 0xFF: write longer ones with transfer\(\)"),
        (lambda bus: bus.read_register(0x40, None), InvalidType, "register is None"),
        (lambda bus: bus.read_register(0x40, 0, 0), InvalidValue, "1 or more bytes"),
        (lambda bus: bus.transfer(0x40), InvalidValue, "write or read 1 to 8192 bytes"),
        (lambda bus: bus.transfer(0x40, count=8193), InvalidValue, "write or read 1 to 8192 bytes"),
        (lambda bus: bus.transfer(0x40, count=-1), InvalidValue, "write or read 1 to 8192 bytes"),
        (lambda bus: bus.transfer(0x40, count=True), InvalidType, "count is True"),
        (lambda bus: bus.transfer(0x40, 5), InvalidType, "data is 5; write bytes"),
        (lambda bus: bus.write_register(0x40, 0, "ab"), InvalidType, "data is 'ab'; write bytes"),
    ],
)
def test_what_no_transfer_can_be_is_refused_before_the_bus_opens(call, error, words):
    twin = I2cTwin()
    twin.unplug()

    with pytest.raises(error, match=words):
        run(twin, call)


@given(st.lists(st.tuples(st.integers(0, 255), st.binary(min_size=1, max_size=40)), max_size=10))
def test_registers_hold_what_was_written_last(writes):
    chip, memory = I2cRegisters(), bytearray(256)
    for register, data in writes:
        chip(bytes((register,)) + data, 0)
        for offset, value in enumerate(data):
            memory[(register + offset) % 256] = value

    assert chip(b"\0", 256) == memory


def test_a_chip_that_is_away_is_read_again_and_introspection_shows_the_bus():
    chip = I2cRegisters({0: b"\x15"})
    app = App("house", adapters=(I2c(1),))

    @app.telemetry("room", interval="1m", retry=3)
    async def room(i2c: I2c) -> dict[str, int]:
        return {"t": (await i2c.read_register(0x40, 0))[0]}

    with Harness(app, twins=(I2cTwin({0x40: chip}),)) as harness:
        harness.at("90s", lambda: setattr(chip, "fault", OSError(errno.EREMOTEIO, "Remote I/O error")))
        harness.at("190s", lambda: setattr(chip, "fault", None))
        harness.run("2m30s")
        (onset,) = harness.errors("room")
        assert onset["type"] == "DeviceUnavailable"
        assert "nothing answers at 0x40" in onset["message"]
        harness.run("3m")
        assert harness.errors("room")[-1]["event"] == "recovered"
        harness.broker.send("house/introspect", {"sections": ["adapters"]})
        harness.run("1s")
        port = harness.broker.messages("house/introspect/response")[-1].json["data"]["adapters"][0]

    assert port["kind"] == "i2c"
    assert port["health"]["opened"]
    assert port["health"]["silent_for"] < 61
