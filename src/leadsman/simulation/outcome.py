"""What a simulation gives: the stage that all policies share, and the day under each of them."""

from datetime import datetime
from typing import NamedTuple

from leadsman.simulation.faults import FaultPlan
from leadsman.simulation.figures import Figures
from leadsman.simulation.record import Day, Record
from leadsman.text import counted
from leadsman.timing.durations import human

WRITTEN = "as written"
"""The name of the app's own policy."""


class Stage(NamedTuple):
    """What all policies have in common."""

    app: str
    title: str
    """That of the built-in day."""
    devices: tuple[str, ...]
    adapters: tuple[str, ...]
    """Their labels."""
    stand_ins: tuple[str, ...]
    """Devices whose handlers are not called."""
    stopping: tuple[str, ...]
    """Devices that would end the app when they fail; in the simulation it goes on."""
    zoneless: tuple[str, ...]
    """Devices whose cron schedules name no zone: they are in UTC here, and in the zone of the host in the app."""
    plan: FaultPlan
    begins: datetime
    length: float
    """Seconds."""
    seed: int
    shifts: tuple[float, ...]
    """When daylight saving begins or ends in the zone of a cron schedule, seconds since the start."""
    written: str
    """The app's own policy."""

    @property
    def heading(self) -> str:
        """One line about it."""
        begins = f"{self.begins:%Y-%m-%d %H:%M} {self.begins.tzname()}"
        devices, length = counted(len(self.devices), "device"), human(self.length)
        return f"{devices}, {length} from {begins}, seed {self.seed}"


class Outcome(NamedTuple):
    """A day under one policy."""

    policy: str
    records: tuple[Record, ...]
    days: tuple[Day, ...]
    figures: Figures


def brief(seconds: float) -> str:
    """A duration with two parts at most: ``2.1s``, ``40s``, ``12m30s`` or ``3h05m``."""
    if seconds < 10:
        return f"{seconds:.1f}s".replace(".0s", "s")
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"
    return f"{minutes // 60}h{minutes % 60:02d}m"


def named(stage: Stage, outcome: Outcome) -> str:
    """The title of a strip."""
    return f"{outcome.policy}: {stage.written}" if outcome.policy == WRITTEN else outcome.policy


def hours_between(length: float, most: int) -> int:
    """The hours between two marks of an axis that has at most so many."""
    hours = length / 3600
    return next((step for step in (1, 3, 6, 12, 24, 48, 96) if hours / step <= most), 168)
