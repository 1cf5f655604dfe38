"""``leadsman health``: checks the health file of an app, for containers."""

import argparse
import sys

from leadsman.core.monitoring.health_file import probe
from leadsman.tools.cli.arguments import Subcommand, argument
from leadsman.tools.cli.tables import fill


def run(options: argparse.Namespace) -> int:
    """Check the health file of an app."""
    well, line = probe(options.file)
    print(fill(line), file=sys.stdout if well else sys.stderr)
    return 0 if well else 1


COMMAND = Subcommand(
    run,
    "Reads the file that the app writes every 10 s to $LEADSMAN_HEALTH_FILE, or to $RUNTIME_DIRECTORY.",
    ("leadsman health /run/house/health.json", 'HEALTHCHECK --interval=30s CMD ["leadsman", "health"]'),
    (argument("file", "the health file (default: where the app writes it)", nargs="?", metavar="FILE"),),
    "Exits with 0 if the app runs and some data is fresh, else with 1.",
)
