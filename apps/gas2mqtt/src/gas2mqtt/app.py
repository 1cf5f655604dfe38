"""The app: what is polled, and what a command does."""

import asyncio

from gas2mqtt.decoding import Trigger
from gas2mqtt.magnetometer import measure
from gas2mqtt.payloads import Consumption, Counter, RawField, Temperature
from gas2mqtt.settings import Settings
from leadsman import UNTIL_NEXT_POLL, App, Context, Device, LowPass, OnChange, Round, Scale, command_line
from leadsman.adapters.i2c import I2c

ROLLOVER = 65536
"""Ticks; the counter begins again, as utilities' counters do."""


def buses(settings: Settings) -> tuple[I2c]:
    """The bus of the settings."""
    return (I2c(settings.bus, timeout="0.5s"),)


def simulated_buses(settings: Settings) -> tuple[I2c]:
    """A bus without hardware."""
    from gas2mqtt.twin import simulated_bus  # only a demo or a dry run loads it

    return (simulated_bus(settings),)


app = App(
    "gas2mqtt", version="0.1.0", settings=Settings, adapters=buses, twins=simulated_buses, keep_state=True
)  # the smoothed temperature goes on after a restart


def counter_device(settings: Settings) -> dict[str, Device]:
    """The counter, polled as often as the settings say."""
    return {"gas_counter": Device(interval=settings.interval)}


def thermometer(settings: Settings) -> dict[str, Device]:
    """The sensor's own temperature, calibrated and smoothed."""
    calibration = Scale(settings.temperature_scale, settings.temperature_offset)
    filters = {"temperature": [calibration, LowPass(settings.smoothing), Round(1)]}
    return {"temperature": Device(interval=settings.temperature_interval, filters=filters)}


def raw_device(settings: Settings) -> dict[str, Device]:
    """The field itself, where the settings ask for it."""
    return {"magnetometer": Device(enabled=settings.raw)}


@app.telemetry(counter_device, timeout="1s", publish=OnChange(0), group="sensor")
async def gas_counter(i2c: I2c, settings: Settings, context: Context) -> Counter:
    """Count the edges. What was counted is on the disk before it is published."""
    store = context.store
    measurement = await measure(i2c, settings.address)
    trigger = Trigger(store.get("high", True)).after(measurement.z, settings.level, settings.hysteresis)
    if trigger.high != store.get("high"):
        store["high"] = trigger.high
        if trigger.rose:
            store["counter"] = (store.get("counter", 0) + 1) % ROLLOVER
            store["liters"] = store.get("liters", 0.0) + settings.liters_per_tick
        await asyncio.to_thread(store.save)
    return stored_counter(context)


@app.command("gas_counter")
async def consumption(value: Consumption, context: Context) -> Counter:
    """Set what the meter shows."""
    context.store["liters"] = value.consumption_m3 * 1000
    await asyncio.to_thread(context.store.save)
    return stored_counter(context)


def stored_counter(context: Context) -> Counter:
    """The counter as the store has it."""
    store = context.store
    return Counter(
        counter=store.get("counter", 0),
        trigger="CLOSED" if store.get("high", True) else "OPEN",
        consumption_m3=round(store.get("liters", 0.0) / 1000, 3),
    )


@app.telemetry(thermometer, publish=OnChange(0.05), group="sensor", retry=UNTIL_NEXT_POLL)
async def temperature(i2c: I2c, settings: Settings) -> Temperature:
    """What the sensor measures; the filters make degrees of it."""
    return Temperature(temperature=(await measure(i2c, settings.address)).temperature)


@app.telemetry(raw_device, interval="1s", group="sensor")
async def magnetometer(i2c: I2c, settings: Settings) -> RawField:
    """The field itself, to find the level by."""
    measurement = await measure(i2c, settings.address)
    return RawField(bx=measurement.x, by=measurement.y, bz=measurement.z)


main = command_line(app)
