"""The board of the demo of a cluster: its nodes, which of them read which device, and what happened."""

from collections import deque
from collections.abc import Mapping

from leadsman.extras import missing
from leadsman.tools.demo.takeovers import Takeovers
from leadsman.tools.demo.terminal import heading, newest

try:
    from rich.console import Group, RenderableType
    from rich.text import Text
except ImportError as error:
    raise missing("demos", "rich", "demo", error) from error

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

    def screen(self, now: float, width: int, height: int) -> RenderableType:
        """See `leadsman.tools.demo.terminal.Screen`."""
        lines = [
            Text.assemble(("leadsman demo --cluster", "bold"), f"  {self._title}"),
            Text(self.note, "bold yellow"),
            heading("nodes", width),
            Text(f"{'node':<{_NAME}}{'process':<{_STATE}}{'devices':<{_COUNT}}{'readings':<{_COUNT}}", "dim"),
            *(self._node(number, name, now) for number, name in enumerate(self._states)),
            heading("devices, by the node that read each one last; · if nobody reads it", width),
            *self._devices(now),
            heading("log", width),
        ]
        for line in lines:
            line.truncate(width, overflow="ellipsis")
        return Group(*lines[:height], *newest(self.events, width, height - len(lines)))

    def _node(self, number: int, name: str, now: float) -> Text:
        silent = set(self._takeovers.silent(now, LATE))
        owned = [device for device in self._takeovers.owned(name) if device not in silent]
        cells = f"{len(owned):<{_COUNT}}{self._takeovers.readings.get(name, 0):<{_COUNT}}"
        line = Text(f"{name:<{_NAME}}{self._states[name]:<{_STATE}}{cells}")
        return line.append("█" * len(owned), _colour(number))

    def _devices(self, now: float) -> list[Text]:
        places = {name: number for number, name in enumerate(self._states)}
        lines, silent = [Text()], set(self._takeovers.silent(now, LATE))
        for position, (device, (node, _)) in enumerate(self._takeovers.devices.items()):
            if position and position % _LINE == 0:
                lines.append(Text())
            number = places.get(node, 0)
            if device in silent:
                lines[-1].append("· ", "bold red")
            else:
                lines[-1].append(f"{number + 1} ", _colour(number))
        return lines


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]
