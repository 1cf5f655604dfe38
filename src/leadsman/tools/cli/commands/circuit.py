"""``leadsman circuit``: isolates, closes or disables the circuits of devices."""

import argparse

from leadsman.core.text import clean
from leadsman.tools.cli.arguments import OF_LIVE, SOME_DEVICES, Subcommand, argument
from leadsman.tools.cli.remote import order
from leadsman.tools.cli.tables import print_text


def run(options: argparse.Namespace) -> None:
    """Isolate, close or disable the circuits of devices."""
    for device, answer in order(options, "circuit", {"action": options.action}):
        print_text(f"{device}: {clean(str(answer.get('circuit')))}")


COMMAND = Subcommand(
    run,
    "isolate: do not poll the device, while somebody works on it.\n"
    "close:   poll it as if nothing had failed.\n"
    "disable: poll it whatever fails.\n"
    "The change lasts until the next one, or until the app restarts, unless the app keeps its state.",
    ("leadsman circuit boiler --prefix house --action isolate",),
    (
        SOME_DEVICES,
        *OF_LIVE,
        argument("--action", "what to do", required=True, choices=("isolate", "close", "disable")),
    ),
)
