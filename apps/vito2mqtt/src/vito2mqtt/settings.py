"""What a user may set, in ``leadsman.toml`` or as ``VITO2MQTT_…``."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field


class Treatment(BaseModel):
    """The section [legionella] of leadsman.toml."""

    temperature: Annotated[int, Field(ge=60, le=75)] = 68
    """Degrees Celsius at the outlet; from 60 on, legionella die."""
    minutes: Annotated[int, Field(ge=10, le=240)] = 40
    """How long it is held."""
    margin: Annotated[int, Field(ge=0, le=240)] = 30
    """Minutes that today's timer of the hot water must leave."""


class Settings(BaseModel):
    port: str
    """Preferably one of /dev/serial/by-id; or socket://host:port."""
    protocol: Literal["P300", "KW"] = "P300"
    """KW for controls before about 2004."""
    parity: Literal["E", "N"] = "E"
    """E as Optolink wants it; N behind gateways that set it themselves."""
    baudrate: Annotated[int, Field(gt=0)] = 4800
    """Of the port."""
    interval: str = "5m"
    """How often a group of signals is read, such as 1m."""
    legionella: Treatment = Treatment()
    """How the hot water is heated against legionella."""


DEMO = {"port": "twin", "interval": "5s"}
"""Settings of ``--demo``."""
