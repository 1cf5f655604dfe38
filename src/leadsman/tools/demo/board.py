"""The boards of the demos: what the broker has and what the app has; and of a cluster its nodes, which of them read
each device last, how long each device waited for the next one when nodes came and went, and what happened. Where there
is no terminal, a demo is lines with the time."""

import asyncio
import json
import logging
import shlex
import shutil
import sys
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from leadsman.loop.durations import human
from leadsman.mqtt.answers import Json
from leadsman.mqtt.connection import Received
from leadsman.text import count_noun, describe, escape
from leadsman.tools.cli import screen
from leadsman.tools.cli.screen import Line, column, cut
from leadsman.tools.cli.terminal import full_screen, size, stderr_to

REDRAW = 0.25
"""Seconds between two drawings."""
_NAME, _STATUS, _AGE, _WAIT, _COUNT = 12, 13, 6, 7, 9
"""Columns of the table of devices; the reading has the rest."""
_WIDE = 100
"""Columns from which on a screen has room for how many readings arrived, and for longer lines."""
_EVENTS = 100
_REMEMBERED = 1000
"""Readings of a device whose times are kept, so that one that arrives twice counts once."""


class Board:
    """What arrived at the broker, and what the app shows on its page, which it also does while the broker is away.

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

    def take(self, document: dict[str, Json]) -> None:
        """Take the app's document of introspection."""
        self._app = document
        for name, device in document["devices"].items():
            self._handed_over[name] = device["runtime"]["counters"]["published"]

    @property
    def arrived(self) -> int:
        """Readings that the broker received, each counted once."""
        return sum(self._arrived.values())

    @property
    def waiting(self) -> int:
        """Readings that wait in the app for the broker, by its last document."""
        return sum(device["runtime"].get("outbox", {}).get("messages", 0) for device in self._app["devices"].values())

    @property
    def away(self) -> bool:
        """Whether the app has no connection to its broker, by its last document."""
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
            *exactly(wrap(self._connection(now), width, "alarm" if self.away else ""), tall),
            heading("heartbeat, as the broker has it", width),
            *exactly(wrap(self._heartbeat(now), width), 1),
            heading("log", width),
        ]
        return with_newest(lines, self.events, width, height)

    def _is_new(self, device: str, taken_at: str | None) -> bool:
        """Whether this reading arrives for the first time. MQTT 3.1.1 does not carry the time one was taken."""
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

    def _heartbeat(self, now: float) -> str:
        if "health" not in self._status:
            return "waiting for the first heartbeat"
        return (
            f"{self._status['state']}, {self._status['health']}, {human(round(now - self._status_at))} ago; "
            f"up {human(round(self._status['uptime']))}"
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
    filled = (column(cell, width) for cell, width in zip(cells, widths, strict=True))
    return list(zip(filled, styles, strict=True))


def _why(runtime: dict[str, Json], now: float) -> str:
    text = count_noun(runtime["consecutive_failures"], "failed poll")
    if runtime["status"] == "circuit_open" and runtime["next_poll_at"]:
        wait = round(datetime.fromisoformat(runtime["next_poll_at"]).timestamp() - now)
        text += f", next poll in {wait} s" if wait > 0 else ", polling now"
    return f"{text}: {runtime['last_error']}"


class NodeChange(NamedTuple):
    """A reading of a device by another node than the one before it."""

    device: str
    before: str
    node: str
    at: float
    """Seconds."""
    gap: float
    """Seconds from the last reading of the former node to the first one of the new node."""


class Takeovers:
    """An account of the readings that came, by device and node."""

    def __init__(self) -> None:
        self.changes: list[NodeChange] = []
        """In the order of time."""
        self.readings: dict[str, int] = {}
        """How many came, by node."""
        self._last: dict[str, tuple[str, float]] = {}

    def hear(self, device: str, node: str, at: float) -> None:
        """A node read a device at this time, seconds."""
        self.readings[node] = self.readings.get(node, 0) + 1
        if device in self._last:
            before, last_at = self._last[device]
            if before != node:
                self.changes.append(NodeChange(device, before, node, at, at - last_at))
        self._last[device] = node, at

    @property
    def devices(self) -> dict[str, tuple[str, float]]:
        """The node that read each device last, and when, in the order of their names."""
        return dict(sorted(self._last.items()))

    def owned(self, node: str) -> list[str]:
        """The devices that this node read last."""
        return [device for device, (last, _) in self.devices.items() if last == node]

    def silent(self, now: float, after: float) -> list[str]:
        """The devices whose last reading is older than `after` seconds."""
        return [device for device, (_, at) in self.devices.items() if now - at > after]

    def since(self, at: float, before: str | None = None) -> list[NodeChange]:
        """The changes from this time on; of the devices of one node if `before` names it."""
        return [change for change in self.changes if change.at >= at and before in (None, change.before)]

    def settled(self, nodes: Collection[str], count: int, now: float, quiet: float) -> bool:
        """Whether so many devices are read by exactly these nodes, all within the last `quiet` seconds, in which no
        device changed its node."""
        return (
            len(self._last) == count
            and {node for node, _ in self._last.values()} == set(nodes)
            and not self.silent(now, quiet)
            and not self.since(now - quiet)
        )


def describe_takeovers(changes: Collection[NodeChange]) -> str:
    """What came of some changes: how many devices, and how long they waited."""
    if not changes:
        return "no device changed its node"
    gaps = sorted(change.gap for change in changes)
    return f"{count_noun(len(gaps), 'device')} moved, longest gap {gaps[-1]:.1f} s, median {gaps[len(gaps) // 2]:.1f} s"


LATE = 1.6
"""A device without a reading for so many seconds is shown as one that nobody reads."""
_COLOURS = ("green", "cyan", "magenta", "yellow")
"""Of the nodes, in their order."""
_NODE, _STATE, _NUMBER = 8, 10, 10
"""Columns of the table of nodes."""
_LINE = 30
"""Devices in a line."""


class ClusterBoard:
    """What is shown of a cluster.

    Args:
        takeovers: the readings, as the broker had them.
        states: what each node does, in words, by its name.
        title: which servers there are.
    """

    def __init__(self, takeovers: Takeovers, states: Mapping[str, str], title: str) -> None:
        self.note = ""
        """What the demo does on purpose at the moment."""
        self.events: deque[str] = deque(maxlen=_EVENTS)
        self._takeovers = takeovers
        self._states = states
        self._title = title

    def screen(self, now: float, width: int, height: int) -> list[Line]:
        """As `Board.screen`."""
        lines = [
            [("leadsman demo --cluster", "bold"), (f"  {self._title}", "")],
            [(self.note, "note")],
            heading("nodes", width),
            [(f"{'node':<{_NODE}}{'process':<{_STATE}}{'devices':<{_NUMBER}}{'readings':<{_NUMBER}}", "dim")],
            *(self._node(number, name, now) for number, name in enumerate(self._states)),
            heading("devices, by the node that read each one last; · if nobody reads it", width),
            *self._devices(now),
            heading("log", width),
        ]
        return with_newest(lines, self.events, width, height)

    def _node(self, number: int, name: str, now: float) -> Line:
        silent = set(self._takeovers.silent(now, LATE))
        owned = [device for device in self._takeovers.owned(name) if device not in silent]
        cells = f"{len(owned):<{_NUMBER}}{self._takeovers.readings.get(name, 0):<{_NUMBER}}"
        return [(f"{name:<{_NODE}}{self._states[name]:<{_STATE}}{cells}", ""), ("█" * len(owned), _colour(number))]

    def _devices(self, now: float) -> list[Line]:
        places = {name: number for number, name in enumerate(self._states)}
        silent = set(self._takeovers.silent(now, LATE))
        marks = [
            ("· ", "alarm") if device in silent else (f"{places.get(node, 0) + 1} ", _colour(places.get(node, 0)))
            for device, (node, _) in self._takeovers.devices.items()
        ]
        return [marks[first : first + _LINE] for first in range(0, max(1, len(marks)), _LINE)]


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def program() -> str:
    """What to type in another terminal to run the command ``leadsman`` of this process. A virtual environment that is
    not active there, as after ``make demo``, is named."""
    own = Path(sys.executable).with_name("leadsman")
    found = shutil.which(own.name)
    if not own.is_file() or (found is not None and Path(found).samefile(own)):
        return own.name
    near = own.relative_to(Path.cwd()) if own.is_relative_to(Path.cwd()) else own
    return shlex.quote(str(near))


def print_text(line: str) -> None:
    """Print a line with the time, at once."""
    print(time.strftime("%H:%M:%S"), line, flush=True)


async def show(board: "Board | ClusterBoard") -> None:
    """Draw the board until cancelled. What is written to stderr meanwhile goes to its log."""
    with full_screen() as draw, stderr_to(lambda line: board.events.append(f"{time.strftime('%H:%M:%S')} {line}")):
        while True:
            draw(board.screen(time.time(), *size()))
            await asyncio.sleep(REDRAW)


def heading(title: str, width: int) -> Line:
    """The line above a part of a screen."""
    return [(f"── {title} ".ljust(width, "─"), "dim")]


def wrap(text: str, width: int, style: str = "") -> list[Line]:
    """A text in lines that are not longer than that, broken at words."""
    return [[(line, style)] for line in screen.wrap(escape(text), width, "", "  ")]


def exactly(lines: Iterable[Line], count: int) -> list[Line]:
    """So many lines, so that nothing below them moves."""
    return [*lines, *([("", "")] for _ in range(count))][:count]


def with_newest(lines: list[Line], events: Iterable[str], width: int, height: int) -> list[Line]:
    """A screen of `height` lines: these lines, and in those that are left below them the newest events."""
    room = max(0, height - len(lines))
    log = [line for event in events for line in wrap(event, width)] or [[("nothing yet", "")]]
    return [cut(line, width) for line in (*lines[:height], *exactly(log[-room:], room))]
