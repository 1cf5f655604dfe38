"""Draws a simulated day as SVG. The same day gives the same bytes, on every machine.

At the top are the faults. Below is one strip for each policy: above its line the devices without a reading, and of
those the ones that an open circuit does not call; below its line the calls, and of those the ones that failed.
"""

import textwrap
from collections.abc import Iterator, Sequence
from html import escape

from leadsman.loop.durations import human
from leadsman.tools.simulation.outcome import (
    Columns,
    PolicyDay,
    Stage,
    brief,
    cut,
    draw_columns,
    hours_between,
    lanes_of,
    title_of,
)

WIDTH = 960
MARGIN = 20
LEFT, RIGHT = 132, 940
"""Where the day begins and ends."""
COLUMNS = 404
"""Each is two wide."""
LANE, STEP = 9, 17
"""The height of a fault's lane, and from one lane to the next."""
LOWEST = 0.4
"""Of the height of its lane: a fault of seconds is seen, too."""
GAPS, CALLS = 42, 24
"""The heights of a strip above and below its line."""
STRIP = 108
"""From one strip to the next."""
LETTERS = 140
"""Characters in a line of the advice."""
_STYLE = (
    "text{font-family:system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;font-size:11px;fill:#566573}"
    ".h{font-size:17px;font-weight:600;fill:#1b2631}.p{font:600 13px ui-monospace,'DejaVu Sans Mono',monospace;"
    "fill:#1b2631}.a{font-size:12.5px;fill:#1b2631}.e{text-anchor:end}.m{text-anchor:middle}"
    ".b{fill:#f1f4f6}.w{fill:#95a5a6}.g{fill:#cd4f41}.o{fill:#f0b341}.c{fill:#a5c5df}.f{fill:#41668a}"
    ".l{stroke:#dfe4e8}.z{stroke:#85929e}.k{stroke:#566573;stroke-width:1.5}"
)


def picture(stage: Stage, outcomes: Sequence[PolicyDay], advice: Sequence[str]) -> str:
    """The whole picture."""
    lanes, marks = lanes_of(stage, COLUMNS), _marks(stage)
    top = 92
    rows = len(lanes) + bool(marks)
    strips = top + rows * STEP + (22 if rows else 0)
    bottom = strips + len(outcomes) * STRIP
    advised = [line for sentence in advice for line in textwrap.wrap(sentence, LETTERS)]
    height = bottom + 34 + 18 * len(advised)
    drawn, most = draw_columns(outcomes, COLUMNS, stage.length)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(stage.app)}: {escape(stage.title)}</title>",
        f"<desc>{escape(' '.join([_describe(stage, outcomes), *advice]))}</desc>",
        f"<style>{_STYLE}</style>",
        f'<rect x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="8" fill="#fdfefe" stroke="#d5d8dc"/>',
        _text(MARGIN, 34, f"{stage.app}: {stage.title}", "h"),
        _text(MARGIN, 54, stage.heading),
        *_legend(circuits=any(any(each.open) for each in drawn)),
    ]
    for number, lane in enumerate(lanes):
        y = top + number * STEP
        parts += [_text(LEFT - 10, y + LANE, cut(lane.name, 17), "e"), _rect(LEFT, y, RIGHT - LEFT, LANE, "b")]
        seen = [max(share, LOWEST) if share else 0.0 for share in lane.shares]
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
    step = hours_between(length, 9)
    for number in range(int(length / 3600 / step) + 1):
        x = LEFT + number * step * 3600 / length * (RIGHT - LEFT)
        yield f'<path class="l" d="M{_n(x)} {top + 22}V{bottom - 18}"/>'
        yield _text(x, bottom - 4, f"{number * step} h", "m")


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
