"""What a user may set, in ``leadsman.toml`` or as ``METER2MQTT_…``, and the tables that a meter may have."""

import os
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, model_validator

from leadsman.adapters.modbus import Table
from leadsman.adapters.modbus.framing import ModbusRtuFramer, ModbusTcpFramer
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
    """What kind of meter it is: the name of its table of registers."""
    unit: int = 1
    """1 to 247; 0 to 255 over Modbus TCP."""
    interval: str = "10s"
    """How often it is read, such as 1m."""


class Settings(BaseModel):
    port: str
    """Preferably one of /dev/serial/by-id; socket://host:port for a gateway; tcp://host for Modbus TCP."""
    baudrate: int = 9600
    """Of a serial port."""
    parity: str = "N"
    """N, E or O."""
    timeout: str = "1s"
    """For one answer."""
    pause_between_requests: str = "0s"
    """What slow devices need; see `Modbus`."""
    pause_after_connect: str = "0s"
    """What devices need that start with the connection."""
    meters: dict[str, Meter]
    """The devices on the line."""

    @model_validator(mode="after")
    def check_units(self) -> Self:
        """Check that each meter has an address of the protocol of the port."""
        units = (ModbusTcpFramer if self.port.startswith("tcp://") else ModbusRtuFramer).units
        for name, meter in self.meters.items():
            if meter.unit not in units:
                raise ValueError(f"{name} has the unit {meter.unit}; write {units[0]} to {units[-1]}")
        return self


DEMO = {"port": "twin", "meters": '{"house": {"table": "sdm630", "interval": "1s"}}'}
"""Settings of ``--demo``."""
