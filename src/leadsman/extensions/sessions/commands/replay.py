"""``leadsman replay``: runs an app in virtual time on a recorded session, and prints what it publishes."""

import argparse
import contextlib
import re
import sys

from leadsman.core.loop.durations import human
from leadsman.core.text import count_noun, escape
from leadsman.errors import LeadsmanError
from leadsman.extensions.sessions.player import Player
from leadsman.testing.broker import Delivered
from leadsman.testing.harness import Harness
from leadsman.tools.cli.arguments import CODES, ONE_TARGET, WHERE, Subcommand, argument
from leadsman.tools.cli.real_world import first_touch, refuse_real_world
from leadsman.tools.cli.target import load_target, sources_of

MAX_SHOWN_BYTES = 2000
"""Bytes of a payload."""
_REPORTS = re.compile(r"/registry(/|$)|/ledger$")
"""Topics of what leadsman reports besides readings, errors and availability."""


def run(options: argparse.Namespace) -> None:
    """Replay a session."""
    app = load_target(options.target)
    app.load(sources_of(options))
    harness = Harness(app, sessions=options.session)
    player = harness.player
    assert isinstance(player, Player)  # there is a session
    try:
        with contextlib.redirect_stdout(sys.stderr), refuse_real_world(), harness:
            harness.run(player.length)
    finally:
        for message in harness.broker.log:
            if message.topic != app.topics.status and not _REPORTS.search(message.topic):
                print(_shown(message))
    touch = first_touch()
    if touch is not None:
        raise LeadsmanError(
            f"{touch.place or 'the app'}: it {touch.what}, which is not in the session, and a replay "
            "touches nothing real"
        )
    if left := player.left:
        print(
            f"leadsman replay: {count_noun(len(left), 'recorded request was', 'recorded requests were')} not made, "
            f"the first one in line {left[0].asked.line}",
            file=sys.stderr,
        )


def _shown(message: Delivered) -> str:
    payload = message.payload[:MAX_SHOWN_BYTES].decode(errors="replace")
    return f"{human(round(message.at, 3)):>10}  {escape(message.topic)}  {escape(payload)}"


COMMAND = Subcommand(
    run,
    "Runs an app in virtual time on a session that leadsman record wrote, and prints what it publishes, with the time "
    "since the start. It touches no device, no network and no state. If the app asks a device for something else than "
    "it did then, the first difference is named, with its line in the session.",
    (
        "leadsman replay house:app kitchen.session",
        "leadsman replay house:app kitchen.session --set address=02:00:00:00:00:01",
    ),
    (ONE_TARGET, argument("session", "what leadsman record wrote", metavar="SESSION"), *WHERE),
    CODES,
)
