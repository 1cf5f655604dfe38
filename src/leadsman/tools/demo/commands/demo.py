"""``leadsman demo``."""

import argparse

from leadsman.errors import missing
from leadsman.tools.cli.arguments import Subcommand, UsageError, argument, ends_after, only_with, switch


def run(options: argparse.Namespace) -> None:
    """Run the demo."""
    is_described, is_cluster = getattr(options, "discovery", False), getattr(options, "cluster", False)
    if is_cluster and (options.broker or is_described or options.duration):
        raise UsageError("--cluster has servers of its own, describes nothing, and ends by itself; write it alone")
    try:
        from leadsman.tools.demo.cluster import run_cluster_demo
        from leadsman.tools.demo.demo import run_demo
    except ImportError as error:
        found = error.__cause__ if isinstance(error.__cause__, ImportError) else error
        raise missing("demos", str(found.name), "demo") from None
    if is_cluster:
        run_cluster_demo()
    else:
        run_demo(options.broker, options.duration, discovery=is_described)


COMMAND = Subcommand(
    run,
    "Publishes the sensors of this machine and a simulated serial meter to a broker, and shows them on the board of "
    "leadsman watch, or without a terminal as lines. On purpose, the broker is killed, and the meter sends "
    "garbage and disappears: watch the readings that wait, the circuit and the heartbeat. The demo "
    "serves the page of the app too, and prints its address. q or Ctrl-C ends the demo; its last line lists the "
    "faults, how long they lasted, and how many readings were lost."
    + "".join(
        only_with(
            "nodes",
            "\nWith --cluster, three nodes share sixty meters; one of them is killed and comes back, and another "
            "one is stopped. It prints lines, needs nats-server, takes less than a minute, and ends by itself.",
        )
    ),
    (
        "leadsman demo",
        "leadsman demo --for 30s",
        "leadsman demo --broker mqtt://192.0.2.7",
        *only_with("discovery", "leadsman demo --discovery --broker mqtt://user:password@homeassistant.local"),
        *only_with("nodes", "leadsman demo --cluster"),
    ),
    (
        argument(
            "--broker",
            "use this broker (default: mosquitto if it is installed, else an embedded one)",
            metavar="URL",
        ),
        *only_with(
            "discovery", switch("--discovery", "describe the devices at the broker, so that Home Assistant shows them")
        ),
        *only_with("nodes", switch("--cluster", "show how nodes of a cluster take over from each other")),
        ends_after("30s or 5m"),
    ),
)
