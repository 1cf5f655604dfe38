"""A simulated serial line or address with Modbus devices, at the level of their registers."""

import struct
from collections.abc import Callable, Mapping
from typing import Self

from leadsman.adapters.modbus.bus import Modbus
from leadsman.adapters.modbus.framing import ModbusFramer, ModbusRtuFramer, ModbusTcpFramer
from leadsman.adapters.modbus.pdu import BITS, KINDS, MOST_BITS, MOST_REGISTERS, READS, Kind, packed, unpacked
from leadsman.adapters.modbus.table import Table
from leadsman.adapters.serial.checksums import crc16_modbus
from leadsman.loop.durations import Duration
from leadsman.testing.twins import SerialTwin

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
        """What it answers to a request; empty if it does not."""
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
        if not 1 <= count <= (MOST_BITS if kind in BITS else MOST_REGISTERS):
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
