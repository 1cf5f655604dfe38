"""Shows what the demo received from the broker: as a screen on a terminal, as lines elsewhere."""

import json
import logging
import textwrap
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime

from leadsman.extras import missing
from leadsman.mqtt.answers import Json
from leadsman.mqtt.connection import Received
from leadsman.text import counted
from leadsman.timing.durations import human

try:
    from rich.console import Group, RenderableType
    from rich.text import Text
except ImportError as error:
    raise missing("demos", "rich", "demo", error) from error

_COLOURS = {"ok": "green", "starting": "cyan", "error": "yellow", "stale": "magenta", "circuit_open": "red"}
_COLOURS |= {"held": "red", "isolated": "cyan", "deferred": "cyan"}
_NAME, _STATUS, _AGE, _COUNT = 12, 13, 6, 9
"""Columns of the table of devices; the reading has the rest."""
_WIDE = 100
"""Columns from which on a screen has room for how many readings there were, and for longer lines."""
_EVENTS = 100


class Board:
    """Everything shown comes from here, and nearly everything here came from the broker.

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
        self._readings: dict[str, tuple[dict[str, Json], float]] = {}
        self.counts: dict[str, int] = {}
        """Readings that arrived, by device."""
        self._status: dict[str, Json] = {}
        self._status_at = 0.0

    def hear(self, message: Received, now: float) -> str | None:
        """Take a message at `now`, epoch seconds. Returns it as a line, where it is worth one."""
        topic = message.topic.removeprefix(f"{self._prefix}/")
        device, _, kind = topic.rpartition("/")
        if kind == "state" and not message.retain:
            reading = json.loads(message.payload)
            self._readings[device] = (reading, now)
            self.counts[device] = self.counts.get(device, 0) + 1
            return f"{device:<10} {_described(reading)}"
        if topic == "status":
            self._status, self._status_at = json.loads(message.payload), now
            devices = self._status.get("devices", {})
            statuses = ", ".join(f"{name} {device['status']}" for name, device in devices.items())
            return f"heartbeat  {self._status['state']}, {self._status['health']}: {statuses}"
        if kind == "availability":
            return f"{device:<10} {message.payload.decode()}"
        return None

    def screen(self, now: float, width: int, height: int) -> RenderableType:
        """The whole board on a terminal of that size: `height` lines, which stay where they are whatever happens."""
        tall = 1 if width >= _WIDE else 2
        lines = [
            Text.assemble(("leadsman demo", "bold"), f"  {self._broker}"),
            Text(self._ways, "dim"),
            Text(self.note, "bold yellow"),
            _heading("devices, as the broker has them", width),
            *self._devices(now, width),
            *_exactly(self._failures(now, width), tall + 1),
            _heading("heartbeat", width),
            *_exactly(_wrapped(self._heartbeat(now), width), tall),
            _heading("log", width),
        ]
        for line in lines:
            line.truncate(width, overflow="ellipsis")
        return Group(*lines[:height], *self._log(width, height - len(lines)))

    def _devices(self, now: float, width: int) -> Iterator[Text]:
        with_counts = width >= _WIDE
        room = width - _NAME - _STATUS - _AGE - (_COUNT if with_counts else 0)
        yield _row(room, ("device", "status", "reading", "age", "readings" if with_counts else ""), "dim")
        devices = self._status.get("devices", {})
        for name in sorted({*self._readings, *devices}):
            reading, at = self._readings.get(name, ({}, now))
            status = devices.get(name, {"status": "starting"})["status"]
            age = human(round(now - at)) if reading else ""
            count = str(self.counts.get(name, 0)) if with_counts else ""
            row = _row(room, (name, status.replace("_", " "), _described(reading), age, count))
            row.stylize(_COLOURS.get(status, ""), _NAME, _NAME + _STATUS)
            yield row

    def _failures(self, now: float, width: int) -> Iterator[Text]:
        for name, device in self._status.get("devices", {}).items():
            if "last_error" in device:
                yield from _wrapped(f"{name}: {_why(device, now)}", width)

    def _heartbeat(self, now: float) -> str:
        mqtt = self._status.get("mqtt")
        if not mqtt:
            return "waiting for the first heartbeat"
        return (
            f"{self._status['state']}, {self._status['health']}, {human(round(now - self._status_at))} ago; "
            f"up {human(round(self._status['uptime_s']))}; MQTT {mqtt['protocol']}, connection {mqtt['connects']}; "
            f"in the outbox {mqtt['outbox_messages']}; dropped {mqtt['dropped']}"
        )

    def _log(self, width: int, room: int) -> list[Text]:
        """The newest events, in the lines that are left."""
        lines = [line for event in self.events for line in _wrapped(event, width)]
        return _exactly(lines[-room:] if lines else [Text("nothing yet")], room) if room > 0 else []


class BoardLog(logging.Handler):
    """Shows the app's log on the board."""

    def __init__(self, board: Board) -> None:
        super().__init__()
        self._board = board

    def emit(self, record: logging.LogRecord) -> None:
        at = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        self._board.events.append(f"{at} {record.getMessage()}")


def _heading(title: str, width: int) -> Text:
    return Text(f"── {title} ".ljust(width, "─"), "dim")


def _row(room: int, cells: tuple[str, str, str, str, str], style: str = "") -> Text:
    """A row of the table, in columns that do not depend on what is in them."""
    name, status, reading, age, count = cells
    reading = reading if len(reading) < room else f"{reading[: room - 2]}…"
    name = name if len(name) < _NAME else f"{name[: _NAME - 2]}…"
    return Text(f"{name:<{_NAME}}{status:<{_STATUS}}{reading:<{room}}{age:<{_AGE}}{count}", style)


def _wrapped(text: str, width: int) -> list[Text]:
    return [Text(line) for line in textwrap.wrap(text, width, subsequent_indent="  ")]


def _exactly(lines: Iterator[Text] | list[Text], count: int) -> list[Text]:
    """So many lines, so that nothing below them jumps."""
    return [*lines, *[Text("")] * count][:count]


def _described(reading: dict[str, Json]) -> str:
    return ", ".join(f"{name} {value}" for name, value in reading.items())


def _why(device: dict[str, Json], now: float) -> str:
    text = f"{counted(device['consecutive_failures'], 'failed poll')}, {device['last_error']}"
    if device["status"] == "circuit_open" and device.get("next_poll_at"):
        wait = round(datetime.fromisoformat(device["next_poll_at"]).timestamp() - now)
        text += f"; next poll in {wait} s" if wait > 0 else "; polling now"
    return text
