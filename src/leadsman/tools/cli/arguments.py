"""Commands, their arguments and their exit codes, as values. The parser and the completion scripts are made of the same
ones."""

import argparse
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

from leadsman import extensions, tools
from leadsman.core.loop.durations import seconds
from leadsman.core.monitoring.log_format import FORMATS, LEVELS
from leadsman.core.mqtt.topics import check_client_id, check_instance, check_name, check_prefix
from leadsman.core.text import escape
from leadsman.core.text.suggestion import nearest
from leadsman.errors import InvalidValue, LeadsmanError
from leadsman.tools.cli.screen import wrap

T = TypeVar("T")

WIDTH = 80
"""Columns of each help, on any terminal."""

FAILED, USAGE, CONFIG, INTERRUPTED = 1, 2, 78, 130
"""argparse uses 2 for usage too; 78 is EX_CONFIG of sysexits.h, 130 is 128 + SIGINT, as shells have it."""
SOME_HELD = SOME_SILENT = WITHOUT_NODE = 3
"""Of ``leadsman held``, ``leadsman why`` and ``leadsman cluster``. With the first, 1 means that the app did not answer,
which for the second is the reason of a silence."""
CHECK_FAILED = 4
"""Of ``leadsman doctor``, whose warnings exit with 0, and of ``leadsman simulate``, where 1 means that the app could
not be simulated."""

FOLDERS = frozenset(each.split(".")[2] for each in (*tools.COMMANDS, *(each.package for each in extensions.SHIPPED)))
"""The folders of extensions and tools, each of which can be removed."""


def only_with(folder: str, *given: T) -> tuple[T, ...]:
    """What the command line has only where one of these folders is there."""
    return given if folder in FOLDERS else ()


EXIT_CODES = {
    0: "success, or stopped on request",
    1: "; ".join(("failure; the message says why", *only_with("difference", "leadsman diff: something changes"))),
    2: "the command line is wrong, or several apps match it",
    3: "; ".join(
        (
            "leadsman held: some devices are held",
            "leadsman why: a device is silent and should not be",
            *only_with("nodes", "leadsman cluster: devices have no node"),
        )
    ),
    **dict(only_with("doctor", (CHECK_FAILED, "leadsman doctor: a check failed"))),
    69: 'a device with on_failure="stop" failed for good',
    70: "stopped on request, but something blocked the event loop until the deadline of two seconds",
    75: "no device had a reading for the time in supervision.exit_when_stale",
    78: "the configuration is wrong: settings, wherever they come from, a registration, or a missing library",
    79: "the event loop was blocked for the time in supervision.exit_when_hung",
    130: "a second Ctrl-C or SIGTERM while an app stops, or a first Ctrl-C while a command waits",
}
"""All of them, and what each means."""

CODES = "exit codes:\n" + "\n".join(f"  {code:<3}  {meaning}" for code, meaning in EXIT_CODES.items())
"""For the end of a help."""


class UsageError(LeadsmanError):
    """The command line is wrong."""


class Argument(NamedTuple):
    """An option such as ``--json``, or a positional argument."""

    flag: str
    help: str
    options: dict[str, Any]
    """The other keyword arguments of `argparse.ArgumentParser.add_argument`."""


def argument(flag: str, help: str, **options: Any) -> Argument:  # noqa: A002  # argparse calls it so
    """One argument."""
    return Argument(flag, help, options)


def switch(flag: str, help: str) -> Argument:  # noqa: A002  # as above
    """An option without a value."""
    return argument(flag, help, action="store_true")


class Subcommand(NamedTuple):
    """A command: what it does, and its help."""

    run: Callable[[argparse.Namespace], int | None]
    """Its exit code; None for success."""
    description: str
    """Paragraphs of one line each."""
    examples: tuple[str, ...]
    """What to type: at least one line."""
    arguments: tuple[Argument, ...]
    notes: str = ""
    """Exit codes that are special."""


class Listed(NamedTuple):
    """A command in the help of all commands."""

    group: str
    """What a person wants who types it."""
    summary: str
    before: str | None = None
    """The command of the same group above which it stands; None: at the end of the group."""
    section: str | None = None
    """The section of a running app that it prints; its module has ``print_section``, for ``leadsman inspect``."""


class Parser(argparse.ArgumentParser):
    """A parser whose help has the same width everywhere, and whose errors end with what to type.

    Args:
        prog: the name of the program or command; None for that of the process.
        description: paragraphs of one line each.
        examples: what to type.
        notes: what follows them: paragraphs of one line each.
        of_argparse: what argparse itself hands to the parser of a command; since Python 3.14 that is ``color``.
    """

    def __init__(
        self,
        prog: str | None = None,
        description: str = "",
        examples: Iterable[str] = (),
        notes: str = "",
        **of_argparse: Any,
    ) -> None:
        lines = ["examples:", *(f"  {line}" for each in examples for line in each.split("\n"))]
        super().__init__(
            prog=prog,
            description=paragraphs(description),
            epilog="\n".join(lines) + (f"\n\n{paragraphs(notes)}" if notes else ""),
            formatter_class=_Help,
            **of_argparse,
        )

    def error(self, message: str) -> NoReturn:
        """Print the usage, the error and what to do, and exit with 2."""
        super().error(f"{message}\n{self.prog} --help shows what to write")

    def refuse(self, unknown: Sequence[str]) -> None:
        """Exit as `error` does if there are arguments that it does not have."""
        if not unknown:
            return
        known = [option[2:] for option in self._option_string_actions if option.startswith("--")]
        near = nearest(unknown[0].lstrip("-").partition("=")[0], known)
        if unknown[0].partition("=")[0] == "--device" and any(each.dest == "named" for each in self._actions):
            self.error(f"a device is written without --device: {self.prog} boiler")
        meant = "" if near is None else f"; did you mean '--{near}'?"
        self.error(f"unrecognized arguments: {' '.join(map(escape, unknown))}{meant}")


class _Help(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=WIDTH)


_LABEL = re.compile(r" *[\w-]+:? {2,}|\w+: +")
"""The beginning of a line of a list; what follows is indented as far."""


def paragraphs(text: str) -> str:
    """The paragraphs of a text, each of one line, in lines of `WIDTH` columns."""
    lines = []
    for each in text.split("\n"):
        label = _LABEL.match(each)
        begin = len(each) - len(each.lstrip())
        lines += wrap(each.lstrip(), WIDTH, " " * begin, " " * (begin if label is None else label.end()))
    return "\n".join(lines)


def add(parser: argparse.ArgumentParser, arguments: Iterable[Argument]) -> None:
    """Add arguments to a parser."""
    for each in arguments:
        parser.add_argument(each.flag, help=each.help, **each.options)


def _valid(read: Callable[[str], T]) -> Callable[[str], T]:
    """The type of an argument whose faults this function explains."""

    def read_argument(text: str) -> T:
        try:
            return read(text)
        except InvalidValue as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read_argument


duration = _valid(lambda text: seconds(text, "TIME"))
"""The seconds of a duration such as ``5m``."""
device = _valid(check_name)
"""A name that a device may have."""
prefix = _valid(check_prefix)
"""A topic prefix that an app may have."""


def _target(**options: Any) -> Argument:
    return argument(
        "target",
        "the app, such as house:app, or a module or file that contains one app",
        metavar="MODULE:APP",
        **options,
    )


WHERE = (
    argument(
        "--config",
        "the settings file (default: leadsman.toml or leadsman.yaml in this directory)",
        metavar="FILE",
        type=Path,
    ),
    argument(
        "--set",
        "a setting, such as boiler.port=/dev/ttyUSB0 (can be repeated)",
        metavar="KEY=VALUE",
        action="append",
        default=[],
    ),
)
SETTINGS = (*WHERE, argument("--mqtt", "the broker, such as mqtt://192.0.2.7; several with commas", metavar="URL"))
ONE_TARGET = _target()
TARGET = (ONE_TARGET, *SETTINGS)
OWN_PREFIX = argument(
    "--prefix",
    "the topic prefix, instead of the app's own. It is also part of the client id and of the place "
    "of the state, so that "
    "two instances can run",
    dest="topic_prefix",
    metavar="PREFIX",
    type=prefix,
)
IDENTITY = (
    OWN_PREFIX,
    argument(
        "--instance",
        "the end of the client id, after the prefix: one word",
        metavar="WORD",
        type=_valid(check_instance),
    ),
    argument(
        "--client-id",
        "the client id, instead of the prefix and the instance; no other client of the broker may have it",
        metavar="ID",
        type=_valid(check_client_id),
    ),
)
"""What distinguishes two processes of one app at the broker."""
DISCOVERY = only_with(
    "discovery",
    argument(
        "--discovery",
        "describe the devices at the broker by this convention: homeassistant, or off",
        metavar="CONVENTION",
    ),
)
RECORDING = (
    *SETTINGS,
    *IDENTITY,
    *only_with(
        "http",
        argument(
            "--http",
            "serve the page and the HTTP endpoint there, such as 127.0.0.1:8080 or unix:/run/house/http.sock; "
            "another machine can reach it only with a token",
            metavar="ADDRESS",
        ),
    ),
    *DISCOVERY,
    *only_with(
        "nodes",
        switch(
            "--standby",
            "share the app with other machines that run it with --standby too: one is active, the others take over",
        ),
    ),
    switch(
        "--dry-run", "touch nothing real: twins instead of adapters, topics below dry-run/, nothing retained or stored"
    ),
    argument(
        "--log-level",
        f"{', '.join(level.lower() for level in LEVELS)} (default: $LOG_LEVEL, or info)",
        metavar="LEVEL",
        type=str.lower,
        choices=[level.lower() for level in LEVELS],
    ),
    argument(
        "--log-format",
        "text, json or journal (default: $LOG_FORMAT, or what suits stderr)",
        metavar="FORMAT",
        choices=FORMATS,
    ),
)
"""What ``leadsman record`` takes. Its stdout is the session."""
OF_AN_APP = (
    *RECORDING,
    switch("--show", "print each reading and each failed call as it comes, with or without a broker"),
)
"""What ``leadsman run``, ``leadsman check`` and an app that is a program of its own take: what can be run can be
checked."""
APP = argument("--app", "the app, instead of --prefix", dest="target", metavar="MODULE:APP")
MAYBE_TARGET = (_target(nargs="?"), *SETTINGS)
PREFIX = argument(
    "--prefix",
    "the topic prefix of the running app, instead of MODULE:APP (default: that of the only app at the broker)",
    metavar="PREFIX",
    type=prefix,
)
TIMEOUT = argument(
    "--timeout", "how long to wait for an answer (default: 5s)", metavar="TIME", type=duration, default=5.0
)
LIVE = (*MAYBE_TARGET, PREFIX, TIMEOUT)
JSON = switch("--json", "print the JSON document")


def named(metavar: str, help: str) -> Argument:  # noqa: A002  # as above
    """The app and the devices of a command line, in this order; `leadsman.tools.cli.remote.take_names` tells them
    apart."""
    return argument("named", help, nargs="*", metavar=metavar)


OF_LIVE = (APP, *SETTINGS, PREFIX, TIMEOUT)
"""What a command takes that asks a running app about devices, besides `named`."""
ONE_DEVICE = named("[MODULE:APP] DEVICE", "the app, such as house:app, and the device")
SOME_DEVICES = named("[MODULE:APP] DEVICE", "the app, such as house:app, and the device, or several")
ONLY_DEVICES = named("[MODULE:APP] [DEVICE]", "the app, such as house:app, and the devices (default: all)")


def moment(text: str) -> datetime:
    """A date, or a date and a time; in UTC unless it has an offset."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a date; write 2026-10-25 or 2026-10-25T00:00+02:00"
        ) from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def ends_after(example: str) -> Argument:
    """The option that stops an app or the demo after a time."""
    return argument("--for", f"stop after this time, such as {example}", dest="duration", metavar="TIME", type=duration)
