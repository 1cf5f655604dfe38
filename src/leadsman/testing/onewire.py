"""Simulated thermometers on a one-wire bus."""

import errno
import os
from collections.abc import Mapping

from leadsman.adapters.onewire import OneWire, OneWireFiles, check_thermometer
from leadsman.loop.durations import Duration


class OneWireTwin(OneWire):
    """A `OneWire` with thermometers in memory.

    Args:
        thermometers: by name, what each measures in degrees Celsius; or the whole content of its file; or an error that
            reading it raises.
        timeout: for one thermometer.
    """

    def __init__(
        self, thermometers: Mapping[str, float | str | OSError] | None = None, *, timeout: Duration = 10.0
    ) -> None:
        super().__init__("/w1/twin", timeout=timeout)
        self.measures = {check_thermometer(name): value for name, value in (thermometers or {}).items()}
        """What each thermometer measures. It may be changed at any time; one that is removed has gone."""
        self.refuses: OSError | None = None
        """What listing the thermometers raises, or None."""

    def _create_wire(self) -> OneWireFiles:
        return _TwinWire(self)


class _TwinWire:
    def __init__(self, twin: OneWireTwin) -> None:
        self._twin = twin

    def names(self) -> list[str]:
        if self._twin.refuses is not None:
            raise self._twin.refuses
        return ["w1_bus_master1", *self._twin.measures]

    def content(self, name: str) -> str:
        if name not in self._twin.measures:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        value = self._twin.measures[name]
        if isinstance(value, OSError):
            raise value
        return value if isinstance(value, str) else content_of(value)


def content_of(value: float) -> str:
    """What the file of a DS18B20 contains that measures `value`, in degrees Celsius, in steps of 1/16."""
    raw = round(value * 16)
    data = raw.to_bytes(2, "little", signed=True) + b"\x4b\x46\x7f\xff" + bytes((0x10 - raw % 0x10, 0x10))
    data += bytes((crc8(data),))
    return f"{data.hex(' ')} : crc={data[8]:02x} YES\n{data.hex(' ')} t={int(raw * 62.5)}\n"


def crc8(data: bytes) -> int:
    """The checksum of Maxim's one-wire devices (application note 27): x^8 + x^5 + x^4 + 1, the lowest bit first."""
    value = 0
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ 0x8C * (value & 1)
    return value
