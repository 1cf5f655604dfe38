"""Draw a simulated day of a cluster: each time that a device had no node, as a dot. Into docs/pictures.

Usage: ``python scripts/cluster_picture.py``. The nodes are the real ones, on leases in memory in virtual time.
"""

import math
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from leadsman.extensions.nodes.cluster.placement import shard_of
from leadsman.extensions.nodes.lease.lease import Terms
from leadsman_rigs.memory_engine import EngineAway, Fault, Partition, Pause
from leadsman_rigs.virtual_cluster import History, Run, simulate

TARGET = Path(__file__).parent.parent / "docs" / "pictures" / "cluster-day.svg"
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
TERMS = Terms("house", ttl=15.0, shards=256)
DEVICES: dict[str, tuple[str, ...]] = {f"meter-{number}": () for number in range(10_000)}
START = MINUTE
"""Until then the nodes share the devices for the first time."""
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 340, 58, 16, 56, 82
MIN_SECONDS, MAX_SECONDS = 0.001, 1000.0
"""Seconds at the lower and the upper end of the scale, which is logarithmic."""
TICKS = ((0.01, "10 ms"), (0.1, "0.1 s"), (1.0, "1 s"), (10.0, "10 s"), (100.0, "100 s"))
LASTS = 20 * MINUTE
"""The latest end of what comes of an event."""
ENGINE_AWAY = "engine away"
RED, BLUE, GREY = "#b03a2e", "#5b8db8", "#7f8c8d"


class Gap(NamedTuple):
    """A time in which the devices of a shard had no node."""

    key: str
    at: float
    seconds: float
    devices: int


class Event(NamedTuple):
    """Something that happens in the day."""

    at: float
    label: str
    planned: bool
    """Whether a person wants it: an end, a restart, a new node. Nobody should wait then."""

    @property
    def colour(self) -> str:
        """Of its dots."""
        return BLUE if self.planned else RED

    def gaps(self, found: Iterable[Gap]) -> list[Gap]:
        """The gaps that came of it."""
        return [gap for gap in found if self.at - MINUTE <= gap.at <= self.at + LASTS]


EVENTS = (
    Event(2 * HOUR, "kill -9", planned=False),
    Event(5 * HOUR, "cut off", planned=False),
    Event(8 * HOUR, "SIGSTOP", planned=False),
    Event(11 * HOUR, "rolling restart", planned=True),
    Event(14 * HOUR, ENGINE_AWAY, planned=False),
    Event(17 * HOUR, "a node more", planned=True),
    Event(20 * HOUR, "a node less", planned=True),
)


def day() -> History:
    """Four nodes, of which one is killed, one is cut off, one is stopped, and all are restarted; ten minutes without
    the engine; and a fifth node for three hours."""
    kill, cut, stop, rolling, away, more, less = (event.at for event in EVENTS)
    runs = [Run("n0", 0.0, kill), Run("n0", kill + 5 * MINUTE, rolling, killed=False)]
    runs += [Run(f"n{number}", 0.0, rolling + number * MINUTE, killed=False) for number in (1, 2, 3)]
    runs += [Run(f"n{number}", rolling + number * MINUTE + 5.0) for number in range(4)]
    runs.append(Run("n4", more, less, killed=False))
    faults: list[Fault] = [
        Partition("n1", cut, cut + 10 * MINUTE),
        Pause("n2", stop, stop + 2 * MINUTE),
        EngineAway(away, away + 10 * MINUTE),
    ]
    return simulate(DEVICES, runs, TERMS, DAY, faults)


def gaps(history: History) -> list[Gap]:
    """All of them, of the shards that have devices."""
    devices = Counter(shard_of(name, needs, TERMS.shards).key for name, needs in DEVICES.items())
    free_since: dict[str, float] = {}
    found = []
    for work in history.works:
        since = free_since.get(work.key, START)
        if work.start > since:
            found.append(Gap(work.key, since, work.start - since, devices[work.key]))
        free_since[work.key] = max(since, work.end)
    return found


def picture(found: list[Gap]) -> str:
    """The picture."""
    away = next(event for event in EVENTS if event.label == ENGINE_AWAY)
    rest = sum(gap.seconds * gap.devices for gap in found if gap not in away.gaps(found))
    title = (
        f"A day of {len(DEVICES):,} devices on four nodes, TTL {TERMS.ttl:.0f} s, in virtual time: "
        "each dot is a time without a node"
    )
    note = f"but for the engine's ten minutes, {rest / (len(DEVICES) * (DAY - START)):.4%} of the time of all devices"
    parts = [_text(LEFT, 22, title, size=13), _text(LEFT, 40, note, fill=GREY), *_scale(), *_events(found)]
    dots = Counter(
        (round(_x(gap.at), 1), round(_y(gap.seconds), 1), event.colour) for event in EVENTS for gap in event.gaps(found)
    )
    assert sum(dots.values()) == len(found)
    parts += [
        f'<circle cx="{x}" cy="{y}" r="{1.4 + 0.35 * math.sqrt(count):.1f}" fill="{colour}" fill-opacity=".55"/>'
        for (x, y, colour), count in sorted(dots.items())
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'font-family="sans-serif" font-size="10">\n'
        f"<title>{title}</title>\n"
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#fbfcfd" stroke="#d5d8dc"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _scale() -> Iterable[str]:
    ground = HEIGHT - BOTTOM
    for seconds, label in TICKS:
        y = _y(seconds)
        yield f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#e5e8eb"/>'
        yield _text(LEFT - 6, y + 3.5, label, anchor="end", fill=GREY)
    y = _y(1.5 * TERMS.ttl)
    yield f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{RED}" stroke-dasharray="4 3"/>'
    yield _text(WIDTH - RIGHT, y - 4, "1.5 TTL", anchor="end", fill=RED)
    yield f'<path d="M{LEFT} {ground}H{WIDTH - RIGHT}" stroke="#aab7b8"/>'
    for hour in range(0, 25, 3):
        yield _text(_x(hour * HOUR), ground + 14, f"{hour}:00", anchor="middle", fill=GREY)


def _events(found: list[Gap]) -> Iterable[str]:
    ground = HEIGHT - BOTTOM
    for event in EVENTS:
        x, longest = _x(event.at), max(gap.seconds for gap in event.gaps(found))
        devices = sum({gap.key: gap.devices for gap in event.gaps(found) if gap.seconds > longest / 10}.values())
        yield f'<path d="M{x:.1f} {TOP}V{ground}" stroke="{event.colour}" stroke-opacity=".25"/>'
        yield _text(x, ground + 34, event.label, anchor="middle", fill=event.colour)
        yield _text(x, ground + 47, f"{devices:,}: {_duration(longest)}", anchor="middle", fill=event.colour)
    yield _text(
        LEFT,
        HEIGHT - 12,
        "red: a fault; blue: what a person wants; below: devices, and the longest time that they had no node",
        fill=GREY,
    )


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def _x(at: float) -> float:
    return LEFT + at / DAY * (WIDTH - LEFT - RIGHT)


def _y(seconds: float) -> float:
    part = math.log(max(seconds, MIN_SECONDS) / MIN_SECONDS) / math.log(MAX_SECONDS / MIN_SECONDS)
    return HEIGHT - BOTTOM - part * (HEIGHT - BOTTOM - TOP)


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 10, fill: str = "#1b2631") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{fill}">{text}</text>'


if __name__ == "__main__":
    history = day()
    assert not history.overlaps()
    TARGET.write_text(picture(gaps(history)), "utf-8")
    sys.stdout.write(f"wrote {TARGET}\n")
