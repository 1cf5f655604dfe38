"""Devices that handlers find at run time."""

import asyncio

from leadsman.core.devices.group import DeviceGroup
from leadsman.core.devices.roster import Departure, Roster, RosterPhase, forgetting
from leadsman.core.parts.kinds import FOUND, TAKEN_NAMES
from leadsman.core.registration.source import Source
from leadsman.core.runtime.found_devices import Family, FoundDevices, Names, template_of
from leadsman.core.runtime.sources import SourceRunner
from leadsman.core.wiring.core import Core


def join(core: Core) -> None:
    """Let them come and go."""
    plan, roster, environment = core.plan, core.roster, core.environment
    settings = plan.registry.device_settings
    registered = Names(frozenset(plan.registry.names))
    finders = [(each, each.finds) for each in plan.readers if each.finds is not None]
    taken = core.find(TAKEN_NAMES)
    found = FoundDevices(
        {each.name: Family(finds, template_of(each, finds)) for each, finds in finders},
        FoundHost(roster, core.device_group),
        registered if taken is None else taken(),
        environment.timers,
        environment.clock.monotonic,
        asyncio.get_running_loop(),
        None if settings is None else settings.found,
    )
    core.offer(FOUND, found)
    core.own_requests.find(found)
    roster.follow(RosterPhase.FOUND, forgetting(found.let_go))


class FoundHost:
    """The `leadsman.core.runtime.found_devices.Host`: found devices are in the group of the app.

    Args:
        roster: the devices.
        group: where they are read.
    """

    def __init__(self, roster: Roster, group: DeviceGroup) -> None:
        self._roster = roster
        self._group = group

    def join(self, source: Source) -> SourceRunner:
        """See `Host`."""
        device, runner = self._group.found(source)
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
