"""Which node read each device last, and how long each device waited for the next one when nodes came and went."""

from collections.abc import Collection
from typing import NamedTuple

from leadsman.text import counted


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


def described(changes: Collection[NodeChange]) -> str:
    """What came of some changes: how many devices, and how long they waited."""
    if not changes:
        return "no device changed its node"
    gaps = sorted(change.gap for change in changes)
    return f"{counted(len(gaps), 'device')} moved, longest gap {gaps[-1]:.1f} s, median {gaps[len(gaps) // 2]:.1f} s"
