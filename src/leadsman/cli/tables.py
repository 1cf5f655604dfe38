"""Formats tables, texts and documents for a terminal: in as many columns as it has, and statuses in colour. Where the
output goes elsewhere, each row is one line, for programs that look for words in it."""

import json
import os
import re
import sys
import textwrap
from collections.abc import Sequence

from leadsman.monitoring.log_format import wants_colour
from leadsman.text import escaped

_COLOURS = {"ok": "32", "starting": "36", "error": "31", "stale": "33", "circuit_open": "31", "held": "31"}
_COLOURS |= {"isolated": "36", "deferred": "36"}
"""SGR parameters: green, cyan, red, yellow."""

_ODD = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")
"""DEL and C1 (ECMA-48 §5.3), and what turns the direction of text round (UAX 9)."""


WIDEST = 120
"""Columns that are used at the most: longer lines are hard to read."""
NARROWEST = 10
"""Columns that a column of a table keeps, if its cells have as many."""
_BETWEEN = "  "


def columns() -> int | None:
    """The columns that a line may have; None if the output does not go to a terminal. ``COLUMNS`` sets it."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and len(given) < 5:
        return min(int(given), WIDEST) or None
    try:
        return min(os.get_terminal_size(sys.stdout.fileno()).columns, WIDEST) or None
    except (OSError, ValueError, AttributeError):  # also of a stream that is no file
        return None


def filled(text: str, indent: str = "", further: str | None = None) -> str:
    """A text in lines that fit, broken between words.

    Args:
        text: one line.
        indent: before the first line.
        further: before the others; as `indent` if it is left out.
    """
    most = columns()
    if most is None:
        return indent + text
    return "\n".join(_wrapped(text, most, indent, indent if further is None else further))


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The lines of a table: left-aligned columns under their heads. Control characters in cells are escaped. On a
    terminal, the widest columns are made so narrow that the lines fit, and their cells have several lines."""
    rows = [[escaped(cell) for cell in row] for row in rows]
    widths = _narrowed([max(len(row[column]) for row in [heads, *rows]) for column in range(len(heads))])
    colour = wants_colour(sys.stdout, os.environ)
    lines = [*_lines(heads, widths, colour=False), _line(["-" * width for width in widths], widths, colour=False)]
    return "\n".join(lines + [line for row in rows for line in _lines(row, widths, colour=colour)])


def json_text(document: object, indent: int | None = None) -> str:
    """A document as JSON. Characters that JSON allows and that may drive a terminal are written as ``\\u009b``."""
    return _ODD.sub(lambda odd: json.dumps(odd[0])[1:-1], json.dumps(document, ensure_ascii=False, indent=indent))


def _narrowed(widths: list[int]) -> list[int]:
    """The widths of columns that fit together: the widest gives way first."""
    most = columns()
    over = 0 if most is None else sum(widths) + len(_BETWEEN) * (len(widths) - 1) - most
    while over > 0 and max(widths) > NARROWEST:
        widest = widths.index(max(widths))
        second = max((width for width in widths if width < widths[widest]), default=NARROWEST)
        less = min(over, max(1, widths[widest] - max(second, NARROWEST)))
        widths[widest] -= less
        over -= less
    return widths


def _lines(cells: Sequence[str], widths: Sequence[int], *, colour: bool) -> list[str]:
    """A row, in as many lines as its longest cell needs."""
    parts = [_wrapped(cell, width) or [""] for cell, width in zip(cells, widths, strict=True)]
    count = max(map(len, parts))
    return [
        _line([part[number] if number < len(part) else "" for part in parts], widths, colour=colour)
        for number in range(count)
    ]


def _wrapped(text: str, width: int, indent: str = "", further: str = "") -> list[str]:
    """A text in lines that fit. Only a word that is longer than a line is broken. What fits is left as it is."""
    if len(indent) + len(text) <= width:
        return [indent + text]
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=further, break_on_hyphens=False)


def _line(cells: Sequence[str], widths: Sequence[int], *, colour: bool) -> str:
    padded = []
    for cell, width in zip(cells, widths, strict=True):
        text = cell.ljust(width)
        padded.append(f"\x1b[{_COLOURS[cell]}m{text}\x1b[0m" if colour and cell in _COLOURS else text)
    return _BETWEEN.join(padded).rstrip()
