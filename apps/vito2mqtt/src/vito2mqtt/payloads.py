"""What is published, and what commands take. The payload of each group of signals is made of the signals."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, create_model

from leadsman import Sensor
from vito2mqtt.codecs import ON_OFF
from vito2mqtt.signals import GROUPS, field_of

GROUP_PAYLOADS: dict[str, type[BaseModel]] = {
    group: create_model(group, **{name: field_of(name, signal) for name, signal in signals.items() if signal.readable})
    for group, signals in GROUPS.items()
}
"""By group; None is what this boiler does not have."""
WISHES: dict[str, type[BaseModel]] = {
    group: create_model(
        f"{group}_wishes",
        __config__=ConfigDict(extra="allow"),
        **{name: field_of(name, signal) for name, signal in signals.items() if signal.codec is ON_OFF},
    )
    for group, signals in GROUPS.items()
}
"""What may be set, by group. Home Assistant shows the fields, the modes. What else may be set differs from boiler to
boiler in its limits, so it has no control there: `encoded` checks it."""


class Action(BaseModel):
    action: Literal["start", "cancel"]


class Legionella(BaseModel):
    state: Literal["idle", "checking", "rejected", "heating", "restoring", "recovered"]
    minutes_left: Annotated[int, Sensor("min", device_class="duration")] = 0
    reason: str | None = None
