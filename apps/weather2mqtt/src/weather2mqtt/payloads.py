"""What is published, and the answer that it is part of (https://open-meteo.com/en/docs)."""

from typing import Annotated

from pydantic import BaseModel, Field

from leadsman import Sensor


class Weather(BaseModel):
    """The present weather. None is what the model behind a place does not have."""

    temperature: Annotated[
        float | None, Sensor("°C", device_class="temperature"), Field(validation_alias="temperature_2m")
    ]
    humidity: Annotated[
        float | None, Sensor("%", device_class="humidity"), Field(validation_alias="relative_humidity_2m")
    ]
    pressure: Annotated[
        float | None, Sensor("hPa", device_class="atmospheric_pressure"), Field(validation_alias="pressure_msl")
    ]
    precipitation: Annotated[float | None, Sensor("mm", device_class="precipitation")]
    wind_speed: Annotated[
        float | None, Sensor("m/s", device_class="wind_speed"), Field(validation_alias="wind_speed_10m")
    ]


class Answer(BaseModel):
    """An answer of ``/v1/forecast``."""

    current: Weather
