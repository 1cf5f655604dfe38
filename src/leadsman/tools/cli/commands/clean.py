"""``leadsman clean``: removes the retained topics that an app left at the broker. Only what its registry lists, and is
proven to be its own, is removed, and nothing while the app is online."""

import argparse
import asyncio
import contextlib
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from leadsman.errors import BrokerError, LeadsmanError, SubscriptionRefused
from leadsman.introspection.registry import declared, keeps_others, registry_entry
from leadsman.introspection.retained import APP, FORGETTING, Listed, no_longer, retained_of
from leadsman.mqtt.answers import Json, object_in
from leadsman.mqtt.broker import Broker, Brokers
from leadsman.mqtt.diagnosis import NOT_AUTHORIZED
from leadsman.mqtt.message import Message
from leadsman.mqtt.side_connection import SideConnection
from leadsman.mqtt.topic_faults import advise
from leadsman.mqtt.topics import Topics
from leadsman.nodes.failure_state import WORD
from leadsman.text import clean as cleaned
from leadsman.text import count_noun
from leadsman.tools.cli.arguments import (
    DISCOVERY,
    MAYBE_TARGET,
    PREFIX,
    Subcommand,
    UsageError,
    switch,
)
from leadsman.tools.cli.remote import running_app
from leadsman.tools.cli.tables import print_text
from leadsman.tools.cli.target import load_app
from leadsman.tools.doctor.access import describe_topics, described_by

AT_ONCE = 20
"""Messages that are sent before an acknowledgement is waited for. Brokers allow as many (MQTT 5 §3.2.2.3.3)."""
LATE = 1.0
"""Seconds for the broker to remove what it has acknowledged before it is asked once more: amqtt works so late."""
WITNESSES = 20
"""Topics that stay, of which it is seen whether the broker shows what it keeps of the app."""
STILL_THERE = "is still there"
"""Of a topic whose removal the broker acknowledged."""


def run(options: argparse.Namespace) -> None:
    """Remove the retained topics that an app left at the broker."""
    if options.target is None:
        if not (options.all and options.prefix):
            raise UsageError("name the app, such as house:app; or remove a whole app: --prefix house --all")
        brokers, prefix = running_app(options)
        clean(brokers, Topics(prefix), None, None, dry_run=options.dry_run)
        return
    options.topic_prefix = options.prefix
    app = load_app(options)
    plan = app.plan(os.environ)
    convention, described = described_by(plan), describe_topics(plan)
    health = convention is not None and convention.has_health
    shared = (plan.standby is not None or plan.cluster is not None) and plan.keep_state
    retained, may_add = {}, set()
    for name, device in declared(app.telemetries, app.sources, app.commands).items():
        others = [*described.get(name, ()), *([app.topics.of(name, WORD)] if shared else [])]
        entry = registry_entry(app.topics, name, device.registrations, others, health=health)
        if entry is not None:
            retained[name] = retained_of(entry)
        if keeps_others(device.registrations):
            may_add.add(name)
    now = Remaining(retained, may_add)
    clean(app.brokers, app.topics, app.name, None if options.all else now, dry_run=options.dry_run)


class Remaining(NamedTuple):
    """The devices that an app has now."""

    retained: Mapping[str, list[str]]
    """The retained topics of each. What a device retains elsewhere than below the prefix is left to the app."""
    may_add: Collection[str]
    """Those that may publish to further topics below them, which are left to the app, too; see `keeps_others`."""


class Removal(NamedTuple):
    """What is removed."""

    topics: tuple[str, ...]
    """Retained topics below the prefix of the app, in the order in which they are removed."""
    elsewhere: tuple[str, ...]
    """Other retained topics, such as what describes the devices to Home Assistant. They are removed first."""
    devices: tuple[str, ...]
    """The devices that are gone."""
    pages: tuple[str, ...] = ()
    """The pages of the registry, if it goes, too. They follow the topics, so that an interrupted removal can be
    repeated."""
    seen: frozenset[str] = frozenset()
    """The topics of which it was seen that the broker keeps them."""

    @property
    def listed(self) -> tuple[str, ...]:
        """All topics that are removed, in this order."""
        return (*self.elsewhere, *self.topics, *self.pages)


def everything(listed: Listed, topics: Topics) -> Removal:
    """All that an app retains, and its registry."""
    found = dict(listed.topics())
    kept = dict.fromkeys(topic for each in listed.topics() for topic in each[1])
    pages = (_page(topics, number) for number in sorted(listed.pages, reverse=True))
    devices = (name for name in found if name != APP)
    return _removal((*kept, topics.status), topics, devices)._replace(pages=tuple(pages))


def left_behind(listed: Listed, topics: Topics, now: Remaining) -> Removal:
    """What an app no longer has. Its registry stays as it is: the next start of the app writes it.

    Args:
        listed: its registry.
        topics: its topics.
        now: its devices. A topic that one of them has is not removed for another.
    """
    below = f"{topics.prefix}/"
    gone: dict[str, None] = {}
    taken = {topic for each in now.retained.values() for topic in each}
    devices: dict[str, None] = {}
    for name, before in listed.topics():
        elsewhere = [topic for topic in before if not topic.startswith(below)]
        if name == APP:
            found = no_longer(before, elsewhere, None)
        elif name in now.retained:
            below_it = topics.below(name) if name in now.may_add else None
            found = no_longer(before, [*now.retained[name], *elsewhere], below_it)
        else:
            found = no_longer(before, None, None)
            devices[name] = None
        gone |= dict.fromkeys(topic for topic in found if topic not in taken)
    return _removal(gone, topics, devices)


def _removal(gone: Iterable[str], topics: Topics, devices: Iterable[str]) -> Removal:
    below: list[str] = []
    elsewhere: list[str] = []
    for topic in gone:
        (below if topic.startswith(f"{topics.prefix}/") else elsewhere).append(topic)
    return Removal(tuple(below), tuple(elsewhere), tuple(devices))


def _page(topics: Topics, number: int) -> str:
    return topics.registry if number == 1 else f"{topics.registry}/{number}"


def clean(brokers: Brokers, topics: Topics, app: str | None, now: Remaining | None, *, dry_run: bool) -> None:
    """Remove what an app left at each of its brokers, and print each topic.

    Args:
        brokers: the brokers. All must be reachable.
        topics: the topics of the app.
        app: the name that the registry must have; None for any.
        now: see `left_behind`; None to remove everything.
        dry_run: only print what would be removed.

    Raises:
        LeadsmanError: the app is online, or the registry is that of another app.
        BrokerError: a broker cannot be reached, refuses to remove a topic, or keeps one whose removal it acknowledged.
    """
    complaints = []
    for broker in brokers:
        if len(brokers) > 1:
            print_text(f"{broker}:")
        outcome = _clean_at(broker, topics, app, now, dry_run=dry_run)
        complaints += [] if outcome is None else outcome.complaints(broker)
    if complaints:
        raise BrokerError("; ".join(complaints))


def _clean_at(
    broker: Broker, topics: Topics, app: str | None, now: Remaining | None, *, dry_run: bool
) -> "Outcome | None":
    """As `clean`, at one broker. What became of it; None if the broker keeps no registry."""
    listed, status = asyncio.run(_kept_at(broker, topics))
    if listed.app is None:
        print_text(
            f"The broker keeps no registry at {topics.registry}, so the retained topics of this app are not known: "
            "whatever it left stays."
        )
        return None
    if app is not None and listed.app != app:
        raise LeadsmanError(
            f"the registry at {topics.registry} was written by the app {cleaned(listed.app)!r}, not by {app!r}; "
            f"to remove everything that it retains, write: leadsman clean --prefix {topics.prefix} --all"
        )
    if not dry_run and status is not None and status.get("state") == "online":
        raise LeadsmanError(
            f"the app is online, as {topics.status} shows; stop it first. Its next start removes the topics of "
            "removed devices"
        )
    removal = everything(listed, topics) if now is None else left_behind(listed, topics, now)
    marker = f"{topics.introspect}/response"
    gone = frozenset(removal.listed)
    others = (topic for each in listed.topics() for topic in each[1] if topic not in gone)
    readable = (topics.status, *removal.pages)
    removal = asyncio.run(only_kept(broker, removal, marker, readable, tuple(islice(others, WITNESSES))))
    if dry_run or not removal.listed:
        outcome = Outcome(removal.listed, {})
    else:
        outcome = asyncio.run(remove(broker, removal, marker))
    for topic in outcome.removed:
        print_text(cleaned(topic))
    for topic, why in outcome.stays.items():
        print_text(f"{cleaned(topic)} {why}")
    verb = "would be removed" if dry_run else "removed"
    of = f" of {count_noun(len(removal.devices), 'device')}" if removal.devices else ""
    if outcome.removed:
        print_text(f"{count_noun(len(outcome.removed), 'retained topic')}{of} {verb}")
    elif not outcome.stays:
        print_text("Nothing to remove.")
    return outcome


async def _kept_at(broker: Broker, topics: Topics) -> tuple[Listed, Json | None]:
    """What the broker keeps of an app: its registry, with the proofs of what it lists outside the prefix, and its
    status. All of it is asked for topic by topic: filters with wildcards bring nothing at some brokers, and all that
    others keep at others.

    Raises:
        BrokerError: the broker cannot be reached; or it refuses the registry, or the status.
    """
    listed, marker = Listed(topics.prefix), f"{topics.introspect}/response"
    async with SideConnection().at(broker) as side:
        for refusal in (await side.read((topics.registry, f"{topics.registry}/#", topics.status), marker)).values():
            raise refusal
        asked: list[str] = []
        while True:
            for topic, message in side.kept().items():
                listed.add(topic, message.payload)
            missing = listed.not_asked(asked)
            if not missing:
                break
            asked += missing
            await side.read(missing, marker)
        refused = await side.read(tuple(listed.elsewhere), marker)
        kept = side.kept()
    for topic, error in refused.items():
        print_text(f"not removed, since its owner is not known: {cleaned(topic)}: {cleaned(str(error))}")
    listed.prove({topic: kept[topic].payload for topic in listed.elsewhere if topic in kept})
    return listed, object_in(kept[topics.status].payload) if topics.status in kept else None


class Outcome(NamedTuple):
    """What became of a removal."""

    removed: tuple[str, ...]
    stays: dict[str, str]
    """The topics that the broker still keeps, or may keep, and why, as the end of a sentence."""

    def complaints(self, broker: Broker) -> list[str]:
        """What a person must know about what stays; trying again may help."""
        left = [topic for topic, why in self.stays.items() if why == STILL_THERE]
        if left:
            it = "it" if len(left) == 1 else "them"
            kept = (
                f"{broker} acknowledged that {count_noun(len(left), 'retained topic')} be removed, and still keeps {it}"
            )
            return [f"{kept}; try again, or see its access list: topic write {cleaned(left[0])}"]
        return [f"{broker} keeps {count_noun(len(self.stays), 'retained topic')}, as said above"] if self.stays else []


async def only_kept(
    broker: Broker, removal: Removal, marker: str, readable: Collection[str], others: Sequence[str]
) -> Removal:
    """What the broker keeps of a removal. If it shows nothing but what is `readable` for everybody who may use the app,
    of the `others` neither, its access list may hide the rest, so all of it is tried.

    Args:
        broker: where it is.
        removal: what may be there.
        marker: see `SideConnection.read`.
        readable: the topics that the access list of an app allows it to read.
        others: topics of the app that are not removed.

    Raises:
        BrokerError: the broker cannot be reached.
    """
    async with SideConnection().at(broker) as connection:
        refused = await connection.read((*removal.listed, *others), marker)
        kept = connection.kept().keys()
    if not any(topic in kept for topic in (*removal.listed, *others) if topic not in readable):
        refused = dict.fromkeys(removal.listed, SubscriptionRefused("it may not be read"))

    def there(topics: Iterable[str]) -> tuple[str, ...]:
        return tuple(topic for topic in topics if topic in kept or (topic in refused and topic not in readable))

    seen = frozenset(kept).intersection(removal.listed)
    return Removal(there(removal.topics), there(removal.elsewhere), removal.devices, there(removal.pages), seen)


async def remove(broker: Broker, removal: Removal, marker: str) -> Outcome:
    """Remove topics from a broker, whatever becomes of the others, and look what it still keeps. The registry follows
    if nothing stays.

    Args:
        broker: where they are.
        removal: what goes.
        marker: see `SideConnection.read`.

    Raises:
        BrokerError: the broker cannot be reached, or does not answer.
    """
    gone = (*removal.elsewhere, *removal.topics)
    refused = await _publish(broker, [Message(topic, b"", retain=True) for topic in removal.elsewhere], marker)
    if removal.elsewhere and removal.topics:
        await asyncio.sleep(FORGETTING)
    refused |= await _publish(broker, [Message(topic, b"", retain=True) for topic in removal.topics], marker)
    stays = await _stays(broker, removal, gone, refused, marker)
    if stays:
        return Outcome(
            tuple(topic for topic in gone if topic not in stays),
            stays | dict.fromkeys(removal.pages, "stays, since it lists the others"),
        )
    refused = await _publish(broker, [Message(topic, b"", retain=True) for topic in removal.pages], marker)
    stays = await _stays(broker, removal, removal.pages, refused, marker)
    return Outcome(tuple(topic for topic in removal.listed if topic not in stays), stays)


async def _stays(
    broker: Broker, removal: Removal, topics: Sequence[str], refused: Mapping[str, str], marker: str
) -> dict[str, str]:
    """Those of some topics that the broker still keeps, and those that it refuses and hides, each with the reason."""
    left = await _still_kept(broker, topics, marker)
    if any(topic not in refused for topic in left):
        await asyncio.sleep(LATE)  # some work on what they have acknowledged
        left = await _still_kept(broker, topics, marker)
    hidden = refused.keys() - removal.seen
    return {
        topic: f"stays: {refused[topic]}" if topic in refused else STILL_THERE
        for topic in topics
        if topic in left or topic in hidden
    }


async def _still_kept(broker: Broker, topics: Sequence[str], marker: str) -> list[str]:
    """Those of some topics at which the broker keeps a message, as far as it shows them."""
    if not topics:
        return []
    async with SideConnection().at(broker) as connection:
        await connection.read(topics, marker)
        kept = connection.kept()
    return [topic for topic in topics if topic in kept]


async def _publish(broker: Broker, messages: Sequence[Message], marker: str) -> dict[str, str]:
    """Publish messages, each whatever becomes of the others. Returns the topics that the broker refuses, with the
    reason. Where it closes the connection instead, which some do after an acknowledgement, the messages are sent again
    one by one: that shows on which.

    Raises:
        BrokerError: the broker cannot be reached, or does not answer.
    """
    waiting, refused = list(messages), dict[str, str]()
    alone, tried = False, ""
    while waiting:
        async with SideConnection().at(broker) as connection:
            while waiting and connection.broken is None:
                some = waiting[: 1 if alone else AT_ONCE]
                codes = await connection.publish_all(some)
                for message, code in zip(some, codes, strict=True):
                    if code is not None and code >= 0x80:
                        kind = "denied" if code == NOT_AUTHORIZED else "refused"
                        refused[message.topic] = _refusal(f"refuses to remove it (0x{code:02x})", kind, message.topic)
                if await _survives(connection, marker) or (alone and some[0].topic in refused):
                    waiting = waiting[len(some) :]
                elif not alone:
                    alone = True
                elif tried != some[0].topic:  # the first time may be chance
                    tried = some[0].topic
                else:
                    waiting = waiting[1:]
                    refused[tried] = _refusal("closes the connection on it", "closes", tried)
    return refused


async def _survives(connection: SideConnection, marker: str) -> bool:
    """Whether a connection is still there after a further packet and its answer."""
    if connection.broken is None:
        with contextlib.suppress(SubscriptionRefused):
            try:
                await connection.connection.subscribe(marker)
            except BrokerError:
                if connection.broken is None:  # it does not answer
                    raise
    return connection.broken is None


def _refusal(what: str, kind: str, topic: str) -> str:
    return f"the broker {what}; {advise(kind, topic)}"


COMMAND = Subcommand(
    run,
    "Compares the devices of an app with the registry that the broker keeps of it, and removes the "
    "retained topics of devices that are gone, and those that a device no longer has. With --all, "
    "removes everything that the registry lists, and the registry: for an app that is no longer "
    "used. A topic that the broker refuses to remove is named, and the others go. Nothing else is "
    "touched. The app must be offline; each start of the app does the same.",
    (
        "leadsman clean house:app --dry-run",
        "leadsman clean house:app",
        "leadsman clean --prefix house --all --mqtt mqtt://broker.lan",
    ),
    (
        *MAYBE_TARGET,
        PREFIX._replace(help="the topic prefix: instead of the app's own, or, with --all, instead of MODULE:APP"),
        DISCOVERY,
        switch("--all", "remove everything that the app retains"),
        switch("--dry-run", "only print what would be removed"),
    ),
    "Exits with 0 if all is well, even if there is nothing to remove; 1 if the app is online, or something stays.",
)
