"""``leadsman outbox``: the readings that wait in the file of an app, and its dead letters."""

import argparse
import base64
import os
from pathlib import Path

from leadsman.core.loop.clock import rfc3339
from leadsman.core.spool.file import NAME, Contents, contents
from leadsman.core.spool.row import DeadLetter
from leadsman.core.text import clean, count_noun
from leadsman.tools.cli.arguments import APP, OWN_PREFIX, SETTINGS, Subcommand, UsageError, argument, switch
from leadsman.tools.cli.tables import json_text, print_text, table
from leadsman.tools.cli.target import load_app

_SHOWN = 40
"""Characters of a payload in the table."""


def run(options: argparse.Namespace) -> None:
    """Show what waits in the file of an app."""
    if (options.target is None) == (options.state_directory is None):
        raise UsageError("name the app with --app MODULE:APP, or its directory with --state-directory DIR")
    found = contents((options.state_directory or load_app(options).plan(os.environ).state_directory) / NAME)
    if options.json:
        print(json_text(_document(found), indent=2))
        return
    print_text(_summary(found))
    if found.dead:
        print(table(("died", "topic", "bytes", "payload", "reason"), [_cells(each) for each in found.dead]))


def _summary(found: Contents) -> str:
    if not found.rows:
        waiting = "no reading waits"
    else:
        waits = "reading waits" if found.rows == 1 else "readings wait"
        waiting = f"{found.rows} {waits}, {found.bytes} bytes"
        if found.oldest_taken_at is not None:
            waiting += f", the oldest of {_time(found.oldest_taken_at)}"
    return f"{waiting}; {count_noun(len(found.dead), 'dead letter')}"


def _cells(letter: DeadLetter) -> tuple[str, ...]:
    row = letter.row
    payload = row.payload[:_SHOWN].decode(errors="replace")
    return _time(letter.died_at), row.topic, str(len(row.payload)), payload, clean(letter.why)


def _time(wall: float) -> str:
    """A time of the file, which damage may have made any number."""
    try:
        return rfc3339(wall)
    except (ValueError, OverflowError, OSError):
        return "unknown"


def _document(found: Contents) -> dict[str, object]:
    oldest = None if found.oldest_taken_at is None else _time(found.oldest_taken_at)
    waiting = {"rows": found.rows, "bytes": found.bytes, "oldest_taken_at": oldest, "topics": found.topics}
    return {"waiting": waiting, "dead": [_letter(each) for each in found.dead]}


def _letter(letter: DeadLetter) -> dict[str, object]:
    row = letter.row
    try:
        payload: dict[str, object] = {"payload": row.payload.decode()}
    except UnicodeDecodeError:
        payload = {"payload_base64": base64.b64encode(row.payload).decode()}
    return {
        "topic": row.topic,
        **payload,
        "qos": row.qos,
        "retain": row.retain,
        "taken_at": _time(row.taken_at),
        "expires_at": None if row.expires_at is None else _time(row.expires_at),
        "died_at": _time(letter.died_at),
        "reason": letter.why,
    }


COMMAND = Subcommand(
    run,
    "Shows how many readings of an app wait in its file while the broker is away, also while the "
    "app runs. A reading that the broker refuses for good becomes a dead letter: the file keeps the "
    "newest 1,000 of them, and they are not sent. --json has their payloads.",
    (
        "leadsman outbox --app house:app",
        "leadsman outbox --state-directory /var/lib/house --json | jq '.dead[].reason'",
        "leadsman outbox --app house:app --json | jq -j '.dead[0].payload' > payload",
        "mosquitto_pub -t house/boiler/state -q 1 -f payload",
    ),
    (
        APP._replace(help="the app"),
        argument(
            "--state-directory",
            "the directory of its state, instead of --app, such as systemd's /var/lib/house",
            type=Path,
            metavar="DIR",
        ),
        OWN_PREFIX,
        *SETTINGS,
        switch("--json", "print JSON"),
    ),
)
