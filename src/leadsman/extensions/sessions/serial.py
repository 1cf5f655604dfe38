"""The wire of a serial port: recorded between the port and its transport, and played to the port."""

import asyncio
from typing import Any, cast

from leadsman.adapters.serial.port import Line, Opener
from leadsman.extensions.sessions.player import Lanes, Playing
from leadsman.extensions.sessions.recorder import WireLog
from leadsman.extensions.sessions.session import Event


def recorded(log: WireLog, wire: Opener) -> Opener:
    """Return an opener of the port that records its traffic."""

    async def open_(line: Line) -> None:
        with log.exchange("open") as n:
            await wire(_RecordedLine(log, n, line))

    return open_


class _RecordedLine(Line):
    def __init__(self, log: WireLog, n: int, line: Line) -> None:
        self.n = n
        self.made = line.made
        self.aborted = False
        self._log = log
        self._line = line

    @property
    def lost(self) -> str | None:  # type: ignore[override]  # that of the line
        return self._line.lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._log.answer(self.n, "opened")
        self._line.connection_made(cast(asyncio.BaseTransport, _RecordedTransport(self._log, transport, self)))

    def data_received(self, data: bytes) -> None:
        self._log.answer(self.n, "received", bytes(data))
        self._line.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.aborted:
            self._log.answer(self.n, "closed")
        else:
            self._log.answer(self.n, "lost", message=None if exc is None else str(exc))
        self._line.connection_lost(exc)


class _RecordedTransport:
    """The transport, with sent bytes recorded."""

    def __init__(self, log: WireLog, transport: Any, line: _RecordedLine) -> None:
        self._log = log
        self._transport = transport
        self._line = line

    def write(self, data: bytes) -> None:
        self._line.n = self._log.ask("send", data)
        self._transport.write(data)

    def abort(self) -> None:
        self._line.aborted = True
        self._transport.abort()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def played(lanes: Lanes) -> Opener:
    """Return an opener of a recorded port."""

    async def open_(line: Line) -> None:
        transport = _PlayedTransport(lanes, line)
        await transport.playing.reply(lanes.next_exchange("open"), "opened")
        line.connection_made(cast(asyncio.BaseTransport, transport))

    return open_


class _PlayedTransport:
    def __init__(self, lanes: Lanes, line: Line) -> None:
        self.playing = Playing(self._deliver)
        self._lanes = lanes
        self._line = line

    def write(self, data: bytes) -> None:
        self.playing.begin(self._lanes.next_exchange("send", bytes(data)))

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._line.lost is not None

    def abort(self) -> None:
        self._end(None)

    def _deliver(self, event: Event) -> None:
        if self._line.lost is None and event.what == "received":
            self._line.data_received(event.data or b"")
        elif self._line.lost is None and event.what == "lost":
            message = event.more["message"]
            self._end(None if message is None else OSError(message))

    def _end(self, error: Exception | None) -> None:
        self.playing.end()
        self._line.connection_lost(error)


RECORDED, PLAYED = {"serial": recorded}, {"serial": played}
