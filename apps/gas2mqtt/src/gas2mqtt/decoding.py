"""What the measurements mean: a tick of the meter. Pure."""

from typing import NamedTuple


class Trigger(NamedTuple):
    """A Schmitt trigger: high above level + hysteresis, low below level - hysteresis, and as before in between."""

    high: bool
    rose: bool = False

    def after(self, value: int, level: int, hysteresis: int) -> "Trigger":
        """The trigger after one more value."""
        high = value > level + hysteresis or (self.high and value >= level - hysteresis)
        return Trigger(high, high and not self.high)
