"""``leadsman trace``: rows of the trace, for a person or for a program."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from leadsman.errors import LeadsmanError
from leadsman.resilience.policy import REASONS
from leadsman.text import clean
from leadsman.timing.durations import human

FOLLOWING = 1.0
"""Seconds between two questions of ``--follow``."""


class Shown:
    """Shows rows as they come.

    Args:
        outage: only rows of this outage.
        as_json: one object per line, whole.
    """

    def __init__(self, outage: str | None, *, as_json: bool) -> None:
        self._outage = outage
        self._as_json = as_json
        self._empty = True

    def show(self, rows: Sequence[dict[str, Any]]) -> None:
        """Print these, each in a line."""
        wanted = [row for row in rows if self._outage is None or row["outage_id"] == self._outage]
        for row in wanted:
            print(json.dumps(row, ensure_ascii=False) if self._as_json else line_of(row), flush=True)
        if self._empty and not wanted and not self._as_json:
            print("nothing has failed", flush=True)
        self._empty = False


def follow(
    shown: Shown, request: dict[str, Any], answer: dict[str, Any], ask: Callable[[], dict[str, Any]]
) -> NoReturn:
    """Show new rows until somebody interrupts, also those of the app's next life.

    Args:
        shown: where.
        request: what `ask` asks; its ``after`` goes on.
        answer: the first one, which was shown.
        ask: asks again. Raises `LeadsmanError` while nobody answers.
    """
    born, away = time.monotonic() - answer["app"]["uptime"], False
    while True:
        request["after"] = max([request["after"], *(row["number"] for row in answer["trace"])])
        time.sleep(FOLLOWING)
        asked = time.monotonic()
        try:
            answer = ask()
        except LeadsmanError as error:
            if not away:
                print(f"{error}; asking on, Ctrl-C ends it", file=sys.stderr)
            away = True
            continue
        uptime = answer["app"]["uptime"]
        if asked - uptime > born + FOLLOWING:  # another life, which counts its rows from 1 again
            request["after"], answer = 0, {**answer, "trace": []}
        shown.show(answer["trace"])
        born, away = time.monotonic() - uptime, False


def line_of(row: dict[str, Any]) -> str:
    """One row for a person."""
    where = f"{row['handler']}"
    if row["attempt"] is not None:
        where += f" poll {row['cycle'] + 1} call {row['attempt']}"
    error = "" if row["error_type"] is None else f"{row['error_type']}: {row['error_message']}"
    return clean(f"{row['at']}  {where}  {_verdict(row)}  {error}".rstrip())


def _verdict(row: dict[str, Any]) -> str:
    reason = str(row["reason"])
    if row["delay"] is not None:
        rest = human(round(row["delay"], 1))
        return f"deferred for {rest}, as the device asked" if reason == "deferred" else f"{reason} in {rest}"
    if row.get("by"):
        return f"{reason}, by {row['by']}"
    return REASONS.get(reason, reason)
