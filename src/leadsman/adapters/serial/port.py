"""The serial port adapter: reads framed messages, sends requests, and reconnects after the cable was unplugged.

It uses pyserial-asyncio, or its maintained fork pyserial-asyncio-fast if that is installed. Two of their operations can
block the event loop, so they are done differently here: the port is opened in a thread, and bytes that a stuck device
does not accept are discarded at the close. ``socket://host:port`` reaches a port through a network gateway, over
asyncio's own streams. ``rfc2217://host:port`` reaches a gateway that accepts port settings as well, through pyserial's
blocking client in threads: the asyncio ports of pyserial need a file descriptor, which this client does not have.

The port opens with the first read or request, and again after it was lost. While a device is away, calls fail, and the
retry of the handler repeats them.
"""

import asyncio
import contextlib
import errno
import functools
import logging
import os
import re
import struct
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Self, TypeVar, cast
from urllib.parse import urlsplit

from leadsman.adapters.serial.framing import Framer, LineFramer, Stream
from leadsman.core.adapters.adapter import CANNOT_OPEN
from leadsman.core.adapters.resource import Resource
from leadsman.core.adapters.wires import wire_of
from leadsman.core.loop.durations import Duration, human, positive_seconds
from leadsman.core.loop.threads import Worker
from leadsman.core.resilience.turns import SharedLine
from leadsman.core.text import log_fields
from leadsman.errors import (
    DeviceTimeout,
    DeviceUnavailable,
    InvalidType,
    InvalidValue,
    LeadsmanError,
    check_found,
    missing,
)

# One opened port: it collects the received bytes into messages until the device goes away.

MAX_UNREAD_MESSAGES = 64
"""Messages kept for a reader that is late; the oldest are dropped first."""
MAX_UNREAD_BYTES = 4096
"""Short messages are kept in larger numbers, up to this many bytes."""
QUIET_SECONDS = 0.1
"""Seconds without a byte after which a line is quiet. A device sends a message without pauses, but a USB adapter gives
its bytes on every 16 ms, and a gateway when a packet is full. At 1,100 baud and less: ten characters."""
_READ_SLICE = 0.2
"""Seconds that a read waits in a thread; between two reads, the thread checks whether it is still needed."""

Device = Any
"""A port of pyserial, which has no types."""
_T = TypeVar("_T")


class Line(asyncio.Protocol):
    """Receives the events of an opened port."""

    made: asyncio.Event
    """Set when the port is open."""
    lost: str | None
    """Why the connection ended, or None."""


Opener = Callable[[Line], Awaitable[None]]
"""Opens a port, and connects a line with it: the wire of a serial port. It may raise whatever pyserial raises."""


class Echo:
    """What was sent over a converter that hears itself, and has not come back yet. Until it has, nothing that arrives
    can be the answer, so whatever precedes it is noise."""

    def __init__(self) -> None:
        self._sent: deque[bytes] = deque()
        self._heard = bytearray()

    @property
    def awaited(self) -> bool:
        """Whether something has not come back."""
        return bool(self._sent)

    def sent(self, data: bytes) -> None:
        """Wait for `data`."""
        if data:
            self._sent.append(data)

    def heard(self, data: bytes) -> tuple[bytes, int]:
        """Take what arrived. Return what is behind all that was sent, and the number of other bytes before it."""
        if not self._sent:
            return data, 0
        heard, noise = self._heard, 0
        heard += data
        while self._sent and (at := heard.find(self._sent[0])) >= 0:
            noise += at
            del heard[: at + len(self._sent.popleft())]
        if not self._sent:
            behind = bytes(heard)
            heard.clear()
            return behind, noise
        surplus = max(0, len(heard) - len(self._sent[0]) + 1)  # the rest may be its beginning
        del heard[:surplus]
        return b"", noise + surplus

    def clear(self) -> None:
        """Wait for nothing any more: what is sent next comes back later, and everything before it goes."""
        self._sent.clear()
        self._heard.clear()


class SerialConnection(Line):
    """One opened port.

    Args:
        url: the name of the port in errors.
        framer: separates messages.
        clock: monotonic seconds.
        quiet: seconds without a byte after which the line is quiet.
        echo: whether what is sent comes back before the answer.
    """

    def __init__(
        self,
        url: str,
        framer: Framer,
        clock: Callable[[], float] = time.monotonic,
        *,
        quiet: float = QUIET_SECONDS,
        echo: bool = False,
    ) -> None:
        self.stream = Stream(framer)
        self.echo = Echo() if echo else None
        """What was sent and has not come back; None: it does not."""
        self.unread: deque[bytes] = deque(maxlen=max(MAX_UNREAD_MESSAGES, MAX_UNREAD_BYTES // framer.max_size))
        self.made = asyncio.Event()
        self.ended = asyncio.Event()
        self.lost = None
        self.heard_at: float | None = None
        """When the last bytes arrived, seconds of the clock; None if none did."""
        self._opened_at = clock()
        self._url = url
        self._news = asyncio.Event()
        self._clock = clock
        self._quiet = quiet
        self._settled = True
        """Whether nothing waits for its rest, or it was looked at since the last byte arrived."""
        self._request = self._answer = b""
        """What was asked last, and as many of the bytes that came then."""
        self._transport: asyncio.Transport

    @property
    def unsent(self) -> int:
        """Bytes that the device has not taken."""
        return self._transport.get_write_buffer_size()

    @property
    def open_for(self) -> float:
        """Seconds since the port was opened."""
        return self._clock() - self._opened_at

    def write(self, data: bytes) -> None:
        """Send bytes."""
        if self.echo is not None:
            self.echo.sent(data)
        self._transport.write(data)

    def ask(self, request: bytes) -> None:
        """Send a request: the next message is its answer."""
        self.stream.expect(request)
        self._request, self._answer = request, b""
        self.write(request)

    @property
    def echo_fault(self) -> str:
        """What is wrong with ``echo=``, as far as the last request shows; empty if nothing is."""
        if self.echo is not None and self.echo.awaited:
            return "what was sent did not come back as it was: leave out echo=True, or check the line"
        if self.echo is None and self._request and self._answer == self._request:
            return "what was sent came back: write echo=True"
        return ""

    async def next_message(self, timeout: float) -> bytes:
        """Return the oldest unread message, or wait for one.

        Raises:
            DeviceTimeout: none arrived within `timeout` seconds.
            DeviceUnavailable: the connection ended.
        """
        if self.unread:
            return self.unread.popleft()
        noise = self.stream.discarded
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._message()
        if not self.unread:
            self.unread.extend(self.stream.settle())
        if self.unread:
            return self.unread.popleft()
        received = self.stream.discarded - noise + self.stream.waiting
        if self.echo_fault:
            hint = f"; {self.echo_fault}"
        elif received:
            hint = f"; {received} bytes arrived, but no complete message; check the baud rate and the framer"
        else:
            hint = ""
        raise DeviceTimeout(f"no message from {self._url} within {human(timeout)}{hint}")

    async def _message(self) -> None:
        """Wait until there is a message. What waits for its rest is looked at again when the line is quiet."""
        while not self.unread:
            if self.lost is not None:
                raise DeviceUnavailable(f"{self._url} went away: {self.lost}")
            self._news.clear()
            if self._settled:
                await self._news.wait()
            elif (left := self._quiet_in()) > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await self._news.wait()
            else:
                self.unread.extend(self.stream.settle())
                self._settled = True

    def _quiet_in(self) -> float:
        """Seconds until the line is quiet, if nothing else arrives."""
        return 0.0 if self.heard_at is None else self.heard_at + self._quiet - self._clock()

    async def discard(self) -> None:
        """Discard unread input, including the bytes that wait in the kernel, and a message that is just arriving: its
        rest would pass for the answer to what is sent next. One that does not end is waited for until the line is
        quiet, at most five times as long."""
        for _ in range(2):  # the first turn of the loop looks what has arrived, the second one takes it
            await asyncio.sleep(0)
        for _ in range(5):
            if not self.stream.waiting or self.lost is not None or (left := self._quiet_in()) <= 0:
                break
            await asyncio.sleep(left)
        self.unread.clear()
        self.stream.reset()
        self._settled = True
        if self.echo is not None:
            self.echo.clear()

    def close(self) -> None:
        """Close the port; `ended` is set when it is done. Raises nothing, also if the device is gone."""
        if self._transport.is_closing() and not self.unsent:  # it has noticed by itself, and must not close twice
            return
        device = getattr(self._transport, "serial", None)
        if device is not None:
            with contextlib.suppress(Exception):  # OSError, and termios.error, which is not a subclass of it
                device.reset_output_buffer()  # else closing waits, on the event loop, for a device that does not read
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._opened_at = self._clock()
        self.made.set()

    def data_received(self, data: bytes) -> None:
        self.heard_at = self._clock()
        if self.echo is not None:
            data, noise = self.echo.heard(data)
            self.stream.discarded += noise
        if len(self._answer) < len(self._request):
            self._answer += data[: len(self._request) - len(self._answer)]
        self.unread.extend(self.stream.feed(data))
        if self.unread or self._settled:  # the beginning of a message is news, what follows is not
            self._news.set()
        self._settled = self.stream.waiting == 0

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = "closed" if exc is None else str(exc)
        self._news.set()
        self.ended.set()


class ThreadedTransport:
    """The transport of a `SerialConnection` over a blocking device. It is made and called on the event loop.

    Args:
        protocol: receives the bytes.
        device: reads and writes them.
        name: the name of its threads.
    """

    def __init__(self, protocol: asyncio.Protocol, device: Device, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol
        self._device = device
        self._worker = Worker(f"{name} writer")
        self._unsent = 0
        self._ended = False
        device.timeout = _READ_SLICE
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
        except Exception as error:  # of whatever kind, the connection is unusable
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


# Opens devices with pyserial, which blocks, and names the remedy in errors.

_NEEDS = ("serial ports", "pyserial-asyncio", "serial")
"""The purpose, the library, and the extra that installs it."""

BY_ID = Path("/dev/serial/by-id")
"""Where udev names ports after their devices."""

logger = logging.getLogger("leadsman")


_BYTES = ("socket://", "tcp://")
"""How the name of a port begins that is a TCP connection: pyserial's word, and that of Modbus TCP, so that an error
names what a person has written."""


def check_url(url: object) -> str:
    """Check the name of a port. Raises `InvalidType`, `InvalidValue`."""
    if not isinstance(url, str):
        raise InvalidType(f"the port is {url!r}; write a path such as '/dev/serial/by-id/…' or 'socket://host:port'")
    if "://" not in url:
        if not url.strip() or "\0" in url:
            raise InvalidValue(f"the port is {url!r}; write a path such as '/dev/serial/by-id/…'")
        return url
    try:
        parts = urlsplit(url)
        complete = parts.scheme in ("socket", "tcp", "rfc2217") and parts.hostname and parts.port
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


@functools.cache
def _transport(module: ModuleType) -> type:
    """The transport of the library, which logs no traceback when a device is unplugged while bytes are sent to it."""

    base: Any = module.SerialTransport

    class Transport(base):  # type: ignore[misc]  # the library has no types
        def _fatal_error(self, exc: BaseException, message: str = "") -> None:
            self._abort(exc)  # `connection_lost` gets the error

    return Transport


class ControlLines(NamedTuple):
    """The control lines of a port, from its opening on."""

    dtr: bool | None = None
    """Whether DTR is high; None leaves that to pyserial, which raises it."""
    rts: bool | None = None
    """Whether RTS is high; None leaves that to pyserial, which raises it."""
    rs485: bool = False
    """Whether the driver raises RTS while it sends, and lowers it to receive."""


def open_device(url: str, options: Mapping[str, object], lines: ControlLines) -> Device:
    """Open a device of pyserial. Blocks. The lines have their levels before anything is sent."""
    import serial
    from serial.rs485 import RS485Settings

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
    return device


def close_late(future: Future[Device]) -> None:
    """Close a device that opened after its caller had given up."""
    if not future.cancelled() and future.exception() is None:
        with contextlib.suppress(Exception):  # the device may be gone
            future.result().close()


def advice(error: Exception) -> str:
    """The remedy of an error of opening."""
    number = getattr(error, "errno", None)
    if number is None:  # pyserial keeps the number of some errors only in the text
        found = re.search(r"\[Errno (-?\d+)\]", str(error))
        number = int(found[1]) if found else None
    if "RS485" in str(error):  # pyserial raises ValueError("Failed to set RS485 mode: …")
        return "its driver does not switch RS-485 by itself; leave out rs485=True if the converter finds the direction"
    if number is not None and number < 0:  # of getaddrinfo(3)
        return "its name is not known; check the name, or the DNS server"
    match number:
        case errno.ECONNREFUSED:
            return "nothing listens there; check that the device is on, and its port"
        case errno.EHOSTUNREACH | errno.ENETUNREACH | errno.ETIMEDOUT:
            return "it cannot be reached; check that the device is on, and its address"
        case errno.ENOENT | errno.ENODEV | errno.ENXIO:
            return "the port does not exist; is the device plugged in?"
        case errno.EACCES | errno.EPERM:
            return "permission denied; add the user to the group that owns it, on Debian: usermod -aG dialout USER"
        case errno.EAGAIN | errno.EBUSY:
            return "another program has it open; stop that program first"
    if "Inappropriate ioctl" in str(error):  # of termios, which pyserial puts into its text
        return "it is no serial port; write the path of one, such as /dev/serial/by-id/…"
    if not isinstance(error, OSError) and error.args[:1] == (errno.EINVAL,):  # termios.error is no OSError
        return "it does not accept these settings; check baudrate, bytesize, parity and stopbits"
    return str(error)


OPEN_TIMEOUT = 5.0
"""The longest time in seconds for opening; a USB adapter that hangs can take for ever."""
_PARITIES = ("N", "E", "O", "M", "S")


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
        rtscts: hardware flow control: the device and this side pause each other by RTS and CTS.
        xonxoff: software flow control, by the bytes 0x11 and 0x13, which no message may contain then.
        dsrdtr: hardware flow control by DSR and DTR.
        dtr: whether DTR is high from the opening on. None: pyserial raises it, which resets some boards. Optical heads
            for meters may draw their power from DTR and RTS.
        rts: the same for RTS.
        rs485: the driver of the port raises RTS while it sends, for a converter to RS-485 that does not find the
            direction by itself.
        echo: the converter sends back what is sent, as many on two wires do (pymodbus and minimalmodbus call it
            ``handle_local_echo``). It is compared and removed; until it has come back, nothing is taken for an answer.

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
        rtscts: bool = False,
        xonxoff: bool = False,
        dsrdtr: bool = False,
        dtr: bool | None = None,
        rts: bool | None = None,
        rs485: bool = False,
        echo: bool = False,
        retry_tokens: int | None = None,
    ) -> None:
        self.retry_tokens = retry_tokens
        """The number of retries that its handlers may make together; see
        `leadsman.core.adapters.adapter.LimitsRetries`."""
        self.url = check_url(url)
        if isinstance(baudrate, bool) or not isinstance(baudrate, int):
            raise InvalidType(f"baudrate is {baudrate!r}; it must be a number such as 9600")
        for what, value, allowed in (
            ("bytesize", bytesize, (5, 6, 7, 8)),
            ("parity", parity, _PARITIES),
            ("stopbits", stopbits, (1, 1.5, 2)),
        ):
            if value not in allowed:
                raise InvalidValue(f"{what} is {value!r}; it must be one of {', '.join(map(str, allowed))}")
        if baudrate <= 0:
            raise InvalidValue(f"baudrate is {baudrate!r}; it must be greater than zero")
        self.framer: Framer = LineFramer() if framer is None else framer
        """Separates messages."""
        if not callable(getattr(self.framer, "find", None)):
            raise InvalidType(f"framer is {framer!r}; write LineFramer(), another framer, or an object with find()")
        self.baudrate = baudrate
        """Bits per second."""
        flow = {"rtscts": rtscts, "xonxoff": xonxoff, "dsrdtr": dsrdtr}
        self._options = {"baudrate": baudrate, "bytesize": bytesize, "parity": parity, "stopbits": stopbits, **flow}
        if not isinstance(echo, bool):
            raise InvalidType(f"echo is {echo!r}; write True or False")
        self._echo = echo
        self._lines = ControlLines(dtr, rts, rs485)
        _check_lines(self.url, flow, self._lines)
        self._timeout = positive_seconds(timeout, "timeout")
        self._turns = SharedLine()
        self._worker = Worker(f"serial {self.url}")
        self._connection: SerialConnection | None = None
        self._cannot_open: str | None = None
        self._heard_at: float | None = None
        self._clock: Callable[[], float] = time.monotonic

    async def __aenter__(self) -> Self:
        """Recommend a more stable name for the port, if there is one. The port is opened by the first call."""
        recommend_by_id(self.url)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Close the port. The adapter may be entered again."""
        await self.close()
        self._worker = self._worker.renew()

    def check_installed(self) -> None:
        """Check that the library for opening is installed; ``socket://`` needs none. Raises `NotInstalled`."""
        if not self.url.startswith(_BYTES):
            check_found(*_NEEDS, "serial_asyncio_fast", "serial_asyncio")

    @property
    def transient_errors(self) -> tuple[type[Exception], ...]:
        """The errors for which its handlers are retried, besides `OSError` and `TransientError`: those that parsing
        raises on a garbled message, such as ``float(b"ERR")``."""
        return (ValueError, struct.error)

    @property
    def resource(self) -> Resource:
        """For ``leadsman doctor``: the port."""
        return Resource("serial", self.url)

    @property
    def health(self) -> Mapping[str, object]:
        """For introspection: whether the port is open, how many bytes since then were not part of any message, and the
        seconds since the last byte arrived."""
        opened = self._connection is not None and self._connection.lost is None
        heard_at = self._heard()
        silent_for = None if heard_at is None else round(self._clock() - heard_at, 3)
        found = {"port": self.url, "opened": opened, "discarded": self.discarded, "silent_for": silent_for}
        return found if self._cannot_open is None else found | {CANNOT_OPEN: self._cannot_open}

    @property
    def discarded(self) -> int:
        """Bytes since the port was opened that were not part of any message: noise, a wrong baud rate, a lost byte."""
        return 0 if self._connection is None else self._connection.stream.discarded

    async def read(self, timeout: Duration | None = None) -> bytes:
        """Return the next unread message, or wait for one.

        Raises:
            DeviceTimeout: none arrived in time. A retry may help.
            DeviceUnavailable: the port does not exist, or was lost. A retry may help.
        """
        async with self._turns:
            connection = await self._ensure_open()
            return await connection.next_message(self.timeout_of(timeout))

    async def latest(self, timeout: Duration | None = None) -> bytes:
        """Return the newest unread message and discard the older ones, or wait for one. Raises as `read`."""
        async with self._turns:
            connection = await self._ensure_open()
            while len(connection.unread) > 1:
                connection.unread.popleft()
            return await connection.next_message(self.timeout_of(timeout))

    async def request(self, data: bytes, timeout: Duration | None = None) -> bytes:
        """Discard unread input, send `data`, and return the next message. Raises as `read`."""
        async with self._turns:
            connection = await self._ensure_open()
            await connection.discard()
            self._turns.begin()
            connection.ask(data)
            try:
                return await connection.next_message(self.timeout_of(timeout))
            except DeviceTimeout:
                if (
                    connection.unsent
                ):  # the device takes no bytes: they must not reach it after this request is forgotten
                    await self._close()
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
    async def session(self, unit: Hashable | None = None) -> AsyncIterator["Session"]:
        """Reserve the port for several exchanges without other calls in between. `unit`: who is asked, where several
        are on the line; None: the device of the handler. Raises `DeviceUnavailable`."""
        async with self._turns.turn(unit):
            yield Session(self, await self._ensure_open(), self._close, self._turns)

    async def write(self, data: bytes) -> None:
        """Send `data` without waiting for an answer. Raises `DeviceUnavailable`."""
        async with self._turns:
            (await self._ensure_open()).write(data)

    async def probe(self) -> None:
        """Check that the port can be opened, by reopening it: a port that is open may hang nevertheless.

        Raises:
            DeviceUnavailable: it cannot be opened. A retry may help.
        """
        async with self._turns:
            await self._close()
            await self._ensure_open()

    async def close(self) -> None:
        """Close the port; the next call opens it again."""
        async with self._turns:
            await self._close()

    def timeout_of(self, timeout: Duration | None) -> float:
        """`timeout` in seconds; for None that of the port."""
        return self._timeout if timeout is None else positive_seconds(timeout, "timeout")

    async def _ensure_open(self) -> SerialConnection:
        if self._connection is not None and self._connection.lost is None:
            return self._connection
        self._turns.opening()
        await self._close()
        self._clock = asyncio.get_running_loop().time
        quiet = max(QUIET_SECONDS, 10 * 11 / self.baudrate)
        connection = SerialConnection(self.url, self.framer, self._clock, quiet=quiet, echo=self._echo)
        try:
            await self._connect(connection)
        except LeadsmanError as error:
            self._cannot_open = str(error)
            raise
        self._connection, self._cannot_open = connection, None
        self._turns.begin()
        return connection

    async def _connect(self, connection: SerialConnection) -> None:
        try:
            async with asyncio.timeout(OPEN_TIMEOUT):
                await wire_of("serial", self.url, lambda: self._open)(connection)
        except TimeoutError as error:
            raise DeviceUnavailable(
                f"{self.url} did not open within {human(OPEN_TIMEOUT)}; check that the device is on"
            ) from error
        except LeadsmanError:
            raise
        except Exception as error:  # OSError, ValueError, termios.error: whatever pyserial lets through
            raise DeviceUnavailable(f"{self.url} cannot be opened: {advice(error)}") from error

    async def _open(self, connection: Line) -> None:
        loop = asyncio.get_running_loop()
        if self.url.startswith(_BYTES):
            parts = urlsplit(self.url)
            await loop.create_connection(
                lambda: connection, parts.hostname or "", parts.port or 0
            )  # checked in __init__
            return
        found = library()  # else a device would be open that nobody can use
        future = self._worker.submit(open_device, self.url, self._options, self._lines)
        try:
            device = await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            future.add_done_callback(close_late)
            self._worker.give_up(future)  # the next attempt gets a thread that is not stuck
            raise
        if self.url.startswith("rfc2217://"):
            ThreadedTransport(connection, device, self.url)
        else:
            _transport(found)(loop, connection, device)
        await connection.made.wait()

    def _heard(self) -> float | None:
        """When the last byte arrived, on this connection or an earlier one; None if none did."""
        connection = self._connection
        return self._heard_at if connection is None or connection.heard_at is None else connection.heard_at

    async def _close(self) -> None:
        self._heard_at = self._heard()
        connection, self._connection = self._connection, None
        if connection is not None and connection.lost is None:
            connection.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await connection.ended.wait()


def _check_lines(url: str, flow: Mapping[str, object], lines: ControlLines) -> None:
    """Check what a port shall do with its control lines. Raises `InvalidValue`, `InvalidType`."""
    given = {**flow, **lines._asdict()}
    for what, value in given.items():
        if not isinstance(value, bool) and not (value is None and what in ("dtr", "rts")):
            raise InvalidType(f"{what} is {value!r}; write True or False")
    used = [what for what, value in given.items() if value or (value is False and what in ("dtr", "rts"))]
    if used and url.startswith(_BYTES):
        raise InvalidValue(
            f"{used[0]} is given for {url}, which carries bytes alone; write rfc2217:// if the gateway speaks that"
        )
    if lines.rs485 and url.startswith("rfc2217://"):
        raise InvalidValue(f"rs485 is given for {url}; set the direction of its port at the gateway")
    for line, movers in (("RTS", ("rtscts", "rts", "rs485")), ("DTR", ("dsrdtr", "dtr"))):
        moving = [what for what in movers if what in used]
        if len(moving) > 1:
            raise InvalidValue(f"{' and '.join(moving)} both move {line}; leave one of them out")


class Session:
    """A port that is reserved for one caller. `SerialPort.session` returns it."""

    def __init__(
        self, port: SerialPort, connection: SerialConnection, close: Callable[[], Awaitable[None]], line: SharedLine
    ) -> None:
        self._port = port
        self._connection = connection
        self._close = close
        self._turns = line

    @property
    def was_cut(self) -> bool:
        """Whether the exchange ends without an answer since the line is needed for others."""
        return self._turns.was_cut

    def unused(self) -> None:
        """Nothing is asked in this session."""
        self._turns.unused()

    @property
    def noise(self) -> int:
        """Bytes since the port was opened that were not part of any message, an incomplete one included."""
        return self._connection.stream.discarded + self._connection.stream.waiting

    @property
    def open_for(self) -> float:
        """Seconds since the port was opened."""
        return self._connection.open_for

    @property
    def echo_fault(self) -> str:
        """What is wrong with ``echo=``, as far as the last request shows; empty if nothing is."""
        return self._connection.echo_fault

    async def give_up(self) -> None:
        """End an exchange that failed. A connection over the network is closed, since it may be dead without a sign of
        it, or in the middle of an answer; so is a port that takes no bytes, so that they do not reach the device later.
        A local port stays open. The next session opens a closed one."""
        if "://" in self._port.url or self._connection.unsent:
            await self._close()

    async def discard(self) -> None:
        """Discard unread input."""
        await self._connection.discard()

    def send(self, data: bytes) -> None:
        """Send `data`. The next message answers it."""
        self._turns.begin()
        self._connection.ask(data)

    async def receive(self, count: int = 1, timeout: Duration | None = None) -> bytes:
        """Return the next `count` messages, joined.

        Raises:
            DeviceTimeout: they did not arrive in time. A retry may help.
            DeviceUnavailable: the port was lost. A retry may help.
        """
        limit = self._port.timeout_of(timeout)
        now = asyncio.get_running_loop().time
        deadline = now() + limit
        found = []
        for _ in range(count):
            remaining = deadline - now()
            found.append(await self._connection.next_message(max(remaining, 0.0)))
        return b"".join(found)


class PortAdapter:
    """An adapter that speaks a protocol over a serial port, which opens with the first read. What is asked of the
    adapter itself, the port answers.

    Args:
        port: a path or a URL, or a port of the user's own.
        make: makes the port of a path or a URL.

    Raises:
        InvalidType: the port is none of these.
    """

    def __init__(self, port: str | SerialPort, make: Callable[[str], SerialPort]) -> None:
        if isinstance(port, str):
            port = make(port)
        elif not isinstance(port, SerialPort):
            raise InvalidType(f"port is {port!r}; write a path such as '/dev/serial/by-id/…', or a SerialPort")
        self._port = port

    async def __aenter__(self) -> Self:
        """The port opens with the first read."""
        await self._port.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Close the port."""
        await self._port.__aexit__(*exc_info)

    def check_installed(self) -> None:
        """See `SerialPort.check_installed`."""
        self._port.check_installed()

    @property
    def transient_errors(self) -> tuple[type[Exception], ...]:
        """Those of the port."""
        return self._port.transient_errors

    @property
    def resource(self) -> Resource:
        """For ``leadsman doctor``: the port."""
        return self._port.resource

    @property
    def health(self) -> Mapping[str, object]:
        """For introspection: the health of the port."""
        return self._port.health

    async def probe(self) -> None:
        """Check that the port opens. Raises as `SerialPort.probe`."""
        await self._port.probe()
