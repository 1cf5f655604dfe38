"""The board of the demo of a cluster: its nodes, which of them read each device last, how long each device waited for
the next one when nodes came and went, and what happened."""

from collections import deque
from collections.abc import Collection, Mapping
from typing import NamedTuple

from leadsman.text import count_noun
from leadsman.tools.cli.screen import Line
from leadsman.tools.demo.terminal import heading, with_newest


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
_EVENTS = 100
_NAME, _STATE, _COUNT = 8, 10, 10
"""Columns."""
_LINE = 30
"""Devices in a line."""


class ClusterBoard:
    """What is shown.

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
        """See `leadsman.tools.demo.terminal.Screen`."""
        lines = [
            [("leadsman demo --cluster", "bold"), (f"  {self._title}", "")],
            [(self.note, "note")],
            heading("nodes", width),
            [(f"{'node':<{_NAME}}{'process':<{_STATE}}{'devices':<{_COUNT}}{'readings':<{_COUNT}}", "dim")],
            *(self._node(number, name, now) for number, name in enumerate(self._states)),
            heading("devices, by the node that read each one last; · if nobody reads it", width),
            *self._devices(now),
            heading("log", width),
        ]
        return with_newest(lines, self.events, width, height)

    def _node(self, number: int, name: str, now: float) -> Line:
        silent = set(self._takeovers.silent(now, LATE))
        owned = [device for device in self._takeovers.owned(name) if device not in silent]
        cells = f"{len(owned):<{_COUNT}}{self._takeovers.readings.get(name, 0):<{_COUNT}}"
        return [(f"{name:<{_NAME}}{self._states[name]:<{_STATE}}{cells}", ""), ("█" * len(owned), _colour(number))]

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
