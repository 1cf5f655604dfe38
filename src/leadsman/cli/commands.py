"""The commands of the command line. Each takes the parsed arguments and returns an exit code; `main` reports errors."""

import argparse
import contextlib
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from leadsman.app import App
from leadsman.cli.target import UsageError, load_target
from leadsman.errors import InvalidValue, LeadsmanError
from leadsman.mqtt.broker import Broker
from leadsman.mqtt.from_settings import broker_of
from leadsman.mqtt.topics import check_name, check_prefix
from leadsman.settings.load import load_broker
from leadsman.settings.sources import Where
from leadsman.text import clean, describe
from leadsman.timing.clock import rfc3339

SOME_HELD = 3
"""Exit code of ``leadsman held`` where some devices are held; 1 is that nobody answered."""


def run(options: argparse.Namespace) -> int:
    """Run an app."""
    app = _loaded(options)
    if options.dry_run:
        app.rehearse()
    app.run(log_level=options.log_level, log_format=options.log_format)
    return 0


def run_with_twins(options: argparse.Namespace) -> int:
    """Run an app on a broker of its own, without hardware. What its twins counted is thrown away at the end."""
    from leadsman.demo.broker import watching

    app = _loaded(options)
    app.setup.use_twins()
    print(f"watch it with: {watching(app.broker, app.topics.prefix)}", flush=True)
    with tempfile.TemporaryDirectory(prefix=f"{app.name}-demo-") as directory:
        environment = {"STATE_DIRECTORY": directory}
        app.run(log_level=options.log_level, log_format=options.log_format, environment=environment)
    return 0


def check(options: argparse.Namespace) -> int:
    """Say what is wrong with an app, or show what it is."""
    from leadsman.cli.inspect import registrations, show, show_settings

    app = _loaded(options)
    show_settings(app)
    print(f"\nbroker {app.broker}, client id {app.client_id}")
    show(registrations(app), as_json=False)
    app.setup.check_installed()
    if (idle := app.setup.idle_reason) is not None:
        if not (app.telemetries or app.sources or app.commands):
            raise InvalidValue(f"the app {app.name!r} does nothing: {idle}")
        print(f"\nthe app does nothing: {idle}")
    print("\nok")
    return 0


def inspect(options: argparse.Namespace) -> int:
    """Show what is registered, or how it is doing."""
    from leadsman.cli.inspect import registrations, selected, show

    app = _app(options)
    if not (options.live or options.prefix):
        assert app is not None  # there is a target, as there is no prefix
        show(selected(registrations(app), options.section, options.device), as_json=options.json)
        return 0
    from leadsman.cli.remote import ask

    broker, prefix = _running(options, app)
    request = {"sections": options.section, "devices": options.device}
    wanted = {key: names for key, names in request.items() if names}
    show(ask(broker, f"{prefix}/introspect", wanted, options.timeout), as_json=options.json)
    return 0


def trace(options: argparse.Namespace) -> int:
    """Show the trace of a running app."""
    from leadsman.cli.remote import ask
    from leadsman.cli.trace import Shown, follow

    shown = Shown(options.outage, as_json=options.json)
    if options.file is not None:
        shown.show(_kept(options))
        return 0
    broker, prefix = _running(options, _app(options))
    request: dict[str, Any] = {"sections": ["app", "trace"], "after": 0}
    if options.device:
        request["devices"] = options.device
    if options.since is not None:
        request["since"] = time.time() - options.since

    def answer(*, quiet: bool = True) -> dict[str, Any]:
        found: dict[str, Any] = ask(broker, f"{prefix}/introspect", request, options.timeout, quiet=quiet)
        return found

    first = answer(quiet=False)
    shown.show(first["trace"])
    if options.follow:
        with contextlib.suppress(KeyboardInterrupt):  # it is how one ends it
            follow(shown, request, first, answer)
    return 0


def _kept(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of a file."""
    import sqlite3

    from leadsman.runtime.statefile import StateFile

    if not options.file.is_file():
        raise LeadsmanError(f"{options.file} does not exist; an app with keep_state=True writes it")
    since = 0.0 if options.since is None else time.time() - options.since
    try:
        rows = list(StateFile(options.file).trace())
    except (sqlite3.Error, OSError, ValueError) as error:
        raise LeadsmanError(f"{options.file} cannot be read: {describe(error)}") from None
    wanted = [row for row in rows if row["at"] >= since and row["handler"] in (options.device or [row["handler"]])]
    return [row | {"at": rfc3339(row["at"])} for row in wanted]


def held(options: argparse.Namespace) -> int:
    """List what is held."""
    from leadsman.cli.remote import ask
    from leadsman.cli.tables import table

    broker, prefix = _running(options, _app(options))
    found = ask(broker, f"{prefix}/introspect", {"sections": ["devices", "jobs"]}, options.timeout)
    rows = [
        (name, str(each["runtime"]["failing_since"]), clean(str(each["runtime"]["last_error"])))
        for section in ("devices", "jobs")
        for name, each in found[section].items()
        if each.get("runtime", {}).get("held")
    ]
    print(table(("device", "since", "error"), rows) if rows else "nothing is held")
    return SOME_HELD if rows else 0


def release(options: argparse.Namespace) -> int:
    """Poll held devices again."""
    return _told(options, "release", {"by": _who()})


def circuit(options: argparse.Namespace) -> int:
    """Set the circuits of devices."""
    return _told(options, "circuit", {"action": options.action, "by": _who()})


def _who() -> str:
    """Who types this, for the app's log and trace."""
    import getpass
    import os
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        user = str(os.getuid()) if hasattr(os, "getuid") else "somebody"
    return f"{user}@{socket.gethostname()}"


def _told(options: argparse.Namespace, word: str, request: dict[str, str]) -> int:
    from leadsman.cli.remote import ask

    broker, prefix = _running(options, _app(options))
    for device in options.device:
        answer = ask(broker, f"{prefix}/{check_name(device)}/{word}/set", request, options.timeout)
        print(f"{device}: {'released' if word == 'release' else answer['circuit']}")
    return 0


def schema(options: argparse.Namespace) -> int:
    """Print the schema of every topic."""
    from leadsman.introspection.schema import schemas

    app = _loaded(options)
    print(
        json.dumps(schemas(app.topics, {**app.telemetries, **app.sources}, app.commands), indent=2, ensure_ascii=False)
    )
    return 0


def init(options: argparse.Namespace) -> int:
    """Write a new app."""
    from leadsman.cli.scaffold import write

    directory = options.directory or Path(options.name)
    for path in write(options.name, directory):
        print(f"wrote {path}")
    print(
        f"\nNext:\n  cd {directory}\n  leadsman check {options.name}:app\n  leadsman run {options.name}:app\n  pip install pytest && python -m pytest"
    )
    return 0


def health(options: argparse.Namespace) -> int:
    """Say whether the app of a health file is well."""
    from leadsman.monitoring.watchdog import HEALTH_FILE, health_file, read_health

    path = options.file or health_file()
    if path is None:
        raise LeadsmanError(f"where is the health file? Set {HEALTH_FILE}, for the app and here, or name the file")
    well, words = read_health(path, time.monotonic())
    print(words, file=sys.stdout if well else sys.stderr)
    return 0 if well else 1


def demo(options: argparse.Namespace) -> int:
    """Run the demo."""
    try:
        from leadsman.demo.demo import run_demo
    except ModuleNotFoundError as error:
        raise LeadsmanError(f"the demo needs {error.name}; install leadsman[demo]") from None
    run_demo(options.broker, options.duration)
    return 0


def _app(options: argparse.Namespace) -> App | None:
    if options.target is None and options.prefix is None:
        raise UsageError("say which app: MODULE:APP, such as house:app, or --prefix of a running one")
    return _loaded(options) if options.target else None


def _running(options: argparse.Namespace, app: App | None) -> tuple[Broker, str]:
    """The broker and the prefix of a running app."""
    broker = app.broker if app is not None else broker_of(load_broker(_where(options)))
    return broker, check_prefix(options.prefix or (app.topics.prefix if app else ""))


def _where(options: argparse.Namespace) -> Where:
    flags = dict(getattr(options, "given", {}))
    for assignment in options.set:
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set {assignment!r} is no assignment; write --set boiler.port=/dev/ttyUSB0")
        flags[key.strip()] = value
    if options.mqtt is not None:
        flags["mqtt.url"] = options.mqtt
    if getattr(options, "topic_prefix", None) is not None:
        flags["mqtt.topic_prefix"] = options.topic_prefix
    return Where.here(options.config, flags)


def _loaded(options: argparse.Namespace) -> App:
    app: App
    app = options.target if isinstance(options.target, App) else load_target(options.target)
    app.load(_where(options))
    return app
