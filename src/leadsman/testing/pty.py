"""A simulated serial device on a pseudo-terminal with a stable path. It can be unplugged and plugged in again.

Real serial libraries open it. A pty lacks modem lines, and the timing of a baud rate.
"""

import contextlib
import os
import tempfile
import time
import tty
from pathlib import Path
from typing import Self


class PtyDevice:
    """The device's side of a serial port. It starts plugged in at the beginning of ``with``."""

    def __init__(self, path: str | None = None) -> None:
        self._directory = None if path else tempfile.TemporaryDirectory(prefix="leadsman-tty-")
        self.path = path or str(Path(self._directory.name if self._directory else "", "ttyDevice"))
        """The path that an app opens."""
        self._master: int | None = None

    def __enter__(self) -> Self:
        self.plug()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.unplug()
        if self._directory is not None:
            self._directory.cleanup()

    def plug(self) -> None:
        """Appear, as a new terminal at the old path."""
        if self._master is not None:
            return
        self._master, slave = os.openpty()
        tty.setraw(slave)  # no echo, no translation of line ends: a UART does neither
        os.set_blocking(self._master, False)
        Path(self.path).unlink(missing_ok=True)
        os.symlink(os.ttyname(slave), self.path)
        os.close(slave)

    def unplug(self) -> None:
        """Disappear: programs that have it open get an error, and the path is removed, as udev does."""
        Path(self.path).unlink(missing_ok=True)
        if self._master is not None:
            os.close(self._master)
            self._master = None

    def send(self, data: bytes, timeout: float = 5.0) -> None:
        """Send bytes to the app. A terminal accepts about 4 kB at a time; the call waits at most `timeout` seconds for
        the rest.

        Raises:
            TimeoutError: the app does not read.
            OSError: the device is unplugged.
        """
        rest, deadline = memoryview(data), time.monotonic() + timeout
        while rest:
            try:
                rest = rest[os.write(self._fd(), rest) :]
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{len(rest)} bytes were not read within {timeout:g} s") from None
                time.sleep(0.0005)

    def receive(self, size: int = 65_536) -> bytes:
        """The bytes that the app has sent; empty if there are none, or if the app does not have the port open."""
        with contextlib.suppress(BlockingIOError, OSError):
            return os.read(self._fd(), size)
        return b""

    def _fd(self) -> int:
        if self._master is None:
            raise OSError("the device is unplugged")
        return self._master
