"""What a user may set, in ``leadsman.toml`` or as ``WEATHER2MQTT_…``."""

import json
from typing import Annotated

from pydantic import BaseModel, Field


class Place(BaseModel):
    """A section [places.NAME] of leadsman.toml. Degrees are those of WGS 84."""

    latitude: Annotated[float, Field(ge=-90, le=90)]
    longitude: Annotated[float, Field(ge=-180, le=180)]
    interval: str = "15m"


class Settings(BaseModel):
    url: str = "https://api.open-meteo.com"
    places: dict[str, Place] = {}


DEMO = {"places": json.dumps({"berlin": {"latitude": 52.52, "longitude": 13.41, "interval": "3s"}})}
"""Settings of ``--demo``."""
