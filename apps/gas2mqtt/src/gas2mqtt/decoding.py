"""What the measurements mean: a tick of the meter, and a temperature. Pure."""

from typing import NamedTuple


class Trigger(NamedTuple):
    """A Schmitt trigger: high above level + hysteresis, low below level - hysteresis, and as before in between."""

    high: bool
    rose: bool = False

    def after(self, value: int, level: int, hysteresis: int) -> "Trigger":
        """The trigger after one more value."""
        high = value > level + hysteresis or (self.high and value >= level - hysteresis)
        return Trigger(high, high and not self.high)


def celsius(raw: int) -> float:
    """The sensor's own temperature, about: its data sheet gives the slope only."""
    return 0.008 * raw + 20.3


def smoothed(before: float | None, value: float, step: float, constant: float) -> float:
    """A first-order low pass. `step` and `constant` are seconds."""
    return value if before is None else before + (value - before) * step / (constant + step)
