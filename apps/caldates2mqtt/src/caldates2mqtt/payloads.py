"""What is published, and what a command takes."""

from datetime import date
from typing import Annotated

from pydantic import BaseModel, Field

from leadsman import Sensor

Entries = Annotated[int, Field(ge=1, le=50)]
Days = Annotated[int, Field(ge=1, le=365)]


class Entry(BaseModel):
    title: str
    date: date
    days_left: int


class Dates(BaseModel):
    events: Annotated[list[Entry], Sensor(icon="mdi:calendar")]
    days_left: Annotated[int | None, Sensor("d", icon="mdi:calendar")]
    """Until the first of them."""


class Query(BaseModel):
    """A request for one larger list. Home Assistant does not show it: it is no state that stays."""

    entries: Annotated[Entries | None, Sensor(discoverable=False)] = None
    days: Annotated[Days | None, Sensor(discoverable=False)] = None
