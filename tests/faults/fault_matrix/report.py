"""Runs rows, several at a time, and writes what came of them."""

import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fault_matrix import stand
from fault_matrix.row import P0, Figure, Outcome, Row

ROOT = Path(__file__).parents[3]
PASSED = re.compile(r"(\d+) passed")
FAILED = re.compile(r"(\d+) (?:failed|errors?)\b")
WIDTH = 118


def produce(row: Row, directory: Path) -> Outcome:
    """Produce the fault of a row, by its own function or by its tests."""
    if row.run is not None:
        return stand.run(row, directory / row.number)
    if row.tests:
        return tested(row)
    needs = ", ".join(sorted(row.needs))
    fault = f"not built{f'; it needs {needs}' if needs else ''}"
    return Outcome(row, faults=[fault]) if row.priority == P0 else Outcome(row, absent=fault)


def tested(row: Row) -> Outcome:
    """Run the tests of a row."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *row.tests],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    outcome = Outcome(row, seconds=time.monotonic() - began)
    passed, failed = (sum(map(int, each.findall(done.stdout))) for each in (PASSED, FAILED))
    outcome.figures.append(Figure("tests passed", passed, least=1))
    if failed or done.returncode:
        outcome.faults.append(f"{failed} tests failed: {done.stdout[-500:]}")
    return outcome


def produce_all(
    rows: Sequence[Row], directory: Path, jobs: int, done: Callable[[Outcome], None] = lambda outcome: None
) -> list[Outcome]:
    """Produce the faults of `rows`, so many at a time, and return what came of them in the order of the rows."""
    with ThreadPoolExecutor(jobs) as workers:

        def one(row: Row) -> Outcome:
            outcome = produce(row, directory)
            done(outcome)
            return outcome

        return list(workers.map(one, rows))


def table(outcomes: Iterable[Outcome]) -> str:
    """The matrix for a terminal."""
    lines = []
    for outcome in outcomes:
        row = outcome.row
        head = f"{row.number:>4}  P{row.priority}  {outcome.verdict:<6}  "
        text = f"{row.fault} → {row.expected}"
        lines += textwrap.wrap(text, WIDTH, initial_indent=head, subsequent_indent=" " * len(head))
        figures = f"{outcome.words} ({outcome.seconds:.0f} s)"
        lines += textwrap.wrap(figures, WIDTH, initial_indent=" " * len(head), subsequent_indent=" " * len(head))
    return "\n".join(lines)


def markdown(outcomes: Iterable[Outcome]) -> str:
    """The matrix for a page."""
    lines = ["| # | P | fault | expected | verdict | measured |", "|---|---|---|---|---|---|"]
    for outcome in outcomes:
        row = outcome.row
        verdict = "**missed**" if outcome.missed else outcome.verdict
        cells = (row.number, str(row.priority), row.fault, row.expected, verdict, outcome.words)
        lines.append("| " + " | ".join(_cell(each) for each in cells) + " |")
    return "\n".join(lines)


def summary(outcomes: Sequence[Outcome]) -> str:
    """One line for each priority."""
    lines = []
    for priority in sorted({outcome.row.priority for outcome in outcomes}):
        found = [outcome for outcome in outcomes if outcome.row.priority == priority]
        counts = ", ".join(
            f"{sum(outcome.verdict == verdict for outcome in found)} {word}"
            for verdict, word in (("pass", "passed"), ("MISS", "missed"), ("absent", "not produced"))
        )
        missed = [outcome.row.number for outcome in found if outcome.missed]
        lines.append(f"P{priority}: {counts}" + (f" ({', '.join(missed)})" if missed else ""))
    return "\n".join(lines)


def exit_code(outcomes: Iterable[Outcome]) -> int:
    """1 if a row of P0 is missed."""
    return int(any(outcome.missed and outcome.row.priority == P0 for outcome in outcomes))


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
