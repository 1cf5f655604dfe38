"""Viessmann's protocols against a simulated boiler, over the twin of the port; `tests/system` has them on a pty."""

import asyncio
import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leadsman.adapters.modbus import Modbus
from leadsman.adapters.serial.framing import FixedFramer
from leadsman.adapters.serial.optolink import Optolink
from leadsman.errors import (
    DeviceTimeout,
    DeviceUnavailable,
    GarbledData,
    InvalidType,
    InvalidValue,
    NotInstalled,
    PermanentError,
    TransientError,
)
from leadsman.testing import Boiler, SerialTwin, VirtualLoop

MEMORY = {0x0800: b"\x7b\x00", 0x6300: b"\x32", 0x2000: bytes(range(8))}


def on_boiler(scenario, protocol="P300", boiler=None, spoil=lambda answer: answer):
    """Run ``scenario(optolink, boiler, port)`` in virtual time; the boiler says 05 every two seconds."""
    boiler = boiler or Boiler(MEMORY, protocol)
    port = SerialTwin(lambda data: spoil(boiler.receive(data)), framer=FixedFramer(1), timeout=2.0)

    async def run():
        async def beat():
            while True:
                await asyncio.sleep(2)
                port.send(boiler.beat())

        beating = asyncio.create_task(beat())
        try:
            async with Optolink(port, protocol) as optolink:
                return await scenario(optolink, boiler, port)
        finally:
            beating.cancel()

    loop = VirtualLoop()
    try:
        return loop.run_until_complete(run())
    finally:
        loop.close()


@pytest.mark.parametrize("protocol", ["P300", "KW"])
def test_bytes_are_read_and_written(protocol):
    async def scenario(optolink, boiler, port):
        assert await optolink.read(0x0800, 2) == b"\x7b\x00"
        assert await optolink.read(0x2000, 8) == bytes(range(8))
        await optolink.write(0x6300, b"\x37")
        assert boiler.writes == [(0x6300, b"\x37")]
        await asyncio.sleep(60)
        assert await optolink.read(0x6300, 1) == b"\x37"

    on_boiler(scenario, protocol)


def test_what_the_boiler_does_not_have_is_a_permanent_error_and_the_next_read_is_unharmed():
    async def scenario(optolink, boiler, port):
        with pytest.raises(PermanentError, match="no value of 2 bytes at 0x1234"):
            await optolink.read(0x1234, 2)
        assert await optolink.read(0x6300, 1) == b"\x32"

    on_boiler(scenario)


@pytest.mark.parametrize("protocol", ["P300", "KW"])
def test_a_boiler_that_is_off_is_a_timeout_and_read_again_when_it_is_on(protocol):
    async def scenario(optolink, boiler, port):
        assert await optolink.read(0x6300, 1) == b"\x32"
        boiler.restart()
        boiler.silent = True
        with pytest.raises(DeviceTimeout):
            await optolink.read(0x6300, 1)
        with pytest.raises(DeviceTimeout):
            await optolink.probe()
        boiler.silent = False
        assert await optolink.read(0x6300, 1) == b"\x32"
        await optolink.probe()

    on_boiler(scenario, protocol)


def test_an_unplugged_adapter_is_read_again_after_it_is_back():
    async def scenario(optolink, boiler, port):
        await optolink.read(0x6300, 1)
        port.unplug()
        with pytest.raises(DeviceUnavailable):
            await optolink.read(0x6300, 1)
        port.plug()
        assert await optolink.read(0x6300, 1) == b"\x32"

    on_boiler(scenario)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda answer: answer[:-1] + bytes((answer[-1] ^ 1,)), "wrong checksum"),
        (lambda answer: b"\x06\x41\x07\x01\x01\x55\x25\x02\x01\x02\x88", "another request"),
        (lambda answer: b"\x06\x06\x15", "did not understand"),
        (lambda answer: b"\x7f", "7f arrived instead of the answer"),
        (lambda answer: answer[:6], "arrived instead of the answer"),
    ],
)
def test_a_garbled_answer_is_worth_another_attempt_which_greets_anew(wrong, message):
    spoiled = []

    def spoil(answer):
        if len(answer) > 5 and not spoiled:
            spoiled.append(answer)
            return wrong(answer)
        return answer

    async def scenario(optolink, boiler, port):
        with pytest.raises(GarbledData, match=message):
            await optolink.read(0x0800, 2)
        assert await optolink.read(0x0800, 2) == b"\x7b\x00"

    on_boiler(scenario, spoil=spoil)


@given(st.binary(max_size=20))
def test_an_answer_with_a_checksum_is_found_behind_noise(noise):
    async def scenario(optolink, boiler, port):
        assert await optolink.read(0x0800, 2) == b"\x7b\x00"
        await optolink.write(0x6300, b"\x37")
        with pytest.raises(PermanentError, match="no value of 2 bytes"):
            await optolink.read(0x1234, 2)

    on_boiler(scenario, spoil=lambda answer: noise + answer if len(answer) > 5 else answer)


@given(st.binary(min_size=1, max_size=20))
def test_noise_before_an_answer_without_a_checksum_is_no_value(noise):
    async def scenario(optolink, boiler, port):
        with contextlib.suppress(TransientError):
            assert await optolink.read(0x2000, 8) == bytes(range(8))

    on_boiler(scenario, "KW", spoil=lambda answer: noise + answer)


def test_an_answer_that_is_repeated_is_not_taken_for_the_next_one():
    async def scenario(optolink, boiler, port):
        await optolink.read(0x0800, 2)
        old = b"\x06\x41\x07\x01\x01\x08\x00\x02\x7b\x00\x8e"
        port.send(old)
        boiler.memory[0x0800] = b"\x7c\x00"
        return await optolink.read(0x0800, 2)

    assert on_boiler(scenario) == b"\x7c\x00"


@given(
    st.sampled_from([0x6300, 0x0800]),
    st.floats(1.9, 2.5),
    st.floats(0.0, 2.5),
    st.floats(0.3, 10.0),
    st.booleans(),
)
def test_a_boiler_that_hears_no_request_gives_no_value_whenever_it_says_05(address, period, phase, timeout, greeted):
    """As openv/openv#45 and #440 report: 05 every 2.2 s became 128.5 °C."""
    boiler = Boiler(MEMORY, "KW")

    async def run():
        port = SerialTwin(boiler.receive, framer=FixedFramer(1), timeout=timeout)

        async def beat():
            await asyncio.sleep(phase)
            while True:
                port.send(b"\x05")
                await asyncio.sleep(period)

        async with Optolink(port, "KW") as optolink:
            await port.probe()
            beating = asyncio.create_task(beat())
            if greeted:
                await asyncio.sleep(phase)
                with contextlib.suppress(TransientError):
                    await optolink.read(0x0800, 2)
                beating.cancel()
                beating = asyncio.create_task(beat())
            boiler.silent = True
            for _ in range(2):
                with pytest.raises((DeviceTimeout, GarbledData)):
                    await optolink.read(address, len(MEMORY[address]))
            beating.cancel()

    loop = VirtualLoop()
    try:
        loop.run_until_complete(run())
    finally:
        loop.close()


@pytest.mark.parametrize("value", [b"\x05", b"\x05\x05", b"\x05\x00"])
def test_a_value_of_05_is_a_value(value):
    async def scenario(optolink, boiler, port):
        for _ in range(3):
            assert await optolink.read(0x2301, len(value)) == value

    on_boiler(scenario, "KW", Boiler({0x2301: value}, "KW"))


@pytest.mark.parametrize(
    ("protocol", "babble"), [("P300", b"\x06"), ("P300", b"\x15"), ("KW", b"\xaa"), ("KW", b"\x00")]
)
def test_a_line_that_babbles_without_end_is_a_named_error_soon(protocol, babble):
    async def scenario(optolink, boiler, port):
        async def talk():
            while True:
                port.send(babble * 8)
                await asyncio.sleep(0.01)

        talking = asyncio.create_task(talk())
        started = asyncio.get_running_loop().time()
        for _ in range(3):
            with pytest.raises((GarbledData, PermanentError)):
                await asyncio.wait_for(optolink.read(0x0800, 2), 30)
        assert asyncio.get_running_loop().time() - started < 30
        talking.cancel()

    silent = Boiler(MEMORY, protocol)
    silent.silent = True
    on_boiler(scenario, protocol, silent)


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=8), st.sampled_from(["P300", "KW"]))
@example([b"\x06"], "P300")  # the time is up as the acknowledgement is all that came
def test_whatever_the_line_says_a_read_ends_in_a_named_error_or_bytes_and_soon(noise, protocol):
    left = iter(noise)

    async def scenario(optolink, boiler, port):
        started = asyncio.get_running_loop().time()
        with contextlib.suppress(TransientError, PermanentError):
            assert len(await optolink.read(0x0800, 2)) == 2
        assert asyncio.get_running_loop().time() - started < 60
        for _ in left:
            pass
        assert await optolink.read(0x0800, 2) == b"\x7b\x00"

    on_boiler(scenario, protocol, spoil=lambda answer: next(left, answer))


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Optolink("twin", "VS3"), InvalidValue),
        (lambda: Optolink(5), InvalidType),
        (lambda: Optolink(""), InvalidValue),
    ],
)
def test_a_wrong_argument_is_refused(make, error):
    with pytest.raises(error):
        make()


def test_a_wrong_address_is_refused():
    async def scenario(optolink, boiler, port):
        for address, length in ((-1, 1), (0x10000, 1), (True, 1), (1, 0), (1, 201), (1, True)):
            with pytest.raises(InvalidValue):
                await optolink.read(address, length)

    on_boiler(scenario)


@pytest.mark.parametrize("kind", [Optolink, Modbus])
def test_a_library_that_is_missing_is_named_before_the_port_is_opened(monkeypatch, kind):
    adapter = kind("/dev/ttyUSB0")
    adapter.check_installed()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(NotInstalled, match=r"leadsman\[serial\]"):
        adapter.check_installed()
