"""``make faults``: run the fault matrix, or the rows that are named, and print it."""

import argparse
import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path

from fault_matrix.report import exit_code, markdown, produce_all, summary, table
from fault_matrix.row import Outcome, Row, all_rows


def chosen(words: list[str], rows: list[Row]) -> list[Row]:
    """The rows that the words name: by number, or by priority as ``P0``; all if there are no words."""
    found = [row for row in rows if not words or row.number in words or f"P{row.priority}" in words]
    known = {row.number for row in rows} | {"P0", "P1", "P2"}
    if unknown := [word for word in words if word not in known]:
        raise SystemExit(f"no row {', '.join(unknown)}; there are P0, P1, P2, {', '.join(row.number for row in rows)}")
    return found


class Progress:
    """One line on a terminal that says what is done."""

    def __init__(self, total: int) -> None:
        self._total, self._done = total, 0
        self._lock, self._shown = threading.Lock(), sys.stderr.isatty()

    def done(self, outcome: Outcome) -> None:
        """A row is done."""
        with self._lock:
            self._done += 1
            if self._shown:
                line = f"{self._done} of {self._total}: row {outcome.row.number} {outcome.verdict}, {outcome.row.fault}"
                width = shutil.get_terminal_size().columns - 1
                sys.stderr.write(f"\r\033[K{line[:width]}")
                if self._done == self._total:
                    sys.stderr.write("\r\033[K")
                sys.stderr.flush()


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("rows", nargs="*", help="numbers of rows, or P0, P1, P2; all by default")
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/explanation/faults.md")
    parser.add_argument("--jobs", type=int, default=4, help="rows at a time (default: 4)")
    parser.add_argument("--keep", type=Path, help="keep the logs of the apps in this directory")
    parser.add_argument("--minutes", type=float, help="how long the rows last whose faults come at random")
    parser.add_argument("--seed", type=int, help="another order of these faults")
    parser.add_argument("--schedules", type=int, help="how many schedules of faults nodes go through (default: 200)")
    words = parser.parse_args()
    if words.minutes is not None:
        os.environ["FAULTS_SECONDS"] = str(60 * words.minutes)  # before the rows are imported
    if words.schedules is not None:
        os.environ["FAULTS_SCHEDULES"] = str(words.schedules)
    if words.seed is not None:
        os.environ["FAULTS_SEED"] = str(words.seed)
    rows = chosen(words.rows, all_rows())
    directory = words.keep or Path(tempfile.mkdtemp(prefix="leadsman-faults-"))
    try:
        outcomes = produce_all(rows, directory, words.jobs, Progress(len(rows)).done)
    finally:
        if words.keep is None:
            shutil.rmtree(directory, ignore_errors=True)
    print(markdown(outcomes) if words.markdown else f"{table(outcomes)}\n")
    print(summary(outcomes), file=sys.stderr if words.markdown else sys.stdout)
    return exit_code(outcomes)


if __name__ == "__main__":
    sys.exit(main())
