"""What is examined: the identity of an app, its topics, and what it needs of the machine."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from leadsman.core.adapters.managed import check_installed
from leadsman.core.adapters.resource import Resource
from leadsman.core.introspection.fields import fields_of
from leadsman.core.introspection.schema import read_schema
from leadsman.core.mqtt.broker import Broker, Brokers
from leadsman.core.mqtt.topics import DOCTOR, Topics, is_topic
from leadsman.core.registration.injection import ContextDependency
from leadsman.core.registration.result import FIELD
from leadsman.core.registration.source import Source
from leadsman.core.registration.telemetry import Telemetry
from leadsman.core.text import without_secret_lines
from leadsman.core.wiring.plan import Plan, extension_topics
from leadsman.errors import NotInstalled
from leadsman.tools.access import described_by, elsewhere

_PROBES = {"set": "set", "get": "get", "operator": f"{DOCTOR}/set"}
"""The words below the device of the doctor that arrive where these requests arrive."""


class OwnCheck(NamedTuple):
    """A check of an extension."""

    extension: str
    name: str
    function: Callable[..., object]
    plan: object
    """What it is called with."""


class Subject(NamedTuple):
    """What is examined."""

    name: str
    broker: Broker
    """The broker that is examined."""
    client_id: str
    """The client id of the app. The connections of the doctor append to it."""
    topics: Topics
    published: tuple[str, ...]
    """Topics that the app publishes to."""
    filters: Mapping[str, str | None]
    """The topic filters of the requests that the app takes, each with the topic of a probe that matches it, or None."""
    devices: frozenset[str] | None = None
    """The names of all devices, those that are not enabled included; None if they are not known."""
    readers: int = 0
    """The number of devices in the heartbeat."""
    resources: tuple[Resource, ...] = ()
    state: Path | None = None
    """The state directory; None if nothing is kept there."""
    missing: tuple[str, ...] = ()
    """What is not installed, one line each."""
    elsewhere: tuple[str, ...] = ()
    """The topic filters that the app subscribes to outside its own topics. Others read there, so no probe is sent."""
    replacements: tuple[Broker, ...] = ()
    """The brokers that the app uses if this one fails."""
    own_checks: tuple[OwnCheck, ...] = ()
    """The checks of the extensions of the app."""

    def at(self, replacement: Broker) -> "Subject":
        """The same app at another broker, without the machine."""
        return self._replace(broker=replacement, replacements=(), resources=(), state=None, missing=(), own_checks=())


def of_plan(plan: Plan) -> Subject:
    """An app, whose settings are loaded."""
    topics = plan.topics
    probes = {name: topics.of(DOCTOR, word) for name, word in _PROBES.items()}
    keeps = plan.keep_state or any(
        isinstance(need, ContextDependency) for each in plan.handlers for _, need in each.needs
    )
    return Subject(
        plan.identity.name,
        plan.brokers.primary,
        plan.identity.client_id,
        topics,
        published_topics(plan),
        {topic_filter: probes.get(name) for name, topic_filter in plan.filters.items()},
        frozenset(plan.registry.names),
        len({each.name for each in plan.handlers}),
        tuple(resource for adapter in plan.adapters if (resource := adapter.resource) is not None),
        plan.state_directory if keeps else None,
        missing(plan),
        elsewhere(plan),
        plan.brokers.all[1:],
        tuple(OwnCheck(of.name, name, check, plan) for of in plan.extensions for name, check in of.checks.items()),
    )


def of_prefix(brokers: Brokers, prefix: str) -> Subject:
    """An app of which only the brokers and the prefix are known. Its client id is its prefix, unless it has another."""
    topics = Topics(prefix)
    filters, primary = {topics.introspect: None}, brokers.primary
    return Subject(prefix, primary, prefix, topics, _of_app(topics), filters, replacements=brokers.all[1:])


def published_topics(plan: Plan) -> tuple[str, ...]:
    """The topics that an app publishes to: its own, and those of each device."""
    topics, jobs, found = plan.topics, plan.jobs, dict.fromkeys(_of_app(plan.topics))
    for reader in plan.readers:
        if reader.name not in jobs:
            found |= dict.fromkeys((*_of_readings(topics, reader), topics.availability(reader.name)))
            found |= dict.fromkeys((topics.device_error(reader.name), topics.of(reader.name, "ledger")))
            if reader.delivery.history is not None:
                found[topics.history(reader.name)] = None
    for command in plan.registry.commands.values():
        if command.enabled:
            found |= dict.fromkeys((topics.state(command.name), topics.availability(command.name)))
            found[topics.set_result(command.name)] = None
    if (convention := described_by(plan)) is not None:
        found |= dict.fromkeys(topics.of(name, "health") for name in convention.topics.values() if name is not None)
        found |= dict.fromkeys(convention.topics)
    written = (topic.filter for _, topic in extension_topics(plan) if topic.access == "write")
    return (*found, *(each for each in written if is_topic(each) and each not in found))


def _of_readings(topics: Topics, reader: Telemetry | Source) -> list[str]:
    """Where the readings of a device go. If their fields are not known, any one stands for all."""
    found = [] if reader.layout == "fields" else [topics.state(reader.name)]
    if reader.content is not None:
        found.append(topics.of(reader.name, reader.content.name))
    if reader.layout != "json":
        paths = [each.path for each in fields_of(read_schema(reader))] or [(FIELD,)]
        found += [topic for path in paths if (topic := topics.field(reader.name, path)) is not None]
    return found


def missing(plan: Plan) -> tuple[str, ...]:
    """The libraries that adapters need and that are not installed, one line each."""
    try:
        check_installed(plan.adapters)
    except NotInstalled as error:
        return tuple(without_secret_lines(str(error)).splitlines())
    return ()


def _of_app(topics: Topics) -> tuple[str, ...]:
    return (topics.status, topics.registry, topics.error, f"{topics.introspect}/response")
