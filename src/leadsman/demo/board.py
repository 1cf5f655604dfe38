"""What the demo has heard from the broker, and how it looks: as a screen on a terminal, as lines elsewhere."""

import json
import logging
from collections import deque
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from leadsman.durations import human
from leadsman.mqtt.connection import Received

_COLOURS = {"ok": "green", "starting": "cyan", "error": "yellow", "stale": "magenta", "circuit_open": "red"}
EVENTS = 8
"""Lines of the log that fit on a small screen."""


class Board:
    """Everything shown comes from here, and nearly everything here came from the broker."""

    def __init__(self, prefix: str, broker: str) -> None:
        self.note = "all is well"
        """What the demo does on purpose at the moment."""
        self.events: deque[str] = deque(maxlen=EVENTS)
        self._prefix = prefix
        self._broker = broker
        self._readings: dict[str, tuple[dict[str, Any], float]] = {}
        self.counts: dict[str, int] = {}
        """Readings that arrived, by device."""
        self._status: dict[str, Any] = {}
        self._status_at = 0.0

    def hear(self, message: Received, now: float) -> str | None:
        """Take a message at `now`, epoch seconds. Returns it as a line, where it is worth one."""
        topic = message.topic.removeprefix(f"{self._prefix}/")
        device, _, kind = topic.rpartition("/")
        if kind == "state" and not message.retain:
            reading = json.loads(message.payload)
            self._readings[device] = (reading, now)
            self.counts[device] = self.counts.get(device, 0) + 1
            return f"{device:<10} {_in_words(reading)}"
        if topic == "status":
            self._status, self._status_at = json.loads(message.payload), now
            devices = self._status.get("devices", {})
            told = ", ".join(f"{name} {device['status']}" for name, device in devices.items())
            return f"heartbeat  {self._status['state']}, {self._status['health']}: {told}"
        if kind == "availability":
            return f"{device:<10} {message.payload.decode()}"
        return None

    def screen(self, now: float) -> RenderableType:
        """The whole board as a terminal shows it."""
        return Group(self._title(), self._devices(now), self._link(now), self._log())

    def _title(self) -> RenderableType:
        return Text.assemble(("leadsman demo", "bold"), f"  {self._broker}  ", (self.note, "bold yellow"), "\n")

    def _devices(self, now: float) -> RenderableType:
        table = Table(expand=True, box=None, header_style="dim")
        for heading in ("device", "status", "reading", "age", "readings", "why"):
            table.add_column(heading, no_wrap=heading not in ("reading", "why"), overflow="fold")
        told = self._status.get("devices", {})
        for name in sorted({*self._readings, *told}):
            reading, at = self._readings.get(name, ({}, now))
            device = told.get(name, {"status": "starting"})
            status = device["status"]
            table.add_row(
                name,
                Text(status.replace("_", " "), _COLOURS.get(status, "")),
                _in_words(reading),
                human(round(now - at)) if reading else "",
                str(self.counts.get(name, 0)),
                _why(device, now),
            )
        return Panel(table, title="devices, as the broker has them", title_align="left")

    def _link(self, now: float) -> RenderableType:
        mqtt = self._status.get("mqtt", {})
        if not mqtt:
            return Panel("waiting for the first heartbeat", title="heartbeat", title_align="left")
        words = (
            f"{self._status['state']}, {self._status['health']}, {human(round(now - self._status_at))} ago; "
            f"up {human(round(self._status['uptime_s']))}; MQTT {mqtt['protocol']}, connection {mqtt['connects']}; "
            f"outbox {mqtt['outbox_messages']} messages; dropped {mqtt['dropped']}"
        )
        return Panel(words, title="heartbeat", title_align="left")

    def _log(self) -> RenderableType:
        return Panel(Text("\n".join(self.events) or "nothing yet"), title="log", title_align="left")


class BoardLog(logging.Handler):
    """Shows the app's log on the board."""

    def __init__(self, board: Board) -> None:
        super().__init__()
        self._board = board

    def emit(self, record: logging.LogRecord) -> None:
        at = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        self._board.events.append(f"{at} {record.getMessage()}")


def _in_words(reading: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in reading.items())


def _why(device: dict[str, Any], now: float) -> str:
    if "last_error" not in device:
        return ""
    words = f"{device['consecutive_failures']} failed, {device['last_error']}"
    if device["status"] == "circuit_open" and device.get("next_poll_at"):
        due = datetime.fromisoformat(device["next_poll_at"]).timestamp()
        words += f"; next look in {max(0, round(due - now))} s"
    return words
