"""A magnetometer without hardware, for tests, demos and dry runs."""

import itertools
import struct
from collections.abc import Callable

from gas2mqtt.magnetometer import CHIP, CHIP_ID, Magnetometer, Measurement


class Registers:
    """A QMC5883L at the level of its registers: what cannot be had in a test. `measure` is called for each
    measurement."""

    def __init__(self, measure: Callable[[], Measurement], address: int = 0x0D) -> None:
        self._measure, self._address = measure, address
        self.written: dict[int, int] = {}
        self.fault: Exception | None = None
        """What each transfer ends with."""
        self.closed = 0
        """How often it was closed."""

    def write_byte_data(self, address: int, register: int, value: int) -> None:
        """Write a register."""
        self._transfer(address)
        self.written[register] = value

    def read_i2c_block_data(self, address: int, register: int, length: int) -> list[int]:
        """Read registers."""
        self._transfer(address)
        if register == CHIP:
            return [CHIP_ID]
        x, y, z, temperature = self._measure()
        too_strong = 0b10 if max(abs(x), abs(y), abs(z)) > 32000 else 0
        return list(struct.pack("<hhhBh", x, y, z, 1 | too_strong, temperature))[:length]

    def close(self) -> None:
        """Close the bus."""
        self.closed += 1

    def _transfer(self, address: int) -> None:
        if self.fault is not None:
            raise self.fault
        if address != self._address:
            raise OSError(121, "Remote I/O error")


def simulated_magnetometer(address: int) -> Magnetometer:
    """A sensor beside a meter whose wheel turns once in five measurements."""
    wheel = itertools.cycle((-7000, -7000, -3000, -3000, -5000))
    registers = Registers(lambda: Measurement(100, -200, next(wheel), 100), address)
    return Magnetometer(address=address, open_bus=lambda _: registers)
