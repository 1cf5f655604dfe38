"""Shows what the broker has and what the app knows: as a screen on a terminal, as lines elsewhere."""

import json
import logging
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime

from leadsman.loop.durations import human
from leadsman.mqtt.answers import Json
from leadsman.mqtt.connection import Received
from leadsman.text import count_noun, describe
from leadsman.tools.cli.screen import Line, fill
from leadsman.tools.demo.terminal import exactly, heading, with_newest, wrap

_NAME, _STATUS, _AGE, _WAIT, _COUNT = 12, 13, 6, 7, 9
"""Columns of the table of devices; the reading has the rest."""
_WIDE = 100
"""Columns from which on a screen has room for how many readings arrived, and for longer lines."""
_EVENTS = 100
_REMEMBERED = 1000
"""Readings of a device whose times are kept, so that one that arrives twice counts once."""


class Board:
    """What arrived at the broker, and what the app says on its page, which it also does while the broker is away.

    Args:
        prefix: the topic prefix of the app.
        broker: which broker it is.
        ways: where else to look: the page, and a command.
    """

    def __init__(self, prefix: str, broker: str, ways: str) -> None:
        self.note = "all is well"
        """What the demo does on purpose at the moment."""
        self.events: deque[str] = deque(maxlen=_EVENTS)
        self._prefix = prefix
        self._broker = broker
        self._ways = ways
        self._arrived: dict[str, int] = {}
        self._times: dict[str, deque[str]] = {}
        self._status: dict[str, Json] = {}
        self._status_at = 0.0
        self._app: dict[str, Json] = {"mqtt": {}, "devices": {}, "recent": {}, "fields": {}}
        self._handed_over: dict[str, int] = {}

    def hear(self, message: Received, now: float) -> str | None:
        """Take a message of the broker at `now`, epoch seconds. Returns it as a line, where it is worth one."""
        topic = message.topic.removeprefix(f"{self._prefix}/")
        device, _, kind = topic.rpartition("/")
        if kind == "state" and not message.retain:
            if self._is_new(device, message.taken_at):
                self._arrived[device] = self._arrived.get(device, 0) + 1
            return f"{device:<10} {self._describe(device, json.loads(message.payload))}"
        if topic == "status":
            self._status, self._status_at = json.loads(message.payload), now
            devices = self._status.get("devices", {})
            statuses = ", ".join(f"{name} {device['status']}" for name, device in devices.items())
            return f"heartbeat  {self._status['state']}, {self._status['health']}: {statuses}"
        if kind == "availability":
            return f"{device:<10} {message.payload.decode()}"
        return None

    def know(self, document: dict[str, Json]) -> None:
        """Take what the app says of itself: its document of introspection."""
        self._app = document
        for name, device in document["devices"].items():
            self._handed_over[name] = device["runtime"]["counters"]["published"]

    @property
    def arrived(self) -> int:
        """Readings that the broker received, each counted once."""
        return sum(self._arrived.values())

    @property
    def waiting(self) -> int:
        """Readings that wait in the app for the broker, as far as the app said so last."""
        return sum(device["runtime"].get("outbox", {}).get("messages", 0) for device in self._app["devices"].values())

    @property
    def away(self) -> bool:
        """Whether the app has no connection to its broker, as far as it said so last."""
        return bool(self._app["mqtt"]) and not self._app["mqtt"]["connected"]

    @property
    def missing(self) -> int:
        """Readings that the app had handed over when it was asked last, and that the broker has not received."""
        return sum(max(0, count - self._arrived.get(name, 0)) for name, count in self._handed_over.items())

    def screen(self, now: float, width: int, height: int) -> list[Line]:
        """The whole board on a terminal of that size: `height` lines, which stay where they are whatever happens."""
        tall = 1 if width >= _WIDE else 2
        lines = [
            [("leadsman demo", "bold"), (f"  {self._broker}", "")],
            [(self._ways, "dim")],
            [(self.note, "note")],
            heading("devices, as the app has them", width),
            *self._devices(now, width),
            *exactly(self._failures(now, width), tall + 1),
            heading("the broker", width),
            *exactly(wrap(self._connection(now), width, self._colour_of_connection()), tall),
            heading("heartbeat, as the broker has it", width),
            *exactly(wrap(self._heartbeat(now), width), 1),
            heading("log", width),
        ]
        return with_newest(lines, self.events, width, height)

    def _is_new(self, device: str, taken_at: str | None) -> bool:
        """Whether this reading arrives for the first time. MQTT 3.1.1 does not say when one was taken."""
        if taken_at is None:
            return True
        times = self._times.setdefault(device, deque(maxlen=_REMEMBERED))
        if taken_at in times:
            return False
        times.append(taken_at)
        return True

    def _devices(self, now: float, width: int) -> Iterator[Line]:
        with_counts = width >= _WIDE
        room = width - _NAME - _STATUS - _AGE - _WAIT - (_COUNT if with_counts else 0)
        heads = _row(room, ("device", "status", "reading", "age", "waits", "arrived" if with_counts else ""), "")
        yield [(text, "dim") for text, _ in heads]
        for name, device in sorted(self._app["devices"].items()):
            status, recent = device["runtime"]["status"], self._app["recent"].get(name)
            reading = self._describe(name, recent["fields"]) if recent else ""
            taken = recent["at"] if recent else None  # also None while a window of the filters is open
            age = "" if taken is None else human(max(0, round(now - taken)))
            waits = str(device["runtime"].get("outbox", {}).get("messages", "")) or ""
            count = str(self._arrived.get(name, 0)) if with_counts else ""
            yield _row(room, (name, status.replace("_", " "), reading, age, waits, count), status)

    def _failures(self, now: float, width: int) -> Iterator[Line]:
        for name, device in self._app["devices"].items():
            if device["runtime"]["last_error"] is not None and device["runtime"]["consecutive_failures"]:
                yield from wrap(f"{name}: {_why(device['runtime'], now)}", width)

    def _connection(self, now: float) -> str:
        mqtt = self._app["mqtt"]
        if not mqtt:
            return "the app starts"
        dropped = f"{self.arrived} readings arrived, {mqtt['outbox']['dropped']} dropped"
        if mqtt["connected"]:
            return f"connected with MQTT {mqtt['protocol']}, connection {mqtt['connects']}; {dropped}"
        if "away_since" not in mqtt:
            return f"not connected yet, {count_noun(self.waiting, 'reading')} on disk"
        away = human(max(0, round(now - datetime.fromisoformat(mqtt["away_since"]).timestamp())))
        return f"away for {away}, {count_noun(self.waiting, 'reading')} on disk; {dropped}"

    def _colour_of_connection(self) -> str:
        return "alarm" if self.away else ""

    def _heartbeat(self, now: float) -> str:
        if "health" not in self._status:
            return "waiting for the first heartbeat"
        return (
            f"{self._status['state']}, {self._status['health']}, {human(round(now - self._status_at))} ago; "
            f"up {human(round(self._status['uptime_s']))}"
        )

    def _describe(self, device: str, reading: dict[str, Json]) -> str:
        """The fields of a reading, with their units."""
        terms = self._app["fields"].get(device, {})
        units = {name: f" {terms[name]['unit']}" if "unit" in terms.get(name, {}) else "" for name in reading}
        return ", ".join(f"{name} {value}{units[name]}" for name, value in reading.items())


class BoardLog(logging.Handler):
    """Shows the log of the app and its libraries on the board, the first line of each record."""

    def __init__(self, board: Board) -> None:
        super().__init__()
        self._board = board

    def emit(self, record: logging.LogRecord) -> None:
        at = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        text = record.getMessage().strip().partition("\n")[0]
        error = "" if record.exc_info is None or record.exc_info[1] is None else f": {describe(record.exc_info[1])}"
        self._board.events.append(f"{at} {text}{error}")


def _row(room: int, cells: tuple[str, str, str, str, str, str], status: str) -> Line:
    """A row of the table, in columns that do not depend on what is in them. The second one has the style of the
    status."""
    widths, styles = (_NAME, _STATUS, room, _AGE, _WAIT, _COUNT), ("", status, "", "", "", "")
    filled = (fill(cell, width) for cell, width in zip(cells, widths, strict=True))
    return list(zip(filled, styles, strict=True))


def _why(runtime: dict[str, Json], now: float) -> str:
    text = count_noun(runtime["consecutive_failures"], "failed poll")
    if runtime["status"] == "circuit_open" and runtime["next_due_at"]:
        wait = round(datetime.fromisoformat(runtime["next_due_at"]).timestamp() - now)
        text += f", next poll in {wait} s" if wait > 0 else ", polling now"
    return f"{text}: {runtime['last_error']}"
