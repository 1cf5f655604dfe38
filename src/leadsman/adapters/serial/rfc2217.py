"""A serial port behind a network gateway that speaks RFC 2217, through pyserial's blocking client in threads.

The asyncio ports of pyserial need a file descriptor, which this client does not have.
"""

import asyncio
import contextlib
import threading
from typing import Any

from leadsman.threads import Worker

_SLICE = 0.2
"""Seconds that a read waits; the reader's thread looks between two of them whether it is still wanted."""


class ThreadedTransport:
    """A transport for `leadsman.adapters.serial.port` over a blocking device. It is made and called on the event loop.

    Args:
        line: receives the bytes, as an asyncio protocol does.
        device: has ``read``, ``write``, ``in_waiting`` and ``close``, as pyserial's ports do.
        name: the name of its threads.
    """

    def __init__(self, line: asyncio.Protocol, device: Any, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._line = line
        self._device = device
        self._worker = Worker(f"{name} writer")
        self._unsent = 0
        self._ended = False
        device.timeout = _SLICE
        line.connection_made(self)  # type: ignore[arg-type]  # as much of a transport as a line uses
        threading.Thread(target=self._read, name=f"leadsman {name} reader", daemon=True).start()

    def write(self, data: bytes) -> None:
        """Send bytes in a thread. Does nothing after the connection has ended; the protocol was informed of that."""
        if not self._ended:
            self._unsent += len(data)
            self._worker.submit(self._write, data)

    def get_write_buffer_size(self) -> int:
        """Bytes that were not taken yet."""
        return self._unsent

    def abort(self) -> None:
        """Close, without waiting for what is not sent."""
        self._end(None)

    def _write(self, data: bytes) -> None:
        try:
            self._device.write(data)
            self._from_thread(self._sent, len(data))
        except Exception as error:  # of whatever kind, the connection is of no use any more
            self._from_thread(self._end, error)

    def _read(self) -> None:
        try:
            while not self._ended:
                if data := self._device.read(1):
                    self._from_thread(self._heard, data + self._device.read(self._device.in_waiting))
        except Exception as error:  # as above
            self._from_thread(self._end, error)

    def _from_thread(self, call: Any, argument: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody listens any more
            self._loop.call_soon_threadsafe(call, argument)

    def _sent(self, size: int) -> None:
        self._unsent -= size

    def _heard(self, data: bytes) -> None:
        if not self._ended:
            self._line.data_received(data)

    def _end(self, error: Exception | None) -> None:
        if not self._ended:
            self._ended = True
            self._worker.submit(self._device.close)
            self._worker.stop()
            self._line.connection_lost(error)
