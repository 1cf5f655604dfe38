"""A QMC5883L magnetometer on I²C. Registers are those of QST's data sheet 1.0."""

import asyncio
import struct
from typing import NamedTuple

from leadsman.adapters.i2c import I2c
from leadsman.errors import GarbledData

DATA, CONTROL, PERIOD, CHIP = 0x00, 0x09, 0x0B, 0x0D
"""Registers."""
CONTINUOUS = bytes((0b0001_0001 | 0b1100_0000,))
"""Continuous, 10 Hz, 8 G, 64 samples over each other."""
CHIP_ID = 0xFF
FIRST = 0.1
"""Seconds until the first measurement is there."""


class Measurement(NamedTuple):
    """One measurement, in the units of the sensor."""

    x: int
    y: int
    z: int
    temperature: int


async def measure(i2c: I2c, address: int) -> Measurement:
    """The latest measurement. A chip that does not measure, since it has lost its power, is set up first.

    Raises:
        GarbledData: this is another chip, or the field is too strong. Else as `I2c.transfer`.
    """
    if await i2c.read_register(address, CONTROL) != CONTINUOUS:
        (found,) = await i2c.read_register(address, CHIP)
        if found != CHIP_ID:
            raise GarbledData(f"chip id 0x{found:02X} at 0x{address:02X}; a QMC5883L says 0x{CHIP_ID:02X}")
        await i2c.write_register(address, PERIOD, b"\x01")
        await i2c.write_register(address, CONTROL, CONTINUOUS)
        await asyncio.sleep(FIRST)
    x, y, z, status, temperature = struct.unpack("<hhhBh", await i2c.read_register(address, DATA, 9))
    if status & 0b10:
        raise GarbledData("the field is stronger than the sensor can measure")
    return Measurement(x, y, z, temperature)
