"""How a Modbus message travels: RTU frames on a serial line, and the frames of Modbus TCP. Both are framers of a
`SerialPort`, which find answers, and they wrap requests. Pure."""

from typing import NamedTuple

from leadsman.adapters.serial.checksums import crc16_modbus
from leadsman.adapters.serial.framing import Behind, Found, whole_behind
from leadsman.core.value import Value
from leadsman.errors import InvalidValue

MAX_PDU_BYTES = 253
"""Bytes of a message without its frame (Modbus application protocol 1.1b3, 4.1)."""
MIDDLE_PAUSE = 0.00175
"""Seconds between two frames above 19,200 baud (Modbus over serial line 1.02, 2.5.1.1)."""
_HEADER = 6
"""Bytes of a frame of Modbus TCP before those that its length counts (Modbus messaging on TCP/IP 1.0b, 3.1.3)."""


class Heard(NamedTuple):
    """A message without its frame."""

    transaction: int | None
    """The number of the request that it answers; None where frames have none."""
    unit: int
    """The address of the device."""
    pdu: bytes
    """Function code and data."""


class ModbusRtuFramer(Value):
    """Answers of Modbus RTU devices (Modbus over serial line 1.02): address, function code and data, without the CRC.

    The pause of 3.5 characters that separates frames is not visible through a buffered port, so the length is derived
    from the function code. Function codes that do not determine it (8, 43) are treated as garbage.

    A driver that switches its direction may put a byte before each answer (pyhys/minimalmodbus#61), which then looks
    like the beginning of a longer one. What was asked is found behind it at once, anything else when the line is quiet.

    Args:
        asked: the unit and the function code of the request; empty: not known. `SerialPort.request` and `Modbus` see to
            that by themselves.
    """

    __slots__ = ("asked",)
    asked: bytes
    max_size = 256
    """Modbus over serial line 1.02, 2.5.1."""
    units = range(1, 248)
    """The addresses of devices (Modbus over serial line 1.02, 2.2)."""
    numbered = False
    """An answer does not name its request."""

    def __init__(self, asked: bytes = b"") -> None:
        self._hold(asked=asked)

    def answering(self, request: bytes) -> "ModbusRtuFramer":
        """See `AnswerFramer`."""
        return ModbusRtuFramer(request[:2])

    def find(self, buffer: bytearray, start: int) -> Found:
        content, behind = self._frame(buffer, start)
        if content is None and behind == start and len(self.asked) == 2:
            unit, function = self.asked
            at = start
            while (at := buffer.find(unit, at + 1)) >= 0:
                answers = buffer[at + 1 : at + 2] in (bytes((function,)), bytes((function | 0x80,)))
                if answers and self._frame(buffer, at)[0] is not None:
                    return None, at
        return content, behind

    def settle(self, buffer: bytearray) -> Behind | None:
        """See `SettlesFramer`."""
        return whole_behind(self, buffer)

    def _frame(self, buffer: bytearray, start: int) -> Found:
        waiting = len(buffer) - start
        if waiting < 3:
            return None, start
        size = _rtu_size(buffer[start + 1], buffer[start + 2])
        if size == 0 or size > self.max_size:
            return None, start + 1
        if waiting < size:
            return None, start
        content, behind = bytes(buffer[start : start + size - 2]), start + size
        if crc16_modbus(content) != int.from_bytes(buffer[behind - 2 : behind], "little"):
            return None, start + 1
        return content, behind

    def wrap(self, pdu: bytes, unit: int, transaction: int = 0) -> bytes:
        """Make a frame with its CRC: ``wrap(struct.pack(">BHH", 3, register, count), 1)`` reads holding registers of
        unit 1.

        Raises:
            InvalidValue: a unit outside 0 to 247, or a message that has not 1 to 253 bytes. 0 is a broadcast, which no
                device answers.
        """
        _check(pdu, unit, 247)
        content = bytes((unit,)) + pdu
        return content + crc16_modbus(content).to_bytes(2, "little")

    def unwrap(self, message: bytes) -> Heard:
        """Take a message that `find` found apart."""
        return Heard(None, message[0], message[1:])

    def pause(self, baudrate: int) -> float:
        """Seconds of silence before a frame: 3.5 characters of 11 bits (Modbus over serial line 1.02, 2.5.1.1)."""
        return max(3.5 * 11 / baudrate, MIDDLE_PAUSE)


class ModbusTcpFramer(Value):
    """Answers of Modbus TCP devices (Modbus messaging on TCP/IP 1.0b, 3.1.3): the number of the transaction, unit,
    function code and data.

    Bytes that cannot be the beginning of a frame are discarded one by one, since there is no checksum to trust.
    """

    __slots__ = ()
    max_size = 260
    """Modbus messaging on TCP/IP 1.0b, 3.1.2."""
    units = range(256)
    """A device that is no gateway ignores the unit, or wants 255 or 0 (Modbus messaging on TCP/IP 1.0b, 4.4.2)."""
    numbered = True
    """An answer has the number of its request."""

    def find(self, buffer: bytearray, start: int) -> Found:
        waiting = len(buffer) - start
        if waiting < _HEADER:
            return None, start
        length = int.from_bytes(buffer[start + 4 : start + 6], "big")
        if buffer[start + 2] or buffer[start + 3] or not 3 <= length <= MAX_PDU_BYTES + 1:
            return None, start + 1
        behind = start + _HEADER + length
        if len(buffer) < behind:
            return None, start
        return bytes(buffer[start : start + 2] + buffer[start + _HEADER : behind]), behind

    def wrap(self, pdu: bytes, unit: int, transaction: int = 0) -> bytes:
        """Make a frame.

        Raises:
            InvalidValue: a unit outside 0 to 255, or a message that has not 1 to 253 bytes.
        """
        _check(pdu, unit, 255)
        length = (1 + len(pdu)).to_bytes(2, "big")
        return (transaction & 0xFFFF).to_bytes(2, "big") + b"\0\0" + length + bytes((unit,)) + pdu

    def unwrap(self, message: bytes) -> Heard:
        """Take a message that `find` found apart."""
        return Heard(int.from_bytes(message[:2], "big"), message[2], message[3:])

    def pause(self, baudrate: int) -> float:
        """No pause: each frame has its length."""
        return 0.0


ModbusFramer = ModbusRtuFramer | ModbusTcpFramer


def _rtu_size(function: int, count: int) -> int:
    """Bytes of an answer (Modbus application protocol 1.1b3, 6); 0 if the function is unknown."""
    if function in (1, 2, 3, 4, 12, 17, 20, 21, 23):
        return count + 5
    if function in (5, 6, 15, 16):
        return 8
    if function == 22:
        return 10
    if function == 7 or 0x81 <= function <= 0x97:
        return 5
    return 0


def _check(pdu: bytes, unit: int, highest: int) -> None:
    if not 0 <= unit <= highest or not 1 <= len(pdu) <= MAX_PDU_BYTES:
        raise InvalidValue(
            f"unit {unit} and a message of {len(pdu)} bytes; they must be 0 to {highest}, and 1 to {MAX_PDU_BYTES} "
            "bytes"
        )
