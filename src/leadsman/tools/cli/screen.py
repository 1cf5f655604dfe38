"""What screens and tables consist of: lines of text in styles, in as many cells as there are. Pure."""

from collections.abc import Mapping

from leadsman.tools.cli.cells import cells, clip, padded

Line = list[tuple[str, str]]
"""Pieces of text with their styles: names of `STYLES`, or empty."""

BOLD, GREEN, CYAN, YELLOW, RED = "1", "32", "36", "33", "31"
"""SGR parameters (ECMA-48 §8.3.117)."""
STATUSES: Mapping[str, str] = {
    "ok": GREEN,
    "starting": CYAN,
    "error": RED,
    "stale": YELLOW,
    "circuit_open": RED,
    "held": RED,
    "isolated": CYAN,
    "deferred": CYAN,
}
"""Those of the statuses of a device."""
STYLES: Mapping[str, str] = {
    **STATUSES,
    "offline": RED,
    "silent": RED,
    "online": GREEN,
    "bold": BOLD,
    "dim": "2",
    "lost": "41;97",
    "note": "1;33",
    "alarm": "1;31",
    "green": GREEN,
    "cyan": CYAN,
    "magenta": "35",
    "yellow": YELLOW,
}
"""SGR parameters."""


def text_of(line: Line, *, colour: bool) -> str:
    """A line as it is written."""
    pieces = [f"\x1b[{STYLES[style]}m{text}\x1b[0m" if colour and style in STYLES else text for text, style in line]
    return "".join(pieces) if colour else "".join(pieces).rstrip()


def cut(line: Line, width: int) -> Line:
    """The line in at most `width` cells."""
    kept: Line = []
    for text, style in line:
        shown = clip(text, width)
        width -= cells(shown)
        kept.append((shown, style))
    return kept


def fill(text: str, width: int) -> str:
    """The text in exactly `width` cells, with a blank at its end."""
    return padded(clip(text, width - 1), width)
