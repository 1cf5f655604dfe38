"""The Modbus adapter: reads and writes registers of meters, inverters and controls, over RTU or TCP (Modbus application
protocol 1.1b3)."""

import asyncio
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from leadsman.adapters.modbus import pdu
from leadsman.adapters.modbus.framing import Heard, ModbusFramer, ModbusRtuFramer, ModbusTcpFramer
from leadsman.adapters.modbus.pdu import Kind, ModbusRefused, ModbusRequest
from leadsman.adapters.modbus.plan import MAX_REFUSALS, Plan
from leadsman.adapters.modbus.table import Register, RegisterValue, Table
from leadsman.adapters.serial.port import PortAdapter, SerialPort, Session
from leadsman.core.loop.durations import Duration, human, seconds
from leadsman.core.text import clean, join_words
from leadsman.errors import (
    DeviceTimeout,
    DeviceUnavailable,
    GarbledData,
    InvalidType,
    InvalidValue,
    PayloadError,
    PermanentError,
)

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
        pause_between_requests: from an answer to the next request, for a device that needs it. RTU always has that of
            the protocol, 3.5 characters.
        pause_after_connect: from the opening of the port to the first request. Inverters from Huawei, which begin to
            talk to their own bus then, need 1 to 2 s (openhab/openhab-core#2926, evcc-io/evcc#31996).
        echo: the converter sends back what is sent; see `SerialPort`.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    def __init__(
        self,
        port: str | SerialPort,
        baudrate: int = 9600,
        *,
        parity: str = "N",
        timeout: Duration = 1.0,
        pause_between_requests: Duration = 0.0,
        pause_after_connect: Duration = 0.0,
        echo: bool = False,
    ) -> None:
        if echo and isinstance(port, SerialPort):
            raise InvalidValue("echo is set beside a SerialPort; write SerialPort(…, echo=True)")
        super().__init__(port, lambda url: _port(url, baudrate, parity, timeout, echo))
        framer = self._port.framer
        if not isinstance(framer, ModbusRtuFramer | ModbusTcpFramer):
            raise InvalidType(
                f"the framer of the port is {framer!r}; write ModbusRtuFramer() or ModbusTcpFramer(), from"
                " leadsman.adapters.modbus.framing"
            )
        self._framer: ModbusFramer = framer
        self._pause_between = seconds(pause_between_requests, "pause_between_requests")
        self._pause_after_connect = seconds(pause_after_connect, "pause_after_connect")
        self._ended_at = -math.inf
        """When the last exchange ended, in seconds of the loop."""
        self._plans: dict[tuple[int, Table, tuple[str, ...]], Plan] = {}
        """How to read from units that refuse some registers: by the unit, the table and the names."""
        self._transaction = 0
        self._numbers = False
        """Whether the last answer had the number of its request."""
        self._late: dict[int, float] = {}
        """Until when an answer may come that nobody waits for any more, by unit, in seconds of the loop. Over RTU it
        would pass for the next one, so the unit is not asked before; others are."""

    async def __aenter__(self) -> Self:
        """The port opens with the first read. Nothing is left of an earlier connection."""
        self._transaction, self._numbers = 0, False
        self._ended_at = -math.inf
        self._late.clear()
        self._plans.clear()
        return await super().__aenter__()

    async def read(self, unit: int, table: Table, names: Iterable[str] | None = None) -> dict[str, RegisterValue]:
        """Read the registers of a table, or some of them, in as few requests as its `gap` and `most` allow.

        A request that the device refuses is divided, until it is known which registers are refused. The next reads make
        the requests that the device answers. What is optional and was refused is asked for again after `ASKED_AGAIN`
        seconds.

        Args:
            unit: the device's address: 1 to 247; 0 to 255 over Modbus TCP.
            table: what its registers mean.
            names: of registers in the table; None: all.

        Raises:
            DeviceTimeout, DeviceUnavailable, GarbledData: there was no valid answer. A retry may help.
            TransientError: the device or its gateway is busy.
            ModbusRefused: the device does not have a register that is not optional, or none of all. Its `found` has
                the values of the others.
            InvalidValue: the unit is out of range, or the table has no such register.
        """
        chosen = table.registers if names is None else table.pick(names)
        key = (unit, table, tuple(chosen))
        plan = self._plan(key) if self._plans else None
        waiting = deque(table.blocks(chosen) if plan is None else plan.blocks)
        found: dict[str, RegisterValue] = {}
        refused: dict[str, ModbusRefused] = {}
        refusals: list[ModbusRefused] = []
        while waiting and (found or len(refusals) < MAX_REFUSALS):
            block = waiting.popleft()
            try:
                data = await self._exchange(unit, pdu.read(block.kind, block.first, block.size))
            except ModbusRefused as refusal:
                if plan is None:
                    plan = self._plans[key] = Plan(table, chosen, asyncio.get_running_loop().time())
                parts = plan.refuse(block)
                waiting.extend(parts)
                refusals.append(refusal)
                if not parts:
                    refused |= dict.fromkeys(block.names, refusal)
            else:
                found |= table.decode(block, data)
        if refusals and not found:
            raise _refused(refusals[0], chosen, {})
        if plan is not None:
            plan.settle()
        needed = [name for name in refused if not table.registers[name].optional]
        if needed:
            raise _refused(refused[needed[0]], needed, found)
        return {name: found.get(name) for name in chosen}

    def _plan(self, key: tuple[int, Table, tuple[str, ...]]) -> Plan | None:
        """What is known of a unit that refuses some registers."""
        now = asyncio.get_running_loop().time()
        self._plans = {each: plan for each, plan in self._plans.items() if now < plan.until}
        return self._plans.get(key)

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
            async with self._port.session(unit) as session:
                late = self._late.get(unit, 0.0) - asyncio.get_running_loop().time()
                if late <= 0 or self._framer.numbered:
                    return await self._ask(session, unit, request)
                session.unused()
            await asyncio.sleep(late)  # with the port open, so that a late answer is not the first one of a connection

    async def _ask(self, session: Session, unit: int, request: ModbusRequest) -> bytes:
        await asyncio.sleep(self._pause(session))
        await session.discard()
        self._transaction = (self._transaction + 1) & 0xFFFF
        noise = session.noise
        session.send(self._framer.wrap(request.pdu, unit, self._transaction))
        try:
            return await self._answer(session, unit, request, noise)
        except (GarbledData, DeviceTimeout, DeviceUnavailable, asyncio.CancelledError):
            self._late[unit] = asyncio.get_running_loop().time() + self._port.timeout_of(None)
            if not (session.was_cut and self._numbers):  # its answer may still come, and must be told from the next
                await session.give_up()
            raise
        finally:
            self._ended_at = asyncio.get_running_loop().time()

    def _pause(self, session: Session) -> float:
        """Seconds of silence before the next request."""
        since = asyncio.get_running_loop().time() - self._ended_at
        return max(
            self._framer.pause(self._port.baudrate),
            self._pause_between - since,
            self._pause_after_connect - session.open_for,
        )

    async def _answer(self, session: Session, unit: int, request: ModbusRequest, noise: int) -> bytes:
        """The content of the answer to a request. Other answers are passed over."""
        limit = self._port.timeout_of(None)
        stray = ""
        try:
            async with asyncio.timeout(limit):
                while True:
                    heard = self._framer.unwrap(await session.receive(1, limit))
                    stray = _stray(heard, unit, self._transaction)
                    if not stray:
                        self._numbers = 0 != heard.transaction == self._transaction
                        return request.answered(heard.pdu)
        except TimeoutError as late:
            if stray:
                raise GarbledData(f"{request.what}: {stray}") from late
            received = session.noise - noise
            if session.echo_fault:
                raise GarbledData(f"{request.what}: {session.echo_fault}") from late
            if received:
                raise GarbledData(
                    f"{request.what}: {received} bytes arrived, but no complete answer with a valid checksum; check "
                    "the baud rate, the parity and the wiring"
                ) from late
            raise DeviceTimeout(f"{request.what}: no answer from {self._port.url} within {human(limit)}") from late


THE_DEVICE_ITSELF = (0, 255)
"""Units of a device that is no gateway (Modbus messaging on TCP/IP 1.0b, 4.4.2). Some devices answer as one of them
whatever they are asked, and some with their own number."""


def _stray(heard: Heard, unit: int, transaction: int) -> str:
    """What an answer is instead of that to this request; empty if it is that.

    Over RTU it must be of the unit that was asked (Modbus over serial line 1.02, 2.4.1). Over TCP, devices also answer
    with the number 0 always (pymodbus-dev/pymodbus#2844, AndreasAmMueller/Modbus#18), and with that of the request with
    its bytes swapped (pymodbus-dev/pymodbus#2709). That does no harm: one request is under way at a time, what came
    before it is discarded, and a connection whose request failed is closed, so that no earlier answer can follow. One
    whose request was cut stays open if the answers on it have their numbers.
    """
    if heard.transaction is None:
        return "" if heard.unit == unit else f"an answer of unit {heard.unit}"
    if heard.transaction not in (0, transaction, (transaction & 0xFF) << 8 | transaction >> 8):
        return f"an answer to request {heard.transaction} instead of {transaction}"
    if heard.unit == unit or heard.unit in THE_DEVICE_ITSELF or unit in THE_DEVICE_ITSELF:
        return ""
    return f"an answer of unit {heard.unit}"


def _refused(refusal: ModbusRefused, names: Iterable[str], found: Mapping[str, RegisterValue]) -> ModbusRefused:
    """The error of a read, with what could be read."""
    hint = f": {join_words([*names][:_NAMED])}; write optional=True for what the device may lack" if found else ""
    error = ModbusRefused(f"{refusal}{hint}", refusal.code)
    error.found, error.refused = found, tuple(names)
    error.__cause__ = refusal
    return error


_NAMED = 5
"""Registers that an error names."""


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
        width, most = (1, pdu.MAX_WRITTEN_BITS) if register.kind == "coil" else (2, pdu.MAX_WRITTEN_REGISTERS)
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


def _port(url: str, baudrate: int, parity: str, timeout: Duration, echo: bool) -> SerialPort:
    """The port of a path or a URL."""
    if "/" not in url and ("." in url or ":" in url):  # an address
        raise InvalidValue(
            f"the port is {clean(url)!r}; write tcp://{clean(url)}, or a path such as '/dev/serial/by-id/…'"
        )
    if "://" in url and not url.startswith(_SCHEMES):
        raise InvalidValue(f"the port is {clean(url)!r}; write a path, or begin with one of {', '.join(_SCHEMES)}")
    if not url.startswith("tcp://"):
        return SerialPort(url, baudrate, parity=parity, framer=ModbusRtuFramer(), timeout=timeout, echo=echo)
    if echo:
        raise InvalidValue(f"echo is given for {clean(url)}, which does not send back what is sent; leave it out")
    try:
        parts = urlsplit(url)
        host, number = parts.hostname, TCP_PORT if parts.port is None else parts.port
    except ValueError:
        host = None
    if not host or parts.path not in ("", "/") or parts.username is not None:
        raise InvalidValue(f"the port is {clean(url)!r}; write tcp://host or tcp://host:{TCP_PORT}")
    address = f"[{host}]" if ":" in host else host
    return SerialPort(f"tcp://{address}:{number}", framer=ModbusTcpFramer(), timeout=timeout)


def _check_kept(unit: int, first: int, written: str, found: str) -> None:
    if found != written:
        raise PermanentError(f"unit {unit}, from {first}: the device holds {found} after {written} was written")


def _digits(values: Sequence[bool]) -> str:
    return "".join("1" if each else "0" for each in values)
