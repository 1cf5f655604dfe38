"""What the characteristics of a Wave mean. Pure. The formats are what others found out and published."""

from collections.abc import Callable
from typing import NamedTuple

from airthings2mqtt.payloads import Air, AirMini, AirPlus
from leadsman.adapters.ble.gatt import STANDARD, unpack
from leadsman.errors import GarbledData

TEMPERATURE = "2a6e"
HUMIDITY = "2a6f"
RADON_24H = "b42e01aa-ade7-11e4-89d3-123b93f75cba"
RADON_LONG_TERM = "b42e0a4c-ade7-11e4-89d3-123b93f75cba"
PLUS = "b42e2a68-ade7-11e4-89d3-123b93f75cba"
SECOND = "b42e4dcc-ade7-11e4-89d3-123b93f75cba"
MINI = "b42e3b98-ade7-11e4-89d3-123b93f75cba"
"""Characteristics: four of a Wave, and one each of a Wave Plus, of a Wave Radon or Wave 2, and of a Wave Mini."""
COMPANY = 0x0334
"""The company identifier of Airthings in advertisements. The first four bytes of its data are the serial number."""
MODELS = (2900, 2920, 2930, 2950)
"""The first four of the ten digits of a serial number: Wave, Wave Mini, Wave Plus, Wave Radon or Wave 2."""
RADON_MOST = 16383
"""Bq/m³; a larger value means that the sensor does not know."""


def serial_number(data: bytes) -> str:
    """The serial number in what a sensor advertises. Raises `GarbledData`."""
    (number,) = unpack("<I", data[:4], "an advertisement of Airthings")
    return f"{number:010d}"


def radon(raw: int) -> int | None:
    """An average of radon in Bq/m³."""
    return raw if raw <= RADON_MOST else None


def word(raw: int) -> int | None:
    """A value of two bytes. All bits are set until the sensor has measured, such as after a change of its battery."""
    return None if raw == 0xFFFF else raw


def part(raw: int, divisor: int) -> float | None:
    """The same, divided."""
    return None if raw == 0xFFFF else raw / divisor


def share(raw: int, divisor: int) -> float | None:
    """Percent, divided. More than 100 % means that the sensor does not know."""
    return None if raw > 100 * divisor else raw / divisor


def degrees(raw: int) -> float | None:
    """A temperature in hundredths of a degree, in two's complement: a Wave in a garage in winter."""
    return None if raw in (0x8000, 0xFFFF) else (raw - 0x10000 if raw & 0x8000 else raw) / 100


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
    air, (pressure, co2, voc, *_) = second_generation(data, "a Wave Plus")
    return AirPlus(**air.model_dump(), pressure=part(pressure, 50), co2=word(co2), voc=word(voc))


def second(data: bytes) -> Air:
    """The one characteristic of a Wave Radon or Wave 2."""
    return second_generation(data, "a Wave Radon")[0]


def second_generation(data: bytes, what: str) -> tuple[Air, list[int]]:
    """What both have in common, and the five words that follow."""
    version, humidity, _, _, day, long_term, temperature, *more = unpack("<4B8H", data, what)
    if version != 1:
        raise GarbledData(f"{what} of version {version}; only 1 is known")
    air = Air(
        temperature=degrees(temperature),
        humidity=share(humidity, 2),
        radon_24h_avg=radon(day),
        radon_long_term_avg=radon(long_term),
    )
    return air, more


def mini(data: bytes) -> AirMini:
    """The one characteristic of a Wave Mini; the temperature is in kelvins."""
    _, temperature, _, humidity, voc, _, _, _ = unpack("<6H2L", data, "a Wave Mini")
    kelvins = part(temperature, 100)
    return AirMini(
        temperature=None if kelvins is None else round(kelvins - 273.15, 2),
        humidity=share(humidity, 100),
        voc=word(voc),
    )


class Model(NamedTuple):
    """Which characteristics a model has, and what they mean."""

    characteristics: tuple[str, ...]
    decode: Callable[..., Air | AirPlus | AirMini]


WAVES = (
    Model((PLUS,), plus),
    Model((SECOND,), second),
    Model((MINI,), mini),
    Model((TEMPERATURE, HUMIDITY, RADON_24H, RADON_LONG_TERM), wave),
)
"""A sensor is the first of which it has all characteristics."""
