"""One opened port: it collects the received bytes into messages until the device goes away."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

from leadsman.adapters.serial.framing import Framer, Stream
from leadsman.errors import DeviceTimeout, DeviceUnavailable
from leadsman.timing.durations import human

MOST_UNREAD = 64
"""Messages kept for a reader that is late; the oldest are dropped first."""
MOST_UNREAD_BYTES = 4096
"""Short messages are kept in larger numbers, up to this many bytes."""


class Transport(Protocol):
    """The part of an asyncio transport that a connection uses."""

    def write(self, data: bytes) -> None:
        """Send bytes."""
        ...

    def get_write_buffer_size(self) -> int:
        """Bytes that the device has not taken."""
        ...

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        ...

    def abort(self) -> None:
        """Close at once."""
        ...


class SerialConnection(asyncio.Protocol):
    """One opened port.

    Args:
        url: the name of the port in errors.
        framer: separates messages.
        clock: monotonic seconds.
    """

    def __init__(self, url: str, framer: Framer, clock: Callable[[], float] = time.monotonic) -> None:
        self.stream = Stream(framer)
        self.unread: deque[bytes] = deque(maxlen=max(MOST_UNREAD, MOST_UNREAD_BYTES // framer.max_size))
        self.made = asyncio.Event()
        self.ended = asyncio.Event()
        self.lost: str | None = None
        """Why the connection ended, or None."""
        self.heard_at: float | None = None
        """When the last bytes arrived, seconds of the clock; None if none did."""
        self._url = url
        self._news = asyncio.Event()
        self._clock = clock
        self._transport: Transport

    @property
    def unsent(self) -> int:
        """Bytes that the device has not taken."""
        return self._transport.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self._transport.write(data)

    async def next_message(self, timeout: float) -> bytes:
        """Return the oldest unread message, or wait for one.

        Raises:
            DeviceTimeout: none arrived within `timeout` seconds.
            DeviceUnavailable: the connection ended.
        """
        noise = self.stream.discarded
        try:
            async with asyncio.timeout(timeout):
                while not self.unread:
                    if self.lost is not None:
                        raise DeviceUnavailable(f"{self._url} went away: {self.lost}")
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError as error:
            received = self.stream.discarded - noise + self.stream.waiting
            hint = (
                f"; {received} bytes arrived, but no complete message; check the baud rate and the framer"
                if received
                else ""
            )
            raise DeviceTimeout(f"no message from {self._url} within {human(timeout)}{hint}") from error
        return self.unread.popleft()

    async def discard(self) -> None:
        """Discard unread input, including the bytes that wait in the kernel."""
        await asyncio.sleep(0)  # lets them arrive
        self.unread.clear()
        self.stream.reset()

    def close(self) -> None:
        """Close the port; `ended` is set when it is done. Raises nothing, also if the device is gone."""
        if self._transport.is_closing() and not self.unsent:  # it has noticed by itself, and must not close twice
            return
        device = getattr(self._transport, "serial", None)
        if device is not None:
            with contextlib.suppress(Exception):  # OSError, and termios.error, which is none
                device.reset_output_buffer()  # else closing waits, on the event loop, for a device that does not read
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(Transport, transport)
        self.made.set()

    def data_received(self, data: bytes) -> None:
        self.heard_at = self._clock()
        messages = self.stream.feed(data)
        if messages:
            self.unread.extend(messages)
            self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = "closed" if exc is None else str(exc)
        self._news.set()
        self.ended.set()
