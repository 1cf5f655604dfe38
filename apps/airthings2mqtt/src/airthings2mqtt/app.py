"""The app: each Wave of the settings is a device, and so is each that is found, if the settings want it."""

import asyncio
import math
from collections.abc import AsyncIterator
from datetime import timedelta

from airthings2mqtt.averages import believed
from airthings2mqtt.decoding import COMPANY, MODELS, WAVES, serial_number
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
from leadsman.errors import GarbledData, LeadsmanError, PermanentError

INTERVAL = 1500.0
"""Seconds between two readings of a Wave that was found."""
ADDRESS = "(?:[0-9A-Fa-f]{2}[:_-]){5}[0-9A-Fa-f]{2}"
"""Of Bluetooth, as a pattern; BlueZ writes it with underscores in its paths."""


def radios(settings: Settings) -> tuple[BleRadio]:
    """The Bluetooth adapter of the settings."""
    return (BleRadio(settings.adapter),)


def simulated_radios(settings: Settings) -> tuple[BleRadio]:
    """A radio without hardware."""
    from airthings2mqtt.twin import simulated_radio  # only a demo or a dry run loads it

    return (simulated_radio(settings),)


def hidden(settings: Settings) -> list[str]:
    """The patterns of what is hidden."""
    return [ADDRESS] if settings.hide_addresses else []


app = App("airthings2mqtt", version="0.1.0", settings=Settings, adapters=radios, twins=simulated_radios, redact=hidden)


def devices(settings: Settings) -> dict[str, Device]:
    """One device for each Wave."""
    return {name: Device(wave, interval=wave.interval) for name, wave in settings.waves.items()}


@app.telemetry(
    devices, needs="ble", retry=UNTIL_NEXT_POLL, backoff=ExponentialBackoff("2s", "30s"), timeout="2m", throttle="30s"
)
async def air(radio: BleRadio, device: Wave, settings: Settings, context: Context) -> Air | AirPlus | AirMini:
    return remembered(await read(radio, device.address), context.name, settings, context)


async def read(radio: BleRadio, address: str) -> Air | AirPlus | AirMini:
    """Listen for it, connect, find out by its characteristics which model it is, read, hang up."""
    async with radio.session(address) as device:
        for characteristics, decode in WAVES:
            if all(map(device.has, characteristics)):
                return decode(*[await device.read(each) for each in characteristics])
    raise PermanentError(f"{address} has the characteristics of no Wave that is known; is it the address of one?")


def remembered(
    read: Air | AirPlus | AirMini, name: str, settings: Settings, context: Context
) -> Air | AirPlus | AirMini:
    """The reading with what can be believed of its averages. They are remembered by the name of the Wave."""
    if isinstance(read, AirMini):
        return read
    before = context.store.get(name)
    air, memory = believed(read, before, context.now("UTC"), timedelta(days=settings.settle_days))
    if memory != before:
        context.store[name] = memory
    if memory["reset_at"] != (before or {}).get("reset_at"):
        last = (before or {}).get("long_term", "unknown")
        context.logger.warning(
            "the averages of radon of %s began anew, as after a change of its battery; the last one was %s", name, last
        )
    return air


def finders(settings: Settings) -> dict[str, Device]:
    """One finder, if the settings want it."""
    finds = Finds(Air | AirPlus | AirMini, most=settings.find_most, stale_after="80m")
    return {"finder": Device(finds=finds)} if settings.find else {}


@app.source(finders, needs="ble", stale_after="2h", silence=None)
async def finder(radio: BleRadio, settings: Settings, context: Context) -> AsyncIterator[None]:
    """Read each Wave that advertises itself and has no section in the settings, every 25 minutes."""
    known = {device.address for device in settings.waves.values()}
    begun_at: dict[str, float] = {}
    async with asyncio.TaskGroup() as readings:  # it listens on while it reads
        async for heard in radio.advertisements(manufacturer=COMPANY, every="10s"):
            yield  # it listens
            try:
                serial = serial_number(heard.manufacturer[COMPANY])
            except GarbledData as error:
                context.logger.debug("%s is no Wave: %s", heard.address, error)
                continue
            if int(serial[:4]) not in MODELS or heard.address in known:
                continue
            found, now = context.device(serial), asyncio.get_running_loop().time()
            if found.accepted and now - begun_at.get(serial, -math.inf) >= INTERVAL:
                begun_at[serial] = now
                readings.create_task(read_found(radio, heard.address, serial, found, settings, context))


async def read_found(
    radio: BleRadio, address: str, serial: str, found: FoundDevice, settings: Settings, context: Context
) -> None:
    """Read a Wave that was found. The others are read if it cannot be."""
    try:
        found.publish(remembered(await retrying("ble")(read)(radio, address), serial, settings, context))
    except (LeadsmanError, OSError) as error:
        context.logger.warning("%s was heard, but not read: %s", address, error)


main = command_line(app, demo=DEMO)
