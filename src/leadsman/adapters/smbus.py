"""Moves bytes over an I²C bus with smbus2. Only this file imports it. Everything here blocks."""

import errno
import fcntl
import os

from leadsman.errors import missing

try:
    from smbus2 import I2cFunc, SMBus, i2c_msg
except ImportError as error:
    raise missing("I²C buses", "smbus2", "i2c", error) from error

I2C_SLAVE = 0x0703
"""The request of ``linux/i2c-dev.h`` that chooses the address of a file."""
MAX_SMBUS_BYTES = 32
"""Bytes of one block where a bus speaks SMBus alone (SMBus 3.2, 6.5.7)."""


class SmbusWire:
    """A bus of the kernel.

    Args:
        path: such as ``/dev/i2c-1``.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._bus = SMBus()

    @property
    def opened(self) -> bool:
        """Whether its file is open."""
        return self._bus.fd is not None

    def open(self) -> None:
        """Open the bus, unless it is open. Raises `OSError`."""
        if not self.opened:
            self._bus.open(self._path)

    def transfer(self, address: int, data: bytes, count: int) -> bytes:
        """Write bytes, then read bytes without releasing the bus in between. Raises `OSError`, with EADDRINUSE if a
        driver of the kernel has the address."""
        self._choose(address)
        if self._bus.funcs & I2cFunc.I2C:
            answer = i2c_msg.read(address, count)
            self._bus.i2c_rdwr(*[i2c_msg.write(address, data)] * bool(data), *[answer] * bool(count))
            return bytes(answer)
        if len(data) == 1 and 0 < count <= MAX_SMBUS_BYTES:
            return bytes(self._bus.read_i2c_block_data(address, data[0], count))
        if 1 < len(data) <= 1 + MAX_SMBUS_BYTES and not count:
            self._bus.write_i2c_block_data(address, data[0], data[1:])
            return b""
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    def _choose(self, address: int) -> None:
        assert self._bus.fd is not None, "it is opened first"
        try:
            fcntl.ioctl(self._bus.fd, I2C_SLAVE, address)
        except OSError as error:
            if error.errno == errno.EBUSY:  # of a transfer that would mean another controller
                raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)) from error
            raise

    def close(self) -> None:
        """Close the bus, if it is open."""
        self._bus.close()
