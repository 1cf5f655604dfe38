"""What a user may set, in ``leadsman.toml`` or as ``METER2MQTT_…``, and the tables that a meter may have."""

import os
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field

from leadsman.adapters.modbus import Table
from leadsman.errors import ConfigurationError, collect

FOLDERS = (Path(__file__).with_name("tables"), Path(os.environ.get("CONFIGURATION_DIRECTORY", "."), "tables"))
"""Those that come with the app, and those of the user, beside the settings: one of the same name wins."""
TABLES: dict[str, Table] = {}
FAULTS: list[ConfigurationError] = []
"""What is wrong with tables; a setting shows it."""
for path in (path for folder in FOLDERS for path in sorted(folder.glob("*.toml"))):
    with collect(FAULTS):
        TABLES[path.stem] = Table.load(path)


def known(name: str) -> str:
    """Check that there is such a table, and that all that there are can be read."""
    if FAULTS or name not in TABLES:
        raise ValueError("; ".join(map(str, FAULTS)) or f"there is no table {name!r}; write one of {', '.join(TABLES)}")
    return name


class Meter(BaseModel):
    """One device."""

    table: Annotated[str, AfterValidator(known)]
    unit: int = Field(1, ge=0, le=255)
    interval: str = "10s"


class Settings(BaseModel):
    port: str
    """Preferably one of /dev/serial/by-id; socket://host:port for a gateway; tcp://host for Modbus TCP."""
    baudrate: int = 9600
    parity: str = "N"
    """N, E or O."""
    timeout: str = "1s"
    """For one answer."""
    meters: dict[str, Meter]


DEMO = {"port": "twin", "meters": '{"house": {"table": "sdm630", "interval": "1s"}}'}
"""Settings of ``--demo``."""
