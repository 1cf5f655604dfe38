"""A QMC5883L magnetometer on I²C: the adapter of this app.

Registers are those of QST's data sheet 1.0. Blocking calls go to a thread, since a bus that hangs must not stop the
app.
"""

import asyncio
import struct
from collections.abc import Callable
from typing import NamedTuple, Protocol, Self, TypeVar

from leadsman import Worker
from leadsman.errors import DeviceTimeout, DeviceUnavailable, GarbledData, LeadsmanError, PermanentError

DATA, CONTROL, PERIOD, CHIP = 0x00, 0x09, 0x0B, 0x0D
"""Registers."""
CONTINUOUS = 0b0001_0001 | 0b1100_0000
"""Continuous, 10 Hz, 8 G, 64 samples over each other."""
CHIP_ID = 0xFF
_TIMEOUT = 0.5
"""Seconds for one transfer, which takes a millisecond."""

_T = TypeVar("_T")


class Measurement(NamedTuple):
    """One measurement, in the units of the sensor."""

    x: int
    y: int
    z: int
    temperature: int


class Bus(Protocol):
    """The part of smbus2 that the sensor uses."""

    def write_byte_data(self, address: int, register: int, value: int) -> None: ...
    def read_i2c_block_data(self, address: int, register: int, length: int) -> list[int]: ...
    def close(self) -> None: ...


class Magnetometer:
    """The sensor. ``await sensor.read()`` gives the latest `Measurement`."""

    def __init__(self, bus: int = 1, address: int = 0x0D, *, open_bus: Callable[[int], Bus] | None = None) -> None:
        self._number, self._address = bus, address
        self._open = open_bus or _open_smbus
        self._worker = Worker(f"i2c-{bus}")
        self._bus: Bus | None = None

    async def __aenter__(self) -> Self:
        """The bus opens with the first read."""
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Close the bus."""
        await self._in_thread(self._close)

    async def probe(self) -> None:
        """Check that the sensor answers. Raises as `read`."""
        await self._in_thread(self._check)

    async def read(self) -> Measurement:
        """The latest measurement.

        Raises:
            DeviceTimeout, DeviceUnavailable, GarbledData: a retry may help.
            PermanentError: the user may not open the bus.
        """
        return await self._in_thread(self._measure)

    async def _in_thread(self, call: Callable[[], _T]) -> _T:
        future = self._worker.submit(call)
        try:
            async with asyncio.timeout(_TIMEOUT):
                return await asyncio.wrap_future(future)
        except TimeoutError as error:
            self._worker.give_up(future)
            self._bus = None
            raise DeviceTimeout(f"the bus i2c-{self._number} hangs") from error
        except PermissionError as error:
            raise PermanentError(f"i2c-{self._number} may not be opened; add the user to the group i2c") from error
        except OSError as error:
            self._worker.submit(self._close)
            raise DeviceUnavailable(f"no answer at 0x{self._address:02X} on i2c-{self._number}: {error}") from error

    def _ready(self) -> Bus:
        if self._bus is None:
            self._bus = self._open(self._number)  # kept at once: what fails below is closed, not left open each second
            self._bus.write_byte_data(self._address, PERIOD, 0x01)
            self._bus.write_byte_data(self._address, CONTROL, CONTINUOUS)
        return self._bus

    def _measure(self) -> Measurement:
        x, y, z, status, temperature = struct.unpack(
            "<hhhBh", bytes(self._ready().read_i2c_block_data(self._address, DATA, 9))
        )
        if status & 0b10:
            raise GarbledData("the field is stronger than the sensor can measure")
        return Measurement(x, y, z, temperature)

    def _check(self) -> None:
        found = self._ready().read_i2c_block_data(self._address, CHIP, 1)[0]
        if found != CHIP_ID:
            raise GarbledData(f"chip id 0x{found:02X} at 0x{self._address:02X}; a QMC5883L says 0x{CHIP_ID:02X}")

    def _close(self) -> None:
        bus, self._bus = self._bus, None
        if bus is not None:
            bus.close()


def _open_smbus(number: int) -> Bus:
    try:
        from smbus2 import SMBus
    except ImportError as error:
        raise LeadsmanError("I²C needs smbus2; install gas2mqtt with its dependencies") from error
    bus: Bus = SMBus(number)
    return bus
