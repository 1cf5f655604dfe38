"""Formats tables and documents for a terminal. Columns are as wide as their contents; statuses are coloured on a
terminal only."""

import json
import os
import re
import sys
from collections.abc import Sequence

from leadsman.monitoring.log_format import wants_colour
from leadsman.text import escaped

_COLOURS = {"ok": "32", "starting": "36", "error": "31", "stale": "33", "circuit_open": "31", "held": "31"}
_COLOURS |= {"isolated": "36", "deferred": "36"}
"""SGR parameters: green, cyan, red, yellow."""

_ODD = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")
"""DEL and C1 (ECMA-48 §5.3), and what turns the direction of text round (UAX 9)."""


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The lines of a table: left-aligned columns under their heads. Control characters in cells are escaped."""
    rows = [[escaped(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in [heads, *rows]) for column in range(len(heads))]
    colour = wants_colour(sys.stdout, os.environ)
    lines = [_line(heads, widths, colour=False), _line(["-" * width for width in widths], widths, colour=False)]
    return "\n".join(lines + [_line(row, widths, colour=colour) for row in rows])


def json_text(document: object, indent: int | None = None) -> str:
    """A document as JSON. Characters that JSON allows and that may drive a terminal are written as ``\\u009b``."""
    return _ODD.sub(lambda odd: json.dumps(odd[0])[1:-1], json.dumps(document, ensure_ascii=False, indent=indent))


def _line(cells: Sequence[str], widths: Sequence[int], *, colour: bool) -> str:
    padded = []
    for cell, width in zip(cells, widths, strict=True):
        text = cell.ljust(width)
        padded.append(f"\x1b[{_COLOURS[cell]}m{text}\x1b[0m" if colour and cell in _COLOURS else text)
    return "  ".join(padded).rstrip()
