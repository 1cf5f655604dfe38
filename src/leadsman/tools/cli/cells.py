"""Fits text into the cells of a terminal: how many a text takes, and how it is cut, filled up and broken. Pure."""

import re
import unicodedata

from leadsman.text import escaped

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
    text = escaped(text)
    if cells(text) <= width:
        return text
    return f"{_divided(text, width - 1)[0]}…" if width > 0 else ""


def padded(text: str, width: int) -> str:
    """The text with blanks behind it, in at least `width` cells."""
    return text + " " * max(0, width - cells(text))


def wrapped(text: str, width: int, indent: str = "", further: str | None = None) -> list[str]:
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
            part, token = _at_sign(*_divided(token, max(width - cells(line), 0)))
            if not part and line in (indent, further):  # not even one of its characters fits
                part, token = token[0], token[1:]
            lines.append(line + part)
            line = further
        line, gap, is_new = line + token, "", False
    return [*lines, line]


def _divided(text: str, width: int) -> tuple[str, str]:
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
