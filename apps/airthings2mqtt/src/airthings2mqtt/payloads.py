"""What is published."""

from typing import Annotated

from pydantic import BaseModel

from leadsman import Sensor


class Air(BaseModel):
    """What a Wave measures; None is what it does not know."""

    temperature: Annotated[float | None, Sensor("°C", device_class="temperature", state_class="measurement")]
    humidity: Annotated[float | None, Sensor("%", device_class="humidity", state_class="measurement")]
    radon_24h_avg: Annotated[int | None, Sensor("Bq/m³", state_class="measurement", icon="mdi:radioactive")]
    radon_long_term_avg: Annotated[int | None, Sensor("Bq/m³", state_class="measurement", icon="mdi:radioactive")]


class AirPlus(Air):
    """What a Wave Plus measures besides."""

    pressure: Annotated[float, Sensor("hPa", device_class="atmospheric_pressure", state_class="measurement")]
    co2: Annotated[int, Sensor("ppm", device_class="carbon_dioxide", state_class="measurement")]
    voc: Annotated[int, Sensor("ppb", device_class="volatile_organic_compounds_parts", state_class="measurement")]


class AirMini(BaseModel):
    """What a Wave Mini measures: no radon."""

    temperature: Annotated[float, Sensor("°C", device_class="temperature", state_class="measurement")]
    humidity: Annotated[float, Sensor("%", device_class="humidity", state_class="measurement")]
    voc: Annotated[int, Sensor("ppb", device_class="volatile_organic_compounds_parts", state_class="measurement")]
