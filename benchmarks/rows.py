"""Rows of the table, and how both sides are compared."""

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

NONE = "–"


class Row(NamedTuple):
    """A line of the table."""

    name: str
    bare: str = NONE
    ours: str = NONE
    other: str = NONE
    """leadsman with its other client, which stands on aiomqtt and paho."""
    ratio: str = NONE
    """leadsman to the bare loop."""
    wanted: str = NONE
    rounds: tuple[float, ...] = ()
    """What its budget judges: the ratio of each round, or the value where there is no bare side; see
    `benchmarks.budgets`."""

    def __str__(self) -> str:
        return " | ".join(self[:-1])


def ratio_row(name: str, unit: str, sides: Mapping[str, float], wanted: str) -> Row:
    """A row of values, with the ratio of leadsman to the bare loop.

    Args:
        name: the first column.
        unit: of the values.
        sides: a value for each of ``bare``, ``ours`` and ``aiomqtt`` that was measured.
        wanted: the goal.
    """
    cells = [written(sides[side], unit) if side in sides else NONE for side in ("bare", "ours", "aiomqtt")]
    rounds = (sides["ours"] / sides["bare"],) if sides.get("bare") and "ours" in sides else ()
    return Row(name, cells[0], cells[1], cells[2], f"{rounds[0]:.2f}" if rounds else NONE, wanted, rounds)


def written(value: float, unit: str) -> str:
    """A value with its unit, three digits or all before the point."""
    number = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{number}{unit}" if unit.startswith("/") else f"{number} {unit}".rstrip()


def paired_row(name: str, unit: str, rounds: Sequence[Mapping[str, float]], wanted: str) -> Row:
    """A row of medians, with the median of the ratios: each round ran all sides one after the other, so that a
    neighbour on a shared machine spoils a round and not a side."""
    row = ratio_row(name, unit, {side: statistics.median(each[side] for each in rounds) for side in rounds[0]}, wanted)
    ratios = tuple(each["ours"] / each["bare"] for each in rounds)
    return row._replace(ratio=f"{statistics.median(ratios):.2f}", rounds=ratios)


def interleaved(measure: Callable[[str], float], sides: Sequence[str], times: int) -> list[dict[str, float]]:
    """So many rounds, each of which measures all sides."""
    return [{side: measure(side) for side in sides} for _ in range(times)]


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of the values, 0 to 1, do not exceed; not a number if there are none."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else float("nan")


def note(words: str) -> None:
    """Say what is being measured."""
    print(f"  {words}", file=sys.stderr, flush=True)
