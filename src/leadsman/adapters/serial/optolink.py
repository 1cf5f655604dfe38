"""The adapter for Viessmann's optical interface, with its protocols P300 (VS2) and KW (VS1), over a serial port of
4800 baud, 8E2.

::

    P300   boiler: 05 … (not initialised)   we: 04, 16 00 00   boiler: 06
           we: 41 len 00 mode hi lo n [data] sum   boiler: 06 41 len 01 mode hi lo n [data] sum   we: 06
    KW     boiler: 05 every two seconds   we, at once: 01 F7 hi lo n   boiler: n bytes, without a checksum
           we: 01 F4 hi lo n data   boiler: 00

In KW nothing but the time tells an answer from a 05 of a boiler that has not heard the request (openv/openv#45), so an
answer that consists of 05 counts only if the boiler had just sent one.

The protocols are known from people who recorded the traffic; the maker has not published a document.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from typing import Literal

from leadsman.adapters.serial.checksums import sum8
from leadsman.adapters.serial.framing import FixedFramer
from leadsman.adapters.serial.port import PortAdapter, SerialPort, Session
from leadsman.core.loop.durations import Duration
from leadsman.errors import DeviceTimeout, GarbledData, InvalidValue, PermanentError, TransientError

MAX_DATA_BYTES = 200
"""The most bytes in one read or write."""
_READY_TIMEOUT = 2.5
"""Seconds within which a boiler that is not initialised sends 05; it does so every two."""
_ROUNDS = 10
"""Bytes of a handshake; if none of so many makes sense, the line is noise."""
_ANSWERS_WITHIN = 0.3
"""Seconds until the answer in KW is there, beside the time of its bytes. It has no checksum, and the next 05 comes
after two seconds, so what comes later is no answer. vcontrold allows 150 ms (openv/openv#75); a gateway takes as long
again."""
_CHARACTER = 12 / 4800
"""Seconds of a byte: 4800 baud, 8E2."""
_MAX_BYTE_GAP = 0.5
"""Seconds between two bytes of an answer, at most. Boilers answer in some 20 ms (openv/vcontrold#123)."""
_AT_ONCE = 0.001
"""Seconds to wait for a byte when the time is up: what has arrived is still taken."""
_LISTENS_FOR = {"P300": 2.0, "KW": 0.2}
"""Seconds that the boiler listens after a request; later, the handshake is necessary again."""
_RESET, _NOT_INITIALISED, _ACK, _NAK, _TELEGRAM = b"\x04", b"\x05", b"\x06", b"\x15", b"\x41"
_READ, _WRITE = 1, 2
_ANSWERED, _REFUSED = 1, 3
"""Kinds of telegrams; those that are sent are of kind 0."""
_MAX_ANSWER_BYTES = 600
"""Bytes in which an answer must be: two of the longest."""
_KW_ENDS = 0.02
"""Seconds of silence that end an answer in KW."""


class Optolink(PortAdapter):
    """A boiler control behind an optical adapter. Reads and writes take turns.

    Args:
        port: a path such as ``/dev/serial/by-id/usb-…``, a gateway such as ``socket://host:port``, or a `SerialPort`
            of your own that returns single bytes, ``framer=FixedFramer(1)``.
        protocol: ``P300`` for controls with VS2, which are most since 2004; ``KW`` for older ones.
        timeout: for one answer. What is read in KW is there within 0.3 s, or not taken.
        echo: the optical adapter sends back what is sent; see `SerialPort`.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    def __init__(
        self,
        port: str | SerialPort,
        protocol: Literal["P300", "KW"] = "P300",
        *,
        timeout: Duration = 2.0,
        echo: bool = False,
    ) -> None:
        if protocol not in _LISTENS_FOR:
            raise InvalidValue(f"protocol is {protocol!r}; it must be 'P300' or 'KW'")
        if echo and isinstance(port, SerialPort):
            raise InvalidValue("echo is set beside a SerialPort; write SerialPort(…, echo=True)")

        def opened(path: str) -> SerialPort:
            return SerialPort(path, 4800, parity="E", stopbits=2, framer=FixedFramer(1), timeout=timeout, echo=echo)

        super().__init__(port, opened)
        self._protocol = protocol
        self._used_at: float | None = None

    @property
    def health(self) -> Mapping[str, object]:
        """For introspection: the health of the port, and the protocol."""
        return {**self._port.health, "protocol": self._protocol}

    async def probe(self) -> None:
        """Check that the boiler answers. Raises as `read`."""
        async with self._port.session() as session:
            await self._greet(session)

    async def read(self, address: int, length: int) -> bytes:
        """Read `length` bytes at `address`.

        Raises:
            DeviceTimeout, DeviceUnavailable, GarbledData: there was no valid answer. A retry may help.
            PermanentError: the boiler reports that nothing exists at this address.
        """
        return await self._exchange(_READ, address, length, b"")

    async def write(self, address: int, data: bytes) -> None:
        """Write `data` at `address`. Writing wears the boiler's memory, so only write changes. Raises as `read`."""
        await self._exchange(_WRITE, address, len(data), bytes(data))

    async def _exchange(self, mode: int, address: int, length: int, data: bytes) -> bytes:
        if not (
            type(address) is int and 0 <= address <= 0xFFFF and type(length) is int and 1 <= length <= MAX_DATA_BYTES
        ):
            raise InvalidValue(
                f"{length!r} bytes at {address!r}; write 1 to {MAX_DATA_BYTES} bytes, at 0x0000 to 0xFFFF"
            )
        async with self._port.session() as session:
            try:
                if not self._listens():
                    await self._greet(session)
                exchange = self._exchange_p300 if self._protocol == "P300" else self._exchange_kw
                found = await exchange(session, mode, address, length, data)
            except TransientError:
                self._used_at = None
                raise
            self._used_at = asyncio.get_running_loop().time()
        return found

    def _listens(self) -> bool:
        now = asyncio.get_running_loop().time()
        return self._used_at is not None and now - self._used_at < _LISTENS_FOR[self._protocol]

    async def _greet(self, session: Session) -> None:
        """Start the conversation: wait until the boiler listens."""
        await session.discard()
        if self._protocol == "KW":
            for _ in range(MAX_DATA_BYTES):
                if await session.receive(1, _READY_TIMEOUT) == _NOT_INITIALISED:
                    return
            raise GarbledData(
                f"{MAX_DATA_BYTES} bytes arrived without the boiler's 05; check the protocol, and whether "
                "another device uses the line"
            )
        session.send(_RESET)
        for _ in range(_ROUNDS):
            received = await session.receive(1, _READY_TIMEOUT)
            if received == _ACK:
                return
            session.send(b"\x16\x00\x00" if received == _NOT_INITIALISED else _RESET)
        raise GarbledData(
            "no handshake with the boiler; check the protocol, and that the adapter sits on the optical port"
        )

    async def _exchange_p300(self, session: Session, mode: int, address: int, length: int, data: bytes) -> bytes:
        request = bytes((mode, address >> 8, address & 0xFF, length))
        content = bytes((5 + len(data), 0)) + request + data
        await session.discard()  # the boiler repeats an answer of which it has not heard that it came
        session.send(_TELEGRAM + content + bytes((sum8(content),)))
        now = asyncio.get_running_loop().time
        heard, end = b"", now() + self._port.timeout_of(None)
        while (answer := _answer_to(request, heard)) is None:
            left = end - now()
            try:
                heard += await session.receive(
                    1, max(min(left, _MAX_BYTE_GAP) if heard.strip(_ACK) else left, _AT_ONCE)
                )
            except DeviceTimeout as silent:
                fault = session.echo_fault or _fault(request, heard)
                if not fault:
                    raise
                raise GarbledData(f"0x{address:04X}: {fault}") from silent
            if len(heard) > _MAX_ANSWER_BYTES:
                raise GarbledData(f"0x{address:04X}: {len(heard)} bytes arrived without an answer")
        session.send(_ACK)
        kind, found = answer
        if kind == _REFUSED:
            raise PermanentError(
                f"the boiler has no value of {length} bytes at 0x{address:04X}, or the value is read-only"
            )
        if len(found) != (length if mode == _READ else 0):
            raise GarbledData(f"0x{address:04X}: the answer has {len(found)} bytes: {found.hex(' ')}")
        return found

    async def _exchange_kw(self, session: Session, mode: int, address: int, length: int, data: bytes) -> bytes:
        await session.discard()
        begin = b"" if self._listens() else b"\x01"
        request = begin + bytes((0xF7 if mode == _READ else 0xF4, address >> 8, address & 0xFF, length)) + data
        session.send(request)
        if mode == _WRITE:
            if (received := await session.receive()) != b"\x00":
                raise GarbledData(f"{received.hex()} arrived instead of 00 after writing 0x{address:04X}")
            return b""
        most = _ANSWERS_WITHIN + (len(request) + length) * _CHARACTER
        found = await session.receive(length, min(most, self._port.timeout_of(None)))
        more = b""
        with contextlib.suppress(DeviceTimeout):
            more = await session.receive(1, _KW_ENDS)
        if (found + more).startswith(request) or (more and request.startswith(found + more)):
            raise GarbledData(f"the request for 0x{address:04X} came back; write echo=True")
        if more and (begin or more != _NOT_INITIALISED):
            raise GarbledData(f"more than {length} bytes arrived for 0x{address:04X}: {(found + more).hex(' ')}")
        if not begin and (more or not found.strip(_NOT_INITIALISED)):  # it sends 05 again: ask right behind one
            self._used_at = None
            await self._greet(session)
            return await self._exchange_kw(session, mode, address, length, data)
        return found


def _answer_to(request: bytes, heard: bytes) -> tuple[int, bytes] | None:
    """The kind and the data of the answer in what was heard; None if it is not there yet."""
    for kind, answered, data in _telegrams(heard):
        if kind in (_ANSWERED, _REFUSED) and answered == request:
            return kind, data
    return None


def _fault(request: bytes, heard: bytes) -> str:
    """Why there is no answer in what was heard; empty if nothing but acknowledgements was."""
    rest = heard.strip(_ACK)
    if any(True for _ in _telegrams(heard)):
        return f"an answer to another request: {rest.hex(' ')}"
    if rest == _NAK:
        return "the boiler did not understand the request"
    if rest.startswith(_TELEGRAM) and len(rest) > 1 and len(rest) >= rest[1] + 3:
        return f"the answer has a wrong checksum: {rest.hex(' ')}"
    return f"{rest.hex(' ')} arrived instead of the answer" if rest else ""


def _telegrams(heard: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Whole telegrams in what was heard, wherever they begin: kind, request, data."""
    at = -1
    while (at := heard.find(_TELEGRAM, at + 1)) >= 0:
        size = heard[at + 1] if at + 1 < len(heard) else 0
        content = heard[at + 1 : at + 2 + size]
        if size >= 5 and len(heard) >= at + size + 3 and sum8(content) == heard[at + size + 2]:
            yield content[1], content[2:6], content[6:]
