"""Draw the pictures of the explanation pages from the code.

Usage: ``python scripts/diagrams.py``; with ``--check`` it only compares the pictures with the code.

The arrows between states are found by asking the machines of the breaker and of the connection: every state is given
every input. Those of a message in the outbox are its tables. The waits of the connection come from its machine too, the
layers from the import contracts, and the path of a reading from the modules that exist.
"""

import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from leadsman.core.mqtt import connection_state, message_state
from leadsman.core.resilience import breaker
from leadsman.core.resilience.breaker import (
    Circuit,
    CircuitBreaker,
    Closed,
    CycleOutcome,
    Disabled,
    HalfOpen,
    Isolated,
    Open,
)

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "docs" / "pictures"
WIDTH = 640
INK, LINE, FILL, PAPER = "#1b2631", "#5b8db8", "#d6e4f0", "#fbfcfd"

Step = Callable[[connection_state.ConnectionState], tuple[connection_state.ConnectionState, float]]

MODULES = (
    ("loop/timers.py", "rings what is due"),
    ("runtime/poll_runner.py", "starts the poll, sets the next one"),
    ("resilience/retry_loop.py", "timeout, shared bus, retry, circuit"),
    ("runtime/handler_calls.py", "a thread for a plain def"),
    ("readings/reading.py", "the result becomes fields"),
    ("runtime/publisher.py", "the publish rule decides"),
    ("mqtt/outbox.py", "keeps it until it is acknowledged"),
    ("mqtt/send_window.py", "sends it, again if necessary"),
    ("mqtt/codec_client.py", "speaks MQTT"),
)

PLACES = {
    "closed": (110, 70),
    "open": (410, 70),
    "half_open": (410, 220),
    "isolated": (110, 290),
    "disabled": (110, 345),
}
MESSAGE_PLACES = {"on disk only": (100, 90), "waiting": (320, 90), "in flight": (540, 90), "held": (320, 190)}
MESSAGE_ROWS = {
    "unwritten": (100, 370),
    "being written": (320, 370),
    "written": (540, 370),
    "replacing": (320, 480),
    "evicted": (540, 480),
}
"""Those with an arrow. The transitions of the others are written below."""
VERSIONS = {"tries 5.0": (220, 80), "uses 5.0": (530, 80), "tries 3.1.1": (220, 240), "uses 3.1.1": (530, 240)}
RULE = CircuitBreaker(threshold=1, recovery=0)
STATES: tuple[Circuit, ...] = (
    Closed(),
    Open(1, 1, 0.0, 1, 0, 0.0),
    HalfOpen(2, 1, 0.0, 1),
    Isolated(1, 0, 0.0),
    Disabled(1),
)


def moves() -> Iterator[tuple[str, str, str]]:
    """Each state with each input: the name of the state, what happens, and the name of the state after it."""
    for state in STATES:
        before = breaker.name_of(state)
        asked, permit = breaker.admit(RULE, state, 1.0, 10.0)
        yield before, "a poll is due", breaker.name_of(asked)
        if permit is not None:
            for outcome in (CycleOutcome.SUCCEEDED, CycleOutcome.FAILED):
                after = breaker.settle(RULE, asked, permit, outcome, 2.0)
                kind = "probe" if permit.probe else "cycle"
                yield breaker.name_of(asked), f"{kind} {outcome.value}", breaker.name_of(after)
        yield before, "a person isolates it", breaker.name_of(breaker.isolate(state, 1.0))
        yield before, "a person disables it", breaker.name_of(breaker.disable(state))
        yield before, "a person closes it", breaker.name_of(breaker.close(state))


def circuit() -> str:
    """The states of a circuit, with an arrow for each input that moves it, and a line about what a person may do."""
    parts = _machine(PLACES, (each for each in moves() if not each[1].startswith("a person")))
    for name, meaning in (
        ("isolated", "a person isolates it: no poll runs"),
        ("disabled", "a person disables it: every poll runs"),
    ):
        x, y = PLACES[name]
        parts.append(_text(x + 75, y + 5, meaning, "start"))
    parts.append(_text(WIDTH / 2, 392, "A person may isolate, disable or close the circuit in every state.", "middle"))
    return _picture("The states of a circuit", 410, parts)


def version_moves() -> Iterator[tuple[str, str, str]]:
    """How the connection moves between the versions of MQTT: the state, what happens, and the state after it."""
    first = connection_state.ConnectionState()
    refused = connection_state.refused(first, connection_state.UNSUPPORTED_VERSION, 0.0, 0.0)[0]
    silent, times = first, 0
    while silent.protocol == connection_state.V5:
        silent, times = connection_state.failed(silent, 0.0, 0.0, no_connack=True)[0], times + 1
    yield _version(first), "version refused", _version(refused)
    yield _version(first), f"no CONNACK {times} times", _version(silent)
    both = connection_state.refused(refused, connection_state.UNSUPPORTED_VERSION, 0.0, 0.0)[0]
    yield _version(refused), "version refused", _version(both)
    for before in (first, refused):
        there = connection_state.connected(before, 0.0)
        yield _version(before), "CONNACK", _version(there)
        yield _version(there), "cut", _version(connection_state.failed(there, connection_state.SETTLED + 1, 0.0)[0])
    old = connection_state.connected(refused, 0.0)
    yield _version(old), "cut after a day", _version(connection_state.failed(old, connection_state.DAY + 1, 0.0)[0])


def _version(state: connection_state.ConnectionState) -> str:
    return f"{'tries' if state.connected_at is None else 'uses'} {state.protocol}"


def versions() -> str:
    """Which version of MQTT the link tries, and when it changes."""
    return _picture("The version of MQTT", 300, _machine(VERSIONS, version_moves()))


def connection() -> str:
    """How long the link waits before it connects again: nothing listens, the host is silent for the first minute and
    after it, and refused."""
    soon = connection_state.not_listening(connection_state.ConnectionState(), 0.0, 1.0)
    early = connection_state.failed(connection_state.ConnectionState(), 0.0, 1.0)
    late = connection_state.ConnectionState(outage_since=0.0)
    rows = (
        ("nothing listens yet", [soon[1]] * 7),
        ("host silent: the first minute", [early[1]] * 7),
        (
            "host silent: after it",
            _series(lambda state: connection_state.failed(state, 2 * connection_state.FIRST_MINUTE, 1.0), late),
        ),
        (
            "refused: password, certificate",
            _series(lambda state: connection_state.misconfigured(state, 1.0), connection_state.ConnectionState()),
        ),
    )
    parts, y = [], 100
    for title, waits in rows:
        parts.append(_text(14, y, title, "start"))
        for column, wait in enumerate(waits):
            x, height = 230 + column * 56, max(2.0, wait)
            parts.append(f'<rect x="{x}" y="{y - height:.1f}" width="40" height="{height:.1f}" fill="{LINE}"/>')
            parts.append(_text(x + 20, y + 14, f"{wait:.3g} s", "middle", 10))
        y += 90
    parts.append(
        _text(
            14,
            y - 50,
            "The longest waits. Chance makes them shorter, so that many apps do not return at the same moment.",
            "start",
        )
    )
    return _picture("Waits before the next connection", y - 35, parts)


def _series(step: Step, state: connection_state.ConnectionState) -> list[float]:
    waits = []
    for _ in range(7):
        state, wait = step(state)
        waits.append(wait)
    return waits


def message() -> str:
    """Where a message of the outbox is, and what is on disk of it. What has no arrow is a line of text."""
    places = [(str(before), str(event), str(after)) for (before, event), after in message_state.PLACES.items()]
    rows = [(str(before), str(event), str(after)) for (before, event), after in message_state.ROWS.items()]
    parts = [_text(14, 52, "Where it is", "start", 12), _text(14, 332, "What is on disk of it", "start", 12)]
    parts += _region(MESSAGE_PLACES, places, 235)
    parts += _region(MESSAGE_ROWS, rows, 525)
    return _picture("The states of a message in the outbox", 650, parts)


def _region(places: Mapping[str, tuple[int, int]], moves: Sequence[tuple[str, str, str]], y: float) -> list[str]:
    """Some states, with arrows between neighbours, and the other transitions in words from `y` on."""
    words: dict[tuple[str, str], list[str]] = {}
    arrows = []
    for before, event, after in moves:
        (x1, y1), (x2, y2) = places.get(before, (0, 0)), places.get(after, (-WIDTH, -WIDTH))
        if (x1 == x2) != (y1 == y2) and abs(x1 - x2) <= 220:
            arrows.append((before, event, after))
        elif before != after:
            words.setdefault((event, after), []).append(before)
    lines = [f"{event}: {', '.join(states)} → {after}" for (event, after), states in words.items()]
    return _machine(places, arrows) + [_text(14, y + 16 * row, line, "start") for row, line in enumerate(lines)]


def house() -> str:
    """The layers of the import contract, from the doors above to the values below."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = {each["name"].partition(":")[0].partition(",")[0]: each.get("layers", ()) for each in contracts}
    wings, core = list(layers["The wings"]), list(layers["Inside the core"])
    layers = [*wings[: wings.index("core")], *core, *wings[wings.index("core") + 1 :]]
    parts = []
    for row, layer in enumerate(layers):
        y = 40 + row * 30
        rooms = [room.strip() for room in layer.split("|")]
        width = (WIDTH - 28 - 6 * (len(rooms) - 1)) / len(rooms)
        for column, room in enumerate(rooms):
            x = 14 + column * (width + 6)
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="24" rx="4" fill="{FILL}" stroke="{LINE}"/>'
            )
            parts.append(_text(x + width / 2, y + 16, room, "middle"))
    return _picture("The house: imports go down", 50 + len(layers) * 30, parts)


def path_of_a_reading() -> str:
    """The modules that a reading passes, each of which must exist."""
    parts = []
    for row, (module, does) in enumerate(MODULES):
        if not (ROOT / "src" / "leadsman" / "core" / module).exists():
            raise SystemExit(f"the path of a reading names {module}, which does not exist")
        y = 40 + row * 34
        parts.append(f'<rect x="14" y="{y}" width="230" height="24" rx="4" fill="{FILL}" stroke="{LINE}"/>')
        parts.append(_text(24, y + 16, module, "start"))
        parts.append(_text(258, y + 16, does, "start"))
        if row:
            parts.append(f'<path d="M129 {y - 10}v8" stroke="{LINE}" stroke-width="2" marker-end="url(#tip)"/>')
    return _picture("The path of a reading", 50 + len(MODULES) * 34, parts)


def _machine(places: Mapping[str, tuple[int, int]], moves: Iterable[tuple[str, str, str]]) -> list[str]:
    """The states at their places, with an arrow for all moves from one to another."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for before, what, after in moves:
        if before != after:
            labels = arrows.setdefault((before, after), [])
            labels += [] if what in labels else [what]
    parts = []
    for (before, after), labels in arrows.items():
        shift = 14 if (after, before) in arrows else 0
        parts.append(_arrow(*places[before], *places[after], shift, labels))
    return parts + [_box(x, y, name.replace("_", "-")) for name, (x, y) in places.items()]


def _arrow(x1: float, y1: float, x2: float, y2: float, shift: float, labels: Sequence[str]) -> str:
    across, down = x2 - x1, y2 - y1
    length = (across**2 + down**2) ** 0.5
    ux, uy = across / length, down / length
    sx, sy = -uy * shift, ux * shift
    gap_start, gap_end = (70 if abs(ux) > 0.5 else 22), (76 if abs(ux) > 0.5 else 28)
    a, b = x1 + ux * gap_start + sx, y1 + uy * gap_start + sy
    c, d = x2 - ux * gap_end + sx, y2 - uy * gap_end + sy
    part = 0.35 if abs(ux) > 0.5 and abs(uy) > 0.1 else 0.5
    lx, ly = a + (c - a) * part, b + (d - b) * part
    vertical = abs(ux) < 0.5
    anchor = ("start" if sx > 0 or not shift else "end") if vertical else "middle"
    if abs(ux) > 0.5 and abs(uy) > 0.1:  # a slanting arrow: its label stands below it
        anchor, lx, ly = "end", lx - 8, ly + 18
    lx += (6 if anchor == "start" else -6) if vertical else 0
    ly += 4 if vertical else (-6 if sy <= 0 else 14)
    return (
        f'<path d="M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}" stroke="{LINE}" stroke-width="2" marker-end="url(#tip)"/>'
        + "".join(_text(lx, ly + 14 * row, label, anchor) for row, label in enumerate(labels))
    )


def _box(x: float, y: float, label: str) -> str:
    return f'<rect x="{x - 65}" y="{y - 18}" width="130" height="36" rx="6" fill="{FILL}" stroke="{LINE}"/>' + _text(
        x, y + 5, label, "middle", 13
    )


def _text(x: float, y: float, text: str, anchor: str, size: int = 11) -> str:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{INK}">{escaped}</text>'


def _picture(title: str, height: float, parts: list[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" '
        'font-family="sans-serif">\n'
        f"<title>{title}</title>\n"
        f'<defs><marker id="tip" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="{LINE}"/></marker></defs>\n'
        f'<rect width="{WIDTH}" height="{height:g}" rx="6" fill="{PAPER}" stroke="#d5d8dc"/>\n'
        + _text(14, 24, title, "start", 13)
        + "\n"
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def diagrams() -> dict[str, str]:
    """All of them, by file name."""
    return {
        "circuit.svg": circuit(),
        "connection.svg": connection(),
        "house.svg": house(),
        "message.svg": message(),
        "path-of-a-reading.svg": path_of_a_reading(),
        "versions.svg": versions(),
    }


if __name__ == "__main__":
    made = diagrams()
    if "--check" in sys.argv:
        old = [
            name for name, text in made.items() if not (TARGET / name).exists() or (TARGET / name).read_text() != text
        ]
        if old:
            raise SystemExit(f"docs/pictures differs from the code ({', '.join(old)}); run: python scripts/diagrams.py")
    else:
        for name, text in made.items():
            (TARGET / name).write_text(text)
        sys.stdout.write(f"wrote {len(made)} pictures to {TARGET}\n")
