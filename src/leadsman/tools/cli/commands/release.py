"""``leadsman release``: has held devices polled again."""

import argparse

from leadsman.tools.cli.arguments import OF_LIVE, SOME_DEVICES, Subcommand
from leadsman.tools.cli.remote import order
from leadsman.tools.cli.tables import print_text


def run(options: argparse.Namespace) -> None:
    """Release held devices, so that they are polled again."""
    for device, _ in order(options, "release", {}):
        print_text(f"{device}: released")


COMMAND = Subcommand(
    run,
    "Releases a held device: it is polled at once, its counters start again, and its circuit is closed.",
    (
        "leadsman release house:app boiler",
        "leadsman release boiler --prefix house",
    ),
    (SOME_DEVICES, *OF_LIVE),
)
