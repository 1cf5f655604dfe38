"""What a user may set, in ``leadsman.toml`` or as ``AIRTHINGS2MQTT_…``."""

import json
from typing import Annotated

from pydantic import BaseModel, Field

from leadsman.adapters.ble import Address


class Wave(BaseModel):
    """A section [waves.NAME] of leadsman.toml."""

    address: Address
    """The Bluetooth address, on the back of the Wave."""
    interval: str = "25m"
    """How often it is read, such as 10m."""


class Settings(BaseModel):
    adapter: str | None = None
    """Which Bluetooth adapter, such as hci1; the first one if it is not set."""
    waves: dict[str, Wave] = {}
    """The Waves to read."""
    find: bool = False
    """Whether Waves that are in range, and have no section, are read too, every 25 minutes."""
    find_most: Annotated[int, Field(ge=1, le=1000)] = 20
    """How many of these there may be."""
    settle_days: Annotated[int, Field(ge=0, le=366)] = 30
    """How long a long-term average is provisional after a reset of the sensor."""
    hide_addresses: bool = False
    """Whether Bluetooth addresses are *** in logs, errors and introspection."""


DEMO = {
    "waves": json.dumps(
        {
            "bedroom": {"address": "F0:11:22:33:44:55", "interval": "3s"},
            "cellar": {"address": "F0:11:22:33:44:66", "interval": "5s"},
            "attic": {"address": "F0:11:22:33:44:77", "interval": "5s"},
        }
    )
}
"""Settings of ``--demo``."""
