import asyncio
import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadsman.adapters.modbus import Modbus, ModbusRefused, Register, Table
from leadsman.adapters.modbus.framing import ModbusRtuFramer, ModbusTcpFramer
from leadsman.adapters.serial import SerialPort
from leadsman.adapters.serial.checksums import crc16_modbus
from leadsman.errors import (
    DeviceTimeout,
    DeviceUnavailable,
    GarbledData,
    InvalidType,
    InvalidValue,
    PayloadError,
    PermanentError,
    TransientError,
)
from leadsman.testing import ModbusTwin, ModbusUnit, SerialTwin, VirtualLoop, garbage


def framed(content):
    return content + crc16_modbus(content).to_bytes(2, "little")


def meter():
    """Input registers 0 and 1 hold 230.5 as a float, holding register 20 holds 9600, and there are some to write."""
    return ModbusUnit(
        {
            "input": {0: 0x4366, 1: 0x8000},
            "holding": {20: 9600, **dict.fromkeys(range(100, 110), 0)},
            "coil": dict.fromkeys(range(12), 0),
        }
    )


def running(modbus, scenario):
    """What a scenario returns, in virtual time."""

    async def run():
        async with modbus:
            return await scenario(modbus)

    loop = VirtualLoop()
    try:
        return loop.run_until_complete(run())
    finally:
        loop.close()


def asking(units, scenario, **options):
    return running(ModbusTwin(units, **{"timeout": "50ms", **options}), scenario)


def over(device, scenario):
    """With a device that answers bytes with bytes."""
    return running(Modbus(SerialTwin(device, framer=ModbusRtuFramer(), timeout="50ms")), scenario)


def test_registers_are_read_as_the_specification_says():
    unit = meter()

    async def scenario(modbus):
        await modbus.probe()
        return await modbus.input_registers(1, 0, 2), await modbus.holding_registers(1, 20)

    volts, baudrate = asking({1: unit}, scenario)

    assert struct.unpack(">f", volts) == (230.5,)
    assert struct.unpack(">H", baudrate) == (9600,)
    assert unit.requests == [bytes.fromhex("0400000002"), bytes.fromhex("0300140001")]


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (1, PermanentError, r"does not know this function \(exception 1, illegal function\)"),
        (2, PermanentError, r"does not have all of these addresses \(exception 2, illegal data address\)"),
        (3, PermanentError, "illegal data value"),
        (4, TransientError, "server device failure"),
        (5, TransientError, "acknowledge"),
        (6, TransientError, "is busy"),
        (10, TransientError, "gateway path unavailable"),
        (11, TransientError, "did not answer its gateway"),
        (77, TransientError, r"refuses \(exception 77\)"),
    ],
)
@pytest.mark.parametrize("framer", [ModbusRtuFramer(), ModbusTcpFramer()])
def test_an_exception_of_the_protocol_says_whether_another_attempt_is_worth_it(framer, code, kind, message):
    unit = meter()

    async def scenario(modbus):
        unit.refuses = code
        with pytest.raises(kind, match=f"unit 1, 2 input registers from 0: the device .*{message}"):
            await modbus.input_registers(1, 0, 2)
        unit.refuses = None
        return await modbus.input_registers(1, 0, 2)

    assert asking({1: unit}, scenario, framer=framer) == struct.pack(">f", 230.5)


@pytest.mark.parametrize("answer", ["010304 43668000", "010402 4366", "010406 436680000000", "018302"])
def test_an_answer_to_another_request_is_garbled(answer):
    async def scenario(modbus):
        with pytest.raises(GarbledData, match="an answer to another request"):
            await modbus.input_registers(1, 0, 2)

    over(lambda request: framed(bytes.fromhex(answer)), scenario)


def test_an_answer_of_another_unit_is_passed_over_and_named_if_no_other_comes():
    late, own = framed(bytes.fromhex("020404 43660000")), framed(bytes.fromhex("010404 43668000"))
    answers = iter([late + own, late])

    async def scenario(modbus):
        assert await modbus.input_registers(1, 0, 2) == struct.pack(">f", 230.5)
        with pytest.raises(GarbledData, match="unit 1, 2 input registers from 0: an answer of unit 2"):
            await modbus.input_registers(1, 0, 2)

    over(lambda request: next(answers), scenario)


@pytest.mark.parametrize(("ends", "late"), [(None, 0.07), (0.02, 0.04)], ids=["timed out", "cancelled"])
def test_an_answer_that_comes_late_does_not_pass_for_the_next_one(ends, late):
    """Over RTU nothing but the time tells it from the right one."""
    stale, fresh = (framed(bytes.fromhex(f"010404 {value}")) for value in ("3f800000", "43668000"))
    answers = iter([(late, stale), (0.04, fresh)])
    port = []

    def device(request):
        after, answer = next(answers)
        asyncio.get_running_loop().call_later(after, port[0].send, answer)
        return b""

    async def scenario(modbus):
        port.append(modbus._port)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(modbus.input_registers(1, 0, 2), ends)
        return await modbus.input_registers(1, 0, 2)

    assert over(device, scenario) == struct.pack(">f", 230.5)


def test_a_call_that_is_cancelled_while_it_waits_for_a_late_answer_leaves_the_wait_to_the_next_one():
    stale, fresh = (framed(bytes.fromhex(f"010404 {value}")) for value in ("3f800000", "43668000"))
    answers = iter([(0.09, stale), (0.04, fresh)])
    port = []

    def device(request):
        after, answer = next(answers)
        asyncio.get_running_loop().call_later(after, port[0].send, answer)
        return b""

    async def scenario(modbus):
        port.append(modbus._port)
        for ends in (1, 0.01):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(modbus.input_registers(1, 0, 2), ends)
        return await modbus.input_registers(1, 0, 2)

    assert over(device, scenario) == struct.pack(">f", 230.5)


def test_an_answer_that_comes_after_the_port_was_lost_does_not_pass_for_the_next_one():
    """A gateway may deliver it to the next connection."""
    stale, fresh = (framed(bytes.fromhex(f"010404 {value}")) for value in ("3f800000", "43668000"))
    port, asked = [], []

    def device(request):
        asked.append(request)
        loop = asyncio.get_running_loop()
        if len(asked) == 1:
            loop.call_later(0.01, port[0].unplug)
            loop.call_later(0.02, port[0].plug)
        loop.call_later(0.04, port[0].send, stale if len(asked) == 1 else fresh)
        return b""

    async def scenario(modbus):
        port.append(modbus._port)
        with pytest.raises(DeviceUnavailable):
            await modbus.input_registers(1, 0, 2)
        await asyncio.sleep(0.02)
        return await modbus.input_registers(1, 0, 2)

    assert over(device, scenario) == struct.pack(">f", 230.5)


def test_a_unit_that_does_not_answer_and_is_asked_again_at_once_holds_up_others_for_one_timeout_at_a_time():
    async def scenario(modbus):
        loop = asyncio.get_running_loop()
        with pytest.raises(DeviceTimeout):
            await modbus.input_registers(9, 0, 2)
        again = asyncio.create_task(modbus.input_registers(9, 0, 2))
        await asyncio.sleep(0)
        before = loop.time()
        assert await modbus.input_registers(1, 0, 2) == struct.pack(">f", 230.5)
        at_once = loop.time() - before
        with pytest.raises(DeviceTimeout):
            await again
        return at_once

    assert asking({1: meter()}, scenario, timeout="5s") < 0.1


def test_a_unit_that_does_not_answer_delays_no_other_one_further():
    async def scenario(modbus):
        loop = asyncio.get_running_loop()
        with pytest.raises(DeviceTimeout):
            await modbus.input_registers(9, 0, 2)
        before = loop.time()
        assert await modbus.input_registers(1, 0, 2) == struct.pack(">f", 230.5)
        return loop.time() - before

    assert asking({1: meter()}, scenario, timeout="5s") < 4


def test_a_wrong_transaction_is_passed_over_and_named_if_no_other_comes():
    def spoil(frame):
        number = int.from_bytes(frame[:2], "big")
        other = (number + 6).to_bytes(2, "big") + frame[2:-1] + b"\x07"
        return other + (b"" if number == 2 else frame)

    async def scenario(modbus):
        assert await modbus.input_registers(1, 0, 2) == struct.pack(">f", 230.5)
        with pytest.raises(GarbledData, match="an answer to request 8 instead of 2"):
            await modbus.input_registers(1, 0, 2)
        return await modbus.input_registers(1, 0, 2)

    answer = asking({1: meter()}, scenario, framer=ModbusTcpFramer(), spoil=spoil)

    assert answer == struct.pack(">f", 230.5)


LENIENCIES = {
    "the number 0 (pymodbus-dev/pymodbus#2844, AndreasAmMueller/Modbus#18)": (3, lambda frame: b"\0\0" + frame[2:]),
    "the number with its bytes swapped (pymodbus-dev/pymodbus#2709)": (3, lambda frame: frame[1::-1] + frame[2:]),
    "unit 0 (Apollo3zehn/FluentModbus#84)": (3, lambda frame: frame[:6] + b"\0" + frame[7:]),
    "unit 255": (3, lambda frame: frame[:6] + b"\xff" + frame[7:]),
    "number and unit 0": (3, lambda frame: b"\0\0" + frame[2:6] + b"\0" + frame[7:]),
    "its own unit, where the device itself was asked as 0": (0, lambda frame: frame[:6] + b"\x01" + frame[7:]),
    "its own unit, where the device itself was asked as 255": (255, lambda frame: frame[:6] + b"\x01" + frame[7:]),
}


@pytest.mark.parametrize(("asked", "spoil"), LENIENCIES.values(), ids=LENIENCIES)
def test_over_tcp_an_answer_may_have_another_number_or_unit_where_nothing_else_can_come(asked, spoil):
    unit = meter()

    async def scenario(modbus):
        for _ in range(300):  # the number has two bytes
            assert await modbus.input_registers(asked, 0, 2) == struct.pack(">f", 230.5)
        with pytest.raises(PermanentError, match="exception 2"):
            await modbus.input_registers(asked, 7)
        await modbus.write_registers(asked, 100, b"\0\1", verify=True)

    asking({asked: unit}, scenario, framer=ModbusTcpFramer(), spoil=spoil)


def test_a_late_answer_without_a_number_does_not_pass_for_the_next_one():
    """What makes it harmless to take the number 0: the failed connection is closed, and what came meanwhile is lost."""
    stale, fresh = (bytes.fromhex(f"0000 0000 0007 01 0404 {value}") for value in ("3f800000", "43668000"))
    port, asked = [], []

    def device(request):
        asked.append(request)
        asyncio.get_running_loop().call_later(0.06 if len(asked) == 1 else 0.01, port[0].send, stale)
        return b"" if len(asked) == 1 else fresh

    async def scenario(modbus):
        port.append(modbus._port)
        with pytest.raises(DeviceTimeout):
            await modbus.input_registers(1, 0, 2)
        await asyncio.sleep(0.02)
        return [await modbus.input_registers(1, 0, 2) for _ in range(2)]

    modbus = Modbus(SerialTwin(device, framer=ModbusTcpFramer(), timeout="50ms"))
    assert running(modbus, scenario) == [struct.pack(">f", 230.5)] * 2


@pytest.mark.parametrize("answered", [2, 7])
def test_over_tcp_the_answer_of_another_unit_of_a_gateway_is_none(answered):
    async def scenario(modbus):
        with pytest.raises(GarbledData, match=f"an answer of unit {answered}"):
            await modbus.input_registers(1, 0, 2)

    spoil = lambda frame: frame[:6] + bytes((answered,)) + frame[7:]  # noqa: E731  # one line, as its neighbours
    asking({1: meter()}, scenario, framer=ModbusTcpFramer(), spoil=spoil)


@pytest.mark.parametrize("framer", [ModbusRtuFramer(), ModbusTcpFramer()])
def test_bytes_behind_an_answer_do_not_reach_the_next_one(framer):
    """Some converters add zeros (home-assistant/core#69742)."""

    async def scenario(modbus):
        return [await modbus.input_registers(1, 0, 2) for _ in range(5)]

    answers = asking({1: meter()}, scenario, framer=framer, spoil=lambda frame: frame + bytes(3))

    assert answers == [struct.pack(">f", 230.5)] * 5


def test_a_device_gets_the_pauses_that_it_needs_and_no_longer_ones():
    unit, asked = meter(), []

    def device(request):
        asked.append(asyncio.get_running_loop().time())
        return framed(b"\1" + unit.answer(request[1:-2]))

    async def scenario(modbus):
        begin = asyncio.get_running_loop().time()
        for after in (0, 0, 0.2, 5):
            await asyncio.sleep(after)
            await modbus.input_registers(1, 0, 2)
        await modbus.probe()  # opens the port anew
        await modbus.input_registers(1, 0, 2)
        return [round(each - begin, 2) for each in asked]

    port = SerialTwin(device, baudrate=115_200, framer=ModbusRtuFramer(), timeout="50ms")
    modbus = Modbus(port, pause_between_requests="300ms", pause_after_connect="2s")

    assert running(modbus, scenario) == [2.0, 2.3, 2.6, 7.6, 9.6]


@pytest.mark.parametrize("name", ["pause_between_requests", "pause_after_connect"])
def test_a_pause_that_is_none_is_refused(name):
    with pytest.raises(InvalidValue, match=f"{name} is -1"):
        Modbus("tcp://meter.lan", **{name: -1})


REGISTERS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["uint16", "uint32"]), st.booleans(), st.booleans()),
    min_size=1,
    max_size=20,
)


@given(REGISTERS, st.integers(0, 4), st.integers(2, 12), st.sets(st.integers(0, 100), max_size=4))
def test_what_a_device_refuses_leaves_the_rest_readable(drawn, gap, most, holes):
    """Some devices lack registers of a table, and some addresses between them."""
    registers, lacking, at = {}, set(), 0
    for number, (skip, kind, optional, lacks) in enumerate(drawn):
        at += skip
        register = registers[f"r{number}"] = Register(at, kind, optional=optional)
        at += register.size
        if lacks:
            lacking.add(f"r{number}")
    table = Table(registers, gap=gap, most=most)
    unit = ModbusUnit.of(table, {name: 1000 + n for n, name in enumerate(registers)})
    named = {a for register in registers.values() for a in range(register.address, register.address + register.size)}
    gone = holes - named
    for name in lacking:
        register = registers[name]
        gone |= set(range(register.address, register.address + register.size))
    memory = unit.memory["holding"]
    kept = {a: memory.pop(a) for a in gone if a in memory}
    values = {name: 1000 + n for n, name in enumerate(registers) if name not in lacking}
    needed = {name for name in lacking if not registers[name].optional}

    async def read(modbus):
        try:
            return await modbus.read(1, table)
        except ModbusRefused as error:
            return error

    async def scenario(modbus):
        first = await read(modbus)
        for _ in range(len(drawn)):  # a device that refuses many at first is not asked for all of them at once
            if not isinstance(first, ModbusRefused) or first.found:
                break
            first = await read(modbus)
        if not values:
            assert (first.code, dict(first.found)) == (2, {})
            return
        if needed:
            assert isinstance(first, ModbusRefused)
            assert dict(first.found) == values
            assert set(first.refused) == needed
        else:
            assert first == {name: values.get(name) for name in registers}
            assert [*first] == [*registers]
        before = len(unit.requests)
        again = await read(modbus)
        assert (dict(again.found) if needed else again) == (values if needed else first)
        assert len(unit.requests) - before <= len(registers)  # none twice
        memory.update(kept)
        await asyncio.sleep(601)
        assert await read(modbus) == {name: 1000 + n for n, name in enumerate(registers)} | {
            name: memory[register.address]
            if register.size == 1
            else (memory[register.address] << 16) + memory[register.address + 1]
            for name, register in registers.items()
        }

    asking({1: unit}, scenario)


def test_a_register_that_is_optional_is_left_out_of_the_next_requests_and_asked_for_again_later():
    table = Table({f"r{n}": Register(n, optional=n == 7) for n in range(20)})
    unit = ModbusUnit.of(table, {f"r{n}": n for n in range(20)})
    del unit.memory["holding"][7]

    async def scenario(modbus):
        counts = []
        for wait in (0, 10, 580, 20):
            await asyncio.sleep(wait)
            before = len(unit.requests)
            values = await modbus.read(1, table)
            assert values == {f"r{n}": None if n == 7 else n for n in range(20)}
            counts.append(len(unit.requests) - before)
        unit.memory["holding"][7] = 70
        await asyncio.sleep(601)
        return counts, await modbus.read(1, table)

    counts, values = asking({1: unit}, scenario)

    assert values["r7"] == 70
    assert counts[0] == counts[3] > counts[1] == counts[2] == 2


@pytest.mark.parametrize("code", [1, 2, 3])
def test_a_device_may_refuse_an_address_with_the_exception_of_another_reason(code):
    """Some say "illegal function" of each address that they do not have."""

    class Unit(ModbusUnit):
        def answer(self, pdu):
            given = super().answer(pdu)
            return bytes((given[0], code)) if given[0] & 0x80 else given

    table = Table({"a": Register(0), "b": Register(1, optional=True), "c": Register(2)})

    async def scenario(modbus):
        return await modbus.read(1, table)

    assert asking({1: Unit({"holding": {0: 1, 2: 3}})}, scenario) == {"a": 1, "b": None, "c": 3}


def test_a_unit_that_lacks_a_register_does_not_take_it_from_another_one():
    table = Table({"a": Register(0), "b": Register(1, optional=True)})
    poor, rich = ModbusUnit({"holding": {0: 1}}), ModbusUnit({"holding": {0: 1, 1: 2}})

    async def scenario(modbus):
        return [await modbus.read(unit, table) for unit in (1, 2, 1, 2)]

    assert asking({1: poor, 2: rich}, scenario) == [{"a": 1, "b": None}, {"a": 1, "b": 2}] * 2


@pytest.mark.parametrize("code", [1, 2, 3])
def test_a_device_that_refuses_everything_is_an_error_and_is_not_asked_for_each_register(code):
    table = Table(
        {f"r{n}": Register(n, optional=True) for n in range(60)} | {"c": Register(0, kind="coil", optional=True)}
    )
    unit = ModbusUnit.of(table, {})

    async def scenario(modbus):
        unit.refuses = code
        for _ in range(5):
            before = len(unit.requests)
            with pytest.raises(
                ModbusRefused, match=f"unit 1, 60 holding .*exception {code}|exception {code}"
            ) as raised:
                await modbus.read(1, table)
            assert len(unit.requests) - before <= 16
            assert raised.value.found == {}
        unit.refuses = None
        return await modbus.read(1, table)

    assert asking({1: unit}, scenario) == {**{f"r{n}": 0 for n in range(60)}, "c": False}


@pytest.mark.parametrize("code", [4, 5, 6, 8, 10, 11])
def test_a_refusal_that_passes_is_no_missing_register(code):
    table = Table({"a": Register(0), "b": Register(1, optional=True)})
    unit = ModbusUnit({"holding": {0: 1, 1: 2}})

    async def scenario(modbus):
        unit.refuses = code
        with pytest.raises(TransientError):
            await modbus.read(1, table)
        unit.refuses = None
        return await modbus.read(1, table)

    assert asking({1: unit}, scenario) == {"a": 1, "b": 2}


def test_the_error_of_a_register_that_is_needed_names_it_and_has_the_others():
    table = Table({"volts": Register(0), "watts": Register(1), "new": Register(2), "far": Register(90)})
    unit = ModbusUnit({"holding": {0: 230, 1: 412, 90: 7}})

    async def scenario(modbus):
        for _ in range(2):
            with pytest.raises(
                ModbusRefused,
                match=r"^unit 1, 1 holding registers from 2: .*\(exception 2, .*\): new; write optional=True",
            ) as raised:
                await modbus.read(1, table)
            assert raised.value.found == {"volts": 230, "watts": 412, "far": 7}
            assert raised.value.refused == ("new",)
        unit.memory["holding"][2] = 1  # it is asked for at each read
        return await modbus.read(1, table)

    assert asking({1: unit}, scenario) == {"volts": 230, "watts": 412, "new": 1, "far": 7}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda frame: frame[:-1] + bytes((frame[-1] ^ 1,)),
        lambda frame: frame[: len(frame) // 2],
        lambda frame: frame[1:],
        lambda frame: garbage(20),
    ],
    ids=["checksum", "half", "first byte lost", "noise"],
)
def test_what_is_no_answer_is_named_with_what_to_check(spoil):
    spoils = iter([spoil, lambda frame: frame])

    async def scenario(modbus):
        with pytest.raises(GarbledData, match="bytes arrived, but no complete answer with a valid checksum; check"):
            await modbus.input_registers(1, 0, 2)
        return await modbus.input_registers(1, 0, 2)

    answer = asking({1: meter()}, scenario, spoil=lambda frame: next(spoils)(frame))

    assert answer == struct.pack(">f", 230.5)


BEGINNINGS = st.sampled_from(["", "0104", "010404", "0184", "0204ff", "00010000000701"]).map(bytes.fromhex)


@given(
    st.sampled_from([ModbusRtuFramer(), ModbusTcpFramer()]),
    st.lists(st.tuples(BEGINNINGS, st.binary(max_size=300), st.booleans()), min_size=1, max_size=4),
)
def test_whatever_a_device_sends_is_a_named_error_and_the_next_poll_is_unharmed(framer, answers):
    """Some of it with a frame that is right."""
    spoils = [begin + rest for begin, rest, _ in answers]
    unit, coming = meter(), []

    def spoil(frame):
        if not coming:
            return frame
        number = int.from_bytes(frame[:2], "big") if framer.numbered else 0
        data, whole = coming.pop()
        return framer.wrap(data[:250] or b"\x04", 1, number) if whole else data

    async def scenario(modbus):
        for data, (_, _, whole) in zip(spoils, answers, strict=True):
            coming.append((data, whole))
            with contextlib.suppress(DeviceTimeout, GarbledData, PermanentError, TransientError):
                assert len(await modbus.input_registers(1, 0, 2)) == 4
            assert await modbus.input_registers(1, 0, 2) == struct.pack(">f", 230.5)

    asking({1: unit}, scenario, framer=framer, spoil=spoil)


def test_garbage_before_a_request_is_discarded():
    async def scenario(modbus):
        modbus._port.send(garbage(30))
        return await modbus.input_registers(1, 0, 2)

    assert asking({1: meter()}, scenario) == struct.pack(">f", 230.5)


@pytest.mark.parametrize(
    "wrong",
    [
        (0, 0, 1),
        (248, 0, 1),
        (1, -1, 1),
        (1, 65536, 1),
        (1, 0, 0),
        (1, 0, 126),
        (1, 65535, 2),
        (True, 0, 1),
        ("1", 0, 1),
    ],
)
def test_a_request_that_is_out_of_range_is_refused_before_anything_is_sent(wrong):
    unit = meter()

    async def scenario(modbus):
        with pytest.raises(InvalidValue, match="write 1 to (125, with addresses from 0 to 65535|247)"):
            await modbus.holding_registers(*wrong)

    asking({1: unit}, scenario)
    assert unit.requests == []


def test_over_tcp_each_number_of_a_byte_may_be_a_unit():
    async def scenario(modbus):
        with pytest.raises(InvalidValue, match="unit is 256; write 0 to 255"):
            await modbus.input_registers(256, 0)
        return [await modbus.input_registers(unit, 0, 2) for unit in (0, 255)]

    answers = asking({0: meter(), 255: meter()}, scenario, framer=ModbusTcpFramer())

    assert answers == [struct.pack(">f", 230.5)] * 2


def test_requests_take_turns():
    async def scenario(modbus):
        return await asyncio.gather(*(modbus.input_registers(1, 0, 2) for _ in range(20)))

    assert set(asking({1: meter()}, scenario, timeout="5s")) == {struct.pack(">f", 230.5)}


def test_a_table_is_read_in_as_few_requests_as_its_gaps_allow_and_in_its_order():
    table = Table({f"r{n}": Register(n) for n in range(99, -1, -1)} | {"far": Register(300)}, gap=10)
    unit = ModbusUnit.of(table, {f"r{n}": n for n in range(100)} | {"far": 7})

    async def scenario(modbus):
        return await modbus.read(1, table), await modbus.read(1, table, ["r7", "r5"])

    whole, some = asking({1: unit}, scenario)

    assert [*whole] == [*table.registers]
    assert whole == {f"r{n}": n for n in range(100)} | {"far": 7}
    assert list(some.items()) == [("r7", 7), ("r5", 5)]
    assert unit.requests == [bytes.fromhex(each) for each in ("03 0000 0064", "03 012c 0001", "03 0005 0003")]


WRITABLE = Table(
    {
        "setpoint": Register(100, "int16", scale=0.1),
        "limit": Register(101, "float32", word_order="little"),
        "far": Register(105, "uint32"),
        "pump": Register(2, kind="coil"),
        "valve": Register(3, kind="coil"),
        "lamp": Register(9, kind="coil"),
        "volts": Register(0, "float32", kind="input"),
    }
)


def test_what_adjoins_is_written_in_one_request_and_read_back_if_that_is_wanted():
    unit, values = meter(), {"limit": 2.5, "pump": True, "setpoint": -3.5, "valve": False, "far": 70_000, "lamp": True}

    async def scenario(modbus):
        await modbus.write(1, WRITABLE, values)
        written = len(unit.requests)
        await modbus.write(1, WRITABLE, {"setpoint": 1, "lamp": False}, verify=True)
        return written, await modbus.read(1, WRITABLE)

    written, found = asking({1: unit}, scenario)

    assert found == {**values, "setpoint": 1.0, "lamp": False, "volts": 230.5}
    assert [request[0] for request in unit.requests[:written]] == [15, 5, 16, 16]
    assert unit.requests[0] == bytes.fromhex("0f 0002 0002 01 01")
    assert unit.requests[written : written + 4] == [
        bytes.fromhex(each) for each in ("05 0009 0000", "01 0009 0001", "06 0064 000a", "03 0064 0001")
    ]


def test_a_device_that_keeps_another_value_is_named():
    class Stubborn(ModbusUnit):
        def answer(self, pdu):
            return pdu[:5] if pdu[0] in (5, 6, 15, 16) else super().answer(pdu)

    async def scenario(modbus):
        with pytest.raises(PermanentError, match="unit 1, from 100: the device holds 0000 after 000a was written"):
            await modbus.write(1, WRITABLE, {"setpoint": 1}, verify=True)
        with pytest.raises(PermanentError, match="unit 1, from 2: the device holds 00 after 10 was written"):
            await modbus.write_coils(1, 2, [True, False], verify=True)

    asking({1: Stubborn(meter().memory)}, scenario)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"setpoint": 1, "limit": "hot"}, PayloadError, "limit: 'hot' is no number"),
        ({"setpoint": 5000}, PayloadError, "setpoint: 5000 does not fit a register of the type int16"),
        ({"setpoint": 1, "volts": 230}, PayloadError, "volts is read-only: it is one of the input registers"),
        ({"setpont": 1}, InvalidValue, "no register 'setpont'; did you mean 'setpoint'"),
    ],
)
def test_nothing_is_written_if_one_value_is_wrong(values, error, message):
    unit = meter()

    async def scenario(modbus):
        with pytest.raises(error, match=message):
            await modbus.write(1, WRITABLE, values)

    asking({1: unit}, scenario)
    assert unit.requests == []


@pytest.mark.parametrize(
    ("first", "data"), [(0, b""), (0, b"abc"), (0, bytes(248)), (65535, bytes(4)), (-1, b"ab"), (0.5, b"ab")]
)
def test_registers_that_cannot_be_written_together_are_refused_before_anything_is_sent(first, data):
    unit = meter()

    async def scenario(modbus):
        with pytest.raises(InvalidValue, match="write 1 to 123, with addresses from 0 to 65535"):
            await modbus.write_registers(1, first, data)

    asking({1: unit}, scenario)
    assert unit.requests == []


def test_what_is_no_bytes_or_no_booleans_is_refused_before_anything_is_sent():
    unit = meter()

    async def scenario(modbus):
        for data in ([1, 2], "ab", None):
            with pytest.raises(InvalidType, match="data is .*; write two bytes for each register"):
                await modbus.write_registers(1, 100, data)
        for values in ("01", [1, 0], [None]):
            with pytest.raises(InvalidType, match="values is .*; write a list of True and False"):
                await modbus.write_coils(1, 0, values)

    asking({1: unit}, scenario)
    assert unit.requests == []


@pytest.mark.parametrize(
    ("url", "port"),
    [
        ("tcp://meter.lan", "tcp://meter.lan:502"),
        ("tcp://meter.lan:5020/", "tcp://meter.lan:5020"),
        ("tcp://[::1]", "tcp://[::1]:502"),
        ("socket://gateway.lan:2001", "socket://gateway.lan:2001"),
        ("/dev/nowhere", "/dev/nowhere"),
    ],
)
def test_a_path_or_a_url_will_do(url, port):
    assert Modbus(url).health["port"] == Modbus(url).resource.name == port


@pytest.mark.parametrize(
    "url", ["tcp://", "tcp://host:port", "tcp://host:99999", "tcp://host:0", "tcp://me@host", "tcp://host/x", ""]
)
def test_a_wrong_url_is_a_named_error(url):
    with pytest.raises(InvalidValue, match="the port is .*; write "):
        Modbus(url)


@pytest.mark.parametrize("url", ["meter.lan", "meter.lan:502", "tpc://meter.lan"])
def test_an_address_without_its_scheme_is_not_taken_for_a_path(url):
    with pytest.raises(InvalidValue, match=r"the port is .*; write .*tcp://"):
        Modbus(url)


def test_a_port_of_ones_own_needs_a_framer_of_modbus():
    assert Modbus("/dev/nowhere", 2400, parity="E").health == SerialPort("/dev/nowhere", 2400).health
    with pytest.raises(InvalidType, match="port is 7"):
        Modbus(7)
    with pytest.raises(InvalidType, match=r"the framer of the port is LineFramer.*write ModbusRtuFramer\(\)"):
        Modbus(SerialPort("/dev/nowhere"))
