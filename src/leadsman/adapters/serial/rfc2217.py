"""A serial port behind a network gateway that speaks RFC 2217, through pyserial's blocking client in threads.

The asyncio ports of pyserial need a file descriptor, which this client does not have.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Protocol, TypeVar, cast

from leadsman.loop.threads import Worker

_SLICE = 0.2
"""Seconds that a read waits; between two reads, the reader's thread checks whether it is still needed."""

_T = TypeVar("_T")


class BlockingDevice(Protocol):
    """The part of pyserial's ports that a transport uses."""

    timeout: float | None

    @property
    def in_waiting(self) -> int:
        """Bytes that can be read without waiting."""
        ...

    def read(self, size: int) -> bytes:
        """Read up to so many bytes, within `timeout` seconds."""
        ...

    def write(self, data: bytes) -> object:
        """Write bytes."""
        ...

    def close(self) -> None:
        """Close the device."""
        ...


class ThreadedTransport:
    """The transport of a `SerialConnection` over a blocking device. It is made and called on the event loop.

    Args:
        protocol: receives the bytes.
        device: reads and writes them.
        name: the name of its threads.
    """

    def __init__(self, protocol: asyncio.Protocol, device: BlockingDevice, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol
        self._device = device
        self._worker = Worker(f"{name} writer")
        self._unsent = 0
        self._ended = False
        device.timeout = _SLICE
        protocol.connection_made(cast(asyncio.Transport, self))  # as much of a transport as a connection uses
        threading.Thread(target=self._read, name=f"leadsman {name} reader", daemon=True).start()

    def write(self, data: bytes) -> None:
        """Send bytes in a thread. Does nothing after the connection has ended; the protocol was informed of that."""
        if not self._ended:
            self._unsent += len(data)
            self._worker.submit(self._write, data)

    def get_write_buffer_size(self) -> int:
        """Bytes that the device has not taken."""
        return self._unsent

    def is_closing(self) -> bool:
        """Whether the connection has ended."""
        return self._ended

    def abort(self) -> None:
        """Close, without waiting for bytes that are not sent."""
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
                    self._from_thread(self._receive, data + self._device.read(self._device.in_waiting))
        except Exception as error:  # as above
            self._from_thread(self._end, error)

    def _from_thread(self, call: Callable[[_T], None], argument: _T) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(call, argument)

    def _sent(self, size: int) -> None:
        self._unsent -= size

    def _receive(self, data: bytes) -> None:
        if not self._ended:
            self._protocol.data_received(data)

    def _end(self, error: Exception | None) -> None:
        if not self._ended:
            self._ended = True
            self._worker.submit(self._device.close)
            self._worker.stop()
            self._protocol.connection_lost(error)
