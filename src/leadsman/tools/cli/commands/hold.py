"""``leadsman hold``: stops the polls of devices until somebody releases them."""

import argparse

from leadsman.tools.cli.arguments import OF_LIVE, SOME_DEVICES, Subcommand
from leadsman.tools.cli.remote import order
from leadsman.tools.cli.tables import print_text


def run(options: argparse.Namespace) -> None:
    """Hold devices, so that they are not polled."""
    for device, _ in order(options, "hold", {}):
        print_text(f"{device}: held")


COMMAND = Subcommand(
    run,
    "Holds a device: it is not polled until somebody releases it. A poll under way runs to its "
    "end. A source cannot be held; isolate its circuit instead.",
    (
        "leadsman hold house:app boiler",
        "leadsman hold boiler --prefix house",
    ),
    (SOME_DEVICES, *OF_LIVE),
)
