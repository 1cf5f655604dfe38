"""A simulated I²C bus with chips, at the level of their registers."""

import errno
import os
from collections.abc import Callable, Mapping

from leadsman.adapters.i2c.bus import I2c, I2cWire, check_address
from leadsman.loop.durations import Duration

Chip = Callable[[bytes, int], bytes]
"""A chip: it gets what is written and how many bytes are read, and returns these. It may raise `OSError`."""


class I2cRegisters:
    """A chip with 256 registers of eight bits. The first byte that is written chooses one; reading and writing count
    up.

    Args:
        registers: what they hold, from a register on: ``{0x0D: b"\\xff"}``. The others hold 0.
    """

    def __init__(self, registers: Mapping[int, bytes] | None = None) -> None:
        self.memory = bytearray(256)
        """What the registers hold. It may be changed at any time."""
        self.fault: OSError | None = None
        """What each transfer raises, or None."""
        self._pointer = 0
        for register, data in (registers or {}).items():
            self.put(register, data)

    def put(self, register: int, data: bytes) -> None:
        """Change registers, from one on."""
        self.memory[register : register + len(data)] = data

    def __call__(self, data: bytes, count: int) -> bytes:
        """One transfer."""
        if self.fault is not None:
            raise self.fault
        if data:
            self._pointer = data[0]
        for value in data[1:]:
            self.memory[self._next()] = value
        return bytes(self.memory[self._next()] for _ in range(count))

    def _next(self) -> int:
        register = self._pointer
        self._pointer = (register + 1) % len(self.memory)
        return register


class I2cTwin(I2c):
    """An `I2c` with chips in memory.

    Args:
        chips: by their addresses. At an address that is not there, nothing answers.
        timeout: for one transfer.
    """

    def __init__(self, chips: Mapping[int, Chip] | None = None, *, timeout: Duration = 2.0) -> None:
        super().__init__("/dev/i2c-twin", timeout=timeout)
        self.chips = {check_address(address): chip for address, chip in (chips or {}).items()}
        """The chips by their addresses. They may be changed at any time."""
        self.busy: set[int] = set()
        """Addresses that a driver of the kernel has."""
        self.refuses: OSError | None = None
        """What opening the bus raises, or None."""

    def unplug(self) -> None:
        """Unplug the adapter of the bus: transfers and opening raise `DeviceUnavailable`."""
        self.refuses = OSError(errno.ENOENT, os.strerror(errno.ENOENT))

    def plug(self) -> None:
        """Plug it in again."""
        self.refuses = None

    def check_installed(self) -> None:
        """A twin needs no library."""

    def _create_wire(self) -> I2cWire:
        return _TwinWire(self)


class _TwinWire:
    def __init__(self, twin: I2cTwin) -> None:
        self._twin = twin
        self.opened = False

    def open(self) -> None:
        if self._twin.refuses is not None and not self.opened:
            raise self._twin.refuses
        self.opened = True

    def transfer(self, address: int, data: bytes, count: int) -> bytes:
        if self._twin.refuses is not None:  # the bus has gone since it was opened
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        if address in self._twin.busy:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        if address not in self._twin.chips:
            raise OSError(errno.EREMOTEIO, os.strerror(errno.EREMOTEIO))
        return self._twin.chips[address](data, count)

    def close(self) -> None:
        self.opened = False
