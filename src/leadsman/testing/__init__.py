"""The testing kit: an app under virtual time, brokers in memory and for real, scripted faults, a serial device on a pty.

Public, and what leadsman's own tests stand on. Nothing of it is imported when an app runs.

::

    def test_a_flaky_sensor_is_read_within_seconds():
        app = App("demo")
        app.add_telemetry("air", Scripted(fail(2), {"co2": 400}), interval="25m", retry=3)
        with Harness(app) as harness:
            harness.run("1m")
            assert harness.states("air") == [{"co2": 400}]

Fixtures come with ``pytest_plugins = ["leadsman.testing.fixtures"]``.
"""

from leadsman.testing.broker import Delivered, MemoryBroker
from leadsman.testing.faults import Outages, Scripted, fail, garbage, hang
from leadsman.testing.harness import Harness
from leadsman.testing.loop import VirtualLoop
from leadsman.testing.mosquitto import Mosquitto
from leadsman.testing.optolink import Boiler
from leadsman.testing.pty import PtyDevice
from leadsman.testing.twins import BleTwin, SerialTwin, TwinDevice

__all__ = [
    "BleTwin",
    "Boiler",
    "Delivered",
    "Harness",
    "MemoryBroker",
    "Mosquitto",
    "Outages",
    "PtyDevice",
    "Scripted",
    "SerialTwin",
    "TwinDevice",
    "VirtualLoop",
    "fail",
    "garbage",
    "hang",
]
