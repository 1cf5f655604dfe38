"""What a row may be, so that no capability that comes makes every app heavier without being noticed.

The budgets are in one table, ``## Budgets`` of `benchmarks/README.md`, and nowhere else. A row is judged by its rounds:
ratios to the bare loop, or values of a row that has no bare side.
"""

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.rows import Row, written

PAGE = Path(__file__).parent / "README.md"
HEADING = "## Budgets"
DOUBT = 0.05
"""The chance that a row is said to exceed its budget whose median, of very many rounds, would just meet it."""
_ENTRY = re.compile(r"^\| (?P<row>.+?) \| (?P<bound>[≤≥]) (?P<limit>[\d.,]+) \| `(?P<part>\w+)` \|", re.MULTILINE)


class Budget(NamedTuple):
    """The most that a row may be, or the least."""

    bound: str
    """``≤`` or ``≥``."""
    limit: float

    def __str__(self) -> str:
        return f"{self.bound} {self.limit:,g}"


Budgets = Mapping[tuple[str, str], Budget]
"""By the part and the name of the row."""


def read(page: str) -> Budgets:
    """The budgets of a page, which is Markdown."""
    table = page.partition(f"\n{HEADING}\n")[2].partition("\n## ")[0]
    return {
        (found["part"], found["row"]): Budget(found["bound"], float(found["limit"].replace(",", "")))
        for found in _ENTRY.finditer(table)
    }


def beyond_noise(rounds: Sequence[float], bound: str) -> float:
    """What the median of very many rounds is at least, for ``≤``, or at most, for ``≥``.

    The noise of a run is the distance from the median to this. It is one of the rounds, counted from the better end:
    the best of five, and the second best of eight. So one round that a neighbour spoilt, or favoured, by much counts as
    one round. This is the confidence bound of the sign test: a round lies on either side of the true median with a
    chance of a half, whatever the distribution (Conover, Practical Nonparametric Statistics, 3rd edition, §3.2). Fewer
    than five rounds are too few for `DOUBT`, and the best of them is taken; one round has no noise.
    """
    ordered = sorted(rounds, reverse=bound == "≥")
    place = 0
    while sum(math.comb(len(ordered), each) for each in range(place + 2)) <= DOUBT * 2 ** len(ordered):
        place += 1
    return ordered[place]


def is_exceeded(rounds: Sequence[float], budget: Budget) -> bool:
    """Whether the rounds exceed a budget by more than their noise."""
    beyond = beyond_noise(rounds, budget.bound)
    return beyond > budget.limit if budget.bound == "≤" else beyond < budget.limit


def faults(part: str, rows: Sequence[Row], budgets: Budgets) -> list[str]:
    """What is wrong with the rows of a part: a budget that is exceeded, a row that has rounds and no budget, and a
    budget for which there is no value. A part of which nothing could be measured says so in its rows, and has none."""
    found = list[str]()
    for row in rows:
        if not row.rounds:
            continue
        budget = budgets.get((part, row.name))
        if budget is None:
            found.append(f"`{part}`: no budget for the row: {row.name}; write one into {HEADING[3:]} of {PAGE.name}")
        elif is_exceeded(row.rounds, budget):
            median, noise = statistics.median(row.rounds), beyond_noise(row.rounds, budget.bound)
            found.append(
                f"`{part}`: {row.name}: {written(median, '')}, {written(noise, '')} without the noise "
                f"(rounds: {len(row.rounds)}); the budget is {budget}"
            )
    judged = {row.name for row in rows if row.rounds}
    unused = (row for where, row in budgets if where == part and row not in judged) if judged else ()
    return [*found, *(f"`{part}`: no value for the budget of: {row}" for row in unused)]
