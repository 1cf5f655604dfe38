"""What is published, and what a command takes."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from leadsman import Sensor


class Counter(BaseModel):
    counter: Annotated[int, Sensor(state_class="total_increasing")]
    trigger: Literal["OPEN", "CLOSED"]
    consumption_m3: Annotated[float, Sensor("m³", device_class="gas", state_class="total_increasing", precision=3)]


class Temperature(BaseModel):
    temperature: Annotated[float, Sensor("°C", device_class="temperature", state_class="measurement", precision=1)]


class RawField(BaseModel):
    bx: int
    by: int
    bz: int


class Consumption(BaseModel):
    consumption_m3: Annotated[float, Field(ge=0, le=1_000_000)]
