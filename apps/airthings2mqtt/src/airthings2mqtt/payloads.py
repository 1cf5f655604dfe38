"""What is published."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel

from leadsman import Sensor


class Air(BaseModel):
    """What a Wave measures; None is what it does not know."""

    temperature: Annotated[float | None, Sensor("°C", device_class="temperature", state_class="measurement")]
    humidity: Annotated[float | None, Sensor("%", device_class="humidity", state_class="measurement")]
    radon_24h_avg: Annotated[int | None, Sensor("Bq/m³", state_class="measurement", icon="mdi:radioactive")]
    radon_long_term_avg: Annotated[int | None, Sensor("Bq/m³", state_class="measurement", icon="mdi:radioactive")]
    measurement_state: Annotated[Literal["warming_up", "provisional", "ok"], Sensor(category="diagnostic")] = "ok"
    """Of radon. warming_up: no average yet; provisional: the long-term average is that of a few days."""
    sensor_reset_at: Annotated[datetime | None, Sensor(category="diagnostic")] = None
    """When the sensor lost its averages, as when its battery was changed."""


class AirPlus(Air):
    """What a Wave Plus measures besides."""

    pressure: Annotated[float | None, Sensor("hPa", device_class="atmospheric_pressure", state_class="measurement")]
    co2: Annotated[int | None, Sensor("ppm", device_class="carbon_dioxide", state_class="measurement")]
    voc: Annotated[
        int | None, Sensor("ppb", device_class="volatile_organic_compounds_parts", state_class="measurement")
    ]


class AirMini(BaseModel):
    """What a Wave Mini measures: no radon."""

    temperature: Annotated[float | None, Sensor("°C", device_class="temperature", state_class="measurement")]
    humidity: Annotated[float | None, Sensor("%", device_class="humidity", state_class="measurement")]
    voc: Annotated[
        int | None, Sensor("ppb", device_class="volatile_organic_compounds_parts", state_class="measurement")
    ]
