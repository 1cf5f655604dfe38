"""The testing kit: runs an app in virtual time, with brokers in memory or real ones, scripted faults, and a serial
device on a pty.

It is public, and leadsman's own tests use it. A running app imports nothing of it.

::

    def test_a_flaky_sensor_is_read_within_seconds():
        app = App("demo")
        app.add_telemetry("air", Scripted(fail(2), {"co2": 400}), interval="25m", retry=3)
        with Harness(app) as harness:
            harness.run("1m")
            assert harness.states("air") == [{"co2": 400}]

Fixtures are loaded with ``pytest_plugins = ["leadsman.testing.fixtures"]``.
"""

from leadsman.testing.broker import Delivered, MemoryBroker
from leadsman.testing.harness import Harness, Outages, Scripted, fail, garbage, hang
from leadsman.testing.loop import VirtualLoop
from leadsman.testing.mosquitto import Mosquitto
from leadsman.testing.pty import PtyDevice
from leadsman.testing.publish_rules import published_by
from leadsman.testing.twins import (
    BleTwin,
    Boiler,
    CalDavTwin,
    HttpTwin,
    I2cRegisters,
    I2cTwin,
    ModbusTwin,
    ModbusUnit,
    OneWireTwin,
    ProgramsTwin,
    Recorded,
    SerialTwin,
    TwinDevice,
)

__all__ = [
    "BleTwin",
    "Boiler",
    "CalDavTwin",
    "Delivered",
    "Harness",
    "HttpTwin",
    "I2cRegisters",
    "I2cTwin",
    "MemoryBroker",
    "ModbusTwin",
    "ModbusUnit",
    "Mosquitto",
    "OneWireTwin",
    "Outages",
    "ProgramsTwin",
    "PtyDevice",
    "Recorded",
    "Scripted",
    "SerialTwin",
    "TwinDevice",
    "VirtualLoop",
    "fail",
    "garbage",
    "hang",
    "published_by",
]
