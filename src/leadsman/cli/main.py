"""``leadsman``: what a person types."""

import argparse
import sys
from collections.abc import Sequence

from leadsman import __version__
from leadsman.durations import seconds
from leadsman.errors import InvalidValue, LeadsmanError

FAILED, USAGE = 1, 2
"""Exit codes; 0 is success. argparse uses 2 for usage too."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code; errors are one line on stderr, never a traceback."""
    options = _parser().parse_args(arguments)
    try:
        return _demo(options)
    except LeadsmanError as error:
        print(f"leadsman: {error}", file=sys.stderr)
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="leadsman", description="Sensor-to-MQTT apps that run unattended for years.")
    parser.add_argument("--version", action="version", version=f"leadsman {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="watch real readings arrive on a real broker, while things fail on purpose",
        description="Publishes this machine's own sensors and a simulated serial meter to a broker, and shows what the "
        "broker has. The meter babbles and disappears, and the broker is killed, on purpose: watch the "
        "circuit, the outbox and the heartbeat. Ctrl-C ends it.",
        epilog="examples:  leadsman demo    leadsman demo --for 30s    leadsman demo --broker mqtt://192.0.2.7",
    )
    demo.add_argument(
        "--broker", metavar="URL", help="use this broker; default: mosquitto if installed, else an embedded one"
    )
    demo.add_argument(
        "--for", dest="duration", metavar="TIME", type=_duration, help="end after this long, such as 30s or 5m"
    )
    return parser


def _duration(text: str) -> float:
    try:
        return seconds(text, "TIME")
    except InvalidValue as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _demo(options: argparse.Namespace) -> int:
    try:
        from leadsman.demo.demo import run_demo
    except ModuleNotFoundError as error:
        raise LeadsmanError(f"the demo needs {error.name}; install leadsman[demo]") from None
    run_demo(options.broker, options.duration)
    return 0
