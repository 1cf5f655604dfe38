"""``leadsman outbox``: the readings that wait in the file of an app, and its dead letters."""

import argparse
import base64
import json
import os
import time
from pathlib import Path
from typing import Any

from leadsman.errors import LeadsmanError, SpoolLocked
from leadsman.loop.clock import rfc3339
from leadsman.spool.file import NAME, Contents, SpoolFile, backup, look, restore
from leadsman.spool.row import DeadLetter, Quota
from leadsman.text import clean, count_noun
from leadsman.tools.cli.arguments import APP, OWN_PREFIX, SETTINGS, Subcommand, UsageError, argument, switch
from leadsman.tools.cli.tables import json_text, print_text, table
from leadsman.tools.cli.target import load_app

ACTIONS = ("list", "resend", "drop", "backup", "restore")
_SHOWN = 40
"""Characters of a payload in the table."""


def run(options: argparse.Namespace) -> None:
    """Show or change what waits in the file of an app."""
    if (options.target is None) == (options.state_directory is None):
        raise UsageError("name the app with --app MODULE:APP, or its directory with --state-directory DIR")
    path = (options.state_directory or load_app(options).plan(os.environ).state_directory) / NAME
    try:
        {"list": _list, "backup": _copy, "restore": _copy}.get(options.action, _change)(path, options)
    except SpoolLocked:
        raise LeadsmanError(f"the app runs and uses {path}; stop it, type this again, and start it") from None


def _list(path: Path, options: argparse.Namespace) -> None:
    if options.item or options.all:
        raise UsageError("list shows everything; write no numbers and no --all")
    found = look(path)
    if options.json:
        print(json_text(_document(found), indent=2))
        return
    print_text(_summary(found))
    if found.dead:
        print(table(("id", "died", "topic", "bytes", "payload", "reason"), [_cells(each) for each in found.dead]))


def _change(path: Path, options: argparse.Namespace) -> None:
    """Send dead letters again, or delete them."""
    if bool(options.item) == options.all:
        raise UsageError(f"write the ids of dead letters, as list shows them, or --all: outbox {options.action} 3 4")
    if not all(each.isdecimal() for each in options.item):
        raise UsageError(f"an id is a number, as list shows it; {clean(' '.join(options.item))!r} is none")
    if not path.exists():
        raise LeadsmanError(f"there is no {path}; an app makes it when readings wait for its broker")
    spool = SpoolFile(path, Quota())
    spool.open()
    try:
        wanted = _wanted(spool, options)
        done = spool.drop(wanted) if options.action == "drop" else len(spool.resend(wanted))
    finally:
        spool.close()
    then = "deleted" if options.action == "drop" else "will be sent when the app runs"
    _print_result({"ids": wanted}, f"{count_noun(done, 'dead letter')} {then}", options)


def _wanted(spool: SpoolFile, options: argparse.Namespace) -> list[int]:
    """The dead letters that are meant. All of them does not mean sending damaged bytes."""
    letters = {each.number: each for each in spool.dead_letters()}
    if options.all:
        return [each.number for each in letters.values() if options.action == "drop" or not each.damaged]
    wanted = [int(each) for each in options.item]
    if unknown := [str(each) for each in wanted if each not in letters]:
        raise LeadsmanError(f"there is no dead letter {', '.join(unknown)}; leadsman outbox list shows them")
    return wanted


def _copy(path: Path, options: argparse.Namespace) -> None:
    if len(options.item) != 1 or options.all:
        raise UsageError(f"write one file: outbox {options.action} outbox-copy.db")
    file = Path(options.item[0])
    if file.exists() and path.exists() and file.samefile(path):
        raise UsageError(f"{file} is the outbox itself; name another file")
    if options.action == "backup":
        found = backup(path, file)
        _print_result({"rows": found.rows, "dead": len(found.dead)}, f"copied to {file}: {_summary(found)}", options)
        return
    found, aside = restore(path, file, time.time())
    kept = f"; the outbox that was there is kept as {path.parent / aside}" if aside else ""
    document = {"rows": found.rows, "dead": len(found.dead), "kept": aside}
    _print_result(document, f"restored from {file}: {_summary(found)}{kept}", options)


def _print_result(document: dict[str, Any], text: str, options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(document))
    else:
        print_text(text)


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
    return str(letter.number), _time(letter.died_at), row.topic, str(len(row.payload)), payload, clean(letter.why)


def _time(wall: float) -> str:
    """A time of the file, which damage may have made any number."""
    try:
        return rfc3339(wall)
    except (ValueError, OverflowError, OSError):
        return "unknown"


def _document(found: Contents) -> dict[str, Any]:
    oldest = None if found.oldest_taken_at is None else _time(found.oldest_taken_at)
    waiting = {"rows": found.rows, "bytes": found.bytes, "oldest_taken_at": oldest, "topics": found.topics}
    return {"waiting": waiting, "dead": [_letter(each) for each in found.dead]}


def _letter(letter: DeadLetter) -> dict[str, Any]:
    row = letter.row
    try:
        payload: dict[str, Any] = {"payload": row.payload.decode()}
    except UnicodeDecodeError:
        payload = {"payload_base64": base64.b64encode(row.payload).decode()}
    return {
        "id": letter.number,
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
    "Looks into the file in which readings of an app wait while the broker is away. A reading that "
    "the broker refuses for good becomes a dead letter: the file keeps the newest 1,000 of them, but "
    "they are not sent.\n"
    "list:    show how much waits, and the dead letters; also while the app runs.\n"
    "resend:  send dead letters again, after you have mended the cause. A retained dead letter "
    "becomes the newest message of its topic.\n"
    "drop:    delete dead letters.\n"
    "backup:  copy everything into one file; also while the app runs.\n"
    "restore: put such a copy in place. Readings that were delivered since the copy was made are "
    "delivered again.\n"
    "Stop the app before resend, drop and restore.",
    (
        "leadsman outbox list --app house:app",
        "leadsman outbox resend 3 4 --app house:app",
        "leadsman outbox drop --all --state-directory /var/lib/house",
        "leadsman outbox backup outbox-copy.db --app house:app",
        "leadsman outbox list --app house:app --json | jq '.dead[].reason'",
    ),
    (
        argument("action", ", ".join(ACTIONS), choices=ACTIONS, metavar="ACTION"),
        argument(
            "item",
            "ids of dead letters for resend and drop, the file for backup and restore",
            nargs="*",
            default=[],  # else argparse lists it among the arguments that are required
            metavar="ITEM",
        ),
        switch("--all", "all dead letters; resend leaves out those whose bytes are damaged"),
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
