"""Formats tables, texts and documents for a terminal: in as many columns as it has, and statuses in colour. Where the
output goes elsewhere, each row is one line, for programs that look for words in it."""

import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence

from leadsman.core.monitoring.log_format import wants_colour
from leadsman.core.text import escape
from leadsman.tools.cli.screen import STATUSES, cells, clip, pad, wrap

_ODD = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""DEL and C1 (ECMA-48 §5.3), what turns the direction of text round (UAX 9), and halves of surrogate pairs, which
UTF-8 cannot have."""


MAX_COLUMNS = 120
"""Columns that are used at most: longer lines are hard to read."""
MAX_WORD_CELLS = 24
"""Cells of the longest word for which a column of a table keeps room."""
READABLE = 24
"""Cells below which the last column, which has the longest texts, goes below its row; it does so, too, if one of its
words does not fit."""
_BETWEEN = "  "


def columns() -> int | None:
    """The columns that a line may have; None if the output does not go to a terminal. ``COLUMNS`` sets it."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and len(given) < 5:
        return min(int(given), MAX_COLUMNS) or None
    try:
        return min(os.get_terminal_size(sys.stdout.fileno()).columns, MAX_COLUMNS) or None
    except (OSError, ValueError, AttributeError):  # also of a stream that is no file
        return None


def fill(text: str, indent: str = "", further: str | None = None) -> str:
    """A text in lines that fit, broken between words.

    Args:
        text: one line.
        indent: before the first line.
        further: before the others; as `indent` if it is left out.
    """
    most = columns()
    return indent + text if most is None else "\n".join(wrap(text, most, indent, further))


def print_text(text: str, indent: str = "", further: str | None = None) -> None:
    """Print a text in lines that fit. Its control characters are escaped.

    Args:
        text: one line.
        indent: before the first line.
        further: before the others; two blanks more than `indent` if it is left out.
    """
    print(fill(escape(text), indent, f"{indent}  " if further is None else further), flush=True)


def paint(text: str, colour: str | None) -> str:
    """The text in a colour, if the output is a terminal that wants it. None leaves it as it is."""
    return f"\x1b[{colour}m{text}\x1b[0m" if colour and wants_colour(sys.stdout, os.environ) else text


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], colours: Mapping[str, str] = STATUSES) -> str:
    """The lines of a table: left-aligned columns under their heads. Control characters in cells are escaped. On a
    terminal, the widest columns are made so narrow that the lines fit, and their cells have several lines. If words
    would have to be broken for that, the last column goes below its row; if that is not enough, each cell has a line of
    its own.

    Args:
        heads: one for each column.
        rows: the cells.
        colours: SGR parameters of cells.
    """
    rows = [[escape(cell) for cell in row] for row in rows]
    most, wanted = columns(), _widths(heads, rows, cells)
    if most is None or _total(wanted) <= most:
        return _grid(heads, rows, wanted, colours)
    least = _widths(heads, rows, _longest_word)
    widths = _narrow(wanted, least, most)
    longest = max(cells(word) for row in rows for word in row[-1].split(" ")) if rows else 0
    if _total(widths) <= most and widths[-1] >= min(wanted[-1], max(READABLE, longest)):
        return _grid(heads, rows, widths, colours)
    widths = _narrow(wanted[:-1], least[:-1], most)
    if len(heads) > 2 and _total(widths) <= most:
        return _grid(heads, rows, widths, colours)
    return "\n".join(line for row in rows for line in _record(heads, row, most, colours))


def print_record(cells: Sequence[tuple[str, str]]) -> None:
    """Print texts with their names, one below the other. Control characters in them are escaped.

    Args:
        cells: the names and the texts. Those behind the first are indented, and empty ones are left out.
    """
    heads, row = zip(*(cells[0], *(each for each in cells[1:] if each[1])), strict=True)
    print("\n".join(_record(heads, [escape(cell) for cell in row], columns() or sys.maxsize, {})))


def json_text(document: object, indent: int | None = None) -> str:
    """A document as JSON. Characters that JSON allows and that may drive a terminal are written as ``\\u009b``."""
    return _ODD.sub(lambda odd: json.dumps(odd[0])[1:-1], json.dumps(document, ensure_ascii=False, indent=indent))


def _widths(heads: Sequence[str], rows: Sequence[Sequence[str]], measure: Callable[[str], int]) -> list[int]:
    """What each column measures at most."""
    return [max(measure(row[column]) for row in [heads, *rows]) for column in range(len(heads))]


def _longest_word(text: str) -> int:
    return min(max(map(cells, text.split(" "))), MAX_WORD_CELLS)


def _total(widths: Sequence[int]) -> int:
    """The cells of a line with columns of these widths."""
    return sum(widths) + len(_BETWEEN) * (len(widths) - 1)


def _narrow(wanted: Sequence[int], least: Sequence[int], most: int) -> list[int]:
    """The widths of columns that fit together, as far as each keeps what it needs: the widest gives way first."""
    widths = list(wanted)
    while _total(widths) > most:
        room = [column for column in range(len(widths)) if widths[column] > least[column]]
        if not room:
            break
        widths[max(room, key=widths.__getitem__)] -= 1
    return widths


def _grid(
    heads: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int], colours: Mapping[str, str]
) -> str:
    """A table whose columns have these widths. If there is one column more, it goes below its row."""
    count = len(widths)
    lines = [*_lines(heads[:count], widths, {}), *_lines(["-" * width for width in widths], widths, {})]
    for row in rows:
        lines += _lines(row[:count], widths, colours)
        for head, cell in zip(heads[count:], row[count:], strict=True):
            lines += fill(f"{head}: {cell}", "    ").split("\n") if cell else []
    return "\n".join(lines)


def _lines(row: Sequence[str], widths: Sequence[int], colours: Mapping[str, str]) -> list[str]:
    """A row, in as many lines as its longest cell needs."""
    parts = [wrap(cell, width) for cell, width in zip(row, widths, strict=True)]
    lines = []
    for number in range(max(map(len, parts))):
        pieces = [
            paint(pad(part[number] if number < len(part) else "", width), colours.get(cell))
            for cell, part, width in zip(row, parts, widths, strict=True)
        ]
        lines.append(_BETWEEN.join(pieces).rstrip())
    return lines


def _record(heads: Sequence[str], row: Sequence[str], most: int, colours: Mapping[str, str]) -> list[str]:
    """A row with a line for each cell that is not empty."""
    label = min(max(map(cells, heads)), most // 3)
    lines = wrap(f"{heads[0]} {row[0]}".rstrip(), most, "", "  ")
    for head, cell in zip(heads[1:], row[1:], strict=True):
        if cell:
            head = clip(head, label)
            found = wrap(f"{pad(head, label)}  {cell}", most, "  ", " " * (label + 4))
            lines += [paint(line, colours.get(cell)) for line in found]
    return lines
