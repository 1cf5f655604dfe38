"""``leadsman run``: runs an app until Ctrl-C or SIGTERM."""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator

from leadsman.core.app import App
from leadsman.core.monitoring.log_format import wants_colour
from leadsman.tools.cli.arguments import CODES, OF_AN_APP, ONE_TARGET, Subcommand, UsageError
from leadsman.tools.cli.target import load_app


def run(options: argparse.Namespace) -> None:
    """Run an app."""
    app = app_to_run(options)
    with showing(app, options):
        app.run(log_level=options.log_level, log_format=options.log_format)


@contextlib.contextmanager
def showing(app: App, options: argparse.Namespace) -> Iterator[None]:
    """Show the readings of the app at stdout, if ``--show`` is given."""
    if not options.show:
        yield
        return
    from leadsman.tools.cli.show import Show

    if sys.stdout is None:  # the shell has closed it
        raise UsageError("--show writes to stdout, which is closed")
    with Show(sys.stdout.fileno(), colour=wants_colour(sys.stdout, os.environ)) as show:
        app.setup.show = show.put
        yield


def app_to_run(options: argparse.Namespace) -> App:
    """The app, as ``leadsman run`` runs it and ``leadsman check`` checks it."""
    app = load_app(options)
    if options.dry_run:
        app.rehearse()
    return app


COMMAND = Subcommand(
    run,
    "Runs an app, as app.run() in its module does. Priority of settings: flag > secret > environment "
    "> .env > file > default.",
    (
        "leadsman run house:app",
        "leadsman run house:app --show",
        "leadsman run house:app --mqtt mqtt://broker.lan --log-level debug",
    ),
    (ONE_TARGET, *OF_AN_APP),
    CODES,
)
