"""Modbus devices: a server that is not ours, on a pseudo-terminal and on TCP, beside the twin."""

import asyncio
import struct
import threading
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

import pytest

from leadsman import UNTIL_NEXT_POLL, App
from leadsman.adapters.modbus import Modbus, ModbusRefused, Register, Table
from leadsman.adapters.modbus.framing import ModbusRtuFramer, ModbusTcpFramer
from leadsman.errors import (
    DeviceTimeout,
    DeviceUnavailable,
    GarbledData,
    PermanentError,
    TransientError,
)
from leadsman.testing import ModbusTwin, ModbusUnit, PtyDevice, garbage
from leadsman_rigs.modbus_server import WAYS, ModbusServer

pytestmark = pytest.mark.system

TABLE = Table(
    {
        "volts": Register(0, "float32", kind="input"),
        "energy": Register(2, "uint32", kind="input", word_order="little", scale=0.1),
        "name": Register(4, "string", kind="input", length=3),
        "setpoint": Register(0, "int16", scale=0.1),
        "mode": Register(1, bits=(4, 6)),
        "alarm": Register(1, bits=0),
        "limit": Register(2, "float32"),
        "pump": Register(0, kind="coil"),
        "valve": Register(1, kind="coil"),
        "door": Register(1, kind="discrete"),
    },
    gap=2,
)
MEMORY = {
    "input": [0x4366, 0x199A, 0x0003, 0x0001, 0x5344, 0x4D31, 0x3200, *range(100, 200)],
    "holding": [0xFFDD, 0x0021, 0x4048, 0xF5C3, *range(200)],
    "coil": [False, True, *[False] * 2100],
    "discrete": [False, True],
}
VALUES = {
    "volts": 230.1,
    "energy": 6553.9,
    "name": "SDM12",
    "setpoint": -3.5,
    "mode": 2,
    "alarm": True,
    "limit": 3.14,
    "pump": False,
    "valve": True,
    "door": True,
}


class TestBoth:
    """What a device at the end of a real wire and a twin both do."""

    @pytest.fixture(params=[*WAYS, "twin", "tcp twin"])
    def there(self, request):
        if request.param in WAYS:
            with ModbusServer(request.param, {1: MEMORY, 2: {"holding": [7]}}) as server:
                yield SimpleNamespace(
                    modbus=Modbus(server.url, 19_200, timeout="2s"),
                    pause=server.pause,
                    go_on=lambda: asyncio.get_running_loop().call_later(0.2, server.go_on),
                )
            return
        units = {
            1: ModbusUnit({kind: dict(enumerate(values)) for kind, values in MEMORY.items()}),
            2: ModbusUnit({"holding": {0: 7}}),
        }
        framer = ModbusTcpFramer() if request.param == "tcp twin" else ModbusRtuFramer()
        twin = ModbusTwin(units, framer=framer, timeout="2s")

        def silence(silent):
            for unit in units.values():
                unit.silent = silent

        yield SimpleNamespace(modbus=twin, pause=lambda: silence(True), go_on=lambda: silence(False))

    def run(self, there, scenario):
        async def run():
            async with there.modbus as modbus:
                return await asyncio.wait_for(scenario(modbus), 60)

        return asyncio.run(run())

    def test_the_registers_of_a_table_are_read(self, there):
        async def scenario(modbus):
            return await modbus.read(1, TABLE), await modbus.read(1, TABLE, ["door", "volts"])

        assert self.run(there, scenario) == (VALUES, {"door": True, "volts": 230.1})

    def test_what_is_written_is_there(self, there):
        written = {"setpoint": 21.5, "limit": -1.25, "pump": True, "valve": False}

        async def scenario(modbus):
            await modbus.write(1, TABLE, written, verify=True)
            await modbus.write(1, TABLE, {"pump": False}, verify=True)
            await modbus.write_registers(2, 0, b"\x01\x02", verify=True)
            return await modbus.read(1, TABLE), await modbus.holding_registers(2, 0)

        found, other = self.run(there, scenario)

        assert found == {**VALUES, **written, "pump": False}
        assert other == b"\x01\x02"

    def test_as_much_is_read_and_written_as_the_protocol_allows(self, there):
        async def scenario(modbus):
            await modbus.write_registers(1, 0, bytes(range(246)), verify=True)
            await modbus.write_coils(1, 0, [True, False] * 984, verify=True)
            return await modbus.holding_registers(1, 0, 125), await modbus.coils(1, 0, 2000)

        registers, coils = self.run(there, scenario)

        assert registers[:246] == bytes(range(246))
        assert coils[:1968] == [True, False] * 984

    def test_an_address_that_is_not_there_is_refused_for_good(self, there):
        async def scenario(modbus):
            for call in (modbus.holding_registers(1, 5000), modbus.write_registers(1, 5000, b"ab")):
                with pytest.raises(PermanentError, match=r"5000: the device does not .* \(exception 2, illegal data"):
                    await call
            return await modbus.holding_registers(2, 0)

        assert self.run(there, scenario) == b"\x00\x07"

    def test_a_register_that_is_not_there_leaves_the_others(self, there):
        table = Table(
            {
                "first": Register(0, "float32", kind="input"),
                "new": Register(4999, kind="input", optional=True),
                "newer": Register(5000, kind="input", optional=True),
                "pump": Register(1, kind="coil"),
            },
            gap=125,
        )
        needed = Table({**table.registers, "newest": Register(5001, kind="input")})

        async def scenario(modbus):
            with pytest.raises(ModbusRefused, match="newest") as raised:
                await modbus.read(1, needed)
            return raised.value.found, [await modbus.read(1, table) for _ in range(2)]

        found, reads = self.run(there, scenario)

        assert found == {"first": 230.1, "pump": True}
        assert reads == [{"first": 230.1, "new": None, "newer": None, "pump": True}] * 2

    def test_calls_of_several_handlers_take_turns_on_a_bus_with_two_units(self, there):
        async def scenario(modbus):
            calls = (modbus.holding_registers(1 + n % 2, 0) for n in range(30))
            return await asyncio.gather(*calls)

        assert self.run(there, scenario) == [b"\xff\xdd", b"\x00\x07"] * 15

    def test_after_a_silence_the_right_answer_comes_and_not_the_one_that_is_late(self, there):
        async def scenario(modbus):
            assert await modbus.holding_registers(1, 0) == b"\xff\xdd"
            there.pause()
            with pytest.raises(DeviceTimeout, match="unit 1, 1 holding registers from 2: no answer from .* within 2s"):
                await modbus.holding_registers(1, 2)
            there.go_on()  # what is real answers the first request now
            return await modbus.holding_registers(1, 1)

        assert self.run(there, scenario) == b"\x00\x21"


VOLTS = struct.pack(">f", 230.5)


def other_unit(frame, framer):
    return framed(framer, frame, unit=9)


def shorter(frame, framer):
    return framed(framer, frame, pdu=b"\x04\x02\x43\x66")


def other_function(frame, framer):
    return framed(framer, frame, pdu=b"\x03\x04\x43\x66\x80\x00")


def refused(frame, framer):
    return framed(framer, frame, pdu=b"\x84\x06")


def other_checksum_or_transaction(frame, framer):
    return bytes((frame[0] ^ 1,)) + frame[1:]


def framed(framer, frame, unit=1, pdu=b"\x04\x04\x43\x66\x80\x00"):
    return framer.wrap(pdu, unit, int.from_bytes(frame[:2], "big") if framer.numbered else 0)


SPOILT = {
    "another unit": (other_unit, GarbledData, "an answer of unit 9"),
    "wrong length": (shorter, GarbledData, "an answer to another request, or one of a wrong length"),
    "another function": (other_function, GarbledData, "an answer to another request"),
    "checksum or transaction": (other_checksum_or_transaction, GarbledData, "no complete answer|an answer to request"),
    "busy": (refused, TransientError, "exception 6, server device busy"),
    "silence": (lambda frame, framer: b"", DeviceTimeout, "no answer from"),
    "half": (lambda frame, framer: frame[: len(frame) // 2], GarbledData, "no complete answer"),
    "noise": (lambda frame, framer: garbage(60), GarbledData, "no complete answer|another request"),
}
"""What comes instead of the first answer, and what it is called."""


class Wire:
    """A device at the end of a pseudo-terminal or a socket, of which a test decides what it answers."""

    def __init__(self, way, stack):
        self.framer = ModbusTcpFramer() if way == "tcp" else ModbusRtuFramer()
        self.spoil = []
        """What becomes of the next answers, in order: a function, or what comes before the end of the connection."""
        self.begun = ""
        """The end of an answer that is sent before the next one."""
        twin = ModbusTwin({1: ModbusUnit({"input": {0: 0x4366, 1: 0x8000}})}, framer=self.framer)
        self._answer = twin._receive
        self._open = True
        stack.callback(setattr, self, "_open", False)
        if way == "pty":
            self.pty = stack.enter_context(PtyDevice())
            self.port = self.pty.path
            threading.Thread(target=self._serve_pty, daemon=True).start()
        else:
            server = stack.enter_context(listening())
            self.port = f"{'tcp' if way == 'tcp' else 'socket'}://127.0.0.1:{server.getsockname()[1]}"
            threading.Thread(target=self._serve_socket, args=(server,), daemon=True).start()

    def answered(self, request):
        """The answer, and whether the connection ends behind it."""
        frame = self._answer(request)
        how = self.spoil.pop(0) if self.spoil else lambda frame, framer: frame
        if how in ("half, and the end", "whole, and the end"):
            return (frame[: len(frame) // 2] if how.startswith("half") else frame), True
        return how(frame, self.framer), False

    def _serve_pty(self):
        while self._open:
            request = self.pty.receive()
            if request:
                answer, ends = self.answered(request)
                self.pty.send(answer)
                if ends:
                    threading.Event().wait(0.1)
                    self.pty.unplug()
                    self.pty.plug()
            threading.Event().wait(0.001)

    def _serve_socket(self, server):
        while self._open:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                while request := received(connection):
                    answer, ends = self.answered(request)
                    connection.sendall(answer)
                    if ends:
                        break


@contextmanager
def listening():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server
        server.shutdown(socket.SHUT_RDWR)


def received(connection):
    try:
        return connection.recv(300)
    except OSError:
        return b""


@pytest.fixture(params=["pty", "rtu over tcp", "tcp"])
def wire(request):
    with ExitStack() as stack:
        yield Wire(request.param, stack)


def asking(wire, scenario):
    async def ask():
        async with Modbus(wire.port, timeout="300ms") as modbus:
            return await asyncio.wait_for(scenario(modbus), 60)

    return asyncio.run(ask())


@pytest.mark.parametrize("name", SPOILT)
def test_a_wrong_answer_is_a_named_error_and_the_next_one_unharmed(wire, name):
    spoil, kind, message = SPOILT[name]

    async def scenario(modbus):
        for _ in range(3):
            wire.spoil = [spoil]
            with pytest.raises(kind, match=message) as raised:
                await modbus.input_registers(1, 0, 2)
            assert str(raised.value).startswith("unit 1, 2 input registers from 0: ")
            assert await modbus.input_registers(1, 0, 2) == VOLTS

    asking(wire, scenario)


def test_half_an_answer_whose_rest_comes_before_the_next_one_costs_no_further_poll(wire):
    rest = []

    def half(frame, framer):
        rest.append(frame[len(frame) // 2 :])
        return frame[: len(frame) // 2]

    async def scenario(modbus):
        wire.spoil = [half, lambda frame, framer: frame if framer.numbered else rest[0] + frame]
        with pytest.raises(GarbledData):
            await modbus.input_registers(1, 0, 2)
        return await modbus.input_registers(1, 0, 2), await modbus.input_registers(1, 0, 2)

    assert asking(wire, scenario) == (VOLTS, VOLTS)


def test_a_connection_that_ends_in_the_middle_of_an_answer_is_opened_again(wire):
    async def scenario(modbus):
        for _ in range(2):
            wire.spoil = ["half, and the end"]
            with pytest.raises((DeviceUnavailable, GarbledData)):
                await modbus.input_registers(1, 0, 2)
            assert await modbus.input_registers(1, 0, 2) == VOLTS

    asking(wire, scenario)


def test_a_connection_that_a_device_closes_between_two_polls_costs_none(wire):
    """Many devices close a connection that is idle."""

    async def scenario(modbus):
        for _ in range(3):
            wire.spoil = ["whole, and the end"]
            assert await modbus.input_registers(1, 0, 2) == VOLTS
            await asyncio.sleep(0.4)

    asking(wire, scenario)


@pytest.mark.parametrize("way", ["rtu", "tcp"])
def test_units_that_are_dead_starve_no_other_on_their_line(mosquitto, listen, way):
    listener = listen(mosquitto.port)
    with ModbusServer(way, {4: MEMORY, 5: MEMORY}) as server:  # 1 to 3 do not answer
        app = App("sys", mqtt=mosquitto.url, adapters=(Modbus(server.url, 19_200, timeout="1s"),))

        def register(unit):
            @app.telemetry(f"meter-{unit}", interval="1s")
            async def meter(modbus: Modbus):
                return await modbus.read(unit, TABLE, ["volts"])

        for unit in range(1, 6):
            register(unit)

        async def run():
            serving = asyncio.create_task(app.serve())
            for unit in (4, 5):
                await asyncio.to_thread(listener.wait_for, f"sys/meter-{unit}/state", 5)
            await asyncio.to_thread(listener.wait_for, "sys/meter-1/error", 1)
            app.stop()
            return await serving

        assert asyncio.run(asyncio.wait_for(run(), 100)) == 0
    assert listener.on("sys/meter-1/state") == []


def test_an_app_publishes_through_a_server_that_is_away(mosquitto, listen):
    listener = listen(mosquitto.port)
    with ModbusServer("rtu", {1: MEMORY}) as server:
        app = App("sys", mqtt=mosquitto.url, adapters=(Modbus(server.url, 19_200, timeout="500ms"),))

        @app.telemetry("meter", interval="200ms", retry=UNTIL_NEXT_POLL)
        async def meter(modbus: Modbus):
            return await modbus.read(1, TABLE)

        async def run():
            serving = asyncio.create_task(app.serve())
            await asyncio.to_thread(listener.wait_for, "sys/meter/state", 2)
            server.unplug()
            await asyncio.to_thread(listener.wait_for, "sys/meter/error", 1)
            before = len(listener.on("sys/meter/state"))
            server.plug()
            await asyncio.to_thread(listener.wait_for, "sys/meter/state", before + 2)
            app.stop()
            return await serving

        assert asyncio.run(asyncio.wait_for(run(), 100)) == 0
    assert b'"volts":230.1' in listener.on("sys/meter/state")[0].payload
