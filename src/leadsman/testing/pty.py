"""A serial device on a pseudo-terminal, at a path that stays: it can be unplugged and plugged in again.

Real serial libraries open it. What a pty does not have: modem lines, and the timing of a baud rate.
"""

import contextlib
import os
import tempfile
import time
import tty
from pathlib import Path
from typing import Self


class PtyDevice:
    """The device's side of a serial port. Starts plugged in with ``with``."""

    def __init__(self, path: str | None = None) -> None:
        self._directory = None if path else tempfile.TemporaryDirectory(prefix="leadsman-tty-")
        self.path = path or str(Path(self._directory.name if self._directory else "", "ttyDevice"))
        """What an app opens."""
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
        """Disappear: whoever has it open reads an error, and the path is gone, as udev does it."""
        Path(self.path).unlink(missing_ok=True)
        if self._master is not None:
            os.close(self._master)
            self._master = None

    def send(self, data: bytes, timeout: float = 5.0) -> None:
        """Send to the app. A terminal takes some 4 kB at a time: it waits at most `timeout` seconds for the rest.

        Raises:
            TimeoutError: nobody reads.
            OSError: unplugged.
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
        """What the app has sent; empty when nothing has come, or nobody has the port open."""
        with contextlib.suppress(BlockingIOError, OSError):
            return os.read(self._fd(), size)
        return b""

    def _fd(self) -> int:
        if self._master is None:
            raise OSError("the device is unplugged")
        return self._master
