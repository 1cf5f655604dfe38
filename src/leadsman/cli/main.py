"""The ``leadsman`` command: its parser, and the entry point."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from leadsman import __version__
from leadsman.cli import commands
from leadsman.cli.completion import SHELLS, script
from leadsman.cli.target import UsageError
from leadsman.errors import ConfigurationError, InvalidValue, LeadsmanError
from leadsman.monitoring.log_format import FORMATS, LEVELS, abandon_unwritable_streams
from leadsman.timing.durations import seconds

if TYPE_CHECKING:
    _Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001  # argparse has no public name

FAILED, USAGE, CONFIG, INTERRUPTED = 1, 2, 78, 130
"""Exit codes; argparse uses 2 for usage too; 78 is EX_CONFIG of sysexits.h, 130 is 128 + SIGINT, as shells have it."""

EXIT_CODES = {
    0: "done, or stopped as asked",
    1: "it failed; the message says why",
    2: "the command line is wrong",
    3: "leadsman held: some devices are held",
    69: 'a device with on_failure="stop" failed for good',
    70: "stopped as asked, but something blocked the event loop until the deadline of two seconds",
    78: "the configuration is wrong: settings, a registration, the broker's address, or a library is not installed",
    130: "a second Ctrl-C or SIGTERM while an app stops, or a first Ctrl-C while a command waits",
}
"""All of them, and what each means."""

CODES = "exit codes:\n" + "".join(f"  {code:<3} {meaning}\n" for code, meaning in EXIT_CODES.items())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code; errors are lines on stderr, never a traceback."""
    return done(parser().parse_args(arguments), "leadsman")


def done(options: argparse.Namespace, name: str) -> int:
    """Do what was typed."""
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        code = run(options)
        sys.stdout.flush()
        return code
    except LeadsmanError as error:
        for line in str(error).splitlines():
            print(f"{name}: {line}", file=sys.stderr)
        if isinstance(error, UsageError):
            return USAGE
        return CONFIG if isinstance(error, ConfigurationError) else FAILED
    except BrokenPipeError:  # whoever read has seen enough
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        abandon_unwritable_streams()


def parser() -> argparse.ArgumentParser:
    """What can be typed."""
    root = argparse.ArgumentParser(
        prog="leadsman",
        description="Sensor-to-MQTT apps that run unattended for years.",
        epilog="Begin with:  leadsman demo    leadsman init house && cd house && leadsman check house:app\n\n" + CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("--version", action="version", version=f"leadsman {__version__}")
    subparsers = root.add_subparsers(required=True, metavar="COMMAND")
    _add_run(subparsers)
    _add_check(subparsers)
    _add_inspect(subparsers)
    _add_trace(subparsers)
    _add_held(subparsers)
    _add_release(subparsers)
    _add_circuit(subparsers)
    _add_schema(subparsers)
    _add_init(subparsers)
    _add_health(subparsers)
    _add_completion(subparsers)
    _add_demo(subparsers)
    return root


def _command(subparsers: "_Subparsers", name: str, short: str, long: str, epilog: str) -> argparse.ArgumentParser:
    return subparsers.add_parser(
        name, help=short, description=long, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def _add_target(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    words = "the app, such as house:app; a module or file with one app will do"
    parser.add_argument("target", metavar="MODULE:APP", nargs="?" if optional else None, help=words)
    add_settings(parser)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Where settings come from."""
    parser.add_argument(
        "--config", metavar="FILE", type=Path, help="settings file; default leadsman.toml or .yaml here"
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a setting, such as boiler.port=/dev/ttyUSB0; may be repeated",
    )
    parser.add_argument("--mqtt", metavar="URL", help="the broker, such as mqtt://192.0.2.7")


def add_prefix(parser: argparse.ArgumentParser) -> None:
    """Under which prefix an app runs."""
    parser.add_argument(
        "--prefix",
        dest="topic_prefix",
        metavar="PREFIX",
        help="of the app's topics, in place of its own; also of its client id and state, so that two can run",
    )


def _add_run(subparsers: "_Subparsers") -> None:
    parser = _command(
        subparsers, "run", "run an app until Ctrl-C or SIGTERM",
        "Runs an app, as app.run() in its module does. Settings: flag > secret > environment > .env > file > default.",
        "examples:  leadsman run house:app    leadsman run house:app --mqtt mqtt://broker.lan --log-level debug\n\n" + CODES,
    )  # fmt: skip
    _add_target(parser)
    add_prefix(parser)
    add_running(parser)
    parser.set_defaults(run=commands.run)


def add_running(parser: argparse.ArgumentParser) -> None:
    """How an app is run."""
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="touch nothing real: twins instead of adapters, topics below dry-run/, nothing retained or remembered",
    )
    parser.add_argument(
        "--log-level",
        metavar="LEVEL",
        type=str.lower,
        choices=[level.lower() for level in LEVELS],
        help=f"{', '.join(level.lower() for level in LEVELS)}; default info, or $LOG_LEVEL",
    )
    parser.add_argument(
        "--log-format",
        metavar="FORMAT",
        choices=FORMATS,
        help="text, json or journal; default what suits stderr, or $LOG_FORMAT",
    )


def _add_check(subparsers: "_Subparsers") -> None:
    parser = _command(
        subparsers, "check", "say what is wrong with an app and its settings, without running it",
        "Imports the app, reads its settings, registers all its devices, and prints every value with where it is from. Secrets "
        "are masked. Nothing is opened and nobody is connected to.",
        "example:  leadsman check house:app\n\nExits with 0 when all is well, 78 when the configuration is wrong, 1 when there is no app.",
    )  # fmt: skip
    _add_target(parser)
    add_prefix(parser)
    parser.set_defaults(run=commands.check)


def _add_inspect(subparsers: "_Subparsers") -> None:
    parser = _command(
        subparsers, "inspect", "show what an app registers, or how it is doing while it runs",
        "Shows what is registered, from the module. With --live it asks the running app over MQTT, at {prefix}/introspect.",
        "examples:  leadsman inspect house:app    leadsman inspect house:app --live --device boiler\n"
        "           leadsman inspect --prefix house --mqtt mqtt://broker.lan --json",
    )  # fmt: skip
    _add_target(parser, optional=True)
    parser.add_argument("--live", action="store_true", help="ask the running app; implied by --prefix")
    parser.add_argument("--prefix", metavar="PREFIX", help="of the app's topics, instead of MODULE:APP")
    parser.add_argument(
        "--section",
        action="append",
        metavar="NAME",
        choices=("app", "mqtt", "adapters", "devices", "jobs"),
        help="app, mqtt, adapters, devices or jobs; may be repeated",
    )
    parser.add_argument("--device", action="append", metavar="NAME", help="only this device; may be repeated")
    parser.add_argument(
        "--timeout", type=duration, default=5.0, metavar="TIME", help="how long to wait for an answer; default 5s"
    )
    parser.add_argument("--json", action="store_true", help="the document itself")
    parser.set_defaults(run=commands.inspect)


def _add_live(parser: argparse.ArgumentParser) -> None:
    _add_target(parser, optional=True)
    parser.add_argument("--prefix", metavar="PREFIX", help="of the app's topics, instead of MODULE:APP")
    parser.add_argument(
        "--timeout", type=duration, default=5.0, metavar="TIME", help="how long to wait for an answer; default 5s"
    )


def _add_trace(subparsers: "_Subparsers") -> None:
    parser = _command(
        subparsers, "trace", "show what was decided about each failed call of a running app",
        "Shows the latest rows of the trace: each failed call with its verdict, each move of a circuit, each adapter that was "
        "opened anew, and the reading that ended the outage.",
        "examples:  leadsman trace house:app --device boiler    leadsman trace --prefix house --follow\n"
        "           leadsman trace house:app --since 1h --json | jq -r .traceback",
    )  # fmt: skip
    _add_live(parser)
    parser.add_argument("--device", action="append", metavar="NAME", help="only this device; may be repeated")
    parser.add_argument("--since", type=duration, metavar="TIME", help="only rows of this last time, such as 1h")
    parser.add_argument(
        "--file", type=Path, metavar="FILE", help="the file of an app with keep_state, instead of asking it"
    )
    parser.add_argument("--outage", metavar="ID", help="only this outage, as its rows name it")
    parser.add_argument("--follow", action="store_true", help="go on showing new rows until Ctrl-C")
    parser.add_argument("--json", action="store_true", help="one JSON object per row, with the traceback")
    parser.set_defaults(run=commands.trace)


def _add_held(subparsers: "_Subparsers") -> None:
    parser = _command(
        subparsers, "held", "list the devices that keep still since they failed",
        "Lists the devices of a running app whose registration says on_failure=\"hold\", and that have failed.",
        "example:  leadsman held house:app\n\nExits with 0 when there are none, 3 when there are some, 1 when nobody answers.",
    )  # fmt: skip
    _add_live(parser)
    parser.set_defaults(run=commands.held)


def _add_release(subparsers: "_Subparsers") -> None:
    parser = _command(
        subparsers, "release", "poll a held device again",
        "Releases a device that is held: it is polled at once, its counts begin anew, its circuit is closed.",
        "examples:  leadsman release house:app --device boiler    leadsman release --prefix house --device boiler",
    )  # fmt: skip
    _add_live(parser)
    parser.add_argument("--device", action="append", required=True, metavar="NAME", help="the device; may be repeated")
    parser.set_defaults(run=commands.release)


def _add_circuit(subparsers: "_Subparsers") -> None:
    parser = _command(
        subparsers, "circuit", "isolate, close or disable the circuit of a device",
        "isolate: leave the device alone, while you work at it. close: poll it as if nothing had failed. disable: poll it "
        "whatever fails. It lasts until you say otherwise, or until the app restarts, unless it keeps its state.",
        "example:  leadsman circuit --prefix house --device boiler --action isolate",
    )  # fmt: skip
    _add_live(parser)
    parser.add_argument("--device", action="append", required=True, metavar="NAME", help="the device; may be repeated")
    parser.add_argument("--action", required=True, choices=("isolate", "close", "disable"), help="what to do")
    parser.set_defaults(run=commands.circuit)


def _add_schema(subparsers: "_Subparsers") -> None:
    parser = _command(
        subparsers, "schema", "print the JSON Schema of every topic of an app",
        "Prints one JSON document: a schema by topic, made of the handlers' annotations. Units and classes of Sensor(…) are in it.",
        "example:  leadsman schema house:app | jq '.topics[\"house/air/state\"]'",
    )  # fmt: skip
    _add_target(parser)
    add_prefix(parser)
    parser.set_defaults(run=commands.schema)


def _add_init(subparsers: "_Subparsers") -> None:
    parser = _command(
        subparsers, "init", "write a small app with settings, a test, a Dockerfile and a systemd unit",
        "Writes a new directory with an app that works at once, without hardware. Nothing that is there is overwritten.",
        "example:  leadsman init house && cd house && leadsman check house:app && leadsman run house:app",
    )  # fmt: skip
    parser.add_argument("name", metavar="NAME", help="of the app, its module and its directory: a word such as house")
    parser.add_argument("--directory", type=Path, metavar="DIR", help="where to write; default ./NAME")
    parser.set_defaults(run=commands.init)


def _add_health(subparsers: "_Subparsers") -> None:
    parser = _command(
        subparsers, "health", "say whether the app of a health file is well: for containers",
        "Reads the file that the app writes every 10 s where $LEADSMAN_HEALTH_FILE says, or in $RUNTIME_DIRECTORY.",
        "example, in a Dockerfile:  HEALTHCHECK --interval=30s CMD [\"leadsman\", \"health\"]\n\nExits with 0 when the app lives and some data is fresh, else with 1.",
    )  # fmt: skip
    parser.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="the health file; default where the app writes it"
    )
    parser.set_defaults(run=commands.health)


def _add_completion(subparsers: "_Subparsers") -> None:
    parser = _command(
        subparsers, "completion", "print a completion script for your shell",
        "Prints a script for bash, zsh or fish.",
        "examples:  source <(leadsman completion bash)    leadsman completion fish > ~/.config/fish/completions/leadsman.fish",
    )  # fmt: skip
    parser.add_argument("shell", choices=SHELLS)
    parser.set_defaults(run=_completion)


def _add_demo(subparsers: "_Subparsers") -> None:
    parser = _command(
        subparsers, "demo", "watch real readings arrive on a real broker, while things fail on purpose",
        "Publishes this machine's own sensors and a simulated serial meter to a broker, and shows what the broker has. The "
        "meter babbles and disappears, and the broker is killed, on purpose: watch the circuit, the outbox and the "
        "heartbeat. Ctrl-C ends it.",
        "examples:  leadsman demo    leadsman demo --for 30s    leadsman demo --broker mqtt://192.0.2.7",
    )  # fmt: skip
    parser.add_argument(
        "--broker", metavar="URL", help="use this broker; default: mosquitto if installed, else an embedded one"
    )
    parser.add_argument(
        "--for", dest="duration", metavar="TIME", type=duration, help="end after this long, such as 30s or 5m"
    )
    parser.set_defaults(run=commands.demo)


def _completion(options: argparse.Namespace) -> int:
    print(script(options.shell, parser()), end="")
    return 0


def duration(text: str) -> float:
    """A duration as it was typed."""
    try:
        return seconds(text, "TIME")
    except InvalidValue as error:
        raise argparse.ArgumentTypeError(str(error)) from None
