"""Opens devices with pyserial, which blocks, and says in errors what a person can do."""

import asyncio
import contextlib
import errno
import functools
import logging
import os
import re
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from leadsman.adapters.serial.rfc2217 import BlockingDevice
from leadsman.errors import InvalidType, InvalidValue
from leadsman.extras import check_found, missing
from leadsman.text import log_fields

_NEEDS = ("serial ports", "pyserial-asyncio", "serial")
"""What needs which library, and the extra that installs it."""

BY_ID = Path("/dev/serial/by-id")
"""Where udev names ports after their devices."""

logger = logging.getLogger("leadsman")


def checked_url(url: object) -> str:
    """Check the name of a port. Raises `InvalidType`, `InvalidValue`."""
    if not isinstance(url, str):
        raise InvalidType(f"the port is {url!r}; write a path such as '/dev/serial/by-id/…' or 'socket://host:port'")
    if "://" not in url:
        if not url.strip() or "\0" in url:
            raise InvalidValue(f"the port is {url!r}; write a path such as '/dev/serial/by-id/…'")
        return url
    try:
        parts = urlsplit(url)
        complete = parts.scheme in ("socket", "rfc2217") and parts.hostname and parts.port
    except ValueError:
        complete = None
    if not complete:
        raise InvalidValue(
            f"the port is {url!r}; write a path, or 'socket://host:port' or 'rfc2217://host:port' for a network gateway"
        )
    return url


def recommend_by_id(url: str) -> None:
    """Log a more stable name for a port such as ``/dev/ttyUSB0``: its number changes when the device is plugged in
    again."""
    name = stable_name(url)
    if name is None:
        return
    logger.warning(
        "%s may name another device after the next start or replug; write %s instead",
        url,
        name,
        extra=log_fields("port may change", port=url),
    )


def stable_name(url: str) -> str | None:
    """The name to write instead of one that changes, such as ``/dev/ttyUSB0``; None if the name stays."""
    if not re.fullmatch(r"/dev/tty(USB|ACM)\d+", url):
        return None
    names = [str(link) for link in BY_ID.iterdir() if os.path.realpath(link) == url] if BY_ID.is_dir() else []
    return names[0] if names else f"the name in {BY_ID}"


def check_library() -> None:
    """Check that the library is installed, without loading it. Raises `NotInstalled`."""
    check_found(*_NEEDS, "serial_asyncio_fast", "serial_asyncio")


def library() -> ModuleType:
    """The library that connects an opened device with the event loop. Raises `NotInstalled`."""
    try:
        import serial_asyncio_fast as found
    except ImportError:
        try:
            import serial_asyncio as found
        except ImportError as error:
            raise missing(*_NEEDS) from error
    module: ModuleType = found
    return module


def connect(protocol: asyncio.Protocol, device: BlockingDevice) -> None:
    """Connect an opened device with the event loop. Raises `NotInstalled`."""
    _transport(library())(asyncio.get_running_loop(), protocol, device)


@functools.cache
def _transport(module: ModuleType) -> type:
    """The transport of the library, which logs no traceback when a device is unplugged while bytes are sent to it."""

    base: Any = module.SerialTransport

    class Transport(base):  # type: ignore[misc]  # the library has no types
        def _fatal_error(self, exc: BaseException, message: str = "") -> None:
            self._abort(exc)  # `connection_lost` gets the error

    return Transport


class Lines(NamedTuple):
    """The control lines of a port, from its opening on."""

    dtr: bool | None = None
    """Whether DTR is high; None leaves that to pyserial, which raises it."""
    rts: bool | None = None
    """Whether RTS is high; None leaves that to pyserial, which raises it."""
    rs485: bool = False
    """Whether the driver raises RTS while it sends, and lowers it to receive."""


def open_device(url: str, options: Mapping[str, object], lines: Lines) -> BlockingDevice:
    """Open a device of pyserial. Blocks. The lines have their levels before anything is sent."""
    import serial
    from serial.rs485 import RS485Settings

    device: Any
    if url.startswith("rfc2217://"):
        device = serial.serial_for_url(url, do_not_open=True, **options)
    else:
        device = serial.Serial(exclusive=True, **options)
        device.port = url
    if lines.dtr is not None:
        device.dtr = lines.dtr
    if lines.rts is not None:
        device.rts = lines.rts
    if lines.rs485:
        device.rs485_mode = RS485Settings()
    device.open()
    opened: BlockingDevice = device
    return opened


def close_late(future: Future[BlockingDevice]) -> None:
    """Close a device that opened after its caller had given up."""
    if not future.cancelled() and future.exception() is None:
        with contextlib.suppress(Exception):  # the device may be gone
            future.result().close()


def advice(error: Exception) -> str:
    """What a person can do about an error of opening."""
    number = getattr(error, "errno", None)
    if number is None:  # pyserial keeps the number of some errors only in the text
        found = re.search(r"\[Errno (\d+)\]", str(error))
        number = int(found[1]) if found else None
    if "RS485" in str(error):  # pyserial raises ValueError("Failed to set RS485 mode: …")
        return "its driver does not switch RS-485 by itself; leave out rs485=True if the converter finds the direction"
    match number:
        case errno.ENOENT | errno.ENODEV | errno.ENXIO:
            return "the port does not exist; is the device plugged in?"
        case errno.EACCES | errno.EPERM:
            return "permission denied; add the user to the group that owns it, on Debian: usermod -aG dialout USER"
        case errno.EAGAIN | errno.EBUSY:
            return "another program has it open; stop that program first"
    if not isinstance(error, OSError) and error.args[:1] == (errno.EINVAL,):  # termios.error is no OSError
        return "it does not take these settings; check baudrate, bytesize, parity and stopbits"
    return str(error)
