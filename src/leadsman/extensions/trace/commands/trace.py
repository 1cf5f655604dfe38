"""``leadsman trace``: prints rows of the trace, for a person or for a program."""

import argparse
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from leadsman.core.loop.durations import human
from leadsman.core.resilience.policy import REASONS
from leadsman.core.text import clean
from leadsman.tools.cli.arguments import OF_LIVE, ONLY_DEVICES, Subcommand, argument, duration, switch
from leadsman.tools.cli.remote import any_version, ask_about_devices, section
from leadsman.tools.cli.screen import GREEN, RED, YELLOW
from leadsman.tools.cli.tables import fill, json_text, paint, print_text
from leadsman.tools.cli.times import local, zone

if TYPE_CHECKING:
    from leadsman.core.introspection.document import Request
    from leadsman.extensions.trace.document import TraceEntry


def run(options: argparse.Namespace) -> None:
    """Show the trace of a running app."""
    request: Request = {"sections": ["trace"]}
    if options.since is not None:
        request["since"] = time.time() - options.since
    answer = ask_about_devices(options, request)
    with any_version():
        if options.json:
            for row in section(answer, "trace"):
                print(json_text(row))
        else:
            print_section(section(answer, "trace"))


def print_section(rows: Sequence["TraceEntry"]) -> None:
    """Print rows, one a line."""
    if not rows:
        print("No call has failed.")
        return
    print_text(f"Times are local, {zone()}.")
    for row in rows:
        print(shown(row))


def shown(row: "TraceEntry") -> str:
    """One row for a person: a line, or several on a terminal that is too narrow, with its verdict in colour."""
    verdict = clean(_verdict(row))
    return fill(line_of(row), further="    ").replace(f"  {verdict}", f"  {paint(verdict, _colour(row))}", 1)


def line_of(row: "TraceEntry") -> str:
    """One row in one line."""
    where = row["handler"]
    if row["attempt"] is not None and row["cycle"] is not None:
        where += f" poll {row['cycle'] + 1} call {row['attempt']}"
    error = "" if row["error_type"] is None else f"{row['error_type']}: {row['error_message']}"
    return clean(f"{local(row['at'], exact=True)}  {where}  {_verdict(row)}  {error}".rstrip())


def _colour(row: "TraceEntry") -> str | None:
    if row["delay"] is not None:
        return YELLOW
    if row["error_type"] is not None or row["reason"] in ("held", "circuit open"):
        return RED
    return GREEN if row["reason"] in ("recovered", "released", "circuit closed") else None


def _verdict(row: "TraceEntry") -> str:
    reason = row["reason"]
    if row["delay"] is not None:
        delay = human(round(row["delay"], 1))
        return f"deferred for {delay}, as the device asked" if reason == "deferred" else f"{reason} in {delay}"
    if row.get("by"):
        return f"{reason}, by {row['by']}"
    return REASONS.get(reason, reason)


COMMAND = Subcommand(
    run,
    "Shows the latest rows of the trace: each failed call with the decision about it, each change of "
    "a circuit, each adapter that was reopened, and the reading that ended the outage.",
    (
        "leadsman trace house:app boiler",
        "leadsman trace house:app --since 1h --json | jq -r .traceback",
    ),
    (
        ONLY_DEVICES,
        *OF_LIVE,
        argument("--since", "only rows of this last period, such as 1h", type=duration, metavar="TIME"),
        switch("--json", "print one JSON object per row, with the traceback"),
    ),
)
