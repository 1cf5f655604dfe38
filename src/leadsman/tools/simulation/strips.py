"""Draws a simulated day for a terminal: lines of at most 80 columns, in colour if that is wanted."""

import textwrap
from collections.abc import Sequence

from leadsman.tools.simulation.outcome import (
    PolicyDay,
    Stage,
    brief,
    cut,
    draw_columns,
    hours_between,
    lanes_of,
    title_of,
)

WIDTH = 80
COLUMNS = 65
LABEL = 13
"""Characters before the columns."""
LEAST = 0.005
"""A smaller share is drawn as a dot, as none is. Else one device of many would fill every column with its seconds."""
BLOCKS = "·▁▂▃▄▅▆▇█"
PLAIN = ".:-=+*%@#"
"""For terminals without block characters."""
_BOLD, _DIM, _RED, _YELLOW, _BLUE = "1", "2", "31", "33", "34"
"""SGR parameters."""
_HEADS = ("policy", "lost", "read", "gap p50", "gap p99", "longest", "calls", "failed")
_NAME = 22
"""Characters of a policy in the table."""


class Pen:
    """Writes lines of a drawing.

    Args:
        colour: whether to write escape sequences for colours.
        blocks: whether the terminal has block characters; else ASCII.
    """

    def __init__(self, *, colour: bool, blocks: bool) -> None:
        self._colour = colour
        self.ramp = BLOCKS if blocks else PLAIN

    def text(self, text: str, style: str) -> str:
        """A piece of text in a style."""
        return f"\x1b[{style}m{text}\x1b[0m" if self._colour and text else text

    def lane(self, label: str, shares: Sequence[float], style: str, least: float = LEAST) -> str:
        """One line of columns: each share, 0 to 1, is a block as high. One below `least` is a dot."""
        highest = len(self.ramp) - 1
        cells = "".join(
            self.ramp[min(highest, max(1, round(each * highest))) if each >= least else 0] for each in shares
        )
        return self.text(f"  {cut(label, LABEL - 3):<{LABEL - 2}}", _DIM) + self.text(cells, style)


def strips(stage: Stage, outcomes: Sequence[PolicyDay], advice: Sequence[str], pen: Pen) -> str:
    """The whole drawing."""
    lines = [pen.text(f"{stage.app}: {stage.title}", _BOLD), stage.heading, ""]
    lanes = lanes_of(stage, COLUMNS)
    marks = _marks(stage)
    if lanes or marks:
        lines += [pen.text("what goes wrong", _BOLD), *(pen.lane(lane.name, lane.shares, _DIM, 1e-9) for lane in lanes)]
        lines += [pen.text(f"  {'clock':<{LABEL - 2}}{marks}", _DIM)] if marks else []
        lines.append(pen.text(_axis(stage.length), _DIM))
    drawn, most = draw_columns(outcomes, COLUMNS, stage.length)
    for outcome, columns in zip(outcomes, drawn, strict=True):
        lines += ["", pen.text(cut(title_of(stage, outcome), WIDTH), _BOLD)]
        lines.append(pen.lane("no reading", columns.gaps, _RED))
        if any(columns.open):
            lines.append(pen.lane("circuit", columns.open, _YELLOW))
        lines.append(pen.lane("calls", [count / most for count in columns.calls], _BLUE))
    lines += [pen.text(_axis(stage.length), _DIM), "", *_table(outcomes, pen), ""]
    for sentence in advice:
        lines += textwrap.wrap(sentence, WIDTH)
    return "\n".join(line.rstrip() for line in lines)


def _axis(length: float) -> str:
    """The line below the columns, with hours since the start."""
    line = [" "] * WIDTH
    step = hours_between(length, 8)
    for number in range(int(length / 3600 / step) + 1):
        text = f"{number * step} h" if number else "0 h"
        at = min(LABEL + round(number * step * 3600 / length * COLUMNS), WIDTH - len(text))
        line[at : at + len(text)] = text
    return "".join(line).rstrip()


def _marks(stage: Stage) -> str:
    """The columns in which the wall clock is set (``s``) or daylight saving changes (``D``); empty if there are
    none."""
    line = [" "] * COLUMNS
    for sign, moments in (("s", [each.at for each in stage.plan.steps]), ("D", stage.shifts)):
        for at in moments:
            line[min(COLUMNS - 1, int(at / stage.length * COLUMNS))] = sign
    found = "".join(line).rstrip()
    return f"{found}" if found else ""


def _table(outcomes: Sequence[PolicyDay], pen: Pen) -> list[str]:
    """The figures, a row for each policy."""
    rows = [_HEADS]
    for each in outcomes:
        figures = each.figures
        gaps = (brief(figures.gap_p50), brief(figures.gap_p99), brief(figures.gap_max))
        read = f"{figures.availability:.2f}%"
        rows.append(
            (cut(each.policy, _NAME), f"{figures.lost:,}", read, *gaps, f"{figures.attempts:,}", f"{figures.failed:,}")
        )
    widths = [max(len(row[number]) for row in rows) for number in range(len(_HEADS))]
    lines = [
        "  ".join(cell.rjust(width) if number else cell.ljust(width) for number, (cell, width) in enumerate(cells))
        for cells in ([*zip(row, widths, strict=True)] for row in rows)
    ]
    return [pen.text(lines[0], _DIM), *lines[1:]]
