"""What screens and tables consist of: lines of text in styles, and how a text fits into as many cells as there are: how
many it takes, and how it is cut, filled up and broken. Pure."""

import re
import unicodedata
from collections.abc import Mapping

from leadsman.core.text import escape

_TOKENS = re.compile(" +|[^ ]+")
_SIGNS = "/-,;=&?"
"""Behind them a path or an address is broken."""


def cells(text: str) -> int:
    """Cells that a text takes on a terminal (Unicode UAX #11)."""
    if text.isascii():
        return len(text)
    return sum(_cells_of(each) for each in text)


def clip(text: str, width: int) -> str:
    """The text in at most `width` cells, with its control characters escaped: names and words come from others."""
    text = escape(text)
    if cells(text) <= width:
        return text
    return f"{_divide(text, width - 1)[0]}…" if width > 0 else ""


def pad(text: str, width: int) -> str:
    """The text with blanks behind it, in at least `width` cells."""
    return text + " " * max(0, width - cells(text))


def wrap(text: str, width: int, indent: str = "", further: str | None = None) -> list[str]:
    """A text in lines of at most `width` cells, broken between words. Only a word that is longer than a line is broken,
    if possible behind a slash, a hyphen or another sign. What fits is left as it is.

    Args:
        text: one line without control characters.
        width: cells, at least 4.
        indent: before the first line; at most half of the width.
        further: before the others; as `indent` if it is left out.
    """
    most = width // 2
    indent, further = indent[:most], (indent if further is None else further)[:most]
    if cells(indent) + cells(text) <= width:
        return [indent + text]
    lines: list[str] = []
    line, gap, is_new = indent, "", True
    for token in _TOKENS.findall(text):
        if token[0] == " ":
            gap = token
            continue
        if cells(line) + len(gap) + cells(token) > width:
            gap = ""
            if not is_new:
                lines.append(line)
                line = further
        line += gap
        while cells(line) + cells(token) > width:
            part, token = _at_sign(*_divide(token, max(width - cells(line), 0)))
            if not part and line in (indent, further):  # not even one of its characters fits
                part, token = token[0], token[1:]
            lines.append(line + part)
            line = further
        line, gap, is_new = line + token, "", False
    return [*lines, line]


def _divide(text: str, width: int) -> tuple[str, str]:
    """The beginning of a text that fits, and the rest."""
    used = 0
    for place, each in enumerate(text):
        used += _cells_of(each)
        if used > width:
            return text[:place], text[place:]
    return text, ""


def _at_sign(part: str, rest: str) -> tuple[str, str]:
    """The two parts of a word, divided behind the last sign of the first, if that leaves half of it."""
    place = max(part.rfind(sign) for sign in _SIGNS) + 1
    return (part, rest) if place <= len(part) // 2 else (part[:place], part[place:] + rest)


def _cells_of(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


STEPS = {"up": -1, "k": -1, "down": 1, "j": 1, "page-up": -10, "page-down": 10}
"""The rows by which keys move a cursor."""
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


def column(text: str, width: int) -> str:
    """The text in exactly `width` cells, with a blank at its end."""
    return pad(clip(text, width - 1), width)
