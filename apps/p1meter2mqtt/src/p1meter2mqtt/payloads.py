"""What is published."""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel

from leadsman import Sensor

Energy = Annotated[float | None, Sensor("kWh", device_class="energy", state_class="total_increasing")]
Power = Annotated[float | None, Sensor("kW", device_class="power", state_class="measurement")]
Volts = Annotated[float | None, Sensor("V", device_class="voltage", state_class="measurement")]
Amperes = Annotated[float | None, Sensor("A", device_class="current", state_class="measurement")]
Gas = Annotated[float | None, Sensor("m³", device_class="gas", state_class="total_increasing")]
Water = Annotated[float | None, Sensor("m³", device_class="water", state_class="total_increasing")]
Heat = Annotated[float | None, Sensor("GJ", device_class="energy", state_class="total_increasing")]


class Meter(BaseModel):
    """A telegram; None is what this meter does not send."""

    energy_used_tariff_1: Energy = None
    energy_used_tariff_2: Energy = None
    energy_delivered_tariff_1: Energy = None
    energy_delivered_tariff_2: Energy = None
    energy_used: Energy = None
    energy_delivered: Energy = None
    power_used: Power = None
    power_delivered: Power = None
    tariff: Annotated[int | None, Sensor(icon="mdi:counter")] = None
    volts_l1: Volts = None
    volts_l2: Volts = None
    volts_l3: Volts = None
    amperes_l1: Amperes = None
    amperes_l2: Amperes = None
    amperes_l3: Amperes = None
    gas: Gas = None
    gas_at: datetime | None = None
    water: Water = None
    water_at: datetime | None = None
    hot_water: Water = None
    hot_water_at: datetime | None = None
    heat: Heat = None
    heat_at: datetime | None = None
    cold: Heat = None
    cold_at: datetime | None = None
