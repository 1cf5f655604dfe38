"""The board of the demo of a cluster: its nodes, which of them read which device, and what happened."""

from collections import deque
from collections.abc import Mapping

from leadsman.tools.cli.screen import Line
from leadsman.tools.demo.takeovers import Takeovers
from leadsman.tools.demo.terminal import heading, with_newest

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
