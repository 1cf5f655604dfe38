"""``leadsman circuit``: isolates, closes or disables the circuits of devices."""

import argparse

from leadsman.text import clean
from leadsman.tools.cli.arguments import DEVICE, LIVE, Command, argument
from leadsman.tools.cli.remote import ask, running_app, sender
from leadsman.tools.cli.tables import say


def run(options: argparse.Namespace) -> int:
    """Isolate, close or disable the circuits of devices."""
    brokers, prefix = running_app(options)
    request = {"action": options.action, "by": sender()}
    for device in options.device:
        answer = ask(brokers, f"{prefix}/{device}/circuit/set", request, options.timeout)
        say(f"{device}: {clean(str(answer.get('circuit')))}")
    return 0


COMMAND = Command(
    run,
    "isolate: do not poll the device, while somebody works on it.\n"
    "close:   poll it as if nothing had failed.\n"
    "disable: poll it whatever fails.\n"
    "The change lasts until the next one, or until the app restarts, unless the app keeps its state.",
    ("leadsman circuit --prefix house --device boiler --action isolate",),
    "",
    (
        *LIVE,
        DEVICE,
        argument("--action", "what to do", required=True, choices=("isolate", "close", "disable")),
    ),
)
