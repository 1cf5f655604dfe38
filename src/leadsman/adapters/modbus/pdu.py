"""Requests of Modbus, and whether what a device sent is the answer to one (Modbus application protocol 1.1b3). Pure."""

import struct
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from leadsman.errors import GarbledData, InvalidType, InvalidValue, PermanentError, TransientError

Kind = Literal["holding", "input", "coil", "discrete"]
"""The four tables of a device (4.3): registers that may be written and that may not, bits that may and that may not."""
KINDS: tuple[Kind, ...] = ("holding", "input", "coil", "discrete")
MAX_REGISTERS, MAX_BITS = 125, 2000
"""In one request that reads (6.1 to 6.4)."""
MAX_WRITTEN_REGISTERS, MAX_WRITTEN_BITS = 123, 1968
"""In one request that writes (6.11, 6.12)."""
ADDRESSES = 0x10000
"""Of each table (4.4)."""
READS: dict[Kind, int] = {"coil": 1, "discrete": 2, "holding": 3, "input": 4}
"""Function codes (5.1)."""
BITS = ("coil", "discrete")
"""The tables of bits."""
_ON, _OFF = b"\xff\x00", b"\x00\x00"
"""The values of a single coil in a write (6.5)."""


EXCEPTIONS = {
    1: ("illegal function", "does not know this function"),
    2: ("illegal data address", "does not have all of these addresses"),
    3: ("illegal data value", "does not accept this number or value"),
    4: ("server device failure", "failed while it answered"),
    5: ("acknowledge", "needs more time"),
    6: ("server device busy", "is busy"),
    8: ("memory parity error", "found its memory damaged"),
    10: ("gateway path unavailable", "cannot be reached through its gateway"),
    11: ("gateway target device failed to respond", "did not answer its gateway"),
}
"""Exceptions of a device (7), by code: the name and the meaning."""
_FOR_GOOD = (1, 2, 3)
"""Codes with which the same request will be refused again."""


class ModbusRefused(PermanentError):
    """The device refused the request with the exception 1, 2 or 3. The same request will be refused again.

    Attributes:
        code: of the exception.
        found: what `Modbus.read` could read besides, by name.
        refused: the names that `Modbus.read` could not read.
    """

    __module__ = "leadsman.adapters.modbus"  # as policies in files name it

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
        self.found: Mapping[str, object] = {}
        self.refused: tuple[str, ...] = ()


class ModbusRequest(NamedTuple):
    """One request, and what its answer must look like."""

    function: int
    body: bytes
    echo: bytes
    """The first bytes of an answer, behind the function code."""
    size: int
    """Bytes of an answer behind these."""
    what: str
    """The request, for errors."""

    @property
    def pdu(self) -> bytes:
        """The message."""
        return bytes((self.function,)) + self.body

    def answered(self, pdu: bytes) -> bytes:
        """The content of an answer: registers or bits as they were sent, nothing after a write.

        Raises:
            ModbusRefused, TransientError: the device refuses; the message has the exception of the protocol.
            GarbledData: it is no answer to this request.
        """
        if len(pdu) == 2 and pdu[0] == self.function | 0x80:
            name, meaning = EXCEPTIONS.get(pdu[1], (None, "refuses"))
            code = str(pdu[1]) if name is None else f"{pdu[1]}, {name}"
            message = f"{self.what}: the device {meaning} (exception {code})"
            raise ModbusRefused(message, pdu[1]) if pdu[1] in _FOR_GOOD else TransientError(message)
        if len(pdu) < 2 or pdu[0] != self.function:
            raise GarbledData(f"{self.what}: an answer to another request: {pdu[:8].hex(' ')}")
        behind = 1 + len(self.echo)
        if pdu[1:behind] != self.echo or len(pdu) != behind + self.size:
            raise GarbledData(
                f"{self.what}: an answer to another request, or one of a wrong length ({len(pdu)} bytes instead of "
                f"{behind + self.size}): {pdu[:8].hex(' ')}"
            )
        return pdu[behind:]


def read(kind: Kind, first: int, count: int) -> ModbusRequest:
    """A request for `count` registers or bits. Raises `InvalidValue`."""
    _check_range(kind, first, count, MAX_BITS if kind in BITS else MAX_REGISTERS)
    size = (count + 7) // 8 if kind in BITS else 2 * count
    what = f"{count} {nouns(kind)} from {first}"
    return ModbusRequest(READS[kind], struct.pack(">HH", first, count), bytes((size,)), size, what)


def write_registers(first: int, data: bytes) -> ModbusRequest:
    """A request that writes holding registers: one with function 6, several with 16. Raises `InvalidValue`,
    `InvalidType`."""
    if not isinstance(data, bytes):
        raise InvalidType(f"data is {data!r}; write two bytes for each register, such as struct.pack('>H', 1)")
    count, odd = divmod(len(data), 2)
    _check_range("holding", first, 0 if odd else count, MAX_WRITTEN_REGISTERS)
    what = f"writing {count} {nouns('holding')} from {first}"
    if count == 1:
        body = struct.pack(">H", first) + data
        return ModbusRequest(6, body, body, 0, what)
    span = struct.pack(">HH", first, count)
    return ModbusRequest(16, span + bytes((len(data),)) + data, span, 0, what)


def write_coils(first: int, values: Sequence[bool]) -> ModbusRequest:
    """A request that writes coils: one with function 5, several with 15. Raises `InvalidValue`, `InvalidType`."""
    if not all(isinstance(each, bool) for each in values):
        raise InvalidType(f"values is {values!r}; write a list of True and False")
    _check_range("coil", first, len(values), MAX_WRITTEN_BITS)
    what = f"writing {len(values)} {nouns('coil')} from {first}"
    if len(values) == 1:
        body = struct.pack(">H", first) + (_ON if values[0] else _OFF)
        return ModbusRequest(5, body, body, 0, what)
    span, data = struct.pack(">HH", first, len(values)), packed(values)
    return ModbusRequest(15, span + bytes((len(data),)) + data, span, 0, what)


def packed(values: Sequence[bool]) -> bytes:
    """Bits as the protocol sends them: the first one is the lowest of the first byte (6.1)."""
    number = sum(1 << at for at, value in enumerate(values) if value)
    return number.to_bytes((len(values) + 7) // 8, "little")


def unpacked(data: bytes, count: int) -> list[bool]:
    """The first `count` bits of what `packed` gives."""
    number = int.from_bytes(data, "little")
    return [bool(number >> at & 1) for at in range(count)]


def nouns(kind: Kind) -> str:
    """The name of the entries of a table."""
    return {"coil": "coils", "discrete": "discrete inputs"}.get(kind, f"{kind} registers")


def _check_range(kind: Kind, first: int, count: int, most: int) -> None:
    whole = type(first) is int and type(count) is int
    if not (whole and 0 <= first < ADDRESSES and 1 <= count <= min(most, ADDRESSES - first)):
        raise InvalidValue(
            f"{count!r} {nouns(kind)} from {first!r}; write 1 to {most}, with addresses from 0 to {ADDRESSES - 1}"
        )
