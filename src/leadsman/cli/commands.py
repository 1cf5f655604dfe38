"""The commands of the command line. Each takes the parsed arguments and returns an exit code; `main` reports errors."""

import argparse
import contextlib
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

from leadsman.app import App
from leadsman.cli.tables import json_text, say, table
from leadsman.cli.target import NoModuleError, UsageError, load_target
from leadsman.errors import BrokerError, InvalidValue, LeadsmanError
from leadsman.mqtt.broker import Brokers, check_files
from leadsman.mqtt.from_settings import brokers_of
from leadsman.settings.faults import IDENTITY_KEYS
from leadsman.settings.load import load_broker
from leadsman.settings.sources import Where
from leadsman.text import clean, describe
from leadsman.timing.clock import rfc3339
from leadsman.timing.durations import human

if TYPE_CHECKING:
    from leadsman.introspection.document import Introspection, TraceRow
    from leadsman.introspection.exchange import Request

SOME_HELD = SOME_FAIL = 3
"""Exit code of ``leadsman held`` if some devices are held, and of ``leadsman why`` if one is silent and should not be.
With the first, 1 means that the app did not answer, which for the second is the reason of a silence."""
_TARGET = re.compile(r"[\w./-]+:[A-Za-z_]\w*")
"""An app, such as ``house:app``."""


def run(options: argparse.Namespace) -> int:
    """Run an app."""
    app = _app_to_run(options)
    app.run(log_level=options.log_level, log_format=options.log_format)
    return 0


def _app_to_run(options: argparse.Namespace) -> App:
    """The app, as `run` runs it and `check` checks it."""
    app = load_app(options)
    if options.dry_run:
        app.rehearse()
    return app


def run_with_twins(options: argparse.Namespace) -> int:
    """Run an app with twins instead of its adapters. What it stores is removed at the end."""
    from leadsman.demo.broker import watching

    app = load_app(options)
    app.setup.use_twins()
    print(f"watch it with: {watching(app.brokers.primary, app.topics.prefix)}", flush=True)
    with tempfile.TemporaryDirectory(prefix=f"{app.name}-demo-") as directory:
        environment = {"STATE_DIRECTORY": directory}
        app.run(log_level=options.log_level, log_format=options.log_format, environment=environment)
    return 0


def check(options: argparse.Namespace) -> int:
    """Check an app and its settings, and show its registrations."""
    import os

    from leadsman.cli.inspect import registrations, show, show_brokers, show_identity, show_plans, show_settings
    from leadsman.wiring.access import hidden_values_of

    app = _app_to_run(options)
    show_settings(app)
    show_brokers(app)
    print()
    show_identity(app)
    print()
    show(registrations(app), as_json=False)
    show_plans(app)
    app.setup.check_installed()
    check_files(app.brokers)
    if (idle := app.setup.idle_reason) is not None:
        if not (app.telemetries or app.sources or app.commands):
            raise InvalidValue(f"the app {app.name!r} does nothing: {idle}")
        print()
        say(f"The app does nothing: {idle}")
    if app.setup.discovery is not None and (hidden := hidden_values_of(app.plan(os.environ))) is not None:
        print()
        say(hidden)
    print("\nok")
    return 0


def doctor(options: argparse.Namespace) -> int:
    """Examine the broker and the machine of an app."""
    import os

    from leadsman.cli.doctor import examine
    from leadsman.doctor.subject import of_plan, of_prefix

    if options.target is None:
        if options.prefix is None:
            raise UsageError("no app is given; write MODULE:APP, such as house:app, or --prefix")
        return examine(of_prefix(*running_app(options)), as_json=options.json)
    if options.prefix is not None:
        options.topic_prefix = options.prefix
    return examine(of_plan(load_app(options).plan(os.environ)), as_json=options.json)


def inspect(options: argparse.Namespace) -> int:
    """Show the registrations of an app, or the state of a running one."""
    from leadsman.cli.inspect import registrations, selected, show, show_plans

    if options.target is not None and not (options.live or options.prefix):
        app = load_app(options)
        show(selected(registrations(app), options.section, options.device), as_json=options.json)
        if not (options.json or options.section or options.device):
            show_plans(app)
        return 0
    from leadsman.cli.answering import process
    from leadsman.cli.remote import any_version, ask

    brokers, prefix = running_app(options)
    topic = process(brokers, prefix, options.device or ()).introspect
    request: Request = {}
    if options.section:
        request["sections"] = options.section
    if options.device:
        request["devices"] = options.device
    with any_version():
        show(ask(brokers, topic, request, options.timeout), as_json=options.json)
    return 0


def why(options: argparse.Namespace) -> int:
    """Explain why a device is silent, or list the devices that are."""
    from leadsman.cli.why import LEFT_OUT, given, show, verdicts

    brokers: Brokers
    prefix: str | None
    device = app_or_device(options)
    if options.target is None and options.prefix is None:
        brokers, prefix = known_brokers(options), None
    else:
        brokers, prefix = running_app(options)
    more = given(options.target, options.config, options.set, options.mqtt)
    answers = verdicts(brokers, prefix, device, options.timeout, more.options)
    for each in answers.verdicts if more.left_out else ():
        each["advice"] += LEFT_OUT if "leadsman " in each["advice"] else ""
    show(answers, device, as_json=options.json)
    return SOME_FAIL if any(each["state"] == "broken" for each in answers.verdicts) else 0


def app_or_device(options: argparse.Namespace) -> str | None:
    """The device that is named, if any. The app before it becomes the target: a word with one colon, unless the app is
    given by an option, since the name of a device may have one."""
    words: list[str] = options.named
    given = options.target is not None or options.prefix is not None
    if words and not given and (len(words) > 1 or _TARGET.fullmatch(words[0])):
        options.target = words.pop(0)
    if len(words) > 1:
        raise UsageError(f"{clean(words[1])!r} is one word too many; write one device, or none for all")
    return words[0] if words else None


def watch(options: argparse.Namespace) -> int:
    """Show the board of the devices of one app or of many."""
    from leadsman.cli.watch import watch as watch_apps
    from leadsman.cli.why import given

    for pattern in options.pattern:
        levels = pattern.split("/")
        if "#" in pattern or "" in levels or any("+" in level and level != "+" for level in levels):
            raise UsageError(f"{clean(pattern)!r} is not a prefix; write one such as house, home/+ or 'g*'")
    brokers = known_brokers(options)
    more = given(None, options.config, options.set, options.mqtt).options
    watch_apps(brokers, options.pattern, options.timeout, once=options.once, as_json=options.json, options=more)
    return 0


def trace(options: argparse.Namespace) -> int:
    """Show the trace of a running app, or of a state file."""
    from leadsman.cli.answering import process
    from leadsman.cli.remote import any_version, ask
    from leadsman.cli.trace import Printer, follow

    printer = Printer(options.outage, as_json=options.json)
    if options.file is not None:
        printer.print(_rows_of_file(options))
        return 0
    brokers, prefix = running_app(options)
    topic = process(brokers, prefix, options.device or ()).introspect
    request: Request = {"sections": ["app", "trace"], "after": 0}
    if options.device:
        request["devices"] = options.device
    if options.since is not None:
        request["since"] = time.time() - options.since

    def answer(*, quiet: bool = True) -> "Introspection":
        found: Introspection = ask(brokers, topic, request, options.timeout, quiet=quiet)
        return found

    with any_version():
        first = answer(quiet=False)
        printer.print(first["trace"])
        if options.follow:
            with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends it
                follow(printer, request, first, answer)
    return 0


def gaps(options: argparse.Namespace) -> int:
    """Show the ledgers of a running app."""
    from leadsman.cli.answering import process
    from leadsman.cli.gaps import KEPT, show
    from leadsman.cli.remote import any_version, ask

    if options.since > KEPT:
        raise UsageError(f"--since is {human(options.since)}, and an app keeps two days; write --since {human(KEPT)}")
    brokers, prefix = running_app(options)
    topic = process(brokers, prefix, options.device or ()).introspect
    request: Request = {"sections": ["ledger"], "since": time.time() - options.since}
    if options.device:
        request["devices"] = options.device
    with any_version():
        show(ask(brokers, topic, request, options.timeout)["ledger"], as_json=options.json)
    return 0


def _rows_of_file(options: argparse.Namespace) -> list["TraceRow"]:
    """The rows of a state file."""
    import sqlite3

    from leadsman.runtime.statefile import StateFile

    if not options.file.is_file():
        raise LeadsmanError(f"{options.file} does not exist; an app with keep_state=True writes such a file")
    since = 0.0 if options.since is None else time.time() - options.since
    try:
        rows = list(StateFile(options.file).trace())
    except (sqlite3.Error, OSError, ValueError) as error:
        raise LeadsmanError(f"{options.file} cannot be read: {describe(error)}") from None
    wanted = [row for row in rows if row["at"] >= since and row["handler"] in (options.device or [row["handler"]])]
    return [cast("TraceRow", row | {"at": rfc3339(row["at"])}) for row in wanted]


def simulate(options: argparse.Namespace) -> int:
    """Run an app for a simulated day."""
    from leadsman.cli import simulate as simulation  # what it needs of the testing kit is for this command alone

    app: App = load_target(options.target)
    return simulation.run(app, _sources(options), options)


def held(options: argparse.Namespace) -> int:
    """List the held devices of a running app."""
    from leadsman.cli.answering import processes
    from leadsman.cli.remote import any_version, ask
    from leadsman.cli.times import local, zone

    brokers, prefix = running_app(options)
    request: Request = {"sections": ["devices", "jobs"]}
    answers: list[Introspection]
    answers = [ask(brokers, each.introspect, request, options.timeout) for each in processes(brokers, prefix)]
    with any_version():
        entries = [entry for each in answers for entry in (*each["devices"].items(), *each["jobs"].items())]
        states = [(name, each.get("runtime")) for name, each in entries]
        rows = [
            (name, local(state["failing_since"]), clean(state["last_error"] or "held by a person"))
            for name, state in states
            if state is not None and state.get("held")
        ]
        print(table(("device", f"since ({zone()})", "error"), rows) if rows else "No device is held.")
    return SOME_HELD if rows else 0


def hold(options: argparse.Namespace) -> int:
    """Hold devices, so that they are not polled."""
    from leadsman.cli.remote import ask

    brokers, prefix = running_app(options)
    for device in options.device:
        ask(brokers, f"{prefix}/{device}/hold/set", {"by": sender()}, options.timeout)
        say(f"{device}: held")
    return 0


def release(options: argparse.Namespace) -> int:
    """Release held devices, so that they are polled again."""
    from leadsman.cli.remote import ask

    brokers, prefix = running_app(options)
    for device in options.device:
        ask(brokers, f"{prefix}/{device}/release/set", {"by": sender()}, options.timeout)
        say(f"{device}: released")
    return 0


def circuit(options: argparse.Namespace) -> int:
    """Isolate, close or disable the circuits of devices."""
    from leadsman.cli.remote import ask

    brokers, prefix = running_app(options)
    request = {"action": options.action, "by": sender()}
    for device in options.device:
        answer = ask(brokers, f"{prefix}/{device}/circuit/set", request, options.timeout)
        say(f"{device}: {clean(str(answer.get('circuit')))}")
    return 0


def sender() -> str:
    """The user who types this, for the log and the trace of the app."""
    import getpass
    import os
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        user = str(os.getuid()) if hasattr(os, "getuid") else "somebody"
    return f"{user}@{socket.gethostname()}"


def schema(options: argparse.Namespace) -> int:
    """Print the schema of every topic."""
    from leadsman.introspection.schema import schemas

    app = load_app(options)
    shared = app.setup.standby is not None or app.setup.cluster is not None
    document = schemas(app.topics, {**app.telemetries, **app.sources}, app.commands, nodes=shared)
    print(json_text(document, indent=2))
    return 0


def init(options: argparse.Namespace) -> int:
    """Write a new app."""
    from leadsman.cli.scaffold import FILES, MINIMAL, write

    directory = options.directory or Path("." if options.minimal else options.name)
    for path in write(options.name, directory, MINIMAL if options.minimal else FILES):
        say(f"wrote {path}")
    steps = [f"leadsman check {options.name}:app", f"leadsman run {options.name}:app"]
    if directory != Path("."):
        steps.insert(0, f"cd {directory}")
    if not options.minimal:
        steps.append('pip install -e ".[test]" && python -m pytest')
    print("\nNext:")
    for step in steps:
        say(step, "  ")
    return 0


def health(options: argparse.Namespace) -> int:
    """Check the health file of an app."""
    from leadsman.monitoring.watchdog import HEALTH_FILE, health_file, read_health

    path = options.file or health_file()
    if path is None:
        raise LeadsmanError(f"no health file is given; set {HEALTH_FILE} for the app and here, or name the file")
    well, summary = read_health(path, time.monotonic())
    if well:
        say(summary)
    else:
        print(summary, file=sys.stderr)
    return 0 if well else 1


def state_of(options: argparse.Namespace) -> Path:
    """The state directory of the app of the command line."""
    import os

    return load_app(options).plan(os.environ).state_directory


def running_app(options: argparse.Namespace) -> tuple[Brokers, str]:
    """The brokers and the prefix of a running app. If neither the app nor a prefix is given, it is the only app at the
    broker, or the only one there with the device."""
    if options.target is not None:
        app = load_app(options)
        return app.brokers, options.prefix or app.topics.prefix
    brokers = known_brokers(options)
    if options.prefix is not None:
        return brokers, options.prefix
    from leadsman.cli.remote import prefix_of

    devices = getattr(options, "device", None)
    try:
        return brokers, prefix_of(brokers, devices[0] if devices else None)
    except BrokerError as error:
        advice = "the app was looked for there; write --mqtt for another broker, or MODULE:APP, such as house:app"
        raise BrokerError(f"{error.without_hint()}; {advice}") from None


def known_brokers(options: argparse.Namespace) -> Brokers:
    """The brokers of the settings, without an app."""
    return brokers_of(load_broker(_sources(options)))


def _sources(options: argparse.Namespace) -> Where:
    """The sources of settings, those of the command line included."""
    flags = dict(getattr(options, "given", {}))
    for assignment in options.set:
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set {assignment!r} is not an assignment; write --set boiler.port=/dev/ttyUSB0")
        flags[key.strip()] = value
    if getattr(options, "mqtt", None) is not None:
        flags["mqtt.url"] = options.mqtt
    if getattr(options, "http", None) is not None:
        flags["http.bind"] = options.http
    for key in IDENTITY_KEYS:
        if getattr(options, key, None) is not None:
            flags[f"mqtt.{key}"] = getattr(options, key)
    if getattr(options, "discovery", None) is not None:
        flags["discovery.convention"] = options.discovery
    if getattr(options, "standby", False):
        flags["standby.enabled"] = "true"
    return Where.here(options.config, flags)


def load_app(options: argparse.Namespace) -> App:
    """The app of the command line, with its settings."""
    app: App
    try:
        app = options.target if isinstance(options.target, App) else load_target(options.target)
    except NoModuleError as error:
        if ":" in options.target or not hasattr(options, "device"):
            raise
        raise NoModuleError(
            f"{error}\na device of a running app is given as --device {clean(options.target)}"
        ) from None
    app.load(_sources(options))
    return app
