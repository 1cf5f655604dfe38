"""Devices that say goodbye: a handler knows that no reading is to be expected, before a poll has failed.

Such a device is deferred and offline at once, and until its next reading, however many polls fail or give nothing
meanwhile. A poll that says goodbye and returns a reading returns its last one.
"""

from typing import NamedTuple

from leadsman.events import DeviceLeft
from leadsman.monitoring.health import GOODBYE
from leadsman.resilience.environment import Environment


class Goodbye(NamedTuple):
    """What a device said."""

    reason: str
    at: float
    """Monotonic seconds."""

    @property
    def cause(self) -> str:
        """Why there is no reading, for those who ask."""
        return f"{GOODBYE}: {self.reason}"


def say_goodbye(name: str, reason: str, environment: Environment) -> Goodbye:
    """Report that a device has said goodbye."""
    goodbye = Goodbye(reason, environment.clock.monotonic())
    environment.events.emit(DeviceLeft(name, reason))
    return goodbye
