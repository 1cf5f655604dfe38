"""The commands that keep a broker tidy and closed, in the table of the commands."""

import argparse
import os

from leadsman.cli.acl import FORMATS, emqx, mosquitto
from leadsman.cli.arguments import DISCOVERY, IDENTITY, MAYBE_TARGET, TARGET, Command, argument, prefix
from leadsman.cli.commands import load_app, running_app
from leadsman.cli.target import UsageError
from leadsman.mqtt.topics import DOCTOR, Topics


def _clean(options: argparse.Namespace) -> int:
    """Remove the retained topics that an app left at the broker."""
    from leadsman.cli.clean import clean as remove_topics
    from leadsman.doctor.access import described_at, described_by
    from leadsman.introspection.registrations import Registrations
    from leadsman.introspection.registry import registry_entry
    from leadsman.introspection.retained import retained_of

    if options.target is None:
        if not (options.all and options.prefix):
            raise UsageError("name the app, such as house:app; or remove a whole app: --prefix house --all")
        brokers, prefix = running_app(options)
        remove_topics(brokers, Topics(prefix), None, None, dry_run=options.dry_run)
        return 0
    options.topic_prefix = options.prefix
    app = load_app(options)
    known = Registrations(app.telemetries, app.sources, app.commands)
    plan = app.plan(os.environ)
    convention, described = described_by(plan), described_at(plan)
    health = convention is not None and convention.has_health
    entries = {
        name: registry_entry(app.topics, name, known.of(name), described.get(name, ()), health=health) for name in known
    }
    now = {name: retained_of(entry) for name, entry in entries.items() if entry is not None}
    remove_topics(app.brokers, app.topics, app.name, None if options.all else now, dry_run=options.dry_run)
    return 0


def _acl(options: argparse.Namespace) -> int:
    """Print the access list of an app."""
    from leadsman.doctor.access import access_of

    app = load_app(options)
    access, user, doctor = access_of(app.plan(os.environ)), app.brokers.primary.username, app.topics.of(DOCTOR, "#")
    if options.format == "emqx":
        print(emqx(app.name, user, app.client_id, access, doctor))
    else:
        print(mosquitto(app.name, user, access, doctor))
    return 0


CLEAN = Command(
    "clean",
    _clean,
    "remove the retained topics that an app left at the broker",
    "Compares the devices of an app with the registry that the broker keeps of it, and removes the "
    "retained topics of devices that are gone. With --all, removes everything that the registry "
    "lists, and the registry: for an app that is no longer used. Nothing else is touched. The app "
    "must be offline; at each start it does this by itself.",
    (
        "leadsman clean house:app --dry-run",
        "leadsman clean house:app",
        "leadsman clean --prefix house --all --mqtt mqtt://broker.lan",
    ),
    "Exits with 0 if all is well, also if there is nothing to remove; 1 if the app is online, or the broker refuses.",
    (
        *MAYBE_TARGET,
        argument(
            "--prefix",
            "the topic prefix: instead of the app's own, or, with --all, instead of MODULE:APP",
            metavar="PREFIX",
            type=prefix,
        ),
        DISCOVERY,
        argument("--all", "remove everything that the app retains", action="store_true"),
        argument("--dry-run", "only print what would be removed", action="store_true"),
    ),
)
ACL = Command(
    "acl",
    _acl,
    "print the access list that an app needs",
    "Prints what the app publishes and subscribes to, in the syntax of a broker, for the user name "
    "of its settings. The command connects to no broker.",
    (
        "leadsman acl house:app >> /etc/mosquitto/acl",
        "leadsman acl house:app --format emqx",
    ),
    "",
    (
        *TARGET,
        *IDENTITY,
        DISCOVERY,
        argument("--format", "mosquitto or emqx (default: mosquitto)", choices=FORMATS, default=FORMATS[0]),
    ),
)
