"""``leadsman health``: checks the health file of an app, for containers."""

import argparse
import sys
import time
from pathlib import Path

from leadsman.errors import LeadsmanError
from leadsman.monitoring.watchdog import HEALTH_FILE, health_file, read_health
from leadsman.tools.cli.arguments import Subcommand, argument
from leadsman.tools.cli.tables import say


def run(options: argparse.Namespace) -> int:
    """Check the health file of an app."""
    path = options.file or health_file()
    if path is None:
        raise LeadsmanError(f"no health file is given; set {HEALTH_FILE} for the app and here, or name the file")
    well, summary = read_health(path, time.monotonic())
    if well:
        say(summary)
    else:
        print(summary, file=sys.stderr)
    return 0 if well else 1


COMMAND = Subcommand(
    run,
    "Reads the file that the app writes every 10 s to $LEADSMAN_HEALTH_FILE, or to $RUNTIME_DIRECTORY.",
    ("leadsman health /run/house/health.json", 'HEALTHCHECK --interval=30s CMD ["leadsman", "health"]'),
    "Exits with 0 if the app runs and some data is fresh, else with 1.",
    (argument("file", "the health file (default: where the app writes it)", nargs="?", type=Path, metavar="FILE"),),
)
