"""Limits the log lines about one device."""

import math

from leadsman.text import counted

MOST_LINES = 6
"""The most log lines about one device in a minute. The next line counts those that were left out."""
MINUTE = 60.0


class Lines:
    """Limits the lines about one device in a minute, and counts the rest."""

    def __init__(self) -> None:
        self._minutes: dict[str, tuple[float, int, int]] = {}

    def forget(self, entity: str) -> None:
        """Remove an entity."""
        self._minutes.pop(entity, None)

    def left_out(self, entity: str, at: float) -> int | None:
        """How many lines about `entity` were left out before this one. None: leave this one out, too."""
        began, lines, left_out = self._minutes.get(entity, (-math.inf, 0, 0))
        if at - began >= MINUTE:
            began, lines = at, 0
        if lines >= MOST_LINES:
            self._minutes[entity] = (began, lines, left_out + 1)
            return None
        self._minutes[entity] = (began, lines + 1, 0)
        return left_out


def left_out_before(lines: int) -> str:
    """The end of a log line that follows lines that were left out."""
    return f" ({counted(lines, 'line')} about it left out before this one)" if lines else ""
