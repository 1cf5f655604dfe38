"""What a user may set, in ``leadsman.toml`` or as ``GAS2MQTT_…``."""

from typing import Annotated

from pydantic import BaseModel, Field


class Settings(BaseModel):
    bus: Annotated[int, Field(ge=0)] = 1
    """The number of the I2C bus."""
    address: Annotated[int, Field(ge=0x08, le=0x77)] = 0x0D
    """Of the chip on the bus; those of seven bits that no standard reserves (UM10204, 3.1.12)."""
    level: int = -5000
    """Of the field along z where the magnet passes."""
    hysteresis: Annotated[int, Field(ge=0)] = 700
    """By how much the field has to pass the level, so that noise is no turn."""
    liters_per_tick: Annotated[float, Field(gt=0)] = 10.0
    """Printed on the meter."""
    interval: str = "1s"
    """The magnet must be seen twice a revolution: with the largest flow, less than half of it."""
    temperature_interval: str = "5m"
    """How often the temperature is read."""
    temperature_scale: float = 0.008
    """Degrees Celsius of a step of the sensor, found by experiment."""
    temperature_offset: float = 20.3
    """Degrees Celsius at 0. The data sheet gives none: compare with a thermometer."""
    smoothing: Annotated[float, Field(gt=0)] = 1200.0
    """Time constant of the temperature, seconds."""
    raw: bool = False
    """Whether the field is published, too, to find the level."""
