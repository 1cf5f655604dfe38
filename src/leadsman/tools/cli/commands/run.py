"""``leadsman run``: runs an app until Ctrl-C or SIGTERM."""

import argparse

from leadsman.app import App
from leadsman.tools.cli.arguments import OF_AN_APP, ONE_TARGET, Subcommand
from leadsman.tools.cli.exit_codes import CODES
from leadsman.tools.cli.target import load_app


def run(options: argparse.Namespace) -> int:
    """Run an app."""
    app = app_to_run(options)
    app.run(log_level=options.log_level, log_format=options.log_format)
    return 0


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
        "leadsman run house:app --mqtt mqtt://broker.lan --log-level debug",
    ),
    CODES,
    (ONE_TARGET, *OF_AN_APP),
)
