"""Devices that handlers find at run time. The retained topics of those that are forgotten are removed."""

import asyncio
from collections.abc import Collection

from leadsman.devices.home import Home
from leadsman.devices.roster import Departure, Device, Follower, Roster, RosterPhase, forgetting, ignore
from leadsman.introspection.registry import registry_entry
from leadsman.introspection.retained import FORGETTING, retained_of
from leadsman.loop.slices import Work
from leadsman.mqtt.message import Message
from leadsman.registration.source import Source
from leadsman.runtime.found_devices import Family, FoundDevices, Names, template_of
from leadsman.runtime.sources import SourceRunner
from leadsman.wiring.core import Core

WAIT = 1.0
"""Seconds between two looks whether the topics of a forgotten device may be removed."""


def join(core: Core) -> None:
    """Let them come and go. Of one that is forgotten, the topics are removed."""
    plan, roster, environment = core.plan, core.roster, core.environment
    registered = Names(frozenset((*plan.telemetries, *plan.sources, *plan.commands)))
    finders = [(each, each.finds) for each in plan.readers if each.finds is not None]
    core.found = FoundDevices(
        {each.name: Family(finds, template_of(each, finds)) for each, finds in finders},
        FoundHost(roster, core.home),
        registered if core.taken_names is None else core.taken_names(),
        environment.timers,
        environment.clock.monotonic,
        asyncio.get_running_loop(),
        None if plan.device_settings is None else plan.device_settings.found,
    )
    roster.follow(RosterPhase.TOPICS, Follower(ignore, TopicRemoval(core).leave))
    roster.follow(RosterPhase.TOPICS, forgetting(core.found.let_go))


class FoundHost:
    """The `leadsman.runtime.found_devices.Host`: found devices live in the home of the app.

    Args:
        roster: the devices.
        home: where they are read.
    """

    def __init__(self, roster: Roster, home: Home) -> None:
        self._roster = roster
        self._home = home

    def join(self, source: Source) -> SourceRunner:
        """See `Host`."""
        device, runner = self._home.found(source)
        self._roster.join(device)
        return runner

    def change(self, source: Source) -> None:
        """See `Host`."""
        self._roster.change(self._roster[source.name]._replace(reader=source))

    def leave(self, name: str) -> None:
        """See `Host`."""
        self._roster.leave(name, Departure.FORGOTTEN)

    def lose(self, name: str) -> None:
        """See `Host`."""
        self._roster.leave(name, Departure.MOVED)


class TopicRemoval:
    """Removes the retained topics of a device that is forgotten. Its `leave` is that of a `Follower`."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._has_health = core.described is not None and core.described.convention.has_health

    def leave(self, device: Device, why: Departure) -> None:
        """See `Follower`."""
        core = self._core
        others = core.others.forget(device.name)
        entry = registry_entry(core.plan.topics, device.name, device.registrations, others, health=self._has_health)
        if why is Departure.FORGOTTEN:
            core.slices.begin("a forgotten device", self._removal(device, retained_of(entry)))

    def _removal(self, device: Device, topics: Collection[str]) -> Work:
        """Remove the topics of a device, unless it is found again meanwhile, here or on another node of a cluster. What
        describes it goes first. Until the registry is published, the one at the broker lists them, so that the next
        start removes what is left."""
        core, finder = self._core, getattr(device.reader, "found_by", None) or ""
        if core.others.described is not None:
            yield WAIT + FORGETTING
        for topic in topics:
            while (away := core.node.elsewhere(finder)) is None:
                yield WAIT
            if device.name in core.roster or away:
                break
            if not core.others.is_described(topic):  # discovery removes those
                core.link.put(Message(topic, b"", 1, retain=True))
        core.others.changed()
