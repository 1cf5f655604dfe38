"""A kernel in memory that has an I²C bus, for smbus2."""

import ctypes
import errno
import fcntl
import os

import smbus2

I2C, SMBUS = smbus2.I2cFunc.I2C | smbus2.I2cFunc.SMBUS_EMUL, smbus2.I2cFunc.SMBUS_EMUL
FUNCS, SLAVE, RDWR, SMBUS_REQUEST = 0x0705, 0x0703, 0x0707, 0x0720


class Kernel:
    """The requests of ``linux/i2c-dev.h``, with the chips of a twin."""

    def __init__(self, path, twin, functions):
        self.path, self.twin, self.functions = path, twin, functions
        self.chosen = {}

    def install(self, monkeypatch):
        """Answer the requests of this process."""
        monkeypatch.setattr(smbus2.smbus2, "ioctl", self.ioctl)
        monkeypatch.setattr(fcntl, "ioctl", self.ioctl)

    def ioctl(self, file, request, argument):
        if os.readlink(f"/proc/self/fd/{file}").removesuffix(" (deleted)") != str(self.path):
            raise OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))
        if not self.path.exists():
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        return {FUNCS: self._funcs, SLAVE: self._slave, RDWR: self._rdwr, SMBUS_REQUEST: self._smbus}[request](
            file, argument
        )

    def _funcs(self, file, argument):
        argument.value = self.functions

    def _slave(self, file, address):
        if address in self.twin.busy:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        self.chosen[file] = address

    def _rdwr(self, file, argument):
        messages = [argument.msgs[index] for index in range(argument.nmsgs)]
        data = b"".join(bytes(each) for each in messages if not each.flags & smbus2.smbus2.I2C_M_RD)
        reads = [each for each in messages if each.flags & smbus2.smbus2.I2C_M_RD]
        answer = self._chip(messages[0].addr)(data, sum(each.len for each in reads))
        for each in reads:
            ctypes.memmove(each.buf, answer, each.len)

    def _smbus(self, file, argument):
        assert argument.size == smbus2.smbus2.I2C_SMBUS_I2C_BLOCK_DATA
        block, chip = argument.data.contents.block, self._chip(self.chosen[file])
        if argument.read_write == smbus2.smbus2.I2C_SMBUS_READ:
            block[1 : block[0] + 1] = list(chip(bytes((argument.command,)), block[0]))
        else:
            chip(bytes((argument.command, *block[1 : block[0] + 1])), 0)

    def _chip(self, address):
        if address not in self.twin.chips:
            raise OSError(errno.EREMOTEIO, os.strerror(errno.EREMOTEIO))
        return self.twin.chips[address]
