"""What is published, and what a command takes."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from leadsman import Sensor


class Counter(BaseModel):
    counter: Annotated[int, Sensor("ticks", state_class="total_increasing", icon="mdi:counter")]
    trigger: Annotated[Literal["OPEN", "CLOSED"], Sensor(icon="mdi:magnet", category="diagnostic")]
    consumption_m3: Annotated[
        float,
        Field(title="Consumption"),
        Sensor("m³", device_class="gas", state_class="total_increasing", precision=3),
    ]


class Temperature(BaseModel):
    temperature: Annotated[float, Sensor("°C", device_class="temperature", state_class="measurement", precision=1)]


Component = Annotated[int, Sensor(state_class="measurement", icon="mdi:magnet", category="diagnostic")]
"""Of the field, in the steps of the sensor."""


class RawField(BaseModel):
    bx: Component
    by: Component
    bz: Component


class Consumption(BaseModel):
    consumption_m3: Annotated[
        float,
        Field(ge=0, le=1_000_000, title="Consumption"),
        Sensor("m³", device_class="gas", precision=3, category="config"),
    ]
