"""What a user may set, in ``leadsman.toml`` or as ``GAS2MQTT_…``."""

from pydantic import BaseModel


class Settings(BaseModel):
    bus: int = 1
    level: int = -5000
    """Of the field along z where the magnet passes."""
    hysteresis: int = 700
    liters_per_tick: float = 10.0
    interval: str = "1s"
    """The magnet must be seen twice a revolution: with the largest flow, less than half of it."""
    smoothing: float = 1200.0
    """Time constant of the temperature, seconds."""
    raw: bool = False
