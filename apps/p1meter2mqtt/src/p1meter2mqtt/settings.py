"""What a user may set, in ``leadsman.toml`` or as ``P1METER2MQTT_…``."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field


class Settings(BaseModel):
    port: str
    """Preferably one of /dev/serial/by-id; or socket://host:port."""
    baudrate: int = 115200
    bytesize: Annotated[int, Field(ge=7, le=8)] = 8
    parity: Literal["N", "E"] = "N"
    every: str = "10s"


DEMO = {"port": "twin", "every": "1s"}
"""Settings of ``--demo``."""
