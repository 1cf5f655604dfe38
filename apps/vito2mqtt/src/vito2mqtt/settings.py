"""What a user may set, in ``leadsman.toml`` or as ``VITO2MQTT_…``."""

from typing import Literal

from pydantic import BaseModel


class Settings(BaseModel):
    port: str
    """Preferably one of /dev/serial/by-id; or socket://host:port."""
    protocol: Literal["P300", "KW"] = "P300"
    parity: Literal["E", "N"] = "E"
    """E as Optolink wants it; N behind gateways that set it themselves."""
    interval: str = "5m"


DEMO = {"port": "twin", "interval": "5s"}
"""Settings of ``--demo``."""
