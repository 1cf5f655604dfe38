"""Meters without hardware, for tests, demos and dry runs."""

from leadsman.testing import ModbusTwin, ModbusUnit
from meter2mqtt.settings import TABLES, Settings

VALUES = {"voltage": 230.1, "power": 412.5, "current": 1.8, "frequency": 50.0, "energy": 1234.5}
"""By the first word of the name of a register."""


def simulated_line(settings: Settings) -> ModbusTwin:
    """A line with the meters of the settings. What is no such value is 0."""
    units: dict[int, ModbusUnit] = {}
    for meter in settings.meters.values():
        table = TABLES[meter.table]
        values = {name: VALUES[word] for name in table.registers if (word := name.partition("_")[0]) in VALUES}
        unit = units.setdefault(meter.unit, ModbusUnit({}))  # it may be read by several tables
        for kind, memory in ModbusUnit.of(table, values).memory.items():
            for address, value in memory.items():
                unit.memory[kind][address] = unit.memory[kind].get(address) or value
    return ModbusTwin(units)
