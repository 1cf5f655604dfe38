"""What the characteristics of a Wave mean. Pure. The formats are what others found out and published."""

from typing import Literal

from airthings2mqtt.payloads import Air, AirMini, AirPlus
from leadsman.adapters.ble.gatt import STANDARD, unpack
from leadsman.errors import GarbledData

TEMPERATURE = "2a6e"
HUMIDITY = "2a6f"
RADON_24H = "b42e01aa-ade7-11e4-89d3-123b93f75cba"
RADON_LONG_TERM = "b42e0a4c-ade7-11e4-89d3-123b93f75cba"
PLUS = "b42e2a68-ade7-11e4-89d3-123b93f75cba"
MINI = "b42e3b98-ade7-11e4-89d3-123b93f75cba"
"""Characteristics: four of a Wave, and one each of a Wave Plus and a Wave Mini."""
COMPANY = 0x0334
"""The company identifier of Airthings in advertisements. The first four bytes of its data are the serial number."""
MODELS: dict[int, Literal["wave", "plus", "mini"]] = {2900: "wave", 2920: "mini", 2930: "plus"}
"""The models by the first four of the ten digits of a serial number."""
RADON_MOST = 16383
"""Bq/m³; a larger value means that the sensor does not know."""


def serial_number(data: bytes) -> str:
    """The serial number in what a sensor advertises. Raises `GarbledData`."""
    (number,) = unpack("<I", data[:4], "an advertisement of Airthings")
    return f"{number:010d}"


def radon(raw: int) -> int | None:
    """An average of radon in Bq/m³."""
    return raw if raw <= RADON_MOST else None


def wave(temperature: bytes, humidity: bytes, day: bytes, long_term: bytes) -> Air:
    """The four characteristics of a Wave."""
    return Air(
        temperature=STANDARD[TEMPERATURE].decode(temperature),
        humidity=STANDARD[HUMIDITY].decode(humidity),
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
