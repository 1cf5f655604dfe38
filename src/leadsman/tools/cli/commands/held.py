"""``leadsman held``: lists the devices that nobody polls until a person releases them."""

import argparse
from typing import TYPE_CHECKING

from leadsman.core.text import clean
from leadsman.tools.cli.arguments import LIVE, SOME_HELD, Subcommand
from leadsman.tools.cli.remote import any_version, ask, processes, running_app
from leadsman.tools.cli.tables import table
from leadsman.tools.cli.times import local, zone

if TYPE_CHECKING:
    from leadsman.core.introspection.document import Introspection, Request


def run(options: argparse.Namespace) -> int:
    """List the held devices of a running app."""
    brokers, prefix = running_app(options)
    request: Request = {"sections": ["devices", "jobs"]}
    answers: list[Introspection]
    answers = [
        ask(brokers, each.introspect, request, options.timeout, status=each.status)
        for each in processes(brokers, prefix)
    ]
    with any_version():
        entries = [entry for each in answers for entry in (*each["devices"].items(), *each["jobs"].items())]
        states = [(name, each.get("runtime")) for name, each in entries]
        rows = [
            (name, local(state["failing_since"]), clean(state["last_error"] or "held by a person"))
            for name, state in states
            if state is not None and state.get("held")
        ]
        print(table(("device", f"since ({zone()})", "error"), rows) if rows else "No device is held.")
    return SOME_HELD if rows else 0


COMMAND = Subcommand(
    run,
    'Lists the devices of a running app that a person holds, and those with on_failure="hold" that failed.',
    ("leadsman held house:app",),
    LIVE,
    "Exits with 0 if no device is held, 3 if some are, 1 if the app does not answer.",
)
