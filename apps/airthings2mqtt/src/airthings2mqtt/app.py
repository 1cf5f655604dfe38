"""The app: each Wave of the settings is a device, and so is each that is found, if the settings want it."""

import asyncio
import math
from collections.abc import AsyncIterator

from airthings2mqtt.decoding import (
    COMPANY,
    HUMIDITY,
    MINI,
    MODELS,
    PLUS,
    RADON_24H,
    RADON_LONG_TERM,
    TEMPERATURE,
    mini,
    plus,
    serial_number,
    wave,
)
from airthings2mqtt.payloads import Air, AirMini, AirPlus
from airthings2mqtt.settings import DEMO, Settings, Wave
from leadsman import (
    UNTIL_NEXT_POLL,
    App,
    Context,
    Device,
    ExponentialBackoff,
    Finds,
    FoundDevice,
    command_line,
    retrying,
)
from leadsman.adapters.ble import BleRadio
from leadsman.errors import GarbledData, LeadsmanError

INTERVAL = 1500.0
"""Seconds between two readings of a Wave that was found."""


def radios(settings: Settings) -> tuple[BleRadio]:
    """The Bluetooth adapter of the settings."""
    return (BleRadio(settings.adapter),)


def simulated_radios(settings: Settings) -> tuple[BleRadio]:
    """A radio without hardware."""
    from airthings2mqtt.twin import simulated_radio  # only a demo or a dry run loads it

    return (simulated_radio(settings),)


app = App("airthings2mqtt", version="0.1.0", settings=Settings, adapters=radios, twins=simulated_radios)


def devices(settings: Settings) -> dict[str, Device]:
    """One device for each Wave."""
    return {name: Device(wave, interval=wave.interval) for name, wave in settings.waves.items()}


@app.telemetry(
    devices, needs="ble", retry=UNTIL_NEXT_POLL, backoff=ExponentialBackoff("2s", "30s"), timeout="2m", throttle="30s"
)
async def air(radio: BleRadio, device: Wave) -> Air | AirPlus | AirMini:
    return await read(radio, device)


async def read(radio: BleRadio, device: Wave) -> Air | AirPlus | AirMini:
    """Listen for it, connect, read, hang up."""
    if device.model == "plus":
        return plus(*await radio.read(device.address, PLUS))
    if device.model == "mini":
        return mini(*await radio.read(device.address, MINI))
    return wave(*await radio.read(device.address, TEMPERATURE, HUMIDITY, RADON_24H, RADON_LONG_TERM))


def finders(settings: Settings) -> dict[str, Device]:
    """One finder, if the settings want it."""
    finds = Finds(Air | AirPlus | AirMini, most=settings.find_most, stale_after="80m", everywhere=True)
    return {"finder": Device(finds=finds)} if settings.find else {}


@app.source(finders, needs="ble", stale_after="2h", silence=None)
async def finder(radio: BleRadio, settings: Settings, context: Context) -> AsyncIterator[None]:
    """Read each Wave that advertises itself and has no section in the settings, every 25 minutes. Of several machines
    that hear it, the one reads it that hears it best."""
    known = {device.address for device in settings.waves.values()}
    begun_at: dict[str, float] = {}
    async with asyncio.TaskGroup() as readings:  # it listens on while it reads, as other machines listen, too
        async for heard in radio.advertisements(manufacturer=COMPANY, every="10s"):
            yield  # it listens
            try:
                serial = serial_number(heard.manufacturer[COMPANY])
            except GarbledData as error:
                context.logger.debug("%s is no Wave: %s", heard.address, error)
                continue
            model, now = MODELS.get(int(serial[:4])), asyncio.get_running_loop().time()
            if model is None or heard.address in known:
                continue
            found = context.device(serial, signal=heard.rssi)
            if found.here and now - begun_at.get(serial, -math.inf) >= INTERVAL:
                begun_at[serial] = now
                readings.create_task(read_found(radio, Wave(address=heard.address, model=model), found, context))


async def read_found(radio: BleRadio, device: Wave, found: FoundDevice, context: Context) -> None:
    """Read a Wave that was found. The others are read if it cannot be."""
    try:
        found.publish(await retrying("ble")(read)(radio, device))
    except (LeadsmanError, OSError) as error:
        context.logger.warning("%s was heard, but not read: %s", device.address, error)


main = command_line(app, demo=DEMO)
