"""``leadsman check``: checks an app and its settings without running it, and prints the origin of each setting."""

import argparse
import os

from leadsman.core.app import App
from leadsman.core.mqtt.broker import check_files
from leadsman.core.mqtt.connection_state import V311
from leadsman.core.mqtt.topics import SURE_CLIENT_ID
from leadsman.core.settings.rows import shown
from leadsman.core.text import describe
from leadsman.core.wiring.build import everything
from leadsman.core.wiring.plan import NoHome
from leadsman.errors import InvalidValue
from leadsman.tools.access import hidden_values_of
from leadsman.tools.cli.arguments import OF_AN_APP, ONE_TARGET, Subcommand
from leadsman.tools.cli.commands.inspect import registrations, show, show_plans
from leadsman.tools.cli.commands.run import app_to_run
from leadsman.tools.cli.tables import print_text, table


def run(options: argparse.Namespace) -> None:
    """Check an app and its settings, and show its registrations."""
    app = app_to_run(options)
    show_settings(app)
    show_brokers(app)
    print()
    show_identity(app)
    print()
    show_device_settings(app)
    show(registrations(app), as_json=False)
    show_plans(app)
    app.setup.check_installed()
    check_files(app.brokers)
    if (idle := app.setup.idle_reason) is not None:
        if not (app.telemetries or app.sources or app.commands):
            raise InvalidValue(f"the app {app.name!r} does nothing: {idle}")
        print()
        print_text(f"The app does nothing: {idle}")
    if app.setup.extensions:
        everything(app.plan(os.environ))  # what they let join is asked for, and does not join
    if (hidden := hidden_values_of(app.plan(os.environ))) is not None:
        print()
        print_text(hidden)
    print("\nok")


def show_settings(app: App) -> None:
    """Print every setting with its origin."""
    rows = [(row.path, row.value, row.origin) for row in app.setup.rows]
    print(table(("setting", "value", "from"), rows) if rows else "The app has no settings.")


def show_device_settings(app: App) -> None:
    """Print the options of the devices that the settings concern, each with its origin."""
    if (found := app.setup.device_settings) is None:
        return
    rows = [
        (name, option, shown(option, each.entry.value), each.entry.origin)
        for name, options in found.applied.items()
        for option, each in options.items()
    ]
    rows += [
        (name, each.option, _in_code(each.value), each.place) for name in found.in_code for each in found.in_code[name]
    ]
    if rows:
        print(table(("device", "option", "value", "from"), sorted(rows)))
        print()


def _in_code(value: object) -> str:
    """A value of an option. An object of the user is shown by its class, since it may hold secrets."""
    if isinstance(value, list | tuple) and value and all(isinstance(each, type) for each in value):
        return ", ".join(each.__name__ for each in value)
    if isinstance(value, type):
        return value.__name__
    kind = type(value)
    return shown("", value) if kind.__module__.split(".")[0] in ("builtins", "leadsman", "datetime") else kind.__name__


def show_identity(app: App) -> None:
    """Print how the broker and this machine identify the app, and where that is set."""
    origins = {row.path: row.origin for row in app.setup.rows}
    prefix = origins.get("mqtt.topic_prefix", "the app")
    instance = origins.get("mqtt.instance", "the instance that the app has" if app.setup.declaration.instance else "")
    client = origins.get("mqtt.client_id", f"the prefix and {instance}" if instance else "the prefix")
    state = "STATE_DIRECTORY" if os.environ.get("STATE_DIRECTORY") else "the name of the app and the prefix"
    rows = [("topic prefix", app.topics.prefix, prefix), ("client id", app.client_id, client)]
    try:
        rows.append(("state", str(app.plan(os.environ).state_directory), state))
    except NoHome as error:
        rows.append(("state", "kept in memory only", describe(error)))
    print(table(("identity", "value", "from"), rows))
    if any(each.protocol == V311 for each in app.brokers) and len(app.client_id.encode()) > SURE_CLIENT_ID:
        known = f"a broker of MQTT 3.1.1 may refuse a client id of more than {SURE_CLIENT_ID} bytes"
        print()
        print_text(f"{known}; if this one does, write --client-id, or MQTT__CLIENT_ID")


def show_brokers(app: App) -> None:
    """Print the brokers in the order in which they are tried."""
    primary, *others = app.brokers
    print()
    print_text(f"broker {primary}")
    for broker in others:
        print_text(f"then   {broker}")


COMMAND = Subcommand(
    run,
    "Imports the app, reads its settings, registers all its devices, and prints every setting with "
    "its origin. Secrets are masked. The command opens no device and connects to no broker.",
    ("leadsman check house:app",),
    (ONE_TARGET, *OF_AN_APP),
    "Exits with 0 if all is well, 78 if the configuration is wrong, 1 if there is no app.",
)
