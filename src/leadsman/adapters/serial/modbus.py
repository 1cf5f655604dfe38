"""The Modbus RTU adapter: reads registers of meters and inverters over a serial port (Modbus application protocol
1.1b3)."""

import asyncio
import struct

from leadsman.adapters.serial.metering import ModbusRtuFramer, modbus_request
from leadsman.adapters.serial.port import PortAdapter, SerialPort
from leadsman.errors import GarbledData, InvalidValue, PermanentError, TransientError
from leadsman.loop.durations import Duration

MOST = 125
"""Registers in one request (6.3, 6.4)."""
_HOLDING, _INPUT = 3, 4
"""Function codes."""
_SILENCE = 0.005
"""Seconds before a request: 3.5 characters at 9600 baud (Modbus over serial line 1.02, 2.5.1.1)."""
_REFUSALS = {
    1: "does not know this function",
    2: "does not have these registers",
    3: "does not take this number of registers",
    4: "failed while it answered",
    5: "needs more time",
    6: "is busy",
    8: "found its memory damaged",
    10: "cannot be reached through its gateway",
    11: "did not answer its gateway",
}
"""Exception codes (7)."""
_FOR_GOOD = (1, 2, 3)


class Modbus(PortAdapter):
    """The devices on one serial line, each with a unit address. Requests take turns.

    Args:
        port: a path such as ``/dev/serial/by-id/usb-…``, a gateway such as ``socket://host:port`` that forwards RTU
            frames, or a `SerialPort` of your own with ``framer=ModbusRtuFramer()``.
        baudrate: of a path.
        parity: of a path: ``N``, ``E`` or ``O``.
        timeout: for one answer.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    def __init__(
        self, port: str | SerialPort, baudrate: int = 9600, *, parity: str = "N", timeout: Duration = 1.0
    ) -> None:
        super().__init__(
            port,
            lambda path: SerialPort(path, baudrate, parity=parity, framer=ModbusRtuFramer(), timeout=timeout),
        )

    async def input_registers(self, unit: int, register: int, count: int = 1) -> bytes:
        """Read input registers. Each has two bytes, the high byte first; ``struct.unpack(">f", …)`` decodes two
        registers as a float.

        Args:
            unit: the device's address, 1 to 247.
            register: the first register, 0 to 65535, as it is sent: 0 where a manual calls it 30001.
            count: the number of registers, 1 to 125.

        Raises:
            DeviceTimeout, DeviceUnavailable, GarbledData: there was no valid answer. A retry may help.
            TransientError: the device or its gateway is busy.
            PermanentError: the device does not have these registers.
            InvalidValue: an argument is out of range.
        """
        return await self._read(_INPUT, unit, register, count)

    async def holding_registers(self, unit: int, register: int, count: int = 1) -> bytes:
        """Read holding registers, which a manual calls 40001 and up. As `input_registers`."""
        return await self._read(_HOLDING, unit, register, count)

    async def _read(self, function: int, unit: int, register: int, count: int) -> bytes:
        if not (1 <= unit <= 247 and 0 <= register <= 0xFFFF and 1 <= count <= min(MOST, 0x10000 - register)):
            raise InvalidValue(
                f"{count!r} registers from {register!r} of unit {unit!r}; write 1 to {MOST} registers, "
                "from 0 to 65535, of a unit from 1 to 247"
            )
        async with self._port.session() as session:
            await asyncio.sleep(_SILENCE)
            await session.discard()
            session.send(modbus_request(unit, function, struct.pack(">HH", register, count)))
            return _registers(await session.receive(), function, unit, register, count)


def _registers(answer: bytes, function: int, unit: int, register: int, count: int) -> bytes:
    """What an answer holds, once it is seen to be the answer to this request."""
    what = f"unit {unit}, {count} registers from {register}"
    if answer[0] == unit and answer[1] == function | 0x80:
        code = answer[2]
        message = f"{what}: the device {_REFUSALS.get(code, 'refuses')} (exception {code})"
        raise PermanentError(message) if code in _FOR_GOOD else TransientError(message)
    if answer[:3] != bytes((unit, function, 2 * count)) or len(answer) != 3 + 2 * count:
        raise GarbledData(f"{what}: an answer to another request: {answer[:8].hex(' ')}")
    return answer[3:]
