"""The command line of one app, for apps that are installed as programs of their own.

::

    main = command_line(app, demo={"address": "AA:BB:CC:DD:EE:FF"})      [project.scripts] house = "house:main"
"""

import argparse
import asyncio
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from leadsman.core.app import App
from leadsman.core.mqtt.broker import Broker
from leadsman.core.text import escape
from leadsman.core.wiring.process import ended_after
from leadsman.errors import InvalidValue
from leadsman.tools.cli.arguments import CODES, OF_AN_APP, Parser, add, ends_after, only_with
from leadsman.tools.cli.commands import command
from leadsman.tools.cli.commands.run import showing
from leadsman.tools.cli.main import guarded
from leadsman.tools.cli.own_commands import grouped, typed_of
from leadsman.tools.cli.target import load_app

if TYPE_CHECKING:
    from leadsman.core.mqtt.connection import Received


MODES = {
    "demo": "run without hardware and show what is published; needs mosquitto or leadsman[demo]",
    "check": "check the app and its settings without running it",
    **dict(only_with("doctor", ("doctor", "examine the broker and this machine, and say what to fix"))),
}
"""What the program does instead of running the app."""


def command_line(app: App, demo: Mapping[str, str] | None = None) -> Callable[[Sequence[str] | None], int]:
    """Make the entry point of an app that is a program of its own. It runs the app; ``--help`` lists its options.

    Args:
        app: the app.
        demo: settings for ``--demo``, in the form of ``--set``.

    Returns:
        A function that takes the arguments, or None for those of the process, and returns the exit code.
    """

    def main(arguments: Sequence[str] | None = None) -> int:
        if os.getpid() == 1:
            from leadsman.core.process_one import leave_process_one

            leave_process_one()
        return guarded(lambda: _run(app, demo or {}, sys.argv[1:] if arguments is None else arguments), app.name)

    return main


def _run(app: App, demo: Mapping[str, str], words: Sequence[str]) -> int | None:
    if words and not words[0].startswith("-") and (own := typed_of(app, words, app.name)) is not None:
        return own()
    parser = _parser(app)
    options, unknown = parser.parse_known_args(words)
    parser.refuse(unknown)
    run = _demo if options.mode == "demo" else command(options.mode).run
    options.target, options.given = app, dict(demo) if options.mode == "demo" else {}
    with ended_after(options.duration):
        return run(options)


def _parser(app: App) -> Parser:
    parser = Parser(
        prog=app.name,
        description=f"Publishes readings to MQTT topics below {app.topics.prefix}/ until Ctrl-C or SIGTERM."
        + grouped(app),
        examples=(f"{app.name} --demo", f"{app.name} --check", f"{app.name} --mqtt mqtt://broker.lan"),
        notes=CODES,
    )
    parser.add_argument("--version", action="version", version=f"{app.name} {app.version}")
    mode = parser.add_mutually_exclusive_group()
    for name, text in MODES.items():
        mode.add_argument(f"--{name}", dest="mode", action="store_const", const=name, help=text)
    parser.set_defaults(mode="run", prefix=None, json=False)
    add(parser, (*OF_AN_APP, ends_after("30s")))
    return parser


def _demo(options: argparse.Namespace) -> None:
    """Run the app with twins on a broker of its own, and print every message. What it stores is removed at the end."""
    from leadsman.tools.cli.own_broker import Viewer, demo_broker, watching

    if options.mqtt is not None:
        raise InvalidValue("--demo starts a broker of its own; write --dry-run --mqtt URL to use another one")
    with demo_broker() as (options.mqtt, kind, _):
        print(f"The broker is {options.mqtt}, {kind}. Ctrl-C ends the demo.", flush=True)
        viewer = Viewer(Broker.from_url(options.mqtt), "#", _print)
        threading.Thread(target=lambda: asyncio.run(viewer.listen()), name="viewer", daemon=True).start()
        app = load_app(options)
        app.setup.use_twins()
        print(f"watch it with: {watching(app.brokers.primary, app.topics.prefix)}", flush=True)
        with tempfile.TemporaryDirectory(prefix=f"{app.name}-demo-") as directory:
            environment = {"STATE_DIRECTORY": directory}
            with showing(app, options):
                app.run(log_level=options.log_level, log_format=options.log_format, environment=environment)


def _print(message: "Received") -> None:
    """Print a message that the broker passes on, as any subscriber receives it."""
    print(escape(f"{message.topic}  {message.payload.decode(errors='replace')[:200]}"), flush=True)
