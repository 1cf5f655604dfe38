"""The app: each Wave of the settings is a device."""

from airthings2mqtt.decoding import HUMIDITY, MINI, PLUS, RADON_24H, RADON_LONG_TERM, TEMPERATURE, mini, plus, wave
from airthings2mqtt.payloads import Air, AirMini, AirPlus
from airthings2mqtt.settings import DEMO, Settings, Wave
from leadsman import UNTIL_NEXT_POLL, App, Device, ExponentialBackoff
from leadsman.adapters.ble import BleRadio
from leadsman.cli.app_cli import command_line


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


@app.telemetry(devices, retry=UNTIL_NEXT_POLL, backoff=ExponentialBackoff("2s", "30s"), timeout="2m")
async def air(radio: BleRadio, device: Wave) -> Air | AirPlus | AirMini:
    """Listen for it, connect, read, hang up."""
    if device.model == "plus":
        return plus(*await radio.read(device.address, PLUS))
    if device.model == "mini":
        return mini(*await radio.read(device.address, MINI))
    return wave(*await radio.read(device.address, TEMPERATURE, HUMIDITY, RADON_24H, RADON_LONG_TERM))


main = command_line(app, demo=DEMO)
