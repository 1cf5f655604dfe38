"""The wires on which the app only calls, and a call is a whole exchange: calendars, I²C buses, the files of one-wire
thermometers, and programs. All but programs block, in a thread, and one class records and plays them. A chip, a
thermometer or a command is a lane of its own."""

import shlex
from datetime import date, tzinfo
from types import SimpleNamespace
from typing import Any

from leadsman.adapters.caldav.backend import CalendarBackend, CalendarChanges
from leadsman.adapters.i2c import I2cWire
from leadsman.adapters.onewire import OneWireFiles
from leadsman.adapters.program import Finished, Run
from leadsman.extensions.sessions.player import Lanes, Playing
from leadsman.extensions.sessions.recorder import WireLog
from leadsman.extensions.sessions.session import Fields, ReplyShape

NOTHING: Any = SimpleNamespace(close=lambda: None)
"""What is real where a session is played."""

_TEXTS = ReplyShape[list[str]]("found", lambda texts: (None, {"texts": texts}), lambda event: [*event.more["texts"]])
_CHANGES = ReplyShape[CalendarChanges](
    "changed",
    lambda changes: (None, changes._asdict()),
    lambda event: CalendarChanges(event.more["token"], event.more["objects"]),
)
_OPENED = ReplyShape[None]("opened", lambda _: (None, {}), lambda _: None)
_BYTES = ReplyShape[bytes]("received", lambda data: (data, {}), lambda event: event.data or b"")
_NAMES = ReplyShape[list[str]]("listed", lambda names: (None, {"names": names}), lambda event: [*event.more["names"]])
_CONTENT = ReplyShape[str](
    "content", lambda text: (text.encode(), {}), lambda event: (event.data or b"").decode(errors="replace")
)


class _Calendars(CalendarBackend):
    """The calendars of a server: what they are asked for, and the texts that they have."""

    def __init__(self, calls: WireLog | Lanes, backend: CalendarBackend = NOTHING) -> None:
        self._calls = calls
        self._backend = backend

    def search(self, calendar: str | None, start: date, end: date, zone: tzinfo) -> list[str]:
        window: Fields = {"calendar": calendar, "start": start.isoformat(), "end": end.isoformat(), "zone": str(zone)}
        return self._calls.call(_TEXTS, lambda: self._backend.search(calendar, start, end, zone), "search", **window)

    def search_all(self, calendar: str | None) -> list[str]:
        return self._calls.call(_TEXTS, lambda: self._backend.search_all(calendar), "search_all", calendar=calendar)

    def changes(self, calendar: str | None, token: str | None) -> CalendarChanges:
        asked: Fields = {"calendar": calendar, "token": token}
        return self._calls.call(_CHANGES, lambda: self._backend.changes(calendar, token), "changes", **asked)

    def names(self) -> list[str]:
        return self._calls.call(_TEXTS, lambda: self._backend.names(), "names")

    def close(self) -> None:
        self._backend.close()


class _Bus(I2cWire):
    """An I²C bus: transfers with its chips."""

    opened = False

    def __init__(self, calls: WireLog | Lanes, bus: I2cWire = NOTHING) -> None:
        self._calls = calls
        self._bus = bus

    def open(self) -> None:
        if not self.opened:
            self._calls.call(_OPENED, lambda: self._bus.open(), "open")
            self.opened = True

    def transfer(self, address: int, data: bytes, count: int) -> bytes:
        chip = f"0x{address:02x}"  # as i2cdetect and data sheets have it

        def transfer() -> bytes:
            return self._bus.transfer(address, data, count)

        return self._calls.call(_BYTES, transfer, "transfer", data, address=chip, count=count)

    def close(self) -> None:
        self.opened = False
        self._bus.close()


class _Thermometers(OneWireFiles):
    """Which thermometers are there, and the file of each."""

    def __init__(self, calls: WireLog | Lanes, files: OneWireFiles = NOTHING) -> None:
        self._calls = calls
        self._files = files

    def names(self) -> list[str]:
        return self._calls.call(_NAMES, lambda: self._files.names(), "list")

    def content(self, name: str) -> str:
        return self._calls.call(_CONTENT, lambda: self._files.content(name), "read", thermometer=name)


def _recorded_programs(log: WireLog, real: Run) -> Run:
    """Runs programs, and records their exit codes and their output."""

    async def run(program: str, arguments: tuple[str, ...]) -> Finished:
        with log.exchange("run", command=shlex.join((program, *arguments))) as n:
            ended = await real(program, arguments)
        log.answer(n, "ended", ended.output, code=ended.code, errors=ended.errors.decode(errors="replace"))
        return ended

    return run


def _played_programs(lanes: Lanes) -> Run:
    async def run(program: str, arguments: tuple[str, ...]) -> Finished:
        exchange = lanes.next_exchange("run", command=shlex.join((program, *arguments)))
        event = await Playing(lambda _: None).reply(exchange, "ended")
        return Finished(event.more["code"], event.data or b"", event.more["errors"].encode(errors="replace"))

    return run


RECORDED = {"calendars": _Calendars, "i2c": _Bus, "onewire": _Thermometers, "program": _recorded_programs}
PLAYED = {"calendars": _Calendars, "i2c": _Bus, "onewire": _Thermometers, "program": _played_programs}
