"""The ``leadsman`` command: the parser, and the entry point."""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from leadsman._version import __version__
from leadsman.core.loop.output import tell
from leadsman.core.monitoring.log_format import abandon_unwritable_streams
from leadsman.core.text import escape, without_secret_lines
from leadsman.core.text.suggestion import nearest, suggestion
from leadsman.errors import ConfigurationError, LeadsmanError
from leadsman.tools.cli.arguments import CODES, CONFIG, FAILED, INTERRUPTED, USAGE, Parser, UsageError, add, paragraphs
from leadsman.tools.cli.commands import COMMANDS, command, commands
from leadsman.tools.cli.own_commands import names_target, typed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code; errors are lines on stderr, never a traceback."""
    words = sys.argv[1:] if arguments is None else arguments
    name = next((word for word in words if not word.startswith("-")), None)
    if name is not None and name not in COMMANDS and name not in commands():
        return guarded(lambda: _of_an_extension(words, name), "leadsman")
    root = parser(() if name is None else (name,))
    options, unknown = root.parse_known_args(words)
    if hasattr(options, "named"):  # argparse takes no further word after an option
        options.named += [word for word in unknown if not word.startswith("-")]
        unknown = [word for word in unknown if word.startswith("-")]
    options.refuse(unknown)
    return run_command(options, "leadsman")


def _of_an_extension(words: Sequence[str], name: str) -> int | None:
    """Run a command that is none of leadsman, if the app of the next word has it."""
    if words[0] == name and (own := typed(words)) is not None:
        return own()
    instead = _OTHER_NAMES.get(name)
    advice = f"write leadsman {instead}" if instead else suggestion(name, commands())
    if not (instead or names_target(words) or nearest(name, commands())):
        advice += f"; a command of an app needs its MODULE:APP, such as leadsman {name} house:app"
    return parser(()).error(f"there is no command {name!r}; {advice}")


_OTHER_NAMES = {"help": "--help", "version": "--version", "start": "run", "list": "inspect", "status": "watch"}
"""Commands by what other programs call them."""


def run_command(options: argparse.Namespace, program: str) -> int:
    """Run the command of parsed arguments."""
    run: Callable[[argparse.Namespace], int | None] = options.run
    return guarded(lambda: run(options), program)


def guarded(run: Callable[[], int | None], program: str) -> int:
    """Call a function. Returns its exit code; an error of leadsman is lines on stderr."""
    try:
        code = run()
        sys.stdout.flush()
        return code or 0
    except LeadsmanError as error:
        lines = without_secret_lines(str(error)).splitlines()
        with suppress(BrokenPipeError):
            sys.stdout.flush()  # the error comes last where both go to one place
        tell("".join(escape(f"{program}: {line}") + "\n" for line in lines))
        if isinstance(error, UsageError):
            return USAGE
        return CONFIG if isinstance(error, ConfigurationError) else FAILED
    except BrokenPipeError:  # the reader of the output has seen enough
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        abandon_unwritable_streams()


class _Root(Parser):
    """The parser of the whole command line, which asks extensions and tools for their commands only for its help."""

    def format_help(self) -> str:
        self.description = paragraphs(f"{self.description}\n\n{_grouped()}")
        return super().format_help()


def parser(names: Iterable[str] | None = None) -> argparse.ArgumentParser:
    """The parser of the command line.

    Args:
        names: the commands that it can parse, which are imported; None for all. Its help has all of them.
    """
    root = _Root(
        "leadsman",
        "Sensor-to-MQTT apps that run unattended for years.",
        (
            "leadsman init house && cd house && leadsman run house:app",
            "leadsman watch",
            "leadsman why boiler",
        ),
        f"leadsman COMMAND --help shows the options of a command, with examples.\n\n{CODES}",
    )
    root.add_argument("--version", action="version", version=f"leadsman {__version__}")
    root.usage = "leadsman [-h] [--version] COMMAND ..."  # else argparse lists the commands once more
    subparsers = root.add_subparsers(
        prog="leadsman", required=True, metavar="COMMAND", help=argparse.SUPPRESS, parser_class=Parser
    )
    for name in commands() if names is None else names:
        each = command(name)
        one = subparsers.add_parser(name, description=each.description, examples=each.examples, notes=each.notes)
        add(one, each.arguments)
        one.set_defaults(run=each.run, refuse=one.refuse)
    return root


def _grouped() -> str:
    """The commands by group, each with its summary."""
    groups: dict[str, list[str]] = {}
    for name, each in commands().items():
        groups.setdefault(each.group, []).append(f"  {name:<10}  {each.summary}")
    return "\n\n".join("\n".join([f"{title}:", *lines]) for title, lines in groups.items())
