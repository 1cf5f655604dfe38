"""Draws a simulated day: in lines of at most 80 columns for a terminal, and as SVG. The same day gives the same bytes,
on every machine.

At the top are the faults. Below is one strip for each policy: the devices without a reading, and of those the ones that
an open circuit does not call; and the calls, and of those the ones that failed.
"""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import NamedTuple

from leadsman.core.loop.durations import human
from leadsman.tools.simulation.outcome import DeviceDay, PolicyDay, Stage, title_of
from leadsman.tools.simulation.scenario import BROKER, merge_spans


def brief(seconds: float) -> str:
    """A duration with two parts at most: ``2.1s``, ``40s``, ``12m30s`` or ``3h05m``."""
    if seconds < 10:
        return f"{seconds:.1f}s".replace(".0s", "s")
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"
    return f"{minutes // 60}h{minutes % 60:02d}m"


def cut(text: str, width: int) -> str:
    """A text of at most so many characters; an ellipsis shows that it was longer."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def axis(length: float, most: int) -> list[tuple[float, str]]:
    """The marks of an axis below a day, at most so many after the first: each as a part of the day, with its hour."""
    hours = length / 3600
    step = next((step for step in (1, 3, 6, 12, 24, 48, 96) if hours / step <= most), 168)
    return [(number * step * 3600 / length, f"{number * step} h") for number in range(int(hours / step) + 1)]


class Columns(NamedTuple):
    """What happened in each column of a day."""

    gaps: tuple[float, ...]
    """The share of the devices that had a gap, 0 to 1, on average over the column."""
    open: tuple[float, ...]
    """The share of the devices whose circuit was not closed, likewise."""
    calls: tuple[int, ...]
    """Calls that began in it."""
    failed: tuple[int, ...]
    """Those of them that failed."""


def columns_of(days: Sequence[DeviceDay], count: int, end: float) -> Columns:
    """Divide the day of all devices, which ends at `end` seconds, into `count` columns."""
    devices = len(days) or 1
    return Columns(
        coverage([[(gap.begin, gap.end) for gap in day.gaps] for day in days], count, end, devices),
        coverage([day.open for day in days], count, end, devices),
        count_in_columns(((at for day in days for at in day.calls)), count, end),
        count_in_columns(((at for day in days for at in day.failures)), count, end),
    )


def draw_columns(outcomes: Sequence[PolicyDay], count: int, end: float) -> tuple[list[Columns], int]:
    """The day under each policy in `count` columns, and the most calls in one of them, at least 1."""
    found = [columns_of(each.days, count, end) for each in outcomes]
    return found, max((calls for each in found for calls in each.calls), default=1) or 1


def coverage(spans: Iterable[Sequence[tuple[float, float]]], count: int, end: float, devices: int) -> tuple[float, ...]:
    """The share of time in each column that the spans of `devices` devices cover, on average, 0 to 1."""
    width = end / count
    found = [0.0] * count
    for own in spans:
        for begin, last in merge_spans(own):
            column = int(begin / width)
            while column < count and column * width < last:
                found[column] += max(0.0, min(last, (column + 1) * width) - max(begin, column * width))
                column += 1
    return tuple(min(1.0, round(each / width / devices, 6)) for each in found)


def count_in_columns(times: Iterable[float], count: int, end: float) -> tuple[int, ...]:
    """How many of the times lie in each column. Those at the end belong to the last one."""
    found = [0] * count
    for at in times:
        found[min(count - 1, int(at * count / end))] += 1
    return tuple(found)


class Lane(NamedTuple):
    """A fault of the plan over time."""

    name: str
    shares: tuple[float, ...]
    """How much of it is away in each column, 0 to 1."""


MAX_LANES = 4
"""Adapters with a lane each; more of them share one."""


def lanes_of(stage: Stage, count: int) -> list[Lane]:
    """The faults of a day, in lanes: the adapters, the devices together, and the broker. Lanes without a fault are left
    out."""
    plan, end = stage.plan, stage.length
    wires: list[tuple[str, tuple[str, ...]]] = [(label, (label,)) for label in stage.adapters]
    if len(wires) > MAX_LANES:
        wires = [("adapters", stage.adapters)]
    wires += [("devices", stage.devices), ("broker", (BROKER,))]
    lanes = []
    for name, own in wires:
        spans = [[(fault.begin, fault.end) for fault in plan.of([wire])] for wire in own]
        lanes.append(Lane(name, coverage(spans, count, end, len(own) or 1)))
    return [lane for lane in lanes if any(lane.shares)]


WIDTH = 80
COLUMNS = 65
LABEL = 13
"""Characters before the columns."""
MIN_DRAWN_SHARE = 0.005
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

    def lane(self, label: str, shares: Sequence[float], style: str, least: float = MIN_DRAWN_SHARE) -> str:
        """One line of columns: each share, 0 to 1, is a block as high. One below `least` is a dot."""
        highest = len(self.ramp) - 1
        cells = "".join(
            self.ramp[min(highest, max(1, round(each * highest))) if each >= least else 0] for each in shares
        )
        return self.text(f"  {cut(label, LABEL - 3):<{LABEL - 2}}", _DIM) + self.text(cells, style)


def strips(stage: Stage, outcomes: Sequence[PolicyDay], sentences: Sequence[str], pen: Pen) -> str:
    """The whole drawing."""
    lines = [pen.text(f"{stage.app}: {stage.title}", _BOLD), stage.heading, ""]
    lanes = lanes_of(stage, COLUMNS)
    marks = _clock_line(stage)
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
    for sentence in sentences:
        lines += textwrap.wrap(sentence, WIDTH)
    return "\n".join(line.rstrip() for line in lines)


def _axis(length: float) -> str:
    """The line below the columns, with hours since the start."""
    line = [" "] * WIDTH
    for part, text in axis(length, 8):
        at = min(LABEL + round(part * COLUMNS), WIDTH - len(text))
        line[at : at + len(text)] = text
    return "".join(line).rstrip()


def _clock_line(stage: Stage) -> str:
    """The columns in which the wall clock is set (``s``) or daylight saving changes (``D``); empty without them."""
    line = [" "] * COLUMNS
    for sign, moments in (("s", [each.at for each in stage.plan.steps]), ("D", stage.shifts)):
        for at in moments:
            line[min(COLUMNS - 1, int(at / stage.length * COLUMNS))] = sign
    return "".join(line).rstrip()


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


SVG_WIDTH = 960
MARGIN = 20
LEFT, RIGHT = 132, 940
"""Where the day begins and ends."""
SVG_COLUMNS = 404
"""Each is two wide."""
LANE, STEP = 9, 17
"""The height of a fault's lane, and from one lane to the next."""
MIN_HEIGHT = 0.4
"""Of the height of its lane: a fault of seconds is seen, too."""
GAPS, CALLS = 42, 24
"""The heights of a strip above and below its line."""
STRIP = 108
"""From one strip to the next."""
LETTERS = 140
"""Characters in a line of what is concluded."""
_STYLE = (
    "text{font-family:system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;font-size:11px;fill:#566573}"
    ".h{font-size:17px;font-weight:600;fill:#1b2631}.p{font:600 13px ui-monospace,'DejaVu Sans Mono',monospace;"
    "fill:#1b2631}.a{font-size:12.5px;fill:#1b2631}.e{text-anchor:end}.m{text-anchor:middle}"
    ".b{fill:#f1f4f6}.w{fill:#95a5a6}.g{fill:#cd4f41}.o{fill:#f0b341}.c{fill:#a5c5df}.f{fill:#41668a}"
    ".l{stroke:#dfe4e8}.z{stroke:#85929e}.k{stroke:#566573;stroke-width:1.5}"
)


def picture(stage: Stage, outcomes: Sequence[PolicyDay], sentences: Sequence[str]) -> str:
    """The whole picture."""
    lanes, marks = lanes_of(stage, SVG_COLUMNS), _marks(stage)
    top = 92
    rows = len(lanes) + bool(marks)
    strips = top + rows * STEP + (22 if rows else 0)
    bottom = strips + len(outcomes) * STRIP
    advised = [line for sentence in sentences for line in textwrap.wrap(sentence, LETTERS)]
    height = bottom + 34 + 18 * len(advised)
    drawn, most = draw_columns(outcomes, SVG_COLUMNS, stage.length)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SVG_WIDTH} {height}" role="img">',
        f"<title>{escape(stage.app)}: {escape(stage.title)}</title>",
        f"<desc>{escape(' '.join([_describe(stage, outcomes), *sentences]))}</desc>",
        f"<style>{_STYLE}</style>",
        f'<rect x=".5" y=".5" width="{SVG_WIDTH - 1}" height="{height - 1}" rx="8" fill="#fdfefe" stroke="#d5d8dc"/>',
        _text(MARGIN, 34, f"{stage.app}: {stage.title}", "h"),
        _text(MARGIN, 54, stage.heading),
        *_legend(circuits=any(any(each.open) for each in drawn)),
    ]
    for number, lane in enumerate(lanes):
        y = top + number * STEP
        parts += [_text(LEFT - 10, y + LANE, cut(lane.name, 17), "e"), _rect(LEFT, y, RIGHT - LEFT, LANE, "b")]
        seen = [max(share, MIN_HEIGHT) if share else 0.0 for share in lane.shares]
        parts.append(_area(seen, y + LANE, -LANE, "w"))
    if marks:
        parts += _clock(marks, top + len(lanes) * STEP)
    for number in range(len(outcomes)):
        parts.append(_rect(LEFT, strips + number * STRIP + 22, RIGHT - LEFT, GAPS + CALLS, "b"))
    parts += _grid(stage.length, strips, bottom)
    for number, (outcome, columns) in enumerate(zip(outcomes, drawn, strict=True)):
        parts += _strip(title_of(stage, outcome), outcome, columns, most, strips + number * STRIP)
    for number, line in enumerate(advised):
        parts.append(_text(MARGIN, bottom + 34 + 18 * number, line, "a"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _strip(title: str, outcome: PolicyDay, columns: Columns, most: int, top: int) -> Iterator[str]:
    figures, line = outcome.figures, top + 22 + GAPS
    gaps = f"gaps: half up to {brief(figures.gap_p50)}, 99 % up to {brief(figures.gap_p99)}, " if figures.gaps else ""
    yield _text(MARGIN, top + 12, cut(title, 54), "p")
    numbers = f"{figures.lost:,} of {figures.slots:,} readings lost, {gaps}longest {brief(figures.gap_max)}"
    yield _text(RIGHT, top + 12, numbers if figures.gaps else f"all {figures.slots:,} readings in time", "e")
    yield _text(LEFT - 10, line - GAPS // 2 + 4, "no reading", "e")
    yield _text(LEFT - 10, line + CALLS // 2 + 1, f"{figures.attempts:,} calls", "e")
    yield _text(LEFT - 10, line + CALLS // 2 + 14, f"{figures.failed:,} failed", "e")
    yield _area(columns.gaps, line, -GAPS, "g")
    yield _area(columns.open, line, -GAPS, "o")
    yield _area([count / most for count in columns.calls], line, CALLS, "c")
    yield _area([count / most for count in columns.failed], line, CALLS, "f")
    yield f'<path class="z" d="M{LEFT} {line}H{RIGHT}"/>'


def _legend(*, circuits: bool) -> Iterator[str]:
    words = [
        ("g", "no reading when one was due", 172),
        ("o", "circuit open", 86),
        ("c", "calls", 44),
        ("f", "failed", 38),
    ]
    shown = [word for word in words if circuits or word[0] != "o"]
    x = RIGHT + 8 - sum(width + 24 for _, _, width in shown)
    for style, text, width in shown:
        yield _rect(x, 45, 10, 10, style)
        yield _text(x + 15, 54, text)
        x += width + 24


def _grid(length: float, top: int, bottom: int) -> Iterator[str]:
    """A line each few hours, with the hours below."""
    for part, text in axis(length, 9):
        x = LEFT + part * (RIGHT - LEFT)
        yield f'<path class="l" d="M{_n(x)} {top + 22}V{bottom - 18}"/>'
        yield _text(x, bottom - 4, text, "m")


def _clock(marks: Sequence[tuple[float, str]], top: int) -> Iterator[str]:
    """The lane of the wall clock."""
    yield _text(LEFT - 10, top + LANE, "clock", "e")
    yield _rect(LEFT, top, RIGHT - LEFT, LANE, "b")
    for part, text in marks:
        x = LEFT + part * (RIGHT - LEFT)
        yield f'<path class="k" d="M{_n(x)} {top}v{LANE}"/>'
        yield _text(x + 5, top + LANE, text)


def _marks(stage: Stage) -> list[tuple[float, str]]:
    """When the wall clock jumps, as a part of the day, and how."""
    steps = [
        (each.at, f"set {'forward' if each.seconds > 0 else 'back'} {human(abs(each.seconds))}")
        for each in stage.plan.steps
    ]
    shifts = [(at, "daylight saving") for at in stage.shifts]
    return [(at / stage.length, text) for at, text in sorted([*steps, *shifts])]


def _area(shares: Sequence[float], line: float, height: float, style: str) -> str:
    """Columns on a line, as one path; `height` is that of a share of 1, negative for upwards."""
    width = (RIGHT - LEFT) / len(shares)
    path, before = "", 0.0
    for number, share in enumerate([*shares, 0.0]):
        if share == before:
            continue
        x, y = _n(LEFT + number * width), _n(line + share * height)
        path += f"H{x}V{y}" if before else f"M{x} {_n(line)}V{y}"
        path += "" if share else "Z"
        before = share
    return f'<path class="{style}" d="{path}"/>' if path else ""


def _describe(stage: Stage, outcomes: Sequence[PolicyDay]) -> str:
    """The picture in words, for those who do not see it."""
    lines = [
        f"{title_of(stage, each)}: {each.figures.lost} of {each.figures.slots} readings lost, longest gap "
        f"{brief(each.figures.gap_max)}, {each.figures.attempts} calls."
        for each in outcomes
    ]
    return f"{stage.heading}. {' '.join(lines)}"


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return f'<text x="{_n(x)}" y="{_n(y)}"{f" class={chr(34)}{style}{chr(34)}" if style else ""}>{escape(text)}</text>'


def _rect(x: float, y: float, width: float, height: float, style: str) -> str:
    return f'<rect class="{style}" x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}"/>'


def _n(number: float) -> str:
    """A number with one decimal at most."""
    return f"{number:.1f}".removesuffix(".0")
