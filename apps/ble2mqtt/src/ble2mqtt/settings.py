"""What a user may set, in ``leadsman.toml`` or as ``BLE2MQTT_…``."""

from typing import Annotated

from pydantic import BaseModel, Field

from leadsman.adapters.ble import Address, BindKey
from leadsman.adapters.ble.proxy import Proxy


class KnownSensor(BaseModel):
    """A section [sensors.NAME] of leadsman.toml."""

    address: Address
    key: BindKey | None = None


class Settings(BaseModel):
    adapter: str | None = None
    passive: bool = False
    local: bool = True
    """Whether this machine has a Bluetooth adapter."""
    proxies: dict[str, Proxy] = {}
    discover: bool = True
    """Whether sensors that have no section are published, too, under their addresses."""
    most: Annotated[int, Field(ge=1, le=1000)] = 100
    """How many of these there may be."""
    sensors: dict[str, KnownSensor] = {}


DEMO = {"sensors": '{"bedroom": {"address": "54:48:E6:8F:80:A5", "key": "231d39c1d7cc1ab1aee224cd096db932"}}'}
"""Settings of ``--demo``: the sensor that encrypts its values has a name."""
