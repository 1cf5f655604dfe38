"""The app that the demo shows, as a user would write it: what its devices measure, and how they are read. One of
them is a simulated door, which people open and shut behind them."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Annotated, Literal

from pydantic import BaseModel

from leadsman.adapters.serial.port import SerialPort
from leadsman.core.app import App
from leadsman.core.readings.filters import Round
from leadsman.core.readings.publish import Every, OnChange
from leadsman.core.readings.sensor import Sensor
from leadsman.core.readings.windows import Mean, Minimum
from leadsman.core.resilience.backoff import ExponentialBackoff
from leadsman.core.resilience.breaker import CircuitBreaker
from leadsman.errors import GarbledData, missing

try:
    import psutil
except ImportError as error:
    raise missing("demos", "psutil", "demo", error) from error

PREFIX = "leadsman-demo"
SETTINGS = {"devices.disk.interval": "5s", "devices.disk.name": "Root disk"}
"""What the settings change of a device: the operator of an app may do so, without its code."""


class Power(BaseModel):
    watts: Annotated[
        float,
        Sensor("W", device_class="power", state_class="measurement", icon="mdi:meter-electric", name="Power"),
    ]


class Load(BaseModel):
    cpu_percent: Annotated[
        float, Sensor("%", state_class="measurement", precision=0, icon="mdi:cpu-64-bit", name="CPU")
    ]
    load_1m: Annotated[
        float, Sensor(state_class="measurement", precision=2, icon="mdi:speedometer", name="Load in 1 minute")
    ]


class Memory(BaseModel):
    used_percent: Annotated[float, Sensor("%", state_class="measurement", precision=0, icon="mdi:memory", name="Used")]
    available_mib: Annotated[
        int,
        Sensor("MiB", device_class="data_size", state_class="measurement", icon="mdi:memory", name="Available"),
    ]


class Disk(BaseModel):
    used_percent: Annotated[
        float, Sensor("%", state_class="measurement", precision=0, icon="mdi:harddisk", name="Used")
    ]


def demo_app(broker: str, meter_path: str, discovery: str | None = None) -> App:
    """The app that is shown: the sensors of this machine, a meter on a serial port, and a door that sends events.

    Raises:
        ConfigurationError: the broker is no URL of one, or the convention of discovery is unknown.
    """
    app = App(
        PREFIX,
        version="demo",
        mqtt=broker,
        heartbeat="5s",
        adapters=(SerialPort(meter_path, timeout="500ms"),),
        discovery=discovery,
    )

    @app.telemetry(
        "meter", interval="2s", retry=1, backoff=ExponentialBackoff("300ms"), circuit_breaker=CircuitBreaker(3)
    )
    async def meter(port: SerialPort) -> Power:
        reply = await port.request(b"?\n")
        watts, _, unit = reply.decode("ascii", "replace").partition(" ")
        if unit != "W":
            raise GarbledData(f"{reply[:8].hex(' ')} … is not a reading in watts")
        return Power(watts=float(watts))

    @app.event("door", expiry="1m", title="Front door")  # a minute, since no reading of the demo is to be lost
    async def door() -> AsyncIterator[Literal["opened", "shut"]]:
        while True:
            await asyncio.sleep(random.uniform(3.0, 9.0))  # nobody comes
            yield "opened"
            await asyncio.sleep(1.0)
            yield "shut"

    @app.telemetry("load", interval="2s", publish=OnChange(0.02) | Every("10s"))
    def load() -> Load:
        return Load(cpu_percent=psutil.cpu_percent(), load_1m=round(psutil.getloadavg()[0], 2))

    @app.telemetry(
        "memory",
        interval="1s",
        filters={"used_percent": [Mean("5s"), Round(1)], "available_mib": [Minimum("5s")]},
    )
    def memory() -> Memory:
        state = psutil.virtual_memory()
        return Memory(used_percent=state.percent, available_mib=state.available // 2**20)

    @app.telemetry("disk", interval="10s")
    def disk() -> Disk:
        return Disk(used_percent=psutil.disk_usage("/").percent)

    return app
