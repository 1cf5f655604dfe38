"""What a user may set, in ``leadsman.toml`` or as ``WEATHER2MQTT_…``."""

import json
from typing import Annotated

from pydantic import BaseModel, Field


class Place(BaseModel):
    """A section [places.NAME] of leadsman.toml. Degrees are those of WGS 84."""

    latitude: Annotated[float, Field(ge=-90, le=90)]
    """Degrees, north of the equator."""
    longitude: Annotated[float, Field(ge=-180, le=180)]
    """Degrees, east of Greenwich."""
    interval: str = "15m"
    """How often it is read, such as 1h."""


class Settings(BaseModel):
    url: str = "https://api.open-meteo.com"
    """A server with the interface of Open-Meteo."""
    places: dict[str, Place] = {}
    """Where the weather is read."""


DEMO = {"places": json.dumps({"berlin": {"latitude": 52.52, "longitude": 13.41, "interval": "3s"}})}
"""Settings of ``--demo``."""
