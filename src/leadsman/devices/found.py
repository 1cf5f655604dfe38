"""Lets devices join that handlers find at run time. Imported only where a handler may find devices."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from leadsman.devices.home import Home
from leadsman.devices.roster import Departure, Roster
from leadsman.registration.source import Source
from leadsman.runtime.found_devices import Family, template_of
from leadsman.runtime.sources import SourceRunner

if TYPE_CHECKING:
    from leadsman.registration.telemetry import Telemetry


def families_of(readers: "Collection[Telemetry | Source]") -> dict[str, Family]:
    """What each handler may find, by its name."""
    return {each.name: Family(each.finds, template_of(each, each.finds)) for each in readers if each.finds is not None}


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

    def leave(self, name: str) -> None:
        """See `Host`."""
        self._roster.leave(name, Departure.FORGOTTEN)

    def lose(self, name: str) -> None:
        """See `Host`."""
        self._roster.leave(name, Departure.MOVED)
