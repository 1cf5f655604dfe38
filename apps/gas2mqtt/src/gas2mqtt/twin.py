"""A magnetometer without hardware, for tests, demos and dry runs."""

import itertools
import struct
from collections.abc import Callable

from gas2mqtt.magnetometer import CHIP, CHIP_ID, DATA, Measurement
from gas2mqtt.settings import Settings
from leadsman.testing import I2cRegisters, I2cTwin


class Chip(I2cRegisters):
    """A QMC5883L. `measure` is called for each measurement."""

    def __init__(self, measure: Callable[[], Measurement]) -> None:
        super().__init__({CHIP: bytes((CHIP_ID,))})
        self._measure = measure

    def __call__(self, data: bytes, count: int) -> bytes:
        if data == bytes((DATA,)):
            x, y, z, temperature = self._measure()
            too_strong = 0b10 if max(abs(x), abs(y), abs(z)) > 32000 else 0
            self.put(DATA, struct.pack("<hhhBh", x, y, z, 1 | too_strong, temperature))
        return super().__call__(data, count)


def simulated_bus(settings: Settings) -> I2cTwin:
    """A bus with a sensor beside a meter whose wheel turns once in five measurements."""
    wheel = itertools.cycle((-7000, -7000, -3000, -3000, -5000))
    return I2cTwin({settings.address: Chip(lambda: Measurement(100, -200, next(wheel), 100))})
