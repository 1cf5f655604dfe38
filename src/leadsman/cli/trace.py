"""``leadsman trace``: rows of the trace, for a person or for a program."""

import json
from collections.abc import Sequence
from typing import Any

from leadsman.durations import human
from leadsman.wording import clean


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


def line_of(row: dict[str, Any]) -> str:
    """One row for a person."""
    where = f"{row['handler']}"
    if row["attempt"] is not None:
        where += f" poll {row['cycle'] + 1} call {row['attempt']}"
    error = "" if row["error_type"] is None else f"{row['error_type']}: {row['error_message']}"
    return clean(f"{row['at']}  {where}  {_verdict(row)}  {error}".rstrip())


def _verdict(row: dict[str, Any]) -> str:
    if row["delay"] is not None:
        return f"{row['reason']} in {human(round(row['delay'], 1))}"
    reason = str(row["reason"])
    return _WORDS.get(reason, reason)


_WORDS = {
    "count": "gave up: no retries left",
    "filtered": "gave up: not of a kind that is retried",
    "next-poll": "left to the next poll",
    "budget": "gave up: the budget is used up",
    "time": "gave up: the time is up",
    "probe": "the probe failed",
    "tokens": "gave up: the adapter has no retries left",
    "never": "gave up: the policy says never",
    "deferred": "deferred, as the device asked",
    "fault": "gave up: the policy itself failed",
}
"""What a verdict without a delay means."""
