"""The registrations of the devices in the roster, for whatever describes them."""

from collections.abc import Iterator

from leadsman.devices.roster import Roster
from leadsman.introspection.registrations import Registrations
from leadsman.registration.command import Command
from leadsman.registration.source import Source
from leadsman.registration.telemetry import Telemetry


class Present(Registrations):
    """The registrations of the devices in the roster.

    Args:
        roster: the devices.
        jobs: the names of all side jobs that may come.
    """

    def __init__(self, roster: Roster, jobs: frozenset[str]) -> None:
        self._roster = roster
        self.jobs = jobs

    def __contains__(self, name: object) -> bool:
        return name in self._roster

    def __iter__(self) -> Iterator[str]:
        return iter(self._roster)

    def __len__(self) -> int:
        return len(self._roster)

    def of(self, name: str) -> list[Telemetry | Source | Command]:
        """See `Registrations`."""
        device = self._roster.get(name)
        return [] if device is None else device.registrations
