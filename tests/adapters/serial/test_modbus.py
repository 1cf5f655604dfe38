import asyncio
import struct

import pytest

from leadsman.adapters.serial import SerialPort
from leadsman.adapters.serial.checksums import crc16_modbus
from leadsman.adapters.serial.metering import ModbusRtuFramer
from leadsman.adapters.serial.modbus import Modbus
from leadsman.errors import DeviceTimeout, GarbledData, InvalidType, InvalidValue, PermanentError, TransientError
from leadsman.testing import SerialTwin, garbage


def framed(content):
    return content + crc16_modbus(content).to_bytes(2, "little")


class Meter:
    """Answers for unit 1: input registers 0 and 1 hold 230.5 as a float, holding register 20 holds 9600."""

    def __init__(self):
        self.asked = []
        self.refuses = None

    def receive(self, request):
        assert framed(request[:-2]) == request
        self.asked.append(request[:-2])
        unit, function, register, count = struct.unpack(">BBHH", request[:-2])
        held = {(4, 0, 2): struct.pack(">f", 230.5), (3, 20, 1): struct.pack(">H", 9600)}
        if unit != 1:
            return b""
        if self.refuses is not None:
            return framed(bytes((unit, function | 0x80, self.refuses)))
        if (function, register, count) not in held:
            return framed(bytes((unit, function | 0x80, 2)))
        data = held[function, register, count]
        return framed(bytes((unit, function, len(data))) + data)


def asking(device, scenario):
    async def ask():
        port = SerialTwin(device, framer=ModbusRtuFramer(), timeout="50ms")
        async with Modbus(port) as modbus:
            return await scenario(modbus)

    return asyncio.run(ask())


def test_registers_are_read_as_the_specification_says():
    meter = Meter()

    async def scenario(modbus):
        await modbus.probe()
        return await modbus.input_registers(1, 0, 2), await modbus.holding_registers(1, 20)

    volts, baudrate = asking(meter.receive, scenario)

    assert struct.unpack(">f", volts) == (230.5,)
    assert struct.unpack(">H", baudrate) == (9600,)
    assert meter.asked == [bytes.fromhex("010400000002"), bytes.fromhex("010300140001")]


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (1, PermanentError, "does not know this function"),
        (2, PermanentError, "does not have these registers"),
        (6, TransientError, "is busy"),
        (11, TransientError, "did not answer its gateway"),
        (77, TransientError, r"refuses \(exception 77\)"),
    ],
)
def test_an_exception_of_the_protocol_says_whether_another_attempt_is_worth_it(code, kind, message):
    meter = Meter()
    meter.refuses = code

    async def scenario(modbus):
        with pytest.raises(kind, match=f"unit 1, 2 registers from 0: the device {message}"):
            await modbus.input_registers(1, 0, 2)

    asking(meter.receive, scenario)


@pytest.mark.parametrize(
    "answer", ["020404 43668000", "010304 43668000", "010402 4366", "010406 436680000000", "020482", "018302"]
)
def test_an_answer_to_another_request_is_garbled(answer):
    async def scenario(modbus):
        with pytest.raises((GarbledData, DeviceTimeout)):
            await modbus.input_registers(1, 0, 2)

    asking(lambda request: framed(bytes.fromhex(answer)), scenario)


def test_silence_of_a_unit_that_is_not_there_is_a_timeout():
    async def scenario(modbus):
        with pytest.raises(DeviceTimeout):
            await modbus.input_registers(9, 0, 2)
        return await modbus.input_registers(1, 0, 2)

    assert asking(Meter().receive, scenario) == struct.pack(">f", 230.5)


def test_garbage_before_a_request_is_discarded():
    async def scenario(modbus):
        modbus._port.send(garbage(30))
        return await modbus.input_registers(1, 0, 2)

    assert asking(Meter().receive, scenario) == struct.pack(">f", 230.5)


@pytest.mark.parametrize(
    "wrong", [(0, 0, 1), (248, 0, 1), (1, -1, 1), (1, 65536, 1), (1, 0, 0), (1, 0, 126), (1, 65535, 2)]
)
def test_a_request_that_is_out_of_range_is_refused_before_anything_is_sent(wrong):
    meter = Meter()

    async def scenario(modbus):
        with pytest.raises(InvalidValue, match="write 1 to 125 registers"):
            await modbus.holding_registers(*wrong)

    asking(meter.receive, scenario)
    assert meter.asked == []


def test_requests_take_turns():
    async def scenario(modbus):
        return await asyncio.gather(*(modbus.input_registers(1, 0, 2) for _ in range(20)))

    assert set(asking(Meter().receive, scenario)) == {struct.pack(">f", 230.5)}


def test_a_path_will_do_and_anything_else_is_a_named_error():
    assert Modbus("/dev/nowhere", 2400, parity="E").health == SerialPort("/dev/nowhere", 2400).health
    with pytest.raises(InvalidType, match="port is 7"):
        Modbus(7)
