"""``leadsman clean``: removes the retained topics that an app left at the broker. Only what its registry lists, and is
proven to be its own, is removed, and nothing while the app is online."""

import argparse
import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from leadsman.core.introspection.registry import DeviceRegistry, declared
from leadsman.core.introspection.retained import APP, FORGETTING, Listed, compare, ours, retained_of
from leadsman.core.mqtt.answers import object_in
from leadsman.core.mqtt.broker import Broker, Brokers
from leadsman.core.mqtt.diagnosis import NOT_AUTHORIZED
from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.side_connection import SideConnection
from leadsman.core.mqtt.topic_faults import advise
from leadsman.core.mqtt.topics import Topics
from leadsman.core.question import Question
from leadsman.core.text import clean as cleaned
from leadsman.core.text import count_noun
from leadsman.errors import BrokerError, LeadsmanError, SubscriptionRefused
from leadsman.tools.access import described_by, described_topics
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

AT_ONCE = 20
"""Messages that are sent before an acknowledgement is waited for. Brokers allow as many (MQTT 5 §3.2.2.3.3)."""
REMOVAL_WAIT = 1.0
"""Seconds for the broker to remove what it has acknowledged before it is asked once more: amqtt works so late."""
WITNESSES = 20
"""Topics that stay, of which it is seen whether the broker shows what it keeps of the app."""
STILL_THERE = "is still there"
"""Of a topic whose removal the broker acknowledged."""

_FAILURE_STATE: Question[Callable[[Topics, str], str]] = Question("failure state of")


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
    devices = declared(app.telemetries, app.sources, app.commands)
    others = {APP if name is None else name: [*topics] for name, topics in described_topics(plan).items()}
    failure_state_at = _FAILURE_STATE.answer(plan.sections.shipped) if plan.keep_state else None
    if failure_state_at is not None:
        for name in devices:
            others.setdefault(name, []).append(failure_state_at(app.topics, name))
    now = DeviceRegistry(plan.identity, devices, others, health=described_by(plan) is not None)
    clean(app.brokers, app.topics, app.name, None if options.all else now, dry_run=options.dry_run)


class Removal(NamedTuple):
    """What is removed."""

    topics: tuple[str, ...]
    """Retained topics below the prefix of the app, in the order in which they are removed."""
    elsewhere: tuple[str, ...] = ()
    """Other retained topics, which describe the devices to Home Assistant. They are removed first."""
    devices: tuple[str, ...] = ()
    """The devices that are gone."""
    pages: tuple[str, ...] = ()
    """The pages of the registry, if it goes, too. They follow the topics, so that an interrupted removal can be
    repeated."""
    hidden: frozenset[str] = frozenset()
    """The topics of which nobody knows whether the broker keeps them, since it does not show them."""

    @property
    def listed(self) -> tuple[str, ...]:
        """All topics that are removed, in this order."""
        return (*self.elsewhere, *self.topics, *self.pages)


def left_behind(listed: Listed, topics: Topics, documents: Mapping[str, bytes], now: DeviceRegistry | None) -> Removal:
    """What an app no longer wants of what its registry lists.

    Args:
        listed: its registry.
        topics: its topics.
        documents: what the broker keeps outside the prefix, by topic.
        now: its devices. What describes a device that is there, or the app, is left to the app: its next start may have
            discovery. None if nothing is wanted: then the status and the registry go, too.
    """
    below, every = f"{topics.prefix}/", [*listed.topics()]
    there = {APP, *now.devices} if now is not None else set[str]()
    described = {topic for name, found in every if name in there for topic in found}
    if now is not None:
        described.update(topic for name in now.devices for topic in retained_of(now.entry(name)))
    gone = compare(
        (topic for _, found in every for topic in found),
        topics,
        _nothing if now is None else now.retained,
        described.__contains__,
    ).gone
    removed = ours(gone if now is not None else (*gone, topics.status), topics.prefix, documents)
    return Removal(
        tuple(topic for topic in removed if topic.startswith(below)),
        tuple(topic for topic in removed if not topic.startswith(below)),
        tuple(dict.fromkeys(name for name, _ in every if name != APP and name not in there)),
        tuple(map(listed.topic_of, sorted(listed.pages, reverse=True))) if now is None else (),
    )


def _nothing(name: str) -> None:
    """What a device of an app retains that is no longer used."""


def clean(brokers: Brokers, topics: Topics, app: str | None, now: DeviceRegistry | None, *, dry_run: bool) -> None:
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
        outcome = asyncio.run(_clean_at(broker, topics, app, now, dry_run=dry_run))
        complaints += [] if outcome is None else outcome.complaints(broker)
    if complaints:
        raise BrokerError("; ".join(complaints))


async def _clean_at(
    broker: Broker, topics: Topics, app: str | None, now: DeviceRegistry | None, *, dry_run: bool
) -> "Outcome | None":
    """As `clean`, at one broker. What became of it; None if the broker keeps no registry."""
    listed, marker = Listed(topics.prefix), f"{topics.introspect}/response"
    async with SideConnection().at(broker) as side:
        await _read(side, listed, topics, marker)
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
        documents = {topic: message.payload for topic, message in side.kept().items()}
        status = object_in(documents.get(topics.status, b"")) or {}
        if not dry_run and status.get("state") == "online":
            raise LeadsmanError(
                f"the app is online, as {topics.status} shows; stop it first. Its next start removes the topics of "
                "removed devices"
            )
        removal = await _only_kept(side, left_behind(listed, topics, documents, now), listed, topics, marker)
    if dry_run or not removal.listed:
        outcome = Outcome(removal.listed, {})
    else:
        outcome = await remove(broker, removal, marker)
    for topic in outcome.removed:
        print_text(cleaned(topic))
    for topic, why in outcome.stays.items():
        print_text(f"{cleaned(topic)} {why}")
    of = f" of {count_noun(len(removal.devices), 'device')}" if removal.devices else ""
    hidden, would = removal.hidden.intersection(outcome.removed), "would be " if dry_run else ""
    if seen := len(outcome.removed) - len(hidden):
        print_text(f"{count_noun(seen, 'retained topic')}{of} {would}removed")
    if hidden:
        print_text(f"{count_noun(len(hidden), 'topic')}{of} {would}emptied, in case the broker hides what it keeps")
    if not removal.listed:
        print_text("Nothing to remove.")
    return outcome


async def _read(side: SideConnection, listed: Listed, topics: Topics, marker: str) -> None:
    """Read what the broker keeps of an app: its status, its registry, and what that lists outside the prefix. All of it
    is asked for topic by topic: filters with wildcards bring nothing at some brokers, and all that others keep at
    others.

    Raises:
        BrokerError: the broker cannot be reached; or it refuses the registry, or the status.
    """
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
    for topic, error in (await side.read(tuple(listed.elsewhere), marker)).items():
        print_text(f"not removed, since its owner is not known: {cleaned(topic)}: {cleaned(str(error))}")


async def _only_kept(side: SideConnection, removal: Removal, listed: Listed, topics: Topics, marker: str) -> Removal:
    """What the broker keeps of a removal. If it shows no topic of a device, its access list may hide them from the user
    of the app, who may read the status and the registry: then all of them are tried."""
    gone, below = frozenset(removal.listed), f"{topics.prefix}/"
    others = (topic for _, found in listed.topics() for topic in found if topic.startswith(below) and topic not in gone)
    witnesses = (*removal.topics, *islice(others, WITNESSES))
    refused = (await side.read((*removal.elsewhere, *witnesses), marker)).keys() - {topics.status}
    kept = side.kept().keys()
    hides = not any(topic in kept for topic in witnesses if topic != topics.status)
    hidden = frozenset(topic for topic in removal.topics if topic not in kept and (hides or topic in refused))
    hidden -= {topics.status}

    def there(found: Iterable[str]) -> tuple[str, ...]:
        return tuple(topic for topic in found if topic in kept or topic in hidden)

    return Removal(there(removal.topics), there(removal.elsewhere), removal.devices, there(removal.pages), hidden)


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
    refused = await _empty(broker, removal.elsewhere, marker)
    if removal.elsewhere and removal.topics:
        await asyncio.sleep(FORGETTING)
    refused |= await _empty(broker, removal.topics, marker)
    stays = await _stays(broker, removal, (*removal.elsewhere, *removal.topics), refused, marker)
    if stays:
        stays |= dict.fromkeys(removal.pages, "stays, since it lists the others")
    else:
        refused = await _empty(broker, removal.pages, marker)
        stays = await _stays(broker, removal, removal.pages, refused, marker)
    return Outcome(tuple(topic for topic in removal.listed if topic not in stays), stays)


async def _stays(
    broker: Broker, removal: Removal, topics: Sequence[str], refused: Mapping[str, str], marker: str
) -> dict[str, str]:
    """Those of some topics that the broker still keeps, and those that it refuses and hides, each with the reason."""
    left = await _still_kept(broker, topics, marker)
    if left - refused.keys():
        await asyncio.sleep(REMOVAL_WAIT)  # some work on what they have acknowledged
        left = await _still_kept(broker, topics, marker)
    left |= refused.keys() & removal.hidden
    return {topic: f"stays: {refused[topic]}" if topic in refused else STILL_THERE for topic in topics if topic in left}


async def _still_kept(broker: Broker, topics: Sequence[str], marker: str) -> set[str]:
    """Those of some topics at which the broker keeps a message, as far as it shows them."""
    if not topics:
        return set()
    async with SideConnection().at(broker) as side:
        await side.read(topics, marker)
        return side.kept().keys() & {*topics}


async def _empty(broker: Broker, topics: Iterable[str], marker: str) -> dict[str, str]:
    """Publish an empty retained message to each topic; see `_publish`."""
    return await _publish(broker, [Message(topic, b"", retain=True) for topic in topics], marker)


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
        *DISCOVERY,
        switch("--all", "remove everything that the app retains"),
        switch("--dry-run", "only print what would be removed"),
    ),
    "Exits with 0 if all is well, even if there is nothing to remove; 1 if the app is online, or something stays.",
)
