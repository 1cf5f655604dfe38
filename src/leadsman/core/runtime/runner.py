"""What polls, sources and commands have in common while an app runs.

Whatever reports on a device, or acts on it because a person asks, holds a `Runner`, and need not distinguish its kinds.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from leadsman.core.events import DeviceLeft
from leadsman.core.monitoring.health import MARKED_UNAVAILABLE
from leadsman.core.readings.reading import Reading
from leadsman.core.resilience.environment import Environment, Snapshot
from leadsman.core.resilience.retry_loop import Execution
from leadsman.core.runtime.publisher import StatePublisher

if TYPE_CHECKING:
    from leadsman.core.readings.filtering import FilteredReadings
    from leadsman.core.runtime.commands import CommandQueue
    from leadsman.core.runtime.document import Counted


class Goodbye(NamedTuple):
    """The mark of a device as unavailable: its handler has detected, before a poll failed, that no reading will come.

    Such a device is deferred and offline at once, and until its next reading, however many polls fail or give nothing
    meanwhile. A poll that marks it and returns a reading returns its last one.
    """

    reason: str
    at: float
    """Monotonic seconds."""

    @property
    def cause(self) -> str:
        """Why there is no reading."""
        return f"{MARKED_UNAVAILABLE}: {self.reason}"


def report_goodbye(name: str, reason: str, environment: Environment) -> Goodbye:
    """Report that a device was marked as unavailable."""
    goodbye = Goodbye(reason, environment.clock.monotonic())
    environment.events.emit(DeviceLeft(name, reason))
    return goodbye


Answer = Callable[[Reading | BaseException | None], None]
"""Called with the result of a requested poll: its reading, None if there is nothing to publish, or the error."""


class Runner(Protocol):
    """Runs one registration: a poll, a source, or the commands of a device."""

    @property
    def name(self) -> str:
        """The name of the device."""
        ...

    @property
    def publisher(self) -> StatePublisher:
        """Publishes its readings."""
        ...

    def snapshot(self) -> tuple[Snapshot, float | None]:
        """The state of its guards, and when the handler is called next by its schedule: epoch seconds, or None if it
        has no schedule or waits for a person."""
        ...

    def count(self, document: "Counted") -> None:
        """Add the counts that only this kind of runner has to the document of its device."""
        ...

    def retries(self) -> int:
        """The value of `leadsman.core.runtime.context.Context.attempts`."""
        ...


class Reader(Runner, Protocol):
    """A runner that reads a device: a poll or a source."""

    @property
    def execution(self) -> Execution[object]:
        """Makes its calls, under their guards."""
        ...

    @property
    def filters(self) -> "FilteredReadings | None":
        """Filters its readings; None where the registration has no filters."""
        ...

    def hold(self) -> bool:
        """Call the handler no more until it is released. Returns False if this kind of runner cannot be held."""
        ...

    def leave(self, reason: str) -> None:
        """Mark the device as unavailable until its next reading."""
        ...

    def release(self, by: str) -> bool:
        """Call a held handler again, as if nothing had failed; `by` names the person. Returns whether it was held."""
        ...


class Runners:
    """The runners of an app, by the names of their devices. A device has one that reads it, one for its commands, or
    both.

    Args:
        readers: the polls and sources.
        commands: what runs commands.
    """

    def __init__(self, readers: Mapping[str, Reader], commands: "Mapping[str, CommandQueue]") -> None:
        self.readers = readers
        """Polls and sources."""
        self.commands = commands
        """The queues that run commands."""

    def of(self, name: str) -> list[Runner]:
        """The runners of one device. One that reads it comes first."""
        found: tuple[Mapping[str, Runner], ...] = (self.readers, self.commands)
        return [each[name] for each in found if name in each]

    def snapshot(self, name: str) -> tuple[Snapshot, float | None]:
        """See `Runner.snapshot`, for the first runner of a device."""
        return self.of(name)[0].snapshot()
