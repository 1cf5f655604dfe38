"""A gas meter with a magnet in its last wheel: ticks counted by a magnetometer beside it."""

import asyncio
import itertools
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel
from pydantic import Field as Limits

from gas2mqtt.magnetometer import Field, Magnetometer, Registers
from leadsman import UNTIL_NEXT_POLL, App, Context, Device, OnChange, Sensor
from leadsman.cli.standalone import command_line

ROLLOVER = 65536
"""Ticks; the counter begins again, as utilities' counters do."""


class Settings(BaseModel):
    bus: int = 1
    level: int = -5000
    """Of the field along z where the magnet passes."""
    hysteresis: int = 700
    liters_per_tick: float = 10.0
    interval: str = "1s"
    """The magnet must be seen twice a revolution: with the largest flow, less than half of it."""
    smoothing: float = 1200.0
    """Time constant of the temperature, seconds."""
    raw: bool = False


class Counter(BaseModel):
    counter: Annotated[int, Sensor(state_class="total_increasing")]
    trigger: Literal["OPEN", "CLOSED"]
    consumption_m3: Annotated[float, Sensor("m³", device_class="gas", state_class="total_increasing", precision=3)]


class Temperature(BaseModel):
    temperature: Annotated[float, Sensor("°C", device_class="temperature", state_class="measurement", precision=1)]


class Raw(BaseModel):
    bx: int
    by: int
    bz: int


class Consumption(BaseModel):
    consumption_m3: Annotated[float, Limits(ge=0, le=1_000_000)]


class Trigger(NamedTuple):
    """A Schmitt trigger: high above level + hysteresis, low below level - hysteresis, and as before in between."""

    high: bool
    rose: bool = False

    def fed(self, value: int, level: int, hysteresis: int) -> "Trigger":
        """After one more value."""
        high = value > level + hysteresis or (self.high and value >= level - hysteresis)
        return Trigger(high, high and not self.high)


def celsius(raw: int) -> float:
    """The sensor's own temperature, about: its data sheet gives the slope only."""
    return 0.008 * raw + 20.3


def smoothed(before: float | None, value: float, step: float, constant: float) -> float:
    """A first-order low pass."""
    return value if before is None else before + (value - before) * step / (constant + step)


def simulated(settings: Settings) -> tuple[Magnetometer]:
    """A meter whose wheel turns once in five measurements."""
    turning = itertools.cycle((-7000, -7000, -3000, -3000, -5000))
    return (Magnetometer(open_bus=lambda _: Registers(lambda: Field(100, -200, next(turning), 100))),)


app = App("gas2mqtt", version="0.1.0", settings=Settings, adapters=lambda settings: (Magnetometer(settings.bus),), twins=simulated)  # fmt: skip


@app.telemetry(
    lambda settings: {"gas_counter": Device(interval=settings.interval)},
    timeout="1s",
    publish=OnChange(0),
    group="sensor",
)
async def gas_counter(sensor: Magnetometer, settings: Settings, context: Context) -> Counter:
    """Count the edges. What was counted is on the disk before it is told."""
    store, field = context.store, await sensor.read()
    trigger = Trigger(store.get("high", True)).fed(field.z, settings.level, settings.hysteresis)
    if trigger.high != store.get("high"):
        store["high"] = trigger.high
        if trigger.rose:
            store["counter"] = (store.get("counter", 0) + 1) % ROLLOVER
            store["liters"] = store.get("liters", 0.0) + settings.liters_per_tick
        await asyncio.to_thread(store.save)
    return Counter(
        counter=store.get("counter", 0),
        trigger="CLOSED" if trigger.high else "OPEN",
        consumption_m3=round(store.get("liters", 0.0) / 1000, 3),
    )


@app.command("gas_counter")
async def consumption(value: Consumption, context: Context) -> Counter:
    """Set what the meter shows."""
    context.store["liters"] = value.consumption_m3 * 1000
    await asyncio.to_thread(context.store.save)
    return Counter(
        counter=context.store.get("counter", 0),
        trigger="CLOSED" if context.store.get("high", True) else "OPEN",
        consumption_m3=value.consumption_m3,
    )


@app.telemetry("temperature", interval="5m", publish=OnChange(0.05), group="sensor", retry=UNTIL_NEXT_POLL)
async def temperature(sensor: Magnetometer, settings: Settings, context: Context) -> Temperature:
    """The sensor's own temperature, smoothed."""
    before = context.store.get("temperature")
    value = smoothed(before, celsius((await sensor.read()).temperature), 300.0, settings.smoothing)
    context.store["temperature"] = value
    return Temperature(temperature=round(value, 1))


@app.telemetry(lambda settings: {"magnetometer": Device(enabled=settings.raw)}, interval="1s", group="sensor")
async def magnetometer(sensor: Magnetometer) -> Raw:
    """The field itself, to find the level by."""
    field = await sensor.read()
    return Raw(bx=field.x, by=field.y, bz=field.z)


main = command_line(app)
