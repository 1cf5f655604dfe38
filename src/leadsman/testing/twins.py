"""Twins: adapters for tests and dry runs, with a scripted device in memory instead of hardware.

A twin is a subclass of the real adapter, so that handlers get it by the same annotation. Only the wire is replaced:
locks, timeouts, framing and errors are those of the real adapter. One test suite covers both.
"""

import asyncio
import contextlib
import errno
import inspect
import json
import os
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import date, tzinfo
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from leadsman.adapters.ble.advertisement import Advertisement, check_address
from leadsman.adapters.ble.backend import AdvertisementListener, Backend, GattConnection
from leadsman.adapters.ble.gatt import uuid_of
from leadsman.adapters.ble.radio import BleRadio
from leadsman.adapters.caldav.backend import CalendarBackend, CalendarChanges
from leadsman.adapters.caldav.calendar import CalDav
from leadsman.adapters.http.client import HttpClient
from leadsman.adapters.http.wire import HttpReply, HttpRequest, Wire
from leadsman.adapters.i2c import I2c, I2cWire
from leadsman.adapters.i2c import check_address as check_chip
from leadsman.adapters.modbus.bus import Modbus
from leadsman.adapters.modbus.framing import ModbusFramer, ModbusRtuFramer, ModbusTcpFramer
from leadsman.adapters.modbus.pdu import BITS, KINDS, MAX_BITS, MAX_REGISTERS, READS, Kind, packed, unpacked
from leadsman.adapters.modbus.table import Table
from leadsman.adapters.onewire import OneWire, OneWireFiles, check_thermometer
from leadsman.adapters.program import MAX_OUTPUT_BYTES, Finished, Programs
from leadsman.adapters.serial.checksums import crc16_modbus, sum8
from leadsman.adapters.serial.port import Line, SerialPort
from leadsman.core.loop.durations import Duration
from leadsman.core.text.suggestion import suggestion
from leadsman.errors import DeviceUnavailable, PermanentError

ADVERTISING_INTERVAL = 0.2
"""Seconds between two advertisements of a device in memory."""

CharacteristicValue = bytes | Exception | Callable[[], bytes | Exception]
"""The result of reading a characteristic: bytes, an exception to raise, or a function that returns one of them."""


def _silent_device(data: bytes) -> bytes:
    return b""


class SerialTwin(SerialPort):
    """A `SerialPort` with a device in memory.

    Args:
        device: a function that gets the bytes sent to the port; it returns the bytes that the port receives.
        says: for a device that sends without requests: called repeatedly; returns the seconds until the next bytes,
            and the bytes.
        options: those of `SerialPort`, such as ``framer=``.
    """

    def __init__(
        self,
        device: Callable[[bytes], bytes] = _silent_device,
        *,
        says: Callable[[], tuple[float, bytes]] | None = None,
        **options: Any,
    ) -> None:
        super().__init__("twin", **options)
        self._device = device
        self._emit = says
        self._talking: asyncio.Task[None] | None = None
        self._line: Line | None = None
        self._there = True

    def check_installed(self) -> None:
        """A twin needs no library."""

    def send(self, data: bytes) -> None:
        """Let the device send bytes without a request. They are lost while the port is closed."""
        if self._line is not None and self._line.lost is None:
            self._line.data_received(data)

    def unplug(self) -> None:
        """Unplug the device: reading and opening raise `DeviceUnavailable`."""
        self._there = False
        if self._line is not None and self._line.lost is None:
            self._line.connection_lost(OSError(5, "unplugged"))

    def plug(self) -> None:
        """Plug the device in again."""
        self._there = True

    async def _open(self, connection: Line) -> None:
        if not self._there:
            raise DeviceUnavailable(f"{self.url} cannot be opened: the port does not exist; is the device plugged in?")
        self._line = connection
        connection.connection_made(_Wire(connection, self._device))
        if self._emit is not None:
            if self._talking is not None:
                self._talking.cancel()
            self._talking = asyncio.create_task(self._talk(self._emit, connection))

    async def _talk(self, emit: Callable[[], tuple[float, bytes]], connection: Line) -> None:
        while connection.lost is None:
            wait, data = emit()
            await asyncio.sleep(wait)
            if connection.lost is None:
                connection.data_received(data)


class _Wire(asyncio.Transport):
    """Between a connection and a device in memory."""

    def __init__(self, connection: Line, device: Callable[[bytes], bytes]) -> None:
        super().__init__()
        self._connection = connection
        self._device = device

    def write(self, data: bytes | bytearray | memoryview) -> None:
        answer = self._device(bytes(data))
        if answer:
            asyncio.get_running_loop().call_soon(self._heard, answer)

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._connection.lost is not None

    def abort(self) -> None:
        self._connection.connection_lost(None)

    def _heard(self, data: bytes) -> None:
        if self._connection.lost is None:
            self._connection.data_received(data)


class Boiler:
    """A simulated boiler without I/O: `receive` takes the bytes sent to it and returns its answer.

    Args:
        memory: bytes by address; a write to an address that does not exist is refused.
        protocol: ``P300`` or ``KW``.
    """

    def __init__(self, memory: Mapping[int, bytes], protocol: str = "P300") -> None:
        self.memory = {address: bytes(data) for address, data in memory.items()}
        self.writes: list[tuple[int, bytes]] = []
        """What was written, in order."""
        self.silent = False
        """Whether it hears nothing, as one that is switched off."""
        self._kw = protocol == "KW"
        self._ready = False
        self._buffer = bytearray()

    def restart(self) -> None:
        """Be switched off and on: it hears again, and has forgotten the session."""
        self.silent = self._ready = False
        self._buffer.clear()

    def beat(self) -> bytes:
        """The byte that it sends every two seconds while it has no session."""
        return b"" if self.silent or self._ready else b"\x05"

    def receive(self, data: bytes) -> bytes:
        """Hear `data` and answer."""
        if self.silent:
            return b""
        self._buffer += data
        answers = bytearray()
        while self._buffer and (answer := self._kw_step() if self._kw else self._p300_step()) is not None:
            answers += answer
        return bytes(answers)

    def _p300_step(self) -> bytes | None:
        buffer = self._buffer
        if buffer[0] == 0x04:
            del buffer[0]
            self._ready = False
            return b"\x05"
        if buffer[0] == 0x16:
            if len(buffer) < 3:
                return None
            self._ready = buffer[:3] == b"\x16\x00\x00"
            del buffer[:3]
            return b"\x06" if self._ready else b"\x15"
        if buffer[0] != 0x41 or not self._ready:
            del buffer[0]
            return b""  # an acknowledgement, or noise
        if len(buffer) < 2 or len(buffer) < buffer[1] + 3:
            return None
        content, check = bytes(buffer[1 : buffer[1] + 2]), buffer[buffer[1] + 2]
        del buffer[: len(content) + 2]
        if sum8(content) != check or len(content) < 6:
            return b"\x15"
        mode, address, length, data = content[2], int.from_bytes(content[3:5], "big"), content[5], content[6:]
        found = self._read(address, length) if mode == 1 else self._write(address, data)
        answer = bytes((3 if found is None else 1,)) + content[2:6] + (found or b"")
        answer = bytes((len(answer),)) + answer
        return b"\x06\x41" + answer + bytes((sum8(answer),))

    def _kw_step(self) -> bytes | None:
        buffer = self._buffer
        if buffer[0] not in (0xF7, 0xF4):
            del buffer[0]
            return b""  # the beginning of a session, or noise
        if len(buffer) < 4 or (buffer[0] == 0xF4 and len(buffer) < 4 + buffer[3]):
            return None
        address, length, writing = int.from_bytes(buffer[1:3], "big"), buffer[3], buffer[0] == 0xF4
        data = bytes(buffer[4 : 4 + length]) if writing else b""
        del buffer[: 4 + len(data)]
        if writing:
            return b"\x00" if self._write(address, data) is not None else b"\xff"
        return self._read(address, length) or b"\xff" * length

    def _read(self, address: int, length: int) -> bytes | None:
        found = self.memory.get(address, b"")
        return found[:length] if len(found) >= length else None

    def _write(self, address: int, data: bytes) -> bytes | None:
        if address not in self.memory:
            return None
        self.memory[address] = data
        self.writes.append((address, data))
        return b""


_READS = {function: kind for kind, function in READS.items()}
_WRITES: dict[int, Kind] = {5: "coil", 6: "holding", 15: "coil", 16: "holding"}


class ModbusUnit:
    """One device. Its memory may be changed at any time.

    Args:
        memory: what is at each address, by kind: ``{"holding": {0: 9600}, "coil": {3: True}}``. A request for an
            address that is not there is refused.
    """

    def __init__(self, memory: Mapping[Kind, Mapping[int, int]]) -> None:
        self.memory: dict[Kind, dict[int, int]] = {kind: dict(memory.get(kind, {})) for kind in KINDS}
        self.refuses: int | None = None
        """An exception code that it answers with, or None."""
        self.silent = False
        """Whether it does not answer."""
        self.requests: list[bytes] = []
        """What it was asked, in order: function codes and data."""

    @classmethod
    def of(cls, table: Table, values: Mapping[str, object]) -> Self:
        """A device with these values in its registers, and 0 between them. Registers that only have bits of a number
        hold 0, too. Raises as `Register.encode`."""
        unit = cls({})
        for block in table.blocks():
            unit.memory[block.kind].update(dict.fromkeys(range(block.first, block.first + block.size), 0))
        unit.put(table, values)
        return unit

    def put(self, table: Table, values: Mapping[str, object]) -> None:
        """Change values. Raises as `Register.encode`."""
        for name, register in table.pick(values).items():
            data = register.encode(values[name])
            words = data if register.kind in BITS else struct.unpack(f">{len(data) // 2}H", data)
            self.memory[register.kind].update(enumerate(words, register.address))

    def answer(self, pdu: bytes) -> bytes:
        """The answer to a request; empty if it does not."""
        self.requests.append(pdu)
        if self.silent:
            return b""
        refusal = self.refuses
        try:
            if refusal is None:
                return self._answer(pdu)
        except KeyError:
            refusal = 2
        except (ValueError, struct.error):
            refusal = 3
        return bytes((pdu[0] | 0x80, refusal))

    def _answer(self, pdu: bytes) -> bytes:
        function, body = pdu[0], pdu[1:]
        if function in _READS:
            return bytes((function,)) + self._read(_READS[function], *struct.unpack(">HH", body))
        if function not in _WRITES:
            return bytes((function | 0x80, 1))
        kind = _WRITES[function]
        first, number = struct.unpack(">HH", body[:4])
        values: list[int]
        if function == 5:
            values = [{0: 0, 0xFF00: 1}.get(number, -1)]
            if -1 in values:
                raise ValueError(number)
        elif function == 6:
            values = [number]
        elif function == 15:
            values = [*map(int, unpacked(body[5:], number))]
        else:
            values = [*struct.unpack(f">{number}H", body[5:])]
        memory = self.memory[kind]
        for address in range(first, first + len(values)):
            memory[address]  # refuses all if one does not exist
        memory.update(enumerate(values, first))
        return pdu[:5]

    def _read(self, kind: Kind, first: int, count: int) -> bytes:
        if not 1 <= count <= (MAX_BITS if kind in BITS else MAX_REGISTERS):
            raise ValueError(count)
        values = [self.memory[kind][address] for address in range(first, first + count)]
        data = packed([*map(bool, values)]) if kind in BITS else struct.pack(f">{count}H", *values)
        return bytes((len(data),)) + data


class ModbusTwin(Modbus):
    """A `Modbus` with devices in memory.

    Args:
        units: the devices by their addresses. A unit that is not there does not answer.
        framer: ``ModbusTcpFramer()`` for Modbus TCP; None: RTU.
        spoil: changes each answer on its way, for tests of what may come instead.
        timeout: for one answer.
    """

    def __init__(
        self,
        units: Mapping[int, ModbusUnit],
        *,
        framer: ModbusFramer | None = None,
        spoil: Callable[[bytes], bytes] | None = None,
        timeout: Duration = 1.0,
    ) -> None:
        self.units = dict(units)
        self._spoil = spoil
        self._wire = SerialTwin(self._receive, framer=framer or ModbusRtuFramer(), timeout=timeout)
        super().__init__(self._wire)

    def unplug(self) -> None:
        """Unplug the line: reading and opening raise `DeviceUnavailable`."""
        self._wire.unplug()

    def plug(self) -> None:
        """Plug the line in again."""
        self._wire.plug()

    def _receive(self, data: bytes) -> bytes:
        """One request, as the adapter writes it, and its answer."""
        if isinstance(self._framer, ModbusTcpFramer):
            transaction, unit, request = int.from_bytes(data[:2], "big"), data[6], data[7:]
        else:
            transaction, unit, request = 0, data[0], data[1:-2]
            assert crc16_modbus(data[:-2]).to_bytes(2, "little") == data[-2:]
        device = self.units.get(unit)
        answer = b"" if device is None else device.answer(request)
        frame = self._framer.wrap(answer, unit, transaction) if answer else b""
        return frame if self._spoil is None else self._spoil(frame)


Chip = Callable[[bytes, int], bytes]
"""A chip: it gets what is written and how many bytes are read, and returns these. It may raise `OSError`."""


class I2cRegisters:
    """A chip with 256 registers of eight bits. The first byte that is written chooses one; reading and writing count
    up.

    Args:
        registers: what they hold, from a register on: ``{0x0D: b"\\xff"}``. The others hold 0.
    """

    def __init__(self, registers: Mapping[int, bytes] | None = None) -> None:
        self.memory = bytearray(256)
        """The contents of the registers. They may be changed at any time."""
        self.fault: OSError | None = None
        """The error that each transfer raises, or None."""
        self._pointer = 0
        for register, data in (registers or {}).items():
            self.put(register, data)

    def put(self, register: int, data: bytes) -> None:
        """Change registers, from one on."""
        self.memory[register : register + len(data)] = data

    def __call__(self, data: bytes, count: int) -> bytes:
        """One transfer."""
        if self.fault is not None:
            raise self.fault
        if data:
            self._pointer = data[0]
        for value in data[1:]:
            self.memory[self._next()] = value
        return bytes(self.memory[self._next()] for _ in range(count))

    def _next(self) -> int:
        register = self._pointer
        self._pointer = (register + 1) % len(self.memory)
        return register


class I2cTwin(I2c):
    """An `I2c` with chips in memory.

    Args:
        chips: by their addresses. At an address that is not there, nothing answers.
        timeout: for one transfer.
    """

    def __init__(self, chips: Mapping[int, Chip] | None = None, *, timeout: Duration = 2.0) -> None:
        super().__init__("/dev/i2c-twin", timeout=timeout)
        self.chips = {check_chip(address): chip for address, chip in (chips or {}).items()}
        """The chips by their addresses. They may be changed at any time."""
        self.busy: set[int] = set()
        """Addresses that a driver of the kernel has."""
        self.refuses: OSError | None = None
        """The error that opening the bus raises, or None."""

    def unplug(self) -> None:
        """Unplug the adapter of the bus: transfers and opening raise `DeviceUnavailable`."""
        self.refuses = OSError(errno.ENOENT, os.strerror(errno.ENOENT))

    def plug(self) -> None:
        """Plug it in again."""
        self.refuses = None

    def check_installed(self) -> None:
        """A twin needs no library."""

    def _create_wire(self) -> I2cWire:
        return _TwinBus(self)


class _TwinBus:
    def __init__(self, twin: I2cTwin) -> None:
        self._twin = twin
        self.opened = False

    def open(self) -> None:
        if self._twin.refuses is not None and not self.opened:
            raise self._twin.refuses
        self.opened = True

    def transfer(self, address: int, data: bytes, count: int) -> bytes:
        if self._twin.refuses is not None:  # the bus has gone since it was opened
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        if address in self._twin.busy:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        if address not in self._twin.chips:
            raise OSError(errno.EREMOTEIO, os.strerror(errno.EREMOTEIO))
        return self._twin.chips[address](data, count)

    def close(self) -> None:
        self.opened = False


class OneWireTwin(OneWire):
    """A `OneWire` with thermometers in memory.

    Args:
        thermometers: by name, what each measures in degrees Celsius; or the whole content of its file; or an error that
            reading it raises.
        timeout: for one thermometer.
    """

    def __init__(
        self, thermometers: Mapping[str, float | str | OSError] | None = None, *, timeout: Duration = 10.0
    ) -> None:
        super().__init__("/w1/twin", timeout=timeout)
        self.measures = {check_thermometer(name): value for name, value in (thermometers or {}).items()}
        """The temperature at each thermometer. It may be changed at any time; one that is removed has gone."""
        self.refuses: OSError | None = None
        """The error that listing the thermometers raises, or None."""

    def _create_wire(self) -> OneWireFiles:
        return _TwinFiles(self)


class _TwinFiles:
    def __init__(self, twin: OneWireTwin) -> None:
        self._twin = twin

    def names(self) -> list[str]:
        if self._twin.refuses is not None:
            raise self._twin.refuses
        return ["w1_bus_master1", *self._twin.measures]

    def content(self, name: str) -> str:
        if name not in self._twin.measures:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        value = self._twin.measures[name]
        if isinstance(value, OSError):
            raise value
        return value if isinstance(value, str) else content_of(value)


def content_of(value: float) -> str:
    """The content of the file of a DS18B20 that measures `value`, in degrees Celsius, in steps of 1/16."""
    raw = round(value * 16)
    data = raw.to_bytes(2, "little", signed=True) + b"\x4b\x46\x7f\xff" + bytes((0x10 - raw % 0x10, 0x10))
    data += bytes((crc8(data),))
    return f"{data.hex(' ')} : crc={data[8]:02x} YES\n{data.hex(' ')} t={int(raw * 62.5)}\n"


def crc8(data: bytes) -> int:
    """The checksum of Maxim's one-wire devices (application note 27): x^8 + x^5 + x^4 + 1, the lowest bit first."""
    value = 0
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ 0x8C * (value & 1)
    return value


class TwinDevice:
    """A Bluetooth device in memory. Its attributes may be changed at any time.

    Args:
        address: such as ``AA:BB:CC:DD:EE:FF``.
        values: the values of its characteristics, by UUID: bytes, a function that returns them, or an exception to
            raise.
        name: the name that it advertises.
        manufacturer: advertised data by company identifier.
        service_data: advertised data by UUID.
        notifies: the notification that a client gets as soon as it subscribes, by UUID: bytes, or a function that
            returns them.
        answers: the notification that a subscriber gets when something is written, by UUID: a function that is given
            what was written and returns bytes, or None for no answer.
    """

    def __init__(
        self,
        address: str,
        values: Mapping[str, CharacteristicValue] | None = None,
        *,
        name: str | None = None,
        manufacturer: Mapping[int, bytes] | None = None,
        service_data: Mapping[str, bytes] | None = None,
        notifies: Mapping[str, bytes | Callable[[], bytes]] | None = None,
        answers: Mapping[str, Callable[[bytes], bytes | None]] | None = None,
    ) -> None:
        self.address = check_address(address)
        self.values = {uuid_of(uuid): value for uuid, value in (values or {}).items()}
        self.name = name
        self.manufacturer = dict(manufacturer or {})
        self.service_data = {uuid_of(uuid): data for uuid, data in (service_data or {}).items()}
        self.notifies = {uuid_of(uuid): data for uuid, data in (notifies or {}).items()}
        self.answers = {uuid_of(uuid): answer for uuid, answer in (answers or {}).items()}
        self.silent = False
        """Whether it is out of range: it then neither advertises nor answers."""
        self.refuses: Exception | None = None
        """An exception that connecting raises, or None."""
        self.written: list[tuple[str, bytes]] = []
        """The written values with their characteristics, in order."""
        self.connections = 0
        """The number of connections so far."""
        self._subscribers: dict[str, Callable[[bytes], None]] = {}
        self._lost: Callable[[], None] | None = None

    def notify(self, characteristic: str, data: bytes) -> None:
        """Send a notification to the subscriber."""
        on_notification = self._subscribers.get(uuid_of(characteristic))
        if on_notification is not None:
            on_notification(data)

    def hang_up(self) -> None:
        """End the connection."""
        lost, self._lost = self._lost, None
        self._subscribers.clear()
        if lost is not None:
            lost()

    def advertisement(self) -> Advertisement:
        """The advertisement that it sends."""
        return Advertisement(
            self.address, self.name, -60, tuple(self.service_data), dict(self.manufacturer), dict(self.service_data)
        )

    async def connect(self, lost: Callable[[], None]) -> Self:
        """Connect. This, and what follows, is called by the radio."""
        if self.silent:
            await asyncio.Event().wait()
        if self.refuses is not None:
            raise self.refuses
        self.connections += 1
        self._lost = lost
        return self

    def has(self, uuid: str) -> bool:
        """Whether it has a characteristic."""
        return uuid in self.values

    async def read(self, uuid: str) -> bytes:
        """The value of a characteristic."""
        value = self._value(uuid, "reading")
        value = value() if callable(value) else value
        if self.silent:
            await asyncio.Event().wait()
        if isinstance(value, Exception):
            raise value
        return bytes(value)

    async def write(self, uuid: str, data: bytes, response: bool | None) -> None:
        """Remember what was written, and send the notifications of `answers`."""
        self._value(uuid, "writing")
        self.written.append((uuid, data))
        for answering, answer in self.answers.items():
            notification = answer(data)
            if notification is not None:
                asyncio.get_running_loop().call_soon(self.notify, answering, notification)

    async def subscribe(self, uuid: str, on_notification: Callable[[bytes], None]) -> None:
        """Pass on notifications: those of `notify`, and the one that the device sends on subscription."""
        first = self.notifies.get(uuid)
        if first is None and uuid not in self.answers:
            self._value(uuid, "subscribing to")
        self._subscribers[uuid] = on_notification
        if first is not None:
            asyncio.get_running_loop().call_soon(self.notify, uuid, first() if callable(first) else first)

    async def unsubscribe(self, uuid: str) -> None:
        """Pass on no more notifications."""
        self._subscribers.pop(uuid, None)

    async def disconnect(self) -> None:
        """Called when the radio hangs up."""
        self._lost = None
        self._subscribers.clear()

    def _value(self, uuid: str, what: str) -> CharacteristicValue:
        if uuid not in self.values:
            raise PermanentError(f"{what} {uuid} of {self.address}: the device has no such characteristic")
        return self.values[uuid]


class BleTwin(BleRadio):
    """A `BleRadio` with devices in memory.

    Args:
        devices: the devices in range.
        options: those of `BleRadio`, such as ``find=``.
    """

    def __init__(self, *devices: TwinDevice, **options: Any) -> None:
        super().__init__(**options)
        self.devices = {device.address: device for device in devices}

    def check_installed(self) -> None:
        """A twin needs no library."""

    def _create_backend(self) -> Backend:
        return _TwinBackend(self.devices)


class _TwinBackend:
    def __init__(self, devices: Mapping[str, TwinDevice]) -> None:
        self._devices = devices
        self._task: asyncio.Task[None] | None = None

    async def start(self, on_advertisement: AdvertisementListener) -> None:
        async def advertise() -> None:
            while True:
                for device in self._devices.values():
                    if not device.silent:
                        on_advertisement(device.advertisement(), device)
                await asyncio.sleep(ADVERTISING_INTERVAL)

        self._task = asyncio.create_task(advertise())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def close(self) -> None:
        """Nothing is kept between scans."""

    async def connect(self, handle: TwinDevice, on_lost: Callable[[], None], timeout: float) -> GattConnection:
        return await handle.connect(on_lost)


class ProgramsTwin(Programs):
    """A `Programs` without processes.

    Args:
        program: a function that gets the program and its arguments, and returns what it writes to stdout, or an
            exception to raise, such as ``ProgramFailed("no such sensor", 1)``.
        most_bytes: as that of `Programs`.
    """

    def __init__(self, program: Callable[..., str | bytes | Exception], *, most_bytes: int = MAX_OUTPUT_BYTES) -> None:
        super().__init__(most_bytes=most_bytes)
        self._program = program

    async def _run(self, program: str, arguments: tuple[str, ...]) -> Finished:
        output = self._program(program, *arguments)
        if isinstance(output, Exception):
            raise output
        return Finished(0, output.encode() if isinstance(output, str) else output, b"")


MAX_REMEMBERED_REQUESTS = 1000
"""Requests that a twin remembers."""


Answer = Any
"""Content: bytes and text as they are, anything else as JSON. Or a `Recorded`, or a function, plain or async, that
takes the `HttpRequest` and returns one of these."""


class Recorded(NamedTuple):
    """An answer of a server, as it was recorded or written."""

    content: Answer = b""
    """Bytes and text as they are; anything else is sent as JSON."""
    status: int = 200
    headers: Mapping[str, str] = {}

    def as_sent(self) -> tuple[int, dict[str, str], bytes]:
        """The status, the headers with names in lower case, and the body."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        if isinstance(self.content, bytes | str):
            content = self.content.encode() if isinstance(self.content, str) else self.content
        else:
            content = json.dumps(self.content).encode()
            headers = {"content-type": "application/json", **headers}
        return self.status, headers, content


class Recordings:
    """Answers by their paths.

    Args:
        answers: by a path such as ``/status``, with its query if that matters, or by a whole URL.
    """

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.answers = dict(answers)
        """They may be changed at any time."""
        self.requests: deque[HttpRequest] = deque(maxlen=MAX_REMEMBERED_REQUESTS)
        """The newest requests."""
        self._first: dict[str, deque[Answer]] = {}

    def play(self, path: str, *answers: Answer) -> None:
        """Give these answers first, each of them once."""
        self._first.setdefault(path, deque()).extend(answers)

    async def answer(self, request: HttpRequest) -> tuple[int, dict[str, str], bytes]:
        """The answer: the status, the headers with names in lower case, and the body."""
        self.requests.append(request)
        parts = urlsplit(request.url)
        path = parts.path or "/"
        whole = request.url.partition("?")[0]
        for key in (request.url, whole, f"{path}?{parts.query}", path):
            if first := self._first.get(key):
                found = first.popleft()
                break
            if key in self.answers:
                found = self.answers[key]
                break
        else:
            found = Recorded(f"nothing is recorded for {path}; {suggestion(path, self.answers)}", 404)
        if callable(found):
            found = found(request)
            if inspect.isawaitable(found):
                found = await found
        status, headers, content = (found if isinstance(found, Recorded) else Recorded(found)).as_sent()
        if "etag" in headers and request.headers.get("If-None-Match") == headers["etag"]:
            return 304, {"etag": headers["etag"]}, b""
        return status, headers, content


class HttpTwin(HttpClient):
    """An `HttpClient` without a network. Whatever an answer goes through is that of `HttpClient`, but for the digest,
    which a twin does not ask for.

    Args:
        answers: see `Recordings`.
        url: as that of `HttpClient`; None where each call names a whole URL.
        options: those of `HttpClient`, such as ``token=``.
    """

    def __init__(
        self, answers: Mapping[str, Answer] | None = None, url: str | None = "http://twin.invalid", **options: Any
    ) -> None:
        self.recordings = Recordings(answers or {})
        """The answers. They may be changed at any time."""
        self._error: Exception | None = None
        super().__init__(url, **options)

    def play(self, path: str, *answers: Answer) -> None:
        """Give these answers first, each of them once."""
        self.recordings.play(path, *answers)

    def fail(self, error: Exception | None) -> None:
        """Raise this error at each request from now on; None answers normally again."""
        self._error = error

    def check_installed(self) -> None:
        """A twin needs no library."""

    def _make_wire(self) -> Wire:
        return _Played(self.recordings, lambda: self._error)


class _Played:
    def __init__(self, recordings: Recordings, error: Callable[[], Exception | None]) -> None:
        self._recordings = recordings
        self._error = error

    @contextlib.asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncIterator[HttpReply]:
        if (error := self._error()) is not None:
            raise error
        status, headers, content = await self._recordings.answer(request)
        yield HttpReply(status, headers, _in_pieces(content))

    async def close(self) -> None:
        pass


async def _in_pieces(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), 65536):
        yield content[start : start + 65536]


class CalDavTwin(CalDav):
    """A `CalDav` with calendars in memory.

    Args:
        calendars: iCalendar texts by the calendar's name; a text may contain several events.
        options: those of `CalDav`, such as ``zone=``.
    """

    def __init__(self, calendars: Mapping[str, Iterable[str]] | None = None, **options: Any) -> None:
        self.texts = {name: list(texts) for name, texts in (calendars or {}).items()}
        """The contents of the calendars. They may be changed at any time."""
        self._store = _TwinCalendars(self.texts)
        super().__init__("https://twin.invalid/", **options)

    def fail(self, error: Exception | None) -> None:
        """Raise this error from now on; None answers normally again."""
        self._store.error = error

    def _create_backend(self) -> CalendarBackend:
        return self._store


class _TwinCalendars:
    def __init__(self, texts: dict[str, list[str]]) -> None:
        self.texts = texts
        self.error: Exception | None = None
        self.searches = 0

    def search(self, calendar: str | None, start: date, end: date, zone: tzinfo) -> list[str]:
        return self.search_all(calendar)

    def search_all(self, calendar: str | None) -> list[str]:
        self.searches += 1
        return list(self._texts(calendar))

    def changes(self, calendar: str | None, token: str | None) -> CalendarChanges:
        texts = self._texts(calendar)
        now = str(hash(tuple(texts)))
        return CalendarChanges(now, 0 if now == token else len(texts))

    def names(self) -> list[str]:
        self._answer()
        return list(self.texts)

    def close(self) -> None:
        pass

    def _texts(self, calendar: str | None) -> list[str]:
        self._answer()
        if calendar is None:
            return [text for texts in self.texts.values() for text in texts]
        if calendar not in self.texts:
            raise PermanentError(f"there is no calendar {calendar!r}; {suggestion(calendar, self.texts)}")
        return self.texts[calendar]

    def _answer(self) -> None:
        if self.error is not None:
            raise self.error
