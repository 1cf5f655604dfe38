"""``leadsman trace``: prints rows of the trace, for a person or for a program."""

import argparse
import contextlib
import functools
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, cast

from leadsman.errors import LeadsmanError
from leadsman.loop.clock import rfc3339
from leadsman.loop.durations import human
from leadsman.resilience.policy import REASONS
from leadsman.text import clean, describe
from leadsman.tools.cli.arguments import OF_LIVE, ONLY_DEVICES, Subcommand, argument, duration, switch
from leadsman.tools.cli.remote import any_version, ask_about_devices, take_names
from leadsman.tools.cli.screen import GREEN, RED, YELLOW
from leadsman.tools.cli.tables import fill, json_text, paint, print_text
from leadsman.tools.cli.times import local, zone

if TYPE_CHECKING:
    from leadsman.introspection.document import Introspection, Request, TraceEntry

FOLLOWING = 1.0
"""Seconds between two requests of ``--follow``."""


def run(options: argparse.Namespace) -> None:
    """Show the trace of a running app, or of a state file."""
    printer = Printer(options.outage, as_json=options.json)
    if options.file is not None:
        take_names(options)
        printer.print(_rows_of_file(options))
        return
    request: Request = {"sections": ["app", "trace"], "after": 0}
    if options.since is not None:
        request["since"] = time.time() - options.since
    ask = ask_about_devices(options, request)
    with any_version():
        first = ask()
        printer.print(first["trace"])
        if options.follow:
            with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends it
                follow(printer, request, first, functools.partial(ask, quiet=True))


def _rows_of_file(options: argparse.Namespace) -> list["TraceEntry"]:
    """The rows of a state file."""
    import sqlite3  # and all of it for this option alone

    from leadsman.runtime.statefile import StateFile

    if not options.file.is_file():
        raise LeadsmanError(f"{options.file} does not exist; an app with keep_state=True writes such a file")
    since = 0.0 if options.since is None else time.time() - options.since
    try:
        rows = list(StateFile(options.file).trace())
    except (sqlite3.Error, OSError, ValueError) as error:
        raise LeadsmanError(f"{options.file} cannot be read: {describe(error)}") from None
    wanted = [row for row in rows if row["at"] >= since and row["handler"] in (options.device or [row["handler"]])]
    return [cast("TraceEntry", row | {"at": rfc3339(row["at"])}) for row in wanted]


class Printer:
    """Prints rows as they arrive.

    Args:
        outage: print only the rows of this outage.
        as_json: print one complete JSON object per row.
    """

    def __init__(self, outage: str | None, *, as_json: bool) -> None:
        self._outage = outage
        self._as_json = as_json
        self._empty = True
        self._zone_said = False

    def print(self, rows: Sequence["TraceEntry"]) -> None:
        """Print rows, one a line."""
        wanted = [row for row in rows if self._outage is None or row["outage_id"] == self._outage]
        if wanted and not self._zone_said and not self._as_json:
            print_text(f"Times are local, {zone()}.")
            self._zone_said = True
        for row in wanted:
            print(json_text(row) if self._as_json else shown(row), flush=True)
        if self._empty and not wanted and not self._as_json:
            print("No call has failed.", flush=True)
        self._empty = False


def follow(
    printer: Printer, request: "Request", answer: "Introspection", ask: Callable[[], "Introspection"]
) -> NoReturn:
    """Print new rows until Ctrl-C, also after a restart of the app.

    Args:
        printer: prints the rows.
        request: the request that `ask` sends; its ``after`` is updated.
        answer: the first answer, which is printed already.
        ask: sends the request again. Raises `LeadsmanError` if there is no answer.
    """
    started, away = time.monotonic() - answer["app"]["uptime"], False
    while True:
        request["after"] = max([request["after"], *(row["number"] for row in answer["trace"])])
        time.sleep(FOLLOWING)
        asked = time.monotonic()
        try:
            answer = ask()
        except LeadsmanError as error:
            if not away:
                print(f"{clean(str(error))}; trying again until Ctrl-C", file=sys.stderr)
            away = True
            continue
        uptime = answer["app"]["uptime"]
        if asked - uptime > started + FOLLOWING:  # the app restarted, and counts its rows from 1 again
            request["after"], answer["trace"] = 0, []
        printer.print(answer["trace"])
        started, away = time.monotonic() - uptime, False


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
        "leadsman trace --prefix house --follow",
        "leadsman trace house:app --since 1h --json | jq -r .traceback",
    ),
    (
        ONLY_DEVICES,
        *OF_LIVE,
        argument("--since", "only rows of this last period, such as 1h", type=duration, metavar="TIME"),
        argument(
            "--file",
            "read the state file of an app with keep_state instead of asking the app",
            type=Path,
            metavar="FILE",
        ),
        argument("--outage", "only the outage with this id; each row has one in --json", metavar="ID"),
        switch("--follow", "show new rows until Ctrl-C"),
        switch("--json", "print one JSON object per row, with the traceback"),
    ),
)
