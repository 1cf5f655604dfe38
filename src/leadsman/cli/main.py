"""The ``leadsman`` command: the table of its commands, the parser, and the entry point."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from leadsman._version import __version__
from leadsman.cli import commands
from leadsman.cli.arguments import (
    DEVICE,
    LIVE,
    MAYBE_TARGET,
    OF_AN_APP,
    ONE_TARGET,
    ONLY_DEVICE,
    OWN_PREFIX,
    TARGET,
    TARGET_ALONE,
    Command,
    Parser,
    add,
    argument,
    duration,
    moment,
    prefix,
)
from leadsman.cli.cluster import CLUSTER
from leadsman.cli.completion import SHELLS, script
from leadsman.cli.demo import DEMO
from leadsman.cli.looking import WATCH, WHY
from leadsman.cli.outbox import OUTBOX
from leadsman.cli.poll import POLL
from leadsman.cli.target import UsageError
from leadsman.cli.upkeep import ACL, CLEAN
from leadsman.errors import ConfigurationError, LeadsmanError
from leadsman.introspection.requests import ON_REQUEST, SECTIONS
from leadsman.monitoring.log_format import abandon_unwritable_streams
from leadsman.simulation.figures import Figures
from leadsman.text import escaped, suggestion

FAILED, USAGE, CONFIG, INTERRUPTED = 1, 2, 78, 130
"""Exit codes; argparse uses 2 for usage too; 78 is EX_CONFIG of sysexits.h, 130 is 128 + SIGINT, as shells have it."""

EXIT_CODES = {
    0: "success, or stopped on request",
    1: "failure; the message says why",
    2: "the command line is wrong, or several apps match it",
    3: "leadsman held: some devices are held; leadsman why: a device is silent and should not be; leadsman cluster: "
    "devices have no node",
    4: "leadsman doctor: a check failed; leadsman simulate: an assertion does not hold",
    69: 'a device with on_failure="stop" failed for good',
    70: "stopped on request, but something blocked the event loop until the deadline of two seconds",
    78: "the configuration is wrong: settings, wherever they come from, a registration, or a missing library",
    130: "a second Ctrl-C or SIGTERM while an app stops, or a first Ctrl-C while a command waits",
}
"""All of them, and what each means."""

DAYS = ("quiet", "flaky", "outages")
"""The built-in days of a simulation."""
FIGURES = ", ".join(Figures._fields)

CODES = "exit codes:\n" + "\n".join(f"  {code:<3}  {meaning}" for code, meaning in EXIT_CODES.items())


def _completion(options: argparse.Namespace) -> int:
    print(script(options.shell, COMMANDS), end="")
    return 0


COMMANDS = (
    Command(
        "run",
        commands.run,
        "run an app until Ctrl-C or SIGTERM",
        "Runs an app, as app.run() in its module does. Priority of settings: flag > secret > environment "
        "> .env > file > default.",
        (
            "leadsman run house:app",
            "leadsman run house:app --mqtt mqtt://broker.lan --log-level debug",
        ),
        CODES,
        (ONE_TARGET, *OF_AN_APP),
    ),
    Command(
        "check",
        commands.check,
        "check an app and its settings without running it",
        "Imports the app, reads its settings, registers all its devices, and prints every setting with "
        "its origin. Secrets are masked. The command opens no device and connects to no broker.",
        ("leadsman check house:app",),
        "Exits with 0 if all is well, 78 if the configuration is wrong, 1 if there is no app.",
        (ONE_TARGET, *OF_AN_APP),
    ),
    Command(
        "doctor",
        commands.doctor,
        "examine the broker and the machine of an app, and say what to mend",
        "Connects to the broker as the app does, beside the running app, and examines version, "
        "credentials, access list, limits, retained messages, will and client id; then serial ports, "
        "Bluetooth, calendars, disk, clock and state. It takes less than 20 s, changes nothing and "
        "leaves nothing behind. Each fault comes with what to do about it.",
        (
            "leadsman doctor house:app",
            "leadsman doctor house:app --json | jq '.findings[].text'",
            "leadsman doctor --prefix house --mqtt mqtt://broker.lan",
        ),
        "Exits with 0 if nothing fails, 4 if something does; warnings do not count.",
        (
            *MAYBE_TARGET,
            argument(
                "--prefix",
                "the topic prefix: instead of the app's own, or instead of MODULE:APP",
                metavar="PREFIX",
                type=prefix,
            ),
            argument("--json", "print one JSON object with all findings", action="store_true"),
        ),
    ),
    Command(
        "inspect",
        commands.inspect,
        "show what an app registers, or the state of a running app",
        "Shows the registrations of an app from its module. With --live, asks the running app over MQTT, "
        "at {prefix}/introspect.",
        (
            "leadsman inspect house:app",
            "leadsman inspect house:app --live --device boiler",
            "leadsman inspect --prefix house --mqtt mqtt://broker.lan --json",
        ),
        "",
        (
            *LIVE,
            argument(
                "--live",
                "ask the running app (implied by --prefix, and if MODULE:APP is left out)",
                action="store_true",
            ),
            argument(
                "--section",
                "app, mqtt, adapters, devices or jobs; of a running app also trace, words, ledger, recent or fields "
                "(can be repeated)",
                action="append",
                metavar="NAME",
                choices=(*SECTIONS, *ON_REQUEST),
            ),
            ONLY_DEVICE,
            argument("--json", "print the JSON document", action="store_true"),
        ),
    ),
    Command(
        "trace",
        commands.trace,
        "show each failed call of a running app, and what was decided",
        "Shows the latest rows of the trace: each failed call with the decision about it, each change of "
        "a circuit, each adapter that was reopened, and the reading that ended the outage.",
        (
            "leadsman trace house:app --device boiler",
            "leadsman trace --prefix house --follow",
            "leadsman trace house:app --since 1h --json | jq -r .traceback",
        ),
        "",
        (
            *LIVE,
            ONLY_DEVICE,
            argument("--since", "only rows of this last period, such as 1h", type=duration, metavar="TIME"),
            argument(
                "--file",
                "read the state file of an app with keep_state instead of asking the app",
                type=Path,
                metavar="FILE",
            ),
            argument("--outage", "only the outage with this id; each row has one in --json", metavar="ID"),
            argument("--follow", "show new rows until Ctrl-C", action="store_true"),
            argument("--json", "print one JSON object per row, with the traceback", action="store_true"),
        ),
    ),
    WHY,
    WATCH,
    Command(
        "gaps",
        commands.gaps,
        "show which readings of each device are missing, and why",
        "Shows the ledger of each device of a running app: how many of the slots of its schedule gave a "
        "reading, also in per cent, what became of the others, and the gaps with their causes.",
        (
            "leadsman gaps house:app",
            "leadsman gaps --prefix house --device boiler --since 1h",
            "leadsman gaps house:app --json | jq '.boiler.availability'",
        ),
        "",
        (
            *LIVE,
            ONLY_DEVICE,
            argument(
                "--since",
                "this last period, at most the two days that are kept (default: 24h)",
                type=duration,
                metavar="TIME",
                default=86_400.0,
            ),
            argument("--json", "print the JSON document", action="store_true"),
        ),
    ),
    Command(
        "held",
        commands.held,
        "list the devices that are held",
        'Lists the devices of a running app that a person holds, and those with on_failure="hold" that failed.',
        ("leadsman held house:app",),
        "Exits with 0 if no device is held, 3 if some are, 1 if the app does not answer.",
        LIVE,
    ),
    Command(
        "hold",
        commands.hold,
        "stop polling a device until somebody releases it",
        "Holds a device: it is not polled until somebody releases it. A poll under way goes on to its "
        "end. A source cannot be held; isolate its circuit instead.",
        (
            "leadsman hold house:app --device boiler",
            "leadsman hold --prefix house --device boiler",
        ),
        "",
        (*LIVE, DEVICE),
    ),
    Command(
        "release",
        commands.release,
        "poll a held device again",
        "Releases a held device: it is polled at once, its counters start again, and its circuit is closed.",
        (
            "leadsman release house:app --device boiler",
            "leadsman release --prefix house --device boiler",
        ),
        "",
        (*LIVE, DEVICE),
    ),
    Command(
        "circuit",
        commands.circuit,
        "isolate, close or disable the circuit of a device",
        "isolate: do not poll the device, while somebody works on it.\n"
        "close:   poll it as if nothing had failed.\n"
        "disable: poll it whatever fails.\n"
        "The change lasts until the next one, or until the app restarts, unless the app keeps its state.",
        ("leadsman circuit --prefix house --device boiler --action isolate",),
        "",
        (
            *LIVE,
            DEVICE,
            argument("--action", "what to do", required=True, choices=("isolate", "close", "disable")),
        ),
    ),
    POLL,
    OUTBOX,
    CLUSTER,
    CLEAN,
    ACL,
    Command(
        "simulate",
        commands.simulate,
        "run an app for a simulated day with faults, and compare retry policies",
        "Runs the app on virtual time, with adapters, devices and the broker that fail as the day and "
        "the seed say, and shows for each policy how long there was no reading, and how many calls that "
        "took. Nothing real is touched: no device, no network, no state. Same seed, same result.",
        (
            "leadsman simulate house:app",
            "leadsman simulate house:app --day flaky --policy 'retry=3, circuit_breaker=5'",
            "leadsman simulate house:app --svg day.svg --seed 7",
            "leadsman simulate house:app --assert 'gap_p99 < 10m and attempts < 4000'",
        ),
        f"figures for --assert:\n  {FIGURES}\n\n"
        "Exits with 0 if all assertions hold, 4 if one does not, 1 if the app cannot be simulated.",
        (
            *TARGET_ALONE,
            argument(
                "--policy",
                "compare with this policy (can be repeated): retry=3, UNTIL_NEXT_POLL, a name of the settings or a "
                "family, the notation of a policy file, each with circuit_breaker=, recovery=, budget=, within= or "
                "overrun= (default: three usual ones)",
                metavar="POLICY",
                action="append",
            ),
            argument("--day", "quiet, flaky or outages (default: outages)", choices=DAYS, default="outages"),
            argument("--seed", "another day of the same kind (default: 1)", metavar="N", type=int, default=1),
            argument(
                "--for",
                "simulate so long (default: 24h)",
                dest="length",
                metavar="TIME",
                type=duration,
                default=86400.0,
            ),
            argument(
                "--begins", "when the day begins, such as 2026-10-25, for clock changes", metavar="TIME", type=moment
            ),
            ONLY_DEVICE,
            argument(
                "--stand-in",
                "do not call the handler of this device, and make up its readings; all for all (can be repeated)",
                metavar="NAME",
                action="append",
                default=[],
            ),
            argument(
                "--assert",
                "exit with 4 unless this holds for the app as it is written (can be repeated)",
                dest="assertions",
                metavar="CONDITION",
                action="append",
                default=[],
            ),
            argument("--svg", "write a picture to this file", type=Path, metavar="FILE"),
            argument("--json", "print the JSON document", action="store_true"),
        ),
    ),
    Command(
        "schema",
        commands.schema,
        "print the JSON Schema of every topic of an app",
        "Prints one JSON document with a schema for each topic, made from the annotations of the "
        "handlers. The schemas include the units and classes of Sensor(…).",
        ("leadsman schema house:app | jq '.topics[\"house/air/state\"]'",),
        "",
        (*TARGET, OWN_PREFIX),
    ),
    Command(
        "init",
        commands.init,
        "write a small app with settings, a test, a Dockerfile and a systemd unit",
        "Writes a new directory with an app that works at once: it reads the disks of this machine. With "
        "--minimal it writes one file of a few lines. No existing file is overwritten.",
        (
            "leadsman init house && cd house && leadsman run house:app",
            "leadsman init sound --minimal && leadsman run sound:app",
        ),
        "",
        (
            argument(
                "name", "the name of the app, its module and its directory: one word, such as house", metavar="NAME"
            ),
            argument("--minimal", "write NAME.py alone, with one device and no settings", action="store_true"),
            argument("--directory", "where to write (default: ./NAME; with --minimal: .)", type=Path, metavar="DIR"),
        ),
    ),
    Command(
        "health",
        commands.health,
        "check the health file of an app, for containers",
        "Reads the file that the app writes every 10 s to $LEADSMAN_HEALTH_FILE, or to $RUNTIME_DIRECTORY.",
        ("leadsman health /run/house/health.json", 'HEALTHCHECK --interval=30s CMD ["leadsman", "health"]'),
        "Exits with 0 if the app runs and some data is fresh, else with 1.",
        (argument("file", "the health file (default: where the app writes it)", nargs="?", type=Path, metavar="FILE"),),
    ),
    Command(
        "completion",
        _completion,
        "print a completion script for your shell",
        "Prints a script for bash, zsh or fish.",
        (
            "source <(leadsman completion bash)",
            "leadsman completion fish > ~/.config/fish/completions/leadsman.fish",
        ),
        "",
        (argument("shell", "bash, zsh or fish", choices=SHELLS),),
    ),
    DEMO,
)


GROUPS = {
    "start": ("demo", "init", "check", "run", "completion"),
    "look": ("watch", "inspect", "gaps", "trace", "held", "health", "schema"),
    "explain": ("why", "doctor", "simulate"),
    "operate": ("poll", "hold", "release", "circuit", "outbox", "clean", "acl"),
    "several machines": ("cluster",),
}
"""The commands by what a person wants, for the help."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code; errors are lines on stderr, never a traceback."""
    words = sys.argv[1:] if arguments is None else arguments
    root, names = parser(), [command.name for command in COMMANDS]
    if words and not words[0].startswith("-") and words[0] not in names:
        root.error(f"there is no command {words[0]!r}; {suggestion(words[0], names)}")
    options, unknown = root.parse_known_args(words)
    if unknown:
        options.refuse(f"unrecognized arguments: {' '.join(map(escaped, unknown))}")
    return run_command(options, "leadsman")


def run_command(options: argparse.Namespace, program: str) -> int:
    """Run the command of parsed arguments."""
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        code = run(options)
        sys.stdout.flush()
        return code
    except LeadsmanError as error:
        for line in str(error).splitlines():
            print(escaped(f"{program}: {line}"), file=sys.stderr)
        if isinstance(error, UsageError):
            return USAGE
        return CONFIG if isinstance(error, ConfigurationError) else FAILED
    except BrokenPipeError:  # the reader of the output has seen enough
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        abandon_unwritable_streams()


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    root = Parser(
        "leadsman",
        f"Sensor-to-MQTT apps that run unattended for years.\n\n{_grouped()}",
        (
            "leadsman init house && cd house && leadsman run house:app",
            "leadsman watch",
            "leadsman why boiler",
        ),
        f"leadsman COMMAND --help shows the options of a command, with examples.\n\n{CODES}",
    )
    root.add_argument("--version", action="version", version=f"leadsman {__version__}")
    root.usage = "leadsman [-h] [--version] COMMAND ..."  # else argparse lists the commands once more
    subparsers = root.add_subparsers(prog="leadsman", required=True, metavar="COMMAND", help=argparse.SUPPRESS)
    for command in COMMANDS:
        one = subparsers.add_parser(
            command.name, description=command.description, examples=command.examples, notes=command.notes
        )
        add(one, command.arguments)
        one.set_defaults(run=command.run, refuse=one.error)
    return root


def _grouped() -> str:
    """The commands by group, each with its summary."""
    summaries = {command.name: command.summary for command in COMMANDS}
    lines = []
    for title, names in GROUPS.items():
        lines += [f"{title}:", *(f"  {name:<10}  {summaries[name]}" for name in names), ""]
    return "\n".join(lines).rstrip()
