"""The adapter for Viessmann's optical interface, with its protocols P300 (VS2) and KW (VS1), over a serial port of
4800 baud, 8E2.

::

    P300   boiler: 05 … (not initialised)   we: 04, 16 00 00   boiler: 06
           we: 41 len 00 mode hi lo n [data] sum   boiler: 06 41 len 01 mode hi lo n [data] sum   we: 06
    KW     boiler: 05 every two seconds   we, at once: 01 F7 hi lo n   boiler: n bytes, without a checksum
           we: 01 F4 hi lo n data   boiler: 00

The protocols are known from people who recorded the traffic; the maker has not published a document.
"""

import asyncio
from collections.abc import Mapping
from typing import Literal

from leadsman.adapters.serial.checksums import sum8
from leadsman.adapters.serial.framing import FixedFramer
from leadsman.adapters.serial.port import PortAdapter, SerialPort, Session
from leadsman.errors import GarbledData, InvalidValue, PermanentError, TransientError
from leadsman.loop.durations import Duration

MOST = 200
"""The most bytes in one read or write."""
_BEAT = 2.5
"""Seconds within which a boiler that is not initialised sends 05; it does so every two."""
_ROUNDS = 10
"""Bytes of a handshake; if none of so many makes sense, the line is noise."""
_LISTENS_FOR = {"P300": 2.0, "KW": 0.2}
"""Seconds that the boiler listens after a request; later, the handshake is necessary again."""
_RESET, _NOT_INITIALISED, _ACK, _NAK, _TELEGRAM = b"\x04", b"\x05", b"\x06", b"\x15", b"\x41"
_READ, _WRITE = 1, 2


class Optolink(PortAdapter):
    """A boiler control behind an optical adapter. Reads and writes take turns.

    Args:
        port: a path such as ``/dev/serial/by-id/usb-…``, a gateway such as ``socket://host:port``, or a `SerialPort`
            of your own that returns single bytes, ``framer=FixedFramer(1)``.
        protocol: ``P300`` for controls with VS2, which are most since 2004; ``KW`` for older ones.
        timeout: for one answer.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    def __init__(
        self, port: str | SerialPort, protocol: Literal["P300", "KW"] = "P300", *, timeout: Duration = 2.0
    ) -> None:
        if protocol not in _LISTENS_FOR:
            raise InvalidValue(f"protocol is {protocol!r}; it must be 'P300' or 'KW'")
        super().__init__(
            port, lambda path: SerialPort(path, 4800, parity="E", stopbits=2, framer=FixedFramer(1), timeout=timeout)
        )
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
        if not (type(address) is int and 0 <= address <= 0xFFFF and type(length) is int and 1 <= length <= MOST):
            raise InvalidValue(f"{length!r} bytes at {address!r}; write 1 to {MOST} bytes, at 0x0000 to 0xFFFF")
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
            for _ in range(MOST):
                if await session.receive(1, _BEAT) == _NOT_INITIALISED:
                    return
            raise GarbledData(
                f"{MOST} bytes arrived without the boiler's 05; check the protocol, and whether "
                "another device uses the line"
            )
        session.send(_RESET)
        for _ in range(_ROUNDS):
            received = await session.receive(1, _BEAT)
            if received == _ACK:
                return
            session.send(b"\x16\x00\x00" if received == _NOT_INITIALISED else _RESET)
        raise GarbledData(
            "no handshake with the boiler; check the protocol, and that the adapter sits on the optical port"
        )

    async def _exchange_p300(self, session: Session, mode: int, address: int, length: int, data: bytes) -> bytes:
        request = bytes((mode, address >> 8, address & 0xFF, length))
        content = bytes((5 + len(data), 0)) + request + data
        session.send(_TELEGRAM + content + bytes((sum8(content),)))
        for _ in range(_ROUNDS):  # an acknowledgement, maybe one more from before
            if (received := await session.receive()) != _ACK:
                break
        if received == _NAK:
            raise GarbledData(f"the boiler did not understand the request for 0x{address:04X}")
        if received != _TELEGRAM:
            raise GarbledData(f"{received.hex()} arrived instead of the answer for 0x{address:04X}")
        size = await session.receive()
        answer = size + await session.receive(size[0] + 1)
        if sum8(answer[:-1]) != answer[-1]:
            raise GarbledData(f"the answer for 0x{address:04X} has a wrong checksum: {answer.hex(' ')}")
        session.send(_ACK)
        kind, echo, found = answer[1:2], answer[2:6], answer[6:-1]
        if kind == b"\x03":
            raise PermanentError(
                f"the boiler has no value of {length} bytes at 0x{address:04X}, or the value is read-only"
            )
        if kind != b"\x01" or echo != request or len(found) != (length if mode == _READ else 0):
            raise GarbledData(f"an answer to another request than that for 0x{address:04X}: {answer.hex(' ')}")
        return found

    async def _exchange_kw(self, session: Session, mode: int, address: int, length: int, data: bytes) -> bytes:
        await session.discard()
        begin = b"" if self._listens() else b"\x01"
        session.send(begin + bytes((0xF7 if mode == _READ else 0xF4, address >> 8, address & 0xFF, length)) + data)
        if mode == _READ:
            return await session.receive(length)
        if (received := await session.receive()) != b"\x00":
            raise GarbledData(f"{received.hex()} arrived instead of 00 after writing 0x{address:04X}")
        return b""
