"""Radon and air of Airthings Wave, Wave Plus and Wave Mini, over Bluetooth."""

from typing import Annotated, Literal

from pydantic import BaseModel

from leadsman import UNTIL_NEXT_POLL, App, Device, ExponentialBackoff, Sensor
from leadsman.adapters.ble import Address, BleRadio
from leadsman.adapters.gatt import STANDARD, unpack
from leadsman.cli.standalone import command_line
from leadsman.errors import GarbledData

RADON_24H = "b42e01aa-ade7-11e4-89d3-123b93f75cba"
RADON_LONG_TERM = "b42e0a4c-ade7-11e4-89d3-123b93f75cba"
PLUS = "b42e2a68-ade7-11e4-89d3-123b93f75cba"
MINI = "b42e3b98-ade7-11e4-89d3-123b93f75cba"
RADON_MOST = 16383
"""Bq/m³; whatever is above means that the sensor does not know."""


class Air(BaseModel):
    """What a Wave measures; None is what it does not know."""

    temperature: Annotated[float | None, Sensor("°C", device_class="temperature", state_class="measurement")]
    humidity: Annotated[float | None, Sensor("%", device_class="humidity", state_class="measurement")]
    radon_24h_avg: Annotated[int | None, Sensor("Bq/m³", state_class="measurement", icon="mdi:radioactive")]
    radon_long_term_avg: Annotated[int | None, Sensor("Bq/m³", state_class="measurement", icon="mdi:radioactive")]


class AirPlus(Air):
    """What a Wave Plus measures besides."""

    pressure: Annotated[float, Sensor("hPa", device_class="atmospheric_pressure", state_class="measurement")]
    co2: Annotated[int, Sensor("ppm", device_class="carbon_dioxide", state_class="measurement")]
    voc: Annotated[int, Sensor("ppb", device_class="volatile_organic_compounds_parts", state_class="measurement")]


class AirMini(BaseModel):
    """What a Wave Mini measures: no radon."""

    temperature: Annotated[float, Sensor("°C", device_class="temperature", state_class="measurement")]
    humidity: Annotated[float, Sensor("%", device_class="humidity", state_class="measurement")]
    voc: Annotated[int, Sensor("ppb", device_class="volatile_organic_compounds_parts", state_class="measurement")]


class Wave(BaseModel):
    """A section [waves.NAME] of leadsman.toml."""

    address: Address
    model: Literal["wave", "plus", "mini"] = "wave"
    interval: str = "25m"


class Settings(BaseModel):
    adapter: str | None = None
    waves: dict[str, Wave] = {}


def radon(raw: int) -> int | None:
    """An average of radon in Bq/m³."""
    return raw if raw <= RADON_MOST else None


def wave(temperature: bytes, humidity: bytes, day: bytes, long_term: bytes) -> Air:
    """The four characteristics of a Wave."""
    return Air(
        temperature=STANDARD["2a6e"].decode(temperature),
        humidity=STANDARD["2a6f"].decode(humidity),
        radon_24h_avg=radon(*unpack("<H", day, "radon")),
        radon_long_term_avg=radon(*unpack("<H", long_term, "radon")),
    )


def plus(data: bytes) -> AirPlus:
    """The one characteristic of a Wave Plus."""
    version, humidity, _, _, day, long_term, temperature, pressure, co2, voc, _, _ = unpack(
        "<4B8H", data, "a Wave Plus"
    )
    if version != 1:
        raise GarbledData(f"a Wave Plus of version {version}; only 1 is known")
    return AirPlus(
        temperature=temperature / 100,
        humidity=humidity / 2,
        radon_24h_avg=radon(day),
        radon_long_term_avg=radon(long_term),
        pressure=pressure / 50,
        co2=co2,
        voc=voc,
    )


def mini(data: bytes) -> AirMini:
    """The one characteristic of a Wave Mini; the temperature is in kelvins."""
    _, temperature, _, humidity, voc, _, _, _ = unpack("<6H2L", data, "a Wave Mini")
    return AirMini(temperature=round(temperature / 100 - 273.15, 2), humidity=humidity / 100, voc=voc)


def simulated(settings: Settings) -> tuple[BleRadio]:
    """Waves in memory."""
    from leadsman.testing.twins import BleTwin, TwinDevice

    values = {
        "2a6e": b"\x66\x08", "2a6f": b"\x94\x11", RADON_24H: b"\x2a\x00", RADON_LONG_TERM: b"\x26\x00",
        PLUS: bytes.fromhex("015a00002a0026006608c8c5900132000000 0000"),
        MINI: bytes.fromhex("000019730000941132000000") + bytes(8),
    }  # fmt: skip
    return (BleTwin(*(TwinDevice(each.address, values) for each in settings.waves.values())),)


def devices(settings: Settings) -> dict[str, Device]:
    """One device for each Wave."""
    return {name: Device(each, interval=each.interval) for name, each in settings.waves.items()}


app = App("airthings2mqtt", version="0.1.0", settings=Settings, adapters=lambda settings: (BleRadio(settings.adapter),), twins=simulated)  # fmt: skip


@app.telemetry(devices, retry=UNTIL_NEXT_POLL, backoff=ExponentialBackoff("2s", "30s"), timeout="2m")
async def air(radio: BleRadio, device: Wave) -> Air | AirPlus | AirMini:
    """Listen for it, connect, read, hang up."""
    if device.model == "plus":
        return plus(*await radio.read(device.address, PLUS))
    if device.model == "mini":
        return mini(*await radio.read(device.address, MINI))
    return wave(*await radio.read(device.address, "2a6e", "2a6f", RADON_24H, RADON_LONG_TERM))


DEMO = '{"bedroom": {"address": "F0:11:22:33:44:55", "interval": "3s"}, "cellar": {"address": "F0:11:22:33:44:66", "model": "plus", "interval": "5s"}}'
main = command_line(app, demo={"waves": DEMO})
