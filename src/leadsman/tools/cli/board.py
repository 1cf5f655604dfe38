"""The board of ``leadsman watch``: rows in, lines out, for a terminal of any size; and what the keys do. Pure."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from leadsman.core.introspection.situation import span
from leadsman.core.mqtt.topics import NODES
from leadsman.core.text import count_noun, escape
from leadsman.tools.cli.fleet import SEVERITY, STOPPED, AppRow, DeviceRow
from leadsman.tools.cli.screen import STEPS, Line, cells, clip, column, cut, wrap
from leadsman.tools.cli.times import localise

if TYPE_CHECKING:
    from leadsman.core.introspection.document import Verdict

_SEVERITY = {status: rank for rank, status in enumerate(SEVERITY)}
SORTS: Mapping[str, Callable[[DeviceRow], tuple[object, ...]]] = {
    "status": lambda row: (_SEVERITY.get(row.status, len(_SEVERITY)), row.prefix, row.device),
    "name": lambda row: (row.prefix, row.device),
    "age": lambda row: (-(row.age or 0.0), row.prefix, row.device),
}
"""The orders of the devices. The first one, which the board begins with, has the devices in trouble first."""
KEYS = "q quit  ↑ ↓ choose  Enter why  s sort  / filter  t trouble only"
DETAIL_KEYS = "q quit  ↑ ↓ another device  Esc back"
_APPS = 6
"""Lines of apps, and of apps that were stopped; the others are counted."""
_MIN_URL_CELLS = 10
"""Cells below which the URL of the broker is left out."""
_LOST = 3
"""Lines about our own connection."""
_STATUS, _AGE, _NEXT = 13, 9, 9
_WIDE = 100
"""Columns from which on names have more room."""


class Heading(NamedTuple):
    """What the first line shows, and what is wrong with our own connection."""

    broker: str
    clock: str
    lost: str | None
    """Why there is no connection to the broker, and since when; None with a connection."""
    options: str = ""
    """What another command needs to reach the broker, with a space before it."""
    notes: Sequence[str] = ()
    """What else is shown above the apps, such as what a demo breaks on purpose."""


class BoardView:
    """What the person at the terminal has chosen."""

    def __init__(self) -> None:
        self.sort = next(iter(SORTS))
        self.filter = ""
        self.typing = False
        """Whether the keys go into the filter."""
        self.trouble_only = False
        self.detail = False
        """Whether the chosen device fills the screen."""
        self.chosen: tuple[str, str] | None = None
        """Prefix and device."""
        self.moved = False
        """Whether a person has moved the cursor to the chosen device; else it stays at the first row."""
        self.top = 0
        """The first row on the screen."""
        self.visible: list[tuple[str, str]] = []
        """Prefix and device of the rows on the screen."""

    def of(self, rows: Sequence[DeviceRow]) -> list[DeviceRow]:
        """The rows that are shown, in their order. Chooses the first one, unless a person has moved to another."""
        text = self.filter.lower()
        found = [
            row
            for row in rows
            if row.status != STOPPED
            and text in f"{row.prefix}/{row.device} {row.status} {row.error}".lower()
            and not (self.trouble_only and row.well)
        ]
        found.sort(key=SORTS[self.sort])
        names = [(row.prefix, row.device) for row in found]
        if names and not self.detail and not (self.moved and self.chosen in names):
            self.chosen, self.moved = names[0], False
        return found

    def press(self, key: str, rows: Sequence[DeviceRow]) -> bool:
        """Do what a key asks for. Returns whether to quit."""
        if self.typing:
            self._type(key)
            return key == "ctrl-c"
        if key in ("q", "ctrl-c"):
            return True
        if key in STEPS:
            self._move(STEPS[key], self.of(rows))
        elif key == "enter":
            self.detail = self.chosen is not None
        elif key in ("esc", "backspace"):
            self.detail, self.filter = False, "" if not self.detail else self.filter
        elif key == "s":
            orders = list(SORTS)
            self.sort = orders[(orders.index(self.sort) + 1) % len(orders)]
        elif key == "t":
            self.trouble_only = not self.trouble_only
        elif key == "/":
            self.typing, self.detail = True, False
        return False

    def _type(self, key: str) -> None:
        if key == "enter":
            self.typing = False
        elif key == "esc":
            self.typing, self.filter = False, ""
        elif key == "backspace":
            self.filter = self.filter[:-1]
        elif len(key) == 1 and key.isprintable():
            self.filter += key

    def _move(self, by: int, shown: Sequence[DeviceRow]) -> None:
        names = [(row.prefix, row.device) for row in shown]
        if names:
            place = names.index(self.chosen) if self.chosen in names else 0
            self.chosen, self.moved = names[min(max(place + by, 0), len(names) - 1)], True


def screen(
    head: Heading,
    apps: Sequence[AppRow],
    rows: Sequence[DeviceRow],
    view: BoardView,
    size: tuple[int, int],
    why: "Verdict | None",
) -> list[Line]:
    """The whole screen: at most as many lines as the terminal has.

    Args:
        rows: those of all devices.
        size: columns and lines.
        why: the verdict about the chosen device, if its detail is open and its app has answered.
    """
    width, height = size
    running, rows = _expected(apps, rows)
    chosen = next((row for row in rows if (row.prefix, row.device) == view.chosen), None)
    top = list(_head(head, running, rows, width))
    bottom = _stopped_apps(apps, width) if height > len(top) + 2 else []
    room = height - len(top) - len(bottom) - 1
    if view.detail and chosen is not None:
        view.visible = [(chosen.prefix, chosen.device)]
        body, keys = list(_detail(chosen, why, width)), DETAIL_KEYS
        if len(body) > room > 1:
            more = f"… {count_noun(len(body) - room + 1, 'more line')}: leadsman why {shlex.quote(chosen.device)}"
            body = [*body[: room - 1], [(clip(more, width), "dim")]]
    else:
        body, keys = _devices(view, view.of(rows), running, width, max(1, room)), _keys(view)
    body = body[: max(0, room)]
    blank: list[Line] = [[] for _ in range(room - len(body))]
    return [cut(line, width) for line in [*top, *body, *blank, *bottom, [(keys, "dim")]][:height]]


def plain(apps: Sequence[AppRow], rows: Sequence[DeviceRow], width: int, options: str = "") -> list[Line]:
    """The board as lines without an end, for ``--once``. Errors are whole, since nobody can open a device there."""
    running, rows = _expected(apps, rows)
    many = len(running) > 1
    lines = [*(_app(app, width, known=True) for app in running), *([_titles(width)] if running or not apps else [])]
    for row in rows:
        lines.append(_values(row, many, width, "  "))
        if row.error:
            lines += [[(line, row.status)] for line in wrap(escape(_trouble(row)), width, "    ")]
    return [*lines, *_stopped(apps, width, options)]


def _expected(apps: Sequence[AppRow], rows: Sequence[DeviceRow]) -> tuple[list[AppRow], list[DeviceRow]]:
    """The apps that nobody has stopped, and their devices."""
    return [each for each in apps if each.state != STOPPED], [each for each in rows if each.status != STOPPED]


def _stopped(apps: Sequence[AppRow], width: int, options: str) -> list[Line]:
    """The apps that ended with a goodbye, each with what removes it from the broker."""
    found = [each for each in apps if each.state == STOPPED]
    lines: list[Line] = []
    for app in found[:_APPS]:
        since = f" {span(app.heard)} ago" if app.heard is not None else ""
        what = f"{app.prefix} stopped{since}, {count_noun(app.devices, 'device')}"
        text = f"{what}; {_removing(app.prefix, options)} removes it"
        lines += [[(line, "dim")] for line in wrap(escape(text), width, "", "    ")]
    if len(found) > _APPS:
        lines.append([(clip(f"… and {count_noun(len(found) - _APPS, 'other stopped app')}", width), "dim")])
    return lines


def _stopped_apps(apps: Sequence[AppRow], width: int) -> list[Line]:
    """One line about the apps that ended with a goodbye."""
    names = [each.prefix for each in apps if each.state == STOPPED]
    if not names:
        return []
    text = f"stopped: {', '.join(names)}"
    return [[(text if cells(text) <= width else clip(f"{count_noun(len(names), 'app')} {text}", width), "dim")]]


def _head(head: Heading, apps: Sequence[AppRow], rows: Sequence[DeviceRow], width: int) -> Iterator[Line]:
    trouble = sum(not row.well for row in rows)
    state = f", {trouble} in trouble" if trouble else ", all is well" if rows else ""
    if head.lost is not None:
        state = ", state unknown"
    name, clock, count = "leadsman watch", f"  {head.clock}", f"  {count_noun(len(rows), 'device')}{state}"
    room = width - len(name) - len(clock) - len(count) - 1
    broker = f"  {clip(head.broker, room - 2)}" if room > _MIN_URL_CELLS else ""
    yield [(name, "bold"), (column(f"{broker}{count}", width - len(name) - len(clock)), ""), (clock, "dim")]
    if head.lost is not None:
        yield from ([(column(line, width), "lost")] for line in wrap(escape(head.lost), max(1, width - 1))[:_LOST])
    for note in head.notes:
        yield from ([(line, "note")] for line in wrap(escape(note), width, "", "  "))
    for app in apps[:_APPS]:
        yield _app(app, width, known=head.lost is None)
    if len(apps) > _APPS:
        yield [(f"… and {count_noun(len(apps) - _APPS, 'other app')}", "dim")]


def _app(app: AppRow, width: int, *, known: bool) -> Line:
    parts = [f"up {span(app.uptime)}"] if app.uptime is not None and app.state == "online" else []
    if app.state != "online":
        parts += [f"heard {span(app.heard)} ago"] if app.heard is not None else []
    else:
        parts += [f"MQTT {app.protocol}, {count_noun(app.connects, 'connection')}"] if app.protocol else []
        parts.append(f"outbox {app.outbox}")
        parts += [f"dropped {app.dropped}"] if app.dropped else []
        parts += [f"nodes: {app.nodes}"] if app.nodes else []
    parts += [app.error] if app.error else []
    name = column(app.prefix, 16)
    state = f" {app.state}" if known else f" was {app.state}"
    rest = clip(f"  {', '.join(parts)}", width - 16 - len(state))
    return [(name, "bold"), (state, app.state if known else "dim"), (rest, "")]


def _removing(prefix: str, options: str) -> str:
    """The command that removes what a stopped app, or a node of one, left at the broker."""
    above, _, node = prefix.rpartition(f"/{NODES}/")
    if above:
        return f"leadsman cluster forget {shlex.quote(node)}{options} --prefix {shlex.quote(above)}"
    return f"leadsman clean{options} --prefix {shlex.quote(prefix)} --all"


def _titles(width: int) -> Line:
    name, room = _widths(width)
    text = f"  {column('device', name)}{column('status', _STATUS)}{column('last value', room)}{column('age', _AGE)}next"
    return [(clip(text, width), "dim")]


def _devices(
    view: BoardView, rows: Sequence[DeviceRow], running: Sequence[AppRow], width: int, height: int
) -> list[Line]:
    """The rows around the chosen one, as many as there is room for."""
    names = [(row.prefix, row.device) for row in rows]
    place = names.index(view.chosen) if view.chosen in names else 0
    room = height - 1
    is_cut = sum(2 if row.error else 1 for row in rows) > room > 2
    room -= is_cut
    view.top = min(view.top, place)
    while sum(2 if row.error else 1 for row in rows[view.top : place + 1]) > room and view.top < place:
        view.top += 1
    lines: list[Line] = [_titles(width)]
    view.visible = names[view.top : view.top + height]
    shown = view.top
    for row in rows[view.top :]:
        chosen = (row.prefix, row.device) == view.chosen
        lines += _row(row, len(running) > 1, width, marker="> " if chosen else "  ")
        if len(lines) > room + 1:
            break
        shown += 1
        if len(lines) > room:
            break
    if not rows:
        lines.append([("  no device; the filter hides them, or no app publishes a registry here", "dim")])
    lines = lines[: room + 1]
    if is_cut:
        sides = [f"{count} {side}" for count, side in ((view.top, "above"), (len(rows) - shown, "below")) if count]
        lines.append([(clip(f"  … more devices: {', '.join(sides)}", width), "dim")])
    return lines


def _row(row: DeviceRow, many: bool, width: int, *, marker: str) -> Iterator[Line]:
    yield _values(row, many, width, marker)
    if row.error:
        yield [(clip(f"    {_trouble(row)}", width), row.status)]


def _values(row: DeviceRow, many: bool, width: int, marker: str) -> Line:
    name, room = _widths(width)
    label = f"{row.prefix}/{row.device}" if many else row.device
    age = "" if row.age is None else span(row.age)
    due = "" if row.next_in is None else f"in {span(round(row.next_in))}" if row.next_in >= 1 else "now"
    return [
        (marker, "bold"),
        (column(label, name), "bold" if marker == "> " else ""),
        (column(row.status.replace("_", " "), _STATUS), row.status),
        (column(row.value, room), ""),
        (column(age, _AGE), ""),
        (clip(due, _NEXT), ""),
    ]


def _trouble(row: DeviceRow) -> str:
    """What is wrong with a device, in one line."""
    parts = [f"for {span(row.failing_for)}"] if row.failing_for is not None and row.failing_for >= 0 else []
    parts += [count_noun(row.failures, "failed poll")] if row.failures else []
    parts += [f"attempt {row.attempts}"] if row.attempts > 1 else []
    parts += [f"circuit {row.circuit.replace('_', ' ')}"] if row.circuit not in ("closed", "open") else []
    return f"{', '.join(parts)}: {row.error}" if parts else row.error


def _detail(row: DeviceRow, why: "Verdict | None", width: int) -> Iterator[Line]:
    """One device, with its verdict."""
    yield [(clip(f"{row.prefix}/{row.device}  ", width), "bold"), (row.status.replace("_", " "), row.status)]
    if why is None:
        yield [("waiting for the answer of the app …", "dim")]
    else:
        yield from ([(text, "bold")] for text in wrap(escape(why.get("cause") or why["summary"]), width))
        if why["state"] != "ok":
            todo = wrap(escape(f"To do: {why['advice']}"), width, "", "  ")
            yield from ([(text, "bold")] for text in todo)
    yield []
    yield from _wrapped(f"last value: {row.value or 'none'}", width)
    if row.age is not None:
        yield [(f"taken {span(row.age)} ago", "")]
    if row.next_in is not None:
        yield [(f"next call in {span(round(row.next_in))}", "")]
    if row.error and not (why is not None and row.error in (why.get("cause") or "")):
        yield from _wrapped(_trouble(row), width)
    if why is not None:
        shown = [why["summary"], *why["evidence"]] if "cause" in why else why["evidence"]
        for each in shown:
            yield from _wrapped(f"  {localise(each)}", width)


def _keys(view: BoardView) -> str:
    if view.typing:
        return f"filter: {view.filter}▏  Enter keeps it, Esc clears it"
    chosen = [f"sort: {view.sort}", *([f"filter: {view.filter}"] if view.filter else [])]
    return f"{KEYS}  ({', '.join(chosen + (['trouble only'] if view.trouble_only else []))})"


def _wrapped(text: str, width: int) -> Iterator[Line]:
    yield from ([(line, "")] for line in wrap(escape(text), width, "", "    "))


def _widths(width: int) -> tuple[int, int]:
    """The columns of the name and of the value."""
    name = 28 if width >= _WIDE else 20
    return name, max(4, width - 2 - name - _STATUS - _AGE - _NEXT)
