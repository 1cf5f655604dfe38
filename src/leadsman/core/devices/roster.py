"""The roster: which devices a running app has, whatever way they came. They are registered, or a handler finds them, or
a cluster moves them here.

`Roster.join` is the only way in and `Roster.leave` the only way out. All other code with devices follows the roster,
in a declared phase, as observers follow the event bus: each part of an app by itself, see `leadsman.core.parts`.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from leadsman.core.events import AppFault
from leadsman.core.observers import guarded
from leadsman.core.registration.telemetry import Telemetry

if TYPE_CHECKING:
    from leadsman.core.registration.command import Command
    from leadsman.core.registration.source import Source
    from leadsman.core.runtime.commands import CommandQueue
    from leadsman.core.runtime.poll_runner import PollRunner
    from leadsman.core.runtime.runner import Reader

T = TypeVar("T")
_WHAT = "a device that joins, changes or leaves"


class Device(NamedTuple):
    """A device of the running app, or a side job: what is registered for it, and what runs that."""

    name: str
    reader: "Telemetry | Source | None"
    """What reads it; None if it only takes commands."""
    runner: "Reader | None"
    """Runs its reader; None if that is not enabled, or there is none."""
    command: "Command | None"
    """What takes its commands; None if it only gives readings."""
    queue: "CommandQueue | None"
    """Runs its commands; None if they are not enabled, or there are none."""
    since: float
    """From when on it is here, monotonic seconds."""

    @property
    def enabled(self) -> bool:
        """Whether anything runs for it."""
        return self.runner is not None or self.queue is not None

    @property
    def job(self) -> bool:
        """Whether it is a side job, which has no topics."""
        return isinstance(self.reader, Telemetry) and self.reader.job

    @property
    def poll(self) -> "PollRunner | None":
        """What polls it; None if it is a source, or nothing reads it."""
        runner: PollRunner | None = self.runner if isinstance(self.reader, Telemetry) else None  # type: ignore[assignment]  # that of a telemetry is one
        return runner

    @property
    def registrations(self) -> "list[Telemetry | Source | Command]":
        """The registrations for it. The one that reads it comes first."""
        return [each for each in (self.reader, self.command) if each is not None]


class Departure(Enum):
    """Why a device leaves."""

    FORGOTTEN = "forgotten"
    """It is no more: its retained topics are removed from the broker."""
    MOVED = "moved"
    """Another node of a cluster has it, and goes on at its topics."""


class RosterPhase(IntEnum):
    """The order in which followers learn of a device that joins. When it leaves, they learn it in the reverse order.
    Within a phase, the order is that in which they began to follow. One that begins later is not called for the devices
    that are here."""

    HEALTH = 0
    """Its health record and its ledger. All others may ask them."""
    STATE = 1
    """The state that is kept over a restart. It changes the health record."""
    STATUS = 2
    """Its status, its availability and the heartbeat."""
    REPORT = 3
    """The documents that people and other programs read: the registry, introspection and discovery. Of a device that is
    forgotten, the retained topics are removed."""
    FOUND = 4
    """What it has found, which leaves before it."""


def ignore(device: Device) -> None:
    """Ignores the change."""


class Follower(NamedTuple):
    """Learns which devices there are. On the event loop."""

    join: Callable[[Device], None]
    leave: Callable[[Device, Departure], None]
    change: Callable[[Device], None] = ignore
    """A device that was found at run time has another type of readings, or another name for people."""


def forgetting(forget: Callable[[str], object]) -> Follower:
    """Whatever only has to forget a device that has left."""

    def leave(device: Device, why: Departure) -> None:
        forget(device.name)

    return Follower(ignore, leave)


class Roster(Mapping[str, Device]):
    """The devices and side jobs of the running app, by name. Those that are not enabled are among them.

    Args:
        emit: takes the faults of followers: what one of them raises costs no device, and no other one.
    """

    __slots__ = ("_devices", "_emit", "_followers", "_last_first", "polls", "queues", "readers")

    def __init__(self, emit: Callable[[AppFault], None]) -> None:
        self._emit = emit
        self._devices: dict[str, Device] = {}
        self._followers: list[tuple[RosterPhase, Follower]] = []
        self._last_first: list[Follower] = []
        self.readers: Mapping[str, Reader] = RosterView(self._devices, lambda device: device.runner)
        """The runners of the telemetries and sources that are enabled."""
        self.polls: Mapping[str, PollRunner] = RosterView(self._devices, lambda device: device.poll)
        """The runners of the telemetries that are enabled, side jobs included."""
        self.queues: Mapping[str, CommandQueue] = RosterView(self._devices, lambda device: device.queue)
        """The queues of the commands that are enabled."""

    def follow(self, phase: RosterPhase, follower: Follower) -> None:
        """Call `follower` for each device that joins or leaves from now on."""
        self._followers.append((phase, follower))
        self._followers.sort(key=lambda each: each[0])  # stable, so that the order within a phase stays
        self._last_first = [each for _, each in reversed(self._followers)]

    def join(self, device: Device) -> None:
        """Add a device.

        Raises:
            ValueError: there is one of that name.
        """
        if device.name in self._devices:
            raise ValueError(f"there is a device {device.name!r} already")
        self._devices[device.name] = device
        for _, follower in self._followers:
            guarded(self._emit, _WHAT, follower.join, device)

    def leave(self, name: str, why: Departure) -> None:
        """Remove a device, of which nothing runs any more.

        Raises:
            KeyError: there is no such device.
        """
        device = self._devices.pop(name)
        for follower in self._last_first:
            guarded(self._emit, _WHAT, follower.leave, device, why)
        if device.runner is not None:
            device.runner.execution.circuit.leave()

    def change(self, device: Device) -> None:
        """Replace a device by one whose reader is described otherwise. What runs it stays.

        Raises:
            KeyError: there is no such device.
        """
        if device.name not in self._devices:
            raise KeyError(device.name)
        self._devices[device.name] = device
        for _, follower in self._followers:
            guarded(self._emit, _WHAT, follower.change, device)

    def __getitem__(self, name: str) -> Device:
        return self._devices[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._devices)

    def __len__(self) -> int:
        return len(self._devices)

    def __contains__(self, name: object) -> bool:
        return name in self._devices


class RosterView(Mapping[str, T]):
    """The results of `pick` for the devices, by their names, without those that are None."""

    __slots__ = ("_devices", "_pick")

    def __init__(self, devices: Mapping[str, Device], pick: Callable[[Device], T | None]) -> None:
        self._devices = devices
        self._pick = pick

    def __getitem__(self, name: str) -> T:
        found = self._pick(self._devices[name])
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return (name for name, device in self._devices.items() if self._pick(device) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return any(True for _ in self)
