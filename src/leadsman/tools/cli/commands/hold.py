"""``leadsman hold``: stops the polls of devices until somebody releases them."""

import argparse

from leadsman.tools.cli.arguments import DEVICE, LIVE, Command
from leadsman.tools.cli.remote import ask, running_app, sender
from leadsman.tools.cli.tables import say


def run(options: argparse.Namespace) -> int:
    """Hold devices, so that they are not polled."""
    brokers, prefix = running_app(options)
    for device in options.device:
        ask(brokers, f"{prefix}/{device}/hold/set", {"by": sender()}, options.timeout)
        say(f"{device}: held")
    return 0


COMMAND = Command(
    run,
    "Holds a device: it is not polled until somebody releases it. A poll under way goes on to its "
    "end. A source cannot be held; isolate its circuit instead.",
    (
        "leadsman hold house:app --device boiler",
        "leadsman hold --prefix house --device boiler",
    ),
    "",
    (*LIVE, DEVICE),
)
