"""The I²C adapter: reads and writes the chips of a bus through the bus file of the kernel (``linux/i2c-dev.h``).

The bus opens with the first transfer, and is closed after each one that fails: an adapter on USB that was unplugged
leaves the kernel only when its file is closed. The next transfer opens it again.
"""

import asyncio
import contextlib
import errno
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Protocol, Self

from leadsman.core.adapters.resource import Resource
from leadsman.core.adapters.wires import wire_of
from leadsman.core.loop.durations import Duration, positive_seconds
from leadsman.core.loop.threads import Worker
from leadsman.core.resilience.turns import SharedLine
from leadsman.core.text import describe, join_words
from leadsman.errors import (
    DeviceError,
    DeviceTimeout,
    DeviceUnavailable,
    GarbledData,
    InvalidType,
    InvalidValue,
    PermanentError,
    check_found,
)

MIN_ADDRESS, MAX_ADDRESS = 0x08, 0x77
"""Addresses of chips; the others of seven bits are reserved (UM10204, 3.1.12)."""
MAX_MESSAGE_BYTES = 8192
"""Of one message, as the kernel takes them (``drivers/i2c/i2c-dev.c``)."""
_NACK = (errno.EREMOTEIO, errno.ENXIO)
"""Errors of drivers if no chip acknowledges (Documentation/i2c/fault-codes.rst; the Broadcom one has EREMOTEIO)."""
_GONE = (errno.ENODEV, errno.ESHUTDOWN, errno.EBADF)
_HOW_TO_TURN_ON = (
    "turn I²C on: sudo raspi-config nonint do_i2c 0, or dtparam=i2c_arm=on in config.txt and sudo modprobe i2c-dev"
)

__all__ = ["I2c"]


class I2cWire(Protocol):
    """Moves bytes over a bus. Its calls block, and raise `OSError`: EADDRINUSE if a driver of the kernel has the
    address."""

    @property
    def opened(self) -> bool: ...
    def open(self) -> None: ...
    def transfer(self, address: int, data: bytes, count: int) -> bytes: ...
    def close(self) -> None: ...


class I2c:
    """The chips on one I²C bus, each with an address. Transfers take turns.

    Args:
        bus: the number of the bus, or the path of its file, such as ``/dev/i2c-1``.
        timeout: for one transfer, which takes about a millisecond. The kernel gives up by itself after one second.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    def __init__(self, bus: int | str | Path = 1, *, timeout: Duration = 2.0) -> None:
        self.path = _path_of(bus)
        """The file of the bus."""
        self._timeout = positive_seconds(timeout, "timeout")
        self._turns = SharedLine(cuts=False)  # a thread makes the calls
        self._worker = Worker(self.path)
        self._wire: I2cWire | None = None
        self._heard_at: float | None = None

    async def __aenter__(self) -> Self:
        """The bus opens with the first transfer."""
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Close the bus. The adapter may be entered again."""
        async with self._turns:
            if self._wire is not None:
                with contextlib.suppress(DeviceError):  # of a thread that is stuck
                    await self._worker.call(self._wire.close, self._timeout)
            self._wire = None
        self._worker = self._worker.renew()

    def check_installed(self) -> None:
        """Check that the library is installed. Raises `NotInstalled`."""
        check_found("I²C buses", "smbus2", "i2c", "smbus2")

    @property
    def resource(self) -> Resource:
        """For ``leadsman doctor``: the bus."""
        return Resource("i2c", self.path, self._check)

    @property
    def health(self) -> Mapping[str, object]:
        """For introspection: the file of the bus, whether it is open, and the seconds since a chip answered."""
        now = None if self._heard_at is None else asyncio.get_running_loop().time()
        silent_for = None if now is None or self._heard_at is None else round(now - self._heard_at, 3)
        return {"bus": self.path, "opened": self._wire is not None and self._wire.opened, "silent_for": silent_for}

    async def transfer(self, address: int, data: bytes = b"", count: int = 0) -> bytes:
        """Write `data` to a chip, then read `count` bytes without releasing the bus in between (a repeated start).
        Either may be left out.

        Args:
            address: of the chip, 0x08 to 0x77.
            data: 0 to 8,192 bytes.
            count: 0 to 8,192 bytes.

        Raises:
            DeviceUnavailable: the bus does not exist, or nothing answers at the address. A retry may help.
            DeviceTimeout: the bus hangs. A retry may help.
            GarbledData: the answer has another length. A retry may help.
            PermanentError: the bus may not be opened, cannot do this, or a driver of the kernel has the address.
            InvalidValue, InvalidType: an argument is out of range.
        """
        address, data = check_address(address), _bytes(data)
        if isinstance(count, bool) or not isinstance(count, int):
            raise InvalidType(f"count is {count!r}; write a number of bytes")
        if not (0 <= count <= MAX_MESSAGE_BYTES and len(data) <= MAX_MESSAGE_BYTES and (data or count)):
            raise InvalidValue(
                f"the transfer writes {len(data)} bytes and reads {count}; write or read 1 to {MAX_MESSAGE_BYTES} bytes"
            )
        answer = await self._in_thread(lambda wire: self._exchange(wire, address, data, count))
        self._heard_at = asyncio.get_running_loop().time()
        return answer

    async def read_register(self, address: int, register: int, count: int = 1) -> bytes:
        """Read registers of eight bits, from `register` (0 to 255) on: most chips count it up. Raises as `transfer`."""
        if count < 1:
            raise InvalidValue(f"count is {count!r}; it must be 1 or more bytes")
        return await self.transfer(address, _byte(register), count)

    async def write_register(self, address: int, register: int, data: bytes) -> None:
        """Write registers of eight bits, from `register` (0 to 255) on. Raises as `transfer`."""
        await self.transfer(address, _byte(register) + _bytes(data))

    async def probe(self) -> None:
        """Check that the bus can be opened, by opening it anew. Raises as `transfer`."""
        await self._in_thread(self._reopen)

    async def _check(self) -> None:
        async with self:
            await self.probe()

    async def _in_thread(self, call: Callable[[I2cWire], bytes]) -> bytes:
        async with self._turns:
            wire = self._wire = self._wire or wire_of("i2c", self.path, self._create_wire)

            def closing() -> bytes:
                try:
                    return call(wire)
                except BaseException:
                    wire.close()
                    raise

            def abandon(future: Future[bytes]) -> None:
                self._wire = None
                future.add_done_callback(lambda _: wire.close())  # not while the call still uses it

            return await self._worker.call(closing, self._timeout, abandon)

    def _create_wire(self) -> I2cWire:
        from leadsman.adapters.smbus import SmbusWire  # an app that only names a bus needs no library

        return SmbusWire(self.path)

    def _reopen(self, wire: I2cWire) -> bytes:
        wire.close()
        self._open(wire)
        return b""

    def _open(self, wire: I2cWire) -> None:
        try:
            wire.open()
        except OSError as error:
            raise opening_error(self.path, error) from error

    def _exchange(self, wire: I2cWire, address: int, data: bytes, count: int) -> bytes:
        self._open(wire)
        try:
            answer = wire.transfer(address, data, count)
        except OSError as error:
            raise transfer_error(self.path, address, error) from error
        if len(answer) != count:
            raise GarbledData(f"0x{address:02X} on {self.path} sent {len(answer)} bytes instead of {count}")
        return answer


def check_address(address: object) -> int:
    """Check the address of a chip, of seven bits. Raises `InvalidType`, `InvalidValue`."""
    if isinstance(address, bool) or not isinstance(address, int):
        raise InvalidType(f"address is {address!r}; write a number such as 0x76")
    if not MIN_ADDRESS <= address <= MAX_ADDRESS:
        shifted = address >> 1
        hint = (
            f"; did you mean 0x{shifted:02X}? An address has seven bits"
            if MIN_ADDRESS <= shifted <= MAX_ADDRESS
            else ""
        )
        raise InvalidValue(f"address is {address:#04x}; it must be 0x{MIN_ADDRESS:02X} to 0x{MAX_ADDRESS:02X}{hint}")
    return address


def opening_error(path: str, error: OSError) -> DeviceError:
    """The cause and the remedy of an error of opening."""
    match error.errno:
        case errno.ENOENT | errno.ENODEV | errno.ENXIO:
            found = sorted(map(str, Path(path).parent.glob("i2c-*")))
            there = f"there is {join_words(found)}" if found else _HOW_TO_TURN_ON
            return DeviceUnavailable(f"{path} does not exist; {there}")
        case errno.EACCES | errno.EPERM:
            return PermanentError(
                f"{path} may not be opened; add the user to the group i2c: sudo usermod -aG i2c USER (in a unit: "
                "SupplementaryGroups=i2c and DeviceAllow=char-i2c rw)"
            )
        case errno.ENOTTY | errno.EISDIR:
            return PermanentError(f"{path} is no I²C bus; name a file such as /dev/i2c-1")
    return DeviceUnavailable(f"{path} cannot be opened: {describe(error)}")


def transfer_error(path: str, address: int, error: OSError) -> DeviceError:
    """The cause and the remedy of an error of a transfer (Documentation/i2c/fault-codes.rst of the kernel)."""
    chip = f"0x{address:02X}"
    if error.errno in _NACK:
        return DeviceUnavailable(
            f"nothing answers at {chip} on {path}; check its power, wiring and address: i2cdetect lists them"
        )
    if error.errno in _GONE:
        return DeviceUnavailable(f"{path} has gone; is its adapter plugged in?")
    match error.errno:
        case errno.EADDRINUSE:
            return PermanentError(_held(path, address))
        case errno.ETIMEDOUT:
            return DeviceTimeout(f"{path} hangs at {chip}; a chip holds a line low: check wiring and pull-ups")
        case errno.EBUSY | errno.EAGAIN:
            return DeviceUnavailable(f"{path} is busy: another controller talks, or a line is low")
        case errno.EOPNOTSUPP | errno.EINVAL:
            return PermanentError(f"{path} cannot do such a transfer with {chip}: {describe(error)}")
    return DeviceUnavailable(f"the transfer with {chip} on {path} failed: {describe(error)}")


def _held(path: str, address: int) -> str:
    number = re.search(r"(\d+)$", str(Path(path).resolve()))
    files = f"/sys/bus/i2c/devices/{number[1] if number else '*'}-{address:04x}"
    return f"a driver of the kernel has 0x{address:02X} on {path}; read its files in {files}, or unload the driver"


def _path_of(bus: object) -> str:
    if isinstance(bus, bool) or not isinstance(bus, int | str | Path):
        raise InvalidType(f"bus is {bus!r}; write a number such as 1, or a path such as '/dev/i2c-1'")
    if isinstance(bus, int) and bus >= 0:
        return f"/dev/i2c-{bus}"
    if isinstance(bus, int) or not str(bus).startswith("/") or "\0" in str(bus):
        raise InvalidValue(f"bus is {bus!r}; write a number such as 1, or a path such as '/dev/i2c-1'")
    return str(bus)


def _bytes(data: object) -> bytes:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidType(f"data is {data!r}; write bytes such as b'\\x24\\x00'")
    return bytes(data)


def _byte(register: object) -> bytes:
    if isinstance(register, bool) or not isinstance(register, int):
        raise InvalidType(f"register is {register!r}; write a number such as 0x0D")
    if not 0 <= register <= 0xFF:
        raise InvalidValue(f"register is {register:#x}; it must be 0 to 0xFF: write longer ones with transfer()")
    return bytes((register,))
