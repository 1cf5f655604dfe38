"""What a user may set, in ``leadsman.toml`` or as ``P1METER2MQTT_…``."""

from typing import Literal

from pydantic import BaseModel


class Settings(BaseModel):
    port: str
    """Preferably one of /dev/serial/by-id; or socket://host:port."""
    baudrate: int = 115200
    """9600 with DSMR 2 and 3."""
    bytesize: Literal[7, 8] = 8
    """7 with DSMR 2 and 3."""
    parity: Literal["N", "E"] = "N"
    """E with DSMR 2 and 3."""
    every: str = "10s"
    """How often a telegram is published."""


DEMO = {"port": "twin", "every": "1s"}
"""Settings of ``--demo``."""
