"""Describes the devices of an app at the broker. Imported only where discovery is on."""

import asyncio
import logging
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from leadsman.core.devices.roster import Departure, Device, Follower, RosterPhase
from leadsman.core.events import Event
from leadsman.core.extension import Extension, Join, JoinPhase
from leadsman.core.introspection.retained import APP
from leadsman.core.parts.kinds import FOUND, HEARTBEAT, STATUSES, TAKEN_NAMES
from leadsman.core.text import log_fields
from leadsman.core.text.identifiers import identifier
from leadsman.core.wiring.core import Core
from leadsman.core.wiring.plan import Plan
from leadsman.extensions.discovery.announcer import Announcer, HealthTopics
from leadsman.extensions.discovery.description import RetainedMessage
from leadsman.extensions.discovery.homeassistant import HomeAssistant
from leadsman.extensions.discovery.kinds import DESCRIBED
from leadsman.extensions.discovery.registered import Described, DescribedDevices
from leadsman.extensions.discovery.settings import APP as APP_IDENTIFIER
from leadsman.extensions.discovery.settings import DiscoverySettings

if TYPE_CHECKING:
    from leadsman.core.runtime.found_devices import Names


def discovery_of(plan: Plan) -> DiscoverySettings:
    """The settings of discovery, where it is on."""
    found = plan.sections.of(DiscoverySettings)
    assert found is not None  # nothing is described without
    return found


def registered_of(plan: Plan, here: Container[str] | None = None) -> DescribedDevices:
    """The devices that are described: all of them, or those of which this node has the names."""
    jobs = plan.jobs  # it looks at all readers
    readers = {each.name: each for each in plan.readers if each.name not in jobs}
    if here is None:
        return DescribedDevices(readers, plan.registry.commands)
    commands = {name: each for name, each in plan.registry.commands.items() if name in here}
    return DescribedDevices({name: each for name, each in readers.items() if name in here}, commands)


def names_of(plan: Plan, discovery: DiscoverySettings) -> "Names":
    """The names that no device may have that a handler finds: also those that describe another one, or did."""
    from leadsman.core.runtime.found_devices import Names

    ids = discovery.ids
    former = {*ids.values()} - ids.keys()

    def identify_now(name: str) -> str:
        return identifier(ids.get(name, name))

    identifiers = {APP_IDENTIFIER, *map(identify_now, registered_of(plan).names)}
    return Names(frozenset((*plan.registry.names, *former)), identifiers, identify_now)


def convention_of(plan: Plan, discovery: DiscoverySettings, registered: DescribedDevices) -> HomeAssistant:
    """The convention that describes them. Its `own`, `publishes` and `births` are where it publishes, and what it
    listens to."""
    if plan.shares == "devices":  # of those that are here
        ids = {name: former for name, former in discovery.ids.items() if name in registered}
        discovery = discovery._replace(ids=ids)
    return HomeAssistant(plan.identity, registered.names, discovery)


def convention_of_app(plan: Plan) -> HomeAssistant:
    """The convention that describes all devices of an app. Raises `InvalidValue` if two devices have one identifier."""
    return convention_of(plan, discovery_of(plan), registered_of(plan))


def device_at(plan: Plan) -> Callable[[str], str | None]:
    """A function that returns the device of the app, on whichever node, to which a topic of discovery belongs."""
    return convention_of_app(plan).topics.get


logger = logging.getLogger("leadsman")

GATHER = 1.0
"""Seconds in which devices that come or go are gathered, so that the descriptions are compared once for all."""
MAX_NAMED_DEVICES = 5
"""Devices in the sentence about those whose values are not shown."""


def described_topics(plan: Plan) -> Mapping[str | None, Collection[str]]:
    """The retained topics that describe each device of an app, by its name; None is the app itself. Raises
    `InvalidValue` if two devices have one identifier."""
    convention, registered = convention_of_app(plan), registered_of(plan)
    found: dict[str | None, Collection[str]] = {}
    for topic, name in convention.topics.items():
        messages = () if name is None else convention.describe(registered.device(name))
        found[name] = dict.fromkeys((topic, *(each.topic for each in messages)))
    return found


def hidden_values_of(plan: Plan) -> str | None:
    """As `hidden_values`, of all devices of an app."""
    return hidden_values(registered_of(plan), discovery_of(plan))


def hidden_values(registered: DescribedDevices, discovery: DiscoverySettings) -> str | None:
    """The sentence about devices whose values others cannot show, since their handlers return a plain dict."""
    names = registered.without_values()
    if not names:
        return None
    more = f" and {len(names) - MAX_NAMED_DEVICES} more" if len(names) > MAX_NAMED_DEVICES else ""
    return (
        f"discovery by {discovery.convention} shows no value of {', '.join(names[:MAX_NAMED_DEVICES])}{more}: the "
        "handler does not say which fields it returns; annotate a model, such as -> Power "
        "with class Power(BaseModel): watts: float"
    )


def describe_devices(plan: Plan, discovery: DiscoverySettings) -> Described:
    """Describe the devices of an app that are here from its start."""
    registered = registered_of(plan, {*plan.residents})
    if (hidden := hidden_values(registered, discovery)) is not None:
        logger.warning("%s", hidden, extra=log_fields("values not shown"))
    return Described(registered, convention_of(plan, discovery, registered))


def describe(core: Core) -> None:
    """Describe the devices that are here from the start."""
    discovery = discovery_of(core.plan)
    core.offer(DESCRIBED, describe_devices(core.plan, discovery))
    core.documents.topics.add("health")
    core.offer(TAKEN_NAMES, lambda: names_of(core.plan, discovery))


def join(core: Core) -> None:
    """Publish the descriptions, and what belongs to them."""
    presence, events = Presence(core, core.of(DESCRIBED)), core.environment.events
    presence.listen()
    events.subscribe(presence.observe, readings=False)
    events.subscribe(presence.observe_health)
    core.roster.follow(RosterPhase.REPORT, Follower(presence.join, presence.leave, presence.change))


class Presence:
    """Describes the devices of an app to others while it runs.

    Args:
        core: the app.
        devices: its devices, those that a handler found in an earlier life of the app not included.
    """

    def __init__(self, core: Core, devices: Described) -> None:
        self._core = core
        self._registered = devices.registered
        found = core.find(FOUND)
        rejoined = () if found is None else [core.roster[each] for each in found.finders]
        for each in rejoined:
            self._register(each)
        convention = self._renewed() if rejoined else devices.convention
        self._convention = convention
        self._gathering = False
        self._left: dict[str, Mapping[str, bytes]] = {}
        """The descriptions of devices that were forgotten since the last change, and nothing of those that changed, by
        the topics of their first messages."""
        self._health = HealthTopics(convention, core.of(STATUSES), core.link, core.environment.clock, core.slices)
        core.others.described.append(convention.own)
        for topic, name in convention.topics.items():
            core.others.keep(APP if name is None else name, (topic,))
        self._announcer = Announcer(
            convention,
            devices.registered,
            core.link,
            core.slices,
            core.others,
            shared=core.node.shared,
            on_described=self._health.on_described,
            on_repeated=core.of(HEARTBEAT).announce,
        )

    def join(self, device: Device) -> None:
        """A device has joined. It is described soon; see `leadsman.core.devices.roster.Follower`."""
        self._register(device)
        self._change_soon()

    def _register(self, device: Device) -> None:
        if not all(each.discoverable for each in device.registrations):
            return
        if device.reader is not None and device.runner is not None and not device.job:
            self._registered.add(device.reader)
        if device.command is not None and device.queue is not None:
            self._registered.add_command(device.command)

    def change(self, device: Device) -> None:
        """A device is described otherwise, soon."""
        if device.name in self._registered:
            self._register(device)
            if self._convention.has_device(device.name):
                self._left.setdefault(self._described(device.name)[0].topic, {})
            self._change_soon()

    def leave(self, device: Device, why: Departure) -> None:
        """A device has left. If it is forgotten, its description is removed soon; else another node describes it."""
        name = device.name
        if why is Departure.FORGOTTEN and self._convention.has_device(name):
            messages = self._described(name)
            self._left[messages[0].topic] = dict(messages)
        self._health.forget(name)
        self._registered.remove(name)
        self._change_soon()

    def _described(self, name: str) -> Sequence[RetainedMessage]:
        return self._convention.describe(self._registered.device(name))

    def _change_soon(self) -> None:
        if not self._gathering:
            self._gathering = True
            asyncio.get_running_loop().call_later(GATHER, self._change)

    def _change(self) -> None:
        """Describe the devices that have joined, and no more those that have left."""
        self._gathering = False
        convention = self._convention = self._renewed()
        self._health.change(convention)
        left, self._left = self._left, {}
        self._announcer.change(convention, left)

    def _renewed(self) -> HomeAssistant:
        """The convention, with all devices."""
        plan = self._core.plan
        return convention_of(plan, discovery_of(plan), self._registered)

    def listen(self) -> None:
        """Subscribe to what others send."""
        self._announcer.listen()

    def observe(self, event: Event) -> None:
        """Follow what happens, besides readings."""
        self._announcer.observe(event)

    def observe_health(self, event: Event) -> None:
        """Follow how the devices are."""
        self._health.observe(event)


class Descriptions(Extension):
    """Describes the devices to others."""

    name = "discovery"

    def joins(self, plan: Plan) -> Iterable[Join]:
        """See `Extension`."""
        return (JoinPhase.BEFORE_DEVICES, describe), (JoinPhase.DOORS, join)
