"""The serial port adapter: reads framed messages, sends requests, and reconnects after the cable was unplugged.

It uses pyserial-asyncio, or its maintained fork pyserial-asyncio-fast if that is installed. Two of their operations
can block
the event loop, so they are done differently here: the port is opened in a thread, and bytes that a stuck device does
not accept
are discarded at the close. ``socket://host:port`` reaches a port through a network gateway, over asyncio's own streams.
``rfc2217://host:port`` reaches a gateway that accepts port settings as well, over threads; see
`leadsman.adapters.serial.rfc2217`.

The port opens with the first read or request, and again after it was lost. While a device is away, calls fail, and the
retry of
the handler repeats them.
"""

import asyncio
import contextlib
import errno
import logging
import os
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from leadsman.adapters.extras import check_found, missing
from leadsman.adapters.serial.framing import Framer, LineFramer, Stream
from leadsman.adapters.serial.rfc2217 import ThreadedTransport
from leadsman.errors import DeviceTimeout, DeviceUnavailable, InvalidType, InvalidValue, LeadsmanError
from leadsman.threads import Worker
from leadsman.timing.durations import Duration, human, positive_seconds

OPEN_TIMEOUT = 5.0
"""The longest time in seconds for opening; a USB adapter that hangs can take for ever."""
MOST_UNREAD = 64
"""Messages kept for a reader that is late; the oldest are dropped first."""
MOST_UNREAD_BYTES = 4096
"""Short messages are kept in larger numbers, up to this many bytes."""
_PARITIES = ("N", "E", "O", "M", "S")

_NEEDS = ("serial ports", "pyserial-asyncio", "serial")
"""What needs which library, and the extra that installs it."""

logger = logging.getLogger("leadsman")


class SerialPort:
    """A serial port, or a network gateway to one. Several handlers may share it; its calls take turns.

    Args:
        url: a path such as ``/dev/serial/by-id/usb-…``, ``socket://host:port`` or ``rfc2217://host:port``.
        baudrate: bits per second.
        bytesize: data bits, 5 to 8.
        parity: ``N``\\ one, ``E``\\ ven, ``O``\\ dd, ``M``\\ ark or ``S``\\ pace.
        stopbits: 1, 1.5 or 2.
        framer: separates messages; the default is lines.
        timeout: how long a read or a request waits for its message.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    def __init__(
        self,
        url: str,
        baudrate: int = 9600,
        *,
        bytesize: int = 8,
        parity: str = "N",
        stopbits: float = 1,
        framer: Framer | None = None,
        timeout: Duration = 3.0,
        retry_tokens: int | None = None,
    ) -> None:
        self.retry_tokens = retry_tokens
        """The number of retries that its handlers may make together; see `leadsman.adapters.adapter.LimitsRetries`."""
        self.url = _checked_url(url)
        if isinstance(baudrate, bool) or not isinstance(baudrate, int):
            raise InvalidType(f"baudrate is {baudrate!r}; it is a number such as 9600")
        for what, value, allowed in (
            ("bytesize", bytesize, (5, 6, 7, 8)),
            ("parity", parity, _PARITIES),
            ("stopbits", stopbits, (1, 1.5, 2)),
        ):
            if value not in allowed:
                raise InvalidValue(f"{what} is {value!r}; it is one of {', '.join(map(str, allowed))}")
        if baudrate <= 0:
            raise InvalidValue(f"baudrate is {baudrate!r}; it is greater than zero")
        self._framer = LineFramer() if framer is None else framer
        if not callable(getattr(self._framer, "find", None)):
            raise InvalidType(f"framer is {framer!r}; write LineFramer(), another framer, or an object with find()")
        self._options = {"baudrate": baudrate, "bytesize": bytesize, "parity": parity, "stopbits": stopbits}
        self._timeout = positive_seconds(timeout, "timeout")
        self._lock = asyncio.Lock()
        self._worker = Worker(f"serial {self.url}")
        self._line: SerialConnection | None = None

    async def __aenter__(self) -> Self:
        """Recommend a more stable name for the port, if there is one. The port is opened by the first call."""
        _recommend_by_id(self.url)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Close the port. The adapter may be entered again."""
        await self.close()
        self._worker.stop()
        self._worker = Worker(f"serial {self.url}")  # its thread begins with the first call

    def check_installed(self) -> None:
        """Check that the library for opening is installed; ``socket://`` needs none. Raises `NotInstalled`."""
        if not self.url.startswith("socket://"):
            check_found(*_NEEDS, "serial_asyncio_fast", "serial_asyncio")

    @property
    def health(self) -> dict[str, Any]:
        """For introspection: whether the port is open, and how many bytes since then were not part of any message."""
        opened = self._line is not None and self._line.lost is None
        return {"port": self.url, "opened": opened, "discarded": self.discarded}

    @property
    def discarded(self) -> int:
        """Bytes since the port was opened that were not part of any message: noise, a wrong baud rate, a lost byte."""
        return 0 if self._line is None else self._line.stream.discarded

    async def read(self, timeout: Duration | None = None) -> bytes:
        """Return the next unread message, or wait for one.

        Raises:
            DeviceTimeout: none arrived in time. A retry may help.
            DeviceUnavailable: the port does not exist, or was lost. A retry may help.
        """
        async with self._lock:
            return await self.next_of(await self._opened(), self.timeout_of(timeout))

    async def latest(self, timeout: Duration | None = None) -> bytes:
        """Return the newest unread message and discard the older ones, or wait for one. Raises as `read`."""
        async with self._lock:
            line = await self._opened()
            while len(line.unread) > 1:
                line.unread.popleft()
            return await self.next_of(line, self.timeout_of(timeout))

    async def request(self, data: bytes, timeout: Duration | None = None) -> bytes:
        """Discard unread input, send `data`, and return the next message. Raises as `read`."""
        async with self._lock:
            line = await self._opened()
            await asyncio.sleep(0)  # let bytes that wait in the kernel arrive before they are thrown away
            line.unread.clear()
            line.stream.reset()
            line.write(data)
            try:
                return await self.next_of(line, self.timeout_of(timeout))
            except DeviceTimeout:
                if line.unsent:  # the device takes no bytes: they must not reach it after this request is forgotten
                    await self._closed()
                raise

    async def messages(self, silence: Duration = 60.0) -> AsyncGenerator[bytes, None]:
        """Yield all messages as they arrive, for a device that sends without requests; for `@app.source`.

        Args:
            silence: the longest time without a message.

        Raises:
            DeviceTimeout, DeviceUnavailable: as `read`. The source is restarted, and the port is reopened if necessary.
        """
        while True:
            yield await self.read(silence)

    @contextlib.asynccontextmanager
    async def session(self) -> "AsyncIterator[Session]":
        """Reserve the port for several exchanges without other calls in between. Raises `DeviceUnavailable`."""
        async with self._lock:
            yield Session(self, await self._opened())

    async def write(self, data: bytes) -> None:
        """Send `data` without waiting for an answer. Raises `DeviceUnavailable`."""
        async with self._lock:
            (await self._opened()).write(data)

    async def probe(self) -> None:
        """Check that the port can be opened, by reopening it: a port that is open may hang nevertheless.

        Raises:
            DeviceUnavailable: it cannot be opened. A retry may help.
        """
        async with self._lock:
            await self._closed()
            await self._opened()

    async def close(self) -> None:
        """Close the port; the next call opens it again."""
        async with self._lock:
            await self._closed()

    def timeout_of(self, timeout: Duration | None) -> float:
        """`timeout` in seconds; for None that of the port."""
        return self._timeout if timeout is None else positive_seconds(timeout, "timeout")

    async def _opened(self) -> "SerialConnection":
        if self._line is not None and self._line.lost is None:
            return self._line
        await self._closed()
        line = SerialConnection(self._framer)
        try:
            async with asyncio.timeout(OPEN_TIMEOUT):
                await self._open(line)
        except TimeoutError as error:
            raise DeviceUnavailable(f"{self.url} did not open within {human(OPEN_TIMEOUT)}") from error
        except LeadsmanError:
            raise
        except Exception as error:  # OSError, ValueError, termios.error: whatever pyserial lets through
            raise DeviceUnavailable(f"{self.url} cannot be opened: {_advice(error)}") from error
        self._line = line
        return line

    async def _open(self, line: "SerialConnection") -> None:
        loop = asyncio.get_running_loop()
        if self.url.startswith("socket://"):
            parts = urlsplit(self.url)
            await loop.create_connection(lambda: line, parts.hostname or "", parts.port or 0)  # checked in __init__
            return
        module, remote = _library(), self.url.startswith("rfc2217://")
        future = self._worker.submit(_open_device, self.url, self._options)
        try:
            device = await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            future.add_done_callback(_close_late)
            self._worker.give_up(future)  # the next attempt gets a thread that is not stuck
            raise
        if remote:
            ThreadedTransport(line, device, self.url)
        else:
            module.SerialTransport(loop, line, device)
        await line.made.wait()

    async def _closed(self) -> None:
        line, self._line = self._line, None
        if line is not None and line.lost is None:
            line.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await line.ended.wait()

    async def next_of(self, line: "SerialConnection", timeout: float) -> bytes:
        """The next message of an opened line; for `Session`."""
        noise = line.stream.discarded
        try:
            async with asyncio.timeout(timeout):
                while not line.unread:
                    if line.lost is not None:
                        raise DeviceUnavailable(f"{self.url} went away: {line.lost}")
                    line.news.clear()
                    await line.news.wait()
        except TimeoutError as error:
            heard = line.stream.discarded - noise + line.stream.waiting
            hint = f"; {heard} bytes came that are no message: check baud rate and framer" if heard else ""
            raise DeviceTimeout(f"no message from {self.url} within {human(timeout)}{hint}") from error
        return line.unread.popleft()


class Session:
    """A port that is reserved for one caller. `SerialPort.session` returns it."""

    def __init__(self, port: SerialPort, line: "SerialConnection") -> None:
        self._port = port
        self._line = line

    async def discard(self) -> None:
        """Discard unread input."""
        await asyncio.sleep(0)  # let bytes that wait in the kernel arrive
        self._line.unread.clear()
        self._line.stream.reset()

    def send(self, data: bytes) -> None:
        """Send `data`."""
        self._line.write(data)

    async def receive(self, count: int = 1, timeout: Duration | None = None) -> bytes:
        """Return the next `count` messages, joined.

        Raises:
            DeviceTimeout: they did not arrive in time. A retry may help.
            DeviceUnavailable: the port was lost. A retry may help.
        """
        limit = self._port.timeout_of(timeout)
        deadline = asyncio.get_running_loop().time() + limit
        found = []
        for _ in range(count):
            rest = deadline - asyncio.get_running_loop().time()
            found.append(await self._port.next_of(self._line, max(rest, 0.0)))
        return b"".join(found)


class SerialConnection(asyncio.Protocol):
    """One opened port."""

    def __init__(self, framer: Framer) -> None:
        self.stream = Stream(framer)
        self.unread: deque[bytes] = deque(maxlen=max(MOST_UNREAD, MOST_UNREAD_BYTES // framer.max_size))
        self.news = asyncio.Event()
        self.made = asyncio.Event()
        self.ended = asyncio.Event()
        self.lost: str | None = None
        self._transport: Any = None

    @property
    def unsent(self) -> int:
        """Bytes that the device has not taken."""
        return int(self._transport.get_write_buffer_size())

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def close(self) -> None:
        device = getattr(self._transport, "serial", None)
        if device is not None:
            with contextlib.suppress(OSError):
                device.reset_output_buffer()  # else closing waits, on the event loop, for a device that does not read
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self.made.set()

    def data_received(self, data: bytes) -> None:
        messages = self.stream.feed(data)
        if messages:
            self.unread.extend(messages)
            self.news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = "closed" if exc is None else str(exc)
        self.news.set()
        self.ended.set()


def _library() -> Any:
    try:
        import serial_asyncio_fast as library
    except ImportError:
        try:
            import serial_asyncio as library
        except ImportError as error:
            raise missing(*_NEEDS) from error
    return library


def _open_device(url: str, options: dict[str, Any]) -> Any:
    import serial

    if url.startswith("rfc2217://"):
        return serial.serial_for_url(url, **options)
    return serial.Serial(url, exclusive=True, **options)


def _close_late(future: "Future[Any]") -> None:
    """The port opened after nobody waited for it any more."""
    if not future.cancelled() and future.exception() is None:
        future.result().close()


def _advice(error: Exception) -> str:
    number = getattr(error, "errno", None)
    if number is None:  # pyserial keeps the number of some errors only in the text
        found = re.search(r"\[Errno (\d+)\]", str(error))
        number = int(found[1]) if found else None
    match number:
        case errno.ENOENT | errno.ENODEV | errno.ENXIO:
            return "it is not there; is it plugged in?"
        case errno.EACCES | errno.EPERM:
            return "permission denied; add the user to the group that owns it, on Debian: usermod -aG dialout USER"
        case errno.EAGAIN | errno.EBUSY:
            return "another program has it open; stop that one first"
    if not isinstance(error, OSError) and error.args[:1] == (errno.EINVAL,):  # termios.error is no OSError
        return "it does not take these settings; check baudrate, bytesize, parity and stopbits"
    return str(error)


def _checked_url(url: object) -> str:
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


def _recommend_by_id(url: str) -> None:
    """A ttyUSB number changes when the device is plugged in again; its name by id does not."""
    if not re.fullmatch(r"/dev/tty(USB|ACM)\d+", url):
        return
    links = Path("/dev/serial/by-id")
    names = [str(link) for link in links.iterdir() if os.path.realpath(link) == url] if links.is_dir() else []
    name = names[0] if names else f"the name in {links}"
    logger.warning("%s may be another device after the next start or replug; write %s instead", url, name)
