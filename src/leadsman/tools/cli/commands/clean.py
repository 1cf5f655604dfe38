"""``leadsman clean``: removes the retained topics that an app left at the broker. Only what its registry lists, and is
proven to be its own, is removed, and nothing while the app is online."""

import argparse
import asyncio
import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from leadsman.errors import BrokerError, LeadsmanError, SubscriptionRefused
from leadsman.introspection.ownership import in_order
from leadsman.introspection.registrations import Registrations
from leadsman.introspection.registry import registry_entry
from leadsman.introspection.retained import APP, FORGETTING, Listed, no_longer, retained_of
from leadsman.mqtt.answers import Json, object_in
from leadsman.mqtt.broker import Broker, Brokers
from leadsman.mqtt.message import Message
from leadsman.mqtt.side_connection import SideConnection
from leadsman.mqtt.topics import Topics, encode
from leadsman.text import clean as cleaned
from leadsman.text import counted
from leadsman.tools.cli.arguments import DISCOVERY, MAYBE_TARGET, Subcommand, UsageError, argument, prefix
from leadsman.tools.cli.remote import retained, running_app
from leadsman.tools.cli.tables import say
from leadsman.tools.cli.target import load_app
from leadsman.tools.doctor.access import described_at, described_by

AT_ONCE = 20
"""Messages that are sent before an acknowledgement is waited for. Brokers allow as many (MQTT 5 §3.2.2.3.3)."""
NOT_AUTHORIZED = 0x87
"""PUBACK: not authorized (MQTT 5 §3.4.2.1)."""


def run(options: argparse.Namespace) -> int:
    """Remove the retained topics that an app left at the broker."""
    if options.target is None:
        if not (options.all and options.prefix):
            raise UsageError("name the app, such as house:app; or remove a whole app: --prefix house --all")
        brokers, prefix = running_app(options)
        clean(brokers, Topics(prefix), None, None, dry_run=options.dry_run)
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
    clean(app.brokers, app.topics, app.name, None if options.all else now, dry_run=options.dry_run)
    return 0


class Removal(NamedTuple):
    """What is removed."""

    topics: tuple[str, ...]
    """Retained topics below the prefix of the app, in the order in which they are removed."""
    elsewhere: tuple[str, ...]
    """Other retained topics, such as what describes the devices to Home Assistant. They are removed first."""
    devices: tuple[str, ...]
    """The devices that are gone."""
    pages: Mapping[str, bytes]
    """The pages of the registry that change, by topic, with their new payloads; nothing removes a page. They follow the
    topics, so that an interrupted removal can be repeated."""


def everything(listed: Listed, topics: Topics) -> Removal:
    """All that an app retains, and its registry."""
    found = dict(listed.topics())
    kept = dict.fromkeys(topic for each in listed.topics() for topic in each[1])
    pages = {_page(topics, number): b"" for number in sorted(listed.pages, reverse=True)}
    devices = tuple(name for name in found if name != APP)
    return _removal((*kept, topics.status), topics, devices, pages)


def left_behind(listed: Listed, topics: Topics, now: Mapping[str, list[str]]) -> Removal:
    """What an app no longer has.

    Args:
        listed: its registry.
        topics: its topics.
        now: the retained topics of the devices that are registered now. What such a device retains elsewhere than
            below the prefix is left to the app. A topic that one of them has is not removed for another.
    """
    below = f"{topics.prefix}/"
    gone: dict[str, None] = {}
    taken = {topic for each in now.values() for topic in each}
    devices: dict[str, None] = {}
    for name, before in listed.topics():
        elsewhere = [topic for topic in before if not topic.startswith(below)]
        if name == APP:
            found = no_longer(before, elsewhere, None)
        elif name in now:
            found = no_longer(before, [*now[name], *elsewhere], topics.below(name))
        else:
            found = no_longer(before, None, None)
            devices[name] = None
        gone |= dict.fromkeys(topic for topic in found if topic not in taken)
    pages = {}
    for number, kept in listed.pages.items():
        page = object_in(kept.payload) or {}
        changed = {**page, "devices": {name: each for name, each in page["devices"].items() if name not in devices}}
        if isinstance(page.get("others"), list):
            changed["others"] = [each for each in page["others"] if not isinstance(each, str) or each not in gone]
        if changed != page and (payload := _encoded(changed)) is not None:
            pages[_page(topics, number)] = payload
    return _removal(gone, topics, devices, pages)


def _removal(gone: Iterable[str], topics: Topics, devices: Iterable[str], pages: Mapping[str, bytes]) -> Removal:
    below: list[str] = []
    elsewhere: list[str] = []
    for topic in gone:
        (below if topic.startswith(f"{topics.prefix}/") else elsewhere).append(topic)
    return Removal(tuple(below), tuple(in_order(elsewhere)), tuple(devices), pages)


def _encoded(page: Json) -> bytes | None:
    """A page of a registry; None if it has what leadsman writes to no page. The next start of the app replaces it."""
    try:
        return encode(page)
    except (ValueError, RecursionError):
        return None


def _page(topics: Topics, number: int) -> str:
    return topics.registry if number == 1 else f"{topics.registry}/{number}"


def clean(
    brokers: Brokers, topics: Topics, app: str | None, now: Mapping[str, list[str]] | None, *, dry_run: bool
) -> int:
    """Remove what an app left at each of its brokers, and print each topic.

    Args:
        brokers: the brokers. All must be reachable.
        topics: the topics of the app.
        app: the name that the registry must have; None for any.
        now: see `left_behind`; None to remove everything.
        dry_run: only print what would be removed.

    Returns:
        The number of topics.

    Raises:
        LeadsmanError: the app is online, or the registry is that of another app.
        BrokerError: a broker cannot be reached, or refuses to remove a topic.
    """
    found = 0
    for broker in brokers:
        if len(brokers) > 1:
            say(f"{broker}:")
        found += _clean_at(broker, topics, app, now, dry_run=dry_run)
    return found


def _clean_at(
    broker: Broker, topics: Topics, app: str | None, now: Mapping[str, list[str]] | None, *, dry_run: bool
) -> int:
    marker = f"{topics.introspect}/response"  # its acknowledgement shows that the others have come
    kept = retained(Brokers.of(broker), (f"{topics.registry}/#", topics.status, marker))
    listed = Listed(topics.prefix)
    for topic, message in kept.items():
        listed.add(topic, message.payload)
    _prove(listed, broker, marker)
    if listed.app is None:
        say(f"The broker keeps no registry at {topics.registry}, so the retained topics of this app are not known.")
        return 0
    if app is not None and listed.app != app:
        raise LeadsmanError(
            f"the registry at {topics.registry} was written by the app {cleaned(listed.app)!r}, not by {app!r}; "
            f"to remove everything that it retains, write: leadsman clean --prefix {topics.prefix} --all"
        )
    status = object_in(kept[topics.status].payload) if topics.status in kept else None
    if not dry_run and status is not None and status.get("state") == "online":
        raise LeadsmanError(
            f"the app is online, as {topics.status} shows; stop it first. Its next start removes the topics of "
            "removed devices"
        )
    removal = everything(listed, topics) if now is None else left_behind(listed, topics, now)
    gone = (*removal.elsewhere, *removal.topics)
    if gone and not dry_run:
        asyncio.run(remove(broker, removal))
    for topic in gone:
        say(cleaned(topic))
    verb = "would be removed" if dry_run else "removed"
    of = f" of {counted(len(removal.devices), 'device')}" if removal.devices else ""
    say(f"{counted(len(gone), 'retained topic')}{of} {verb}" if gone else "Nothing to remove.")
    return len(gone)


def _prove(listed: Listed, broker: Broker, marker: str) -> None:
    """Read the descriptions of discovery where the registry lists topics."""
    found: dict[str, bytes] = {}
    unread = []
    for place in listed.places:
        try:
            kept = retained(Brokers.of(broker), (place, marker))
        except SubscriptionRefused as error:
            unread.append(place)
            say(f"not removed, since its owner is not known: {cleaned(place)}: {cleaned(str(error))}")
        else:
            found |= {topic: message.payload for topic, message in kept.items()}
    listed.prove(found, unread)


async def remove(broker: Broker, removal: Removal) -> None:
    """Remove topics from a broker, and see that it takes each message.

    Raises:
        BrokerError: the broker cannot be reached, or refuses to remove a topic.
    """
    async with SideConnection().at(broker) as connection:
        await _publish(connection, [Message(topic, b"", retain=True) for topic in removal.elsewhere])
        if removal.elsewhere and removal.topics:
            await asyncio.sleep(FORGETTING)
        await _publish(connection, [Message(topic, b"", retain=True) for topic in removal.topics])
        await _publish(connection, [Message(topic, page, retain=True) for topic, page in removal.pages.items()])


async def _publish(connection: SideConnection, messages: list[Message]) -> None:
    """Publish messages, and see that the broker takes each. Raises `BrokerError`."""
    for first in range(0, len(messages), AT_ONCE):
        some = messages[first : first + AT_ONCE]
        for message, code in zip(some, await connection.publish_all(some), strict=True):
            if code is None:
                raise connection.broken or BrokerError("the connection was lost; try again")
            if code >= 0x80:
                why = "not authorized; add it to the access list" if code == NOT_AUTHORIZED else "see the broker's log"
                raise BrokerError(f"the broker refuses to remove {message.topic} (0x{code:02x}): {why}")


COMMAND = Subcommand(
    run,
    "Compares the devices of an app with the registry that the broker keeps of it, and removes the "
    "retained topics of devices that are gone. With --all, removes everything that the registry "
    "lists, and the registry: for an app that is no longer used. Nothing else is touched. The app "
    "must be offline; each start of the app does the same.",
    (
        "leadsman clean house:app --dry-run",
        "leadsman clean house:app",
        "leadsman clean --prefix house --all --mqtt mqtt://broker.lan",
    ),
    "Exits with 0 if all is well, even if there is nothing to remove; 1 if the app is online, or the broker refuses.",
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
