"""The app that the demo shows, as a user would write it: what its devices measure, and how they are read. One of
them is a simulated door, which people open and shut behind them."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, create_model

from leadsman.adapters.serial.port import SerialPort
from leadsman.app import App
from leadsman.errors import GarbledData, missing
from leadsman.readings.buffer import Buffer
from leadsman.readings.filters import Round
from leadsman.readings.publish import Every, OnChange
from leadsman.readings.sensor import Sensor
from leadsman.readings.windows import Mean, Minimum
from leadsman.resilience.backoff import ExponentialBackoff
from leadsman.resilience.breaker import CircuitBreaker

try:
    import psutil
except ImportError as error:
    raise missing("demos", "psutil", "demo", error) from error

PREFIX = "leadsman-demo"
SETTINGS = {"devices.disk.interval": "5s", "devices.disk.name": "Root disk"}
"""What the settings change of a device: the operator of an app may do so, without its code."""
Degrees = Annotated[float | None, Sensor("°C", device_class="temperature", state_class="measurement", precision=1)]

Moved = Literal["opened", "shut"]
"""What happens at the door."""
SHORTEST, LONGEST = 3.0, 9.0
"""Seconds between two people, at the least and at the most."""
OPEN = 1.0
"""Seconds that it stays open."""


async def use_door(moves: Buffer[Moved]) -> None:
    """Let people go through the door until cancelled. What happens goes into the buffer, as from the callback of a
    library for the pins of a real one."""
    while True:
        await asyncio.sleep(random.uniform(SHORTEST, LONGEST))
        moves.put("opened")
        await asyncio.sleep(OPEN)
        moves.put("shut")


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
    load_5m: Annotated[
        float, Sensor(state_class="measurement", precision=2, icon="mdi:speedometer", name="Load in 5 minutes")
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
    free_gib: Annotated[
        float,
        Sensor("GiB", device_class="data_size", state_class="measurement", icon="mdi:harddisk", name="Free"),
    ]


def demo_app(broker: str, meter_path: str, moves: Buffer[Moved], discovery: str | None = None) -> App:
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
    async def door() -> AsyncIterator[Moved]:
        async for move in moves:
            yield move

    @app.telemetry("load", interval="2s", publish=OnChange(0.02) | Every("10s"))
    def load() -> Load:
        one, five, _ = psutil.getloadavg()
        return Load(cpu_percent=psutil.cpu_percent(), load_1m=round(one, 2), load_5m=round(five, 2))

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
        state = psutil.disk_usage("/")
        return Disk(used_percent=state.percent, free_gib=round(state.free / 2**30, 1))

    chips = _temperatures()
    if chips:  # virtual machines have none
        fields: dict[str, Any] = dict.fromkeys(chips, (Degrees, None))
        payload = create_model("Chips", **fields)

        @app.telemetry("temperature", interval="5s", publish=OnChange(0.5) | Every("30s"))
        def temperature() -> payload:  # type: ignore[valid-type]  # the chips are those of this machine
            found = _temperatures()
            return payload(**{chip: found.get(chip) for chip in chips})  # type: ignore[no-any-return]  # as above

    return app


def _temperatures() -> dict[str, float]:
    """The temperature of each chip that has one."""
    read = getattr(psutil, "sensors_temperatures", dict)  # not on every system
    return {chip: readings[0].current for chip, readings in read().items() if readings}
