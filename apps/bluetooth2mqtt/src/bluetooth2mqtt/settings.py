"""What a user may set, in ``leadsman.toml`` or as ``BLUETOOTH2MQTT_…``."""

from typing import Annotated, Self

from pydantic import BaseModel, Field, model_validator

from leadsman.adapters.ble import Address, BindKey
from leadsman.adapters.ble.proxy import Proxy


class KnownSensor(BaseModel):
    """A section [sensors.NAME] of leadsman.toml."""

    address: Address
    """The Bluetooth address of the sensor."""
    key: BindKey | None = None
    """The bind key, if the sensor encrypts its values."""


class Settings(BaseModel):
    adapter: str | None = None
    """Which Bluetooth adapter, such as hci1; the first one if it is not set."""
    passive: bool = False
    """Whether sensors are only listened to, and not asked."""
    local: bool = True
    """Whether this machine has a Bluetooth adapter."""
    proxies: dict[str, Proxy] = {}
    """Boards with ESPHome, as radios in other rooms."""
    discover: bool = True
    """Whether sensors that have no section are published, too, under their addresses."""
    most: Annotated[int, Field(ge=1, le=1000)] = 100
    """How many of these there may be."""
    sensors: dict[str, KnownSensor] = {}
    """The sensors that have a name, or a key."""

    @model_validator(mode="after")
    def has_a_radio_and_one_name_for_each_sensor(self) -> Self:
        """Refuse settings without any radio, and a sensor with two names."""
        if not self.local and not self.proxies:
            raise ValueError(
                "local is false, so a board is needed; write a section such as [proxies.attic] with its host"
            )
        if "radio" in self.sensors:
            raise ValueError("sensors.radio has the name of what listens; choose another one")
        names: dict[str, str] = {}
        for name, each in self.sensors.items():
            other = names.setdefault(each.address, name)
            if other != name:
                raise ValueError(f"sensors.{other} and sensors.{name} have one address; leave out one of them")
        return self


DEMO = {"sensors": '{"bedroom": {"address": "54:48:E6:8F:80:A5", "key": "231d39c1d7cc1ab1aee224cd096db932"}}'}
"""Settings of ``--demo``: the sensor that encrypts its values has a name."""
