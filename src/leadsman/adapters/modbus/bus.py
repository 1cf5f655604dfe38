"""The Modbus adapter: reads and writes registers of meters, inverters and controls, over RTU or TCP (Modbus application
protocol 1.1b3)."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from leadsman.adapters.modbus import pdu
from leadsman.adapters.modbus.framing import ModbusFramer, ModbusRtuFramer, ModbusTcpFramer
from leadsman.adapters.modbus.pdu import Kind, ModbusRequest
from leadsman.adapters.modbus.table import Register, RegisterValue, Table
from leadsman.adapters.serial.port import PortAdapter, SerialPort, Session
from leadsman.errors import (
    DeviceTimeout,
    DeviceUnavailable,
    GarbledData,
    InvalidType,
    InvalidValue,
    PayloadError,
    PermanentError,
)
from leadsman.loop.durations import Duration, human
from leadsman.text import clean

TCP_PORT = 502
"""Of Modbus TCP (Modbus messaging on TCP/IP 1.0b, 3.1.1)."""
_SCHEMES = ("tcp://", "socket://", "rfc2217://")


class Modbus(PortAdapter):
    """The devices behind one serial line, one gateway or one address, each with a unit address. Requests take turns.

    Args:
        port: a path such as ``/dev/serial/by-id/usb-…``; ``tcp://host`` or ``tcp://host:502`` for Modbus TCP;
            ``socket://host:port`` or ``rfc2217://host:port`` for a gateway that forwards RTU frames; or a `SerialPort`
            of your own, with ``framer=ModbusRtuFramer()`` or ``framer=ModbusTcpFramer()``.
        baudrate: of a path.
        parity: of a path: ``N``, ``E`` or ``O``.
        timeout: for one answer.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    def __init__(
        self, port: str | SerialPort, baudrate: int = 9600, *, parity: str = "N", timeout: Duration = 1.0
    ) -> None:
        super().__init__(port, lambda url: _port(url, baudrate, parity, timeout))
        framer = self._port.framer
        if not isinstance(framer, ModbusRtuFramer | ModbusTcpFramer):
            raise InvalidType(
                f"the framer of the port is {framer!r}; write ModbusRtuFramer() or ModbusTcpFramer(), from"
                " leadsman.adapters.modbus.framing"
            )
        self._framer: ModbusFramer = framer
        self._transaction = 0
        self._late: dict[int, float] = {}
        """Until when an answer may come that nobody waits for any more, by unit, in seconds of the loop. Over RTU it
        would pass for the next one, so the unit is not asked before; others are."""

    async def __aenter__(self) -> Self:
        """The port opens with the first read. Nothing is left of an earlier connection."""
        self._transaction = 0
        self._late.clear()
        return await super().__aenter__()

    async def read(self, unit: int, table: Table, names: Iterable[str] | None = None) -> dict[str, RegisterValue]:
        """Read the registers of a table, or some of them, in as few requests as its `gap` and `most` allow.

        Args:
            unit: the device's address: 1 to 247; 0 to 255 over Modbus TCP.
            table: what its registers mean.
            names: of registers in the table; None: all.

        Raises:
            DeviceTimeout, DeviceUnavailable, GarbledData: there was no valid answer. A retry may help.
            TransientError: the device or its gateway is busy.
            PermanentError: the device does not have these registers.
            InvalidValue: the unit is out of range, or the table has no such register.
        """
        chosen = table.registers if names is None else table.pick(names)
        found: dict[str, RegisterValue] = {}
        for block in table.blocks(chosen):
            data = await self._exchange(unit, pdu.read(block.kind, block.first, block.size))
            found |= table.decode(block, data)
        return {name: found[name] for name in chosen}

    async def write(self, unit: int, table: Table, values: Mapping[str, object], *, verify: bool = False) -> None:
        """Write holding registers and coils of a table. Those that adjoin go in one request. All values are checked
        before the first request.

        Args:
            unit: as in `read`.
            table: what its registers mean.
            values: by name.
            verify: read the written registers back.

        Raises:
            PayloadError: a register cannot hold its value, or is read-only.
            PermanentError: the device does not take the value, or holds another one after it was written.
            DeviceTimeout, DeviceUnavailable, GarbledData, TransientError, InvalidValue: as `read`.
        """
        for write in _writes(table.pick(values), values):
            if write.kind == "coil":
                await self.write_coils(unit, write.first, [each != 0 for each in write.data], verify=verify)
            else:
                await self.write_registers(unit, write.first, write.data, verify=verify)

    async def input_registers(self, unit: int, register: int, count: int = 1) -> bytes:
        """Read input registers. Each has two bytes, the high byte first; ``struct.unpack(">f", …)`` decodes two
        registers as a float.

        Args:
            unit: as in `read`.
            register: the first register, 0 to 65535, as it is sent: 0 where a manual calls it 30001.
            count: the number of registers, 1 to 125.

        Raises:
            DeviceTimeout, DeviceUnavailable, GarbledData, TransientError, PermanentError: as `read`.
            InvalidValue: an argument is out of range.
        """
        return await self._exchange(unit, pdu.read("input", register, count))

    async def holding_registers(self, unit: int, register: int, count: int = 1) -> bytes:
        """Read holding registers, which a manual calls 40001 and up. As `input_registers`."""
        return await self._exchange(unit, pdu.read("holding", register, count))

    async def coils(self, unit: int, first: int, count: int = 1) -> list[bool]:
        """Read 1 to 2000 coils. Raises as `input_registers`."""
        return pdu.unpacked(await self._exchange(unit, pdu.read("coil", first, count)), count)

    async def discrete_inputs(self, unit: int, first: int, count: int = 1) -> list[bool]:
        """Read 1 to 2000 discrete inputs. Raises as `input_registers`."""
        return pdu.unpacked(await self._exchange(unit, pdu.read("discrete", first, count)), count)

    async def write_registers(self, unit: int, first: int, data: bytes, *, verify: bool = False) -> None:
        """Write 1 to 123 holding registers, two bytes each: one with function 6, several with 16. With `verify`, read
        them back. Raises as `input_registers`, `PermanentError` if the device holds something else, and `InvalidType`
        if `data` is not bytes."""
        await self._exchange(unit, pdu.write_registers(first, data))
        if verify:
            found = await self.holding_registers(unit, first, len(data) // 2)
            _check_kept(unit, first, data.hex(" ", 2), found.hex(" ", 2))

    async def write_coils(self, unit: int, first: int, values: Sequence[bool], *, verify: bool = False) -> None:
        """Write 1 to 1968 coils: one with function 5, several with 15. As `write_registers`."""
        await self._exchange(unit, pdu.write_coils(first, values))
        if verify:
            found = await self.coils(unit, first, len(values))
            _check_kept(unit, first, _digits(values), _digits(found))

    async def _exchange(self, unit: int, request: ModbusRequest) -> bytes:
        if type(unit) is not int or unit not in self._framer.units:
            units = self._framer.units
            raise InvalidValue(f"unit is {unit!r}; write {units[0]} to {units[-1]}")
        request = request._replace(what=f"unit {unit}, {request.what}")
        while True:
            async with self._port.session() as session:
                late = self._late.get(unit, 0.0) - asyncio.get_running_loop().time()
                if late <= 0 or self._framer.numbered:
                    return await self._ask(session, unit, request)
            await asyncio.sleep(late)  # with the port open, so that a late answer is not the first one of a connection

    async def _ask(self, session: Session, unit: int, request: ModbusRequest) -> bytes:
        await asyncio.sleep(self._framer.pause(self._port.baudrate))
        await session.discard()
        self._transaction = (self._transaction + 1) & 0xFFFF
        noise = session.noise
        session.send(self._framer.wrap(request.pdu, unit, self._transaction))
        try:
            return await self._answer(session, unit, request, noise)
        except (GarbledData, DeviceTimeout, DeviceUnavailable, asyncio.CancelledError):
            self._late[unit] = asyncio.get_running_loop().time() + self._port.timeout_of(None)
            await session.give_up()
            raise

    async def _answer(self, session: Session, unit: int, request: ModbusRequest, noise: int) -> bytes:
        """The content of the answer to a request. Answers of other units are passed over (Modbus over serial line 1.02,
        2.4.1), and over TCP those to earlier requests."""
        limit = self._port.timeout_of(None)
        stray = ""
        try:
            async with asyncio.timeout(limit):
                while True:
                    heard = self._framer.unwrap(await session.receive(1, limit))
                    if heard.transaction not in (None, self._transaction):
                        stray = f"an answer to request {heard.transaction} instead of {self._transaction}"
                    elif heard.unit != unit:
                        stray = f"an answer of unit {heard.unit}"
                    else:
                        return request.answered(heard.pdu)
        except TimeoutError as late:
            if stray:
                raise GarbledData(f"{request.what}: {stray}") from late
            received = session.noise - noise
            if received:
                raise GarbledData(
                    f"{request.what}: {received} bytes arrived, but no complete answer with a valid checksum; check "
                    "the baud rate, the parity and the wiring"
                ) from late
            raise DeviceTimeout(f"{request.what}: no answer from {self._port.url} within {human(limit)}") from late


class _Write(NamedTuple):
    """Holding registers or coils that one request writes."""

    kind: Kind
    first: int
    data: bytes
    """Two bytes for each register, one for each coil."""


def _writes(registers: Mapping[str, Register], values: Mapping[str, object]) -> list[_Write]:
    """The writes, joined where registers adjoin."""
    found: list[_Write] = []
    ordered = sorted(registers.items(), key=lambda each: (each[1].kind, each[1].address))
    for name, register in ordered:
        if register.kind not in ("holding", "coil"):
            raise PayloadError(f"{name} is read-only: it is one of the {pdu.nouns(register.kind)}")
        try:
            data = register.encode(values[name])
        except PayloadError as error:
            raise PayloadError(f"{name}: {clean(str(error))}") from None
        except InvalidValue as error:
            raise InvalidValue(f"{name}: {error}") from None
        width, most = (1, pdu.MOST_WRITTEN_BITS) if register.kind == "coil" else (2, pdu.MOST_WRITTEN_REGISTERS)
        last = found[-1] if found else None
        if (
            last is not None
            and last.kind == register.kind
            and last.first + len(last.data) // width == register.address
            and len(last.data) + len(data) <= most * width
        ):
            found[-1] = last._replace(data=last.data + data)
        else:
            found.append(_Write(register.kind, register.address, data))
    return found


def _port(url: str, baudrate: int, parity: str, timeout: Duration) -> SerialPort:
    """The port of a path or a URL."""
    if "/" not in url and ("." in url or ":" in url):  # an address
        raise InvalidValue(
            f"the port is {clean(url)!r}; write tcp://{clean(url)}, or a path such as '/dev/serial/by-id/…'"
        )
    if "://" in url and not url.startswith(_SCHEMES):
        raise InvalidValue(f"the port is {clean(url)!r}; write a path, or begin with one of {', '.join(_SCHEMES)}")
    if not url.startswith("tcp://"):
        return SerialPort(url, baudrate, parity=parity, framer=ModbusRtuFramer(), timeout=timeout)
    try:
        parts = urlsplit(url)
        host, number = parts.hostname, TCP_PORT if parts.port is None else parts.port
    except ValueError:
        host = None
    if not host or parts.path not in ("", "/") or parts.username is not None:
        raise InvalidValue(f"the port is {clean(url)!r}; write tcp://host or tcp://host:{TCP_PORT}")
    address = f"[{host}]" if ":" in host else host
    return SerialPort(f"socket://{address}:{number}", framer=ModbusTcpFramer(), timeout=timeout)


def _check_kept(unit: int, first: int, written: str, found: str) -> None:
    if found != written:
        raise PermanentError(f"unit {unit}, from {first}: the device holds {found} after {written} was written")


def _digits(values: Sequence[bool]) -> str:
    return "".join("1" if each else "0" for each in values)
