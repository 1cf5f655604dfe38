"""Twins: adapters with the protocol of the real ones, and a scripted device behind them instead of hardware.

They are subclasses, so that handlers get them by the same annotation: only the wire is replaced, and what the adapter does
around it (locks, timeouts, framing, errors) is that of the real one. One suite of tests holds both.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from leadsman.adapters.serial import Line, SerialPort
from leadsman.errors import DeviceUnavailable


def _mute(data: bytes) -> bytes:
    return b""


class SerialTwin(SerialPort):
    """A `SerialPort` with a device in memory.

    Args:
        device: given what was sent to it; what it returns is what the port hears.
        options: as of `SerialPort`, such as ``framer=``.
    """

    def __init__(self, device: Callable[[bytes], bytes] = _mute, **options: Any) -> None:
        super().__init__("twin", **options)
        self._device = device
        self._there = True

    def send(self, data: bytes) -> None:
        """The device says something unasked. Nobody hears it while the port is closed."""
        if self._line is not None and self._line.lost is None:
            self._line.data_received(data)

    def unplug(self) -> None:
        """The device is away: who reads gets `DeviceUnavailable`, and so does who opens."""
        self._there = False
        if self._line is not None and self._line.lost is None:
            self._line.connection_lost(OSError(5, "unplugged"))

    def plug(self) -> None:
        """It is back."""
        self._there = True

    async def _open(self, line: Line) -> None:
        if not self._there:
            raise DeviceUnavailable(f"{self.url} cannot be opened: it is not there; is it plugged in?")
        line.connection_made(_Wire(line, self._device))


class _Wire(asyncio.Transport):
    """Between a line and a device in memory."""

    def __init__(self, line: Line, device: Callable[[bytes], bytes]) -> None:
        super().__init__()
        self._line = line
        self._device = device

    def write(self, data: bytes | bytearray | memoryview) -> None:
        answer = self._device(bytes(data))
        if answer:
            asyncio.get_running_loop().call_soon(self._heard, answer)

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None:
        self._line.connection_lost(None)

    def _heard(self, data: bytes) -> None:
        if self._line.lost is None:
            self._line.data_received(data)
