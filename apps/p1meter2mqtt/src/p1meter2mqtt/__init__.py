"""A smart meter with a P1 port (DSMR): power, energy, gas and volts, as it says them every second or ten."""

import re
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ValidationError

from leadsman import App, Device, Every, Sensor
from leadsman.adapters.metering import P1Framer
from leadsman.adapters.serial import SerialPort
from leadsman.cli.standalone import command_line
from leadsman.errors import GarbledData

Energy = Annotated[float | None, Sensor("kWh", device_class="energy", state_class="total_increasing")]
Power = Annotated[float | None, Sensor("kW", device_class="power", state_class="measurement")]
Volts = Annotated[float | None, Sensor("V", device_class="voltage", state_class="measurement")]
Amperes = Annotated[float | None, Sensor("A", device_class="current", state_class="measurement")]
Gas = Annotated[float | None, Sensor("m³", device_class="gas", state_class="total_increasing")]


class Meter(BaseModel):
    """A telegram; None is what this meter does not say."""

    energy_used_tariff_1: Energy = None
    energy_used_tariff_2: Energy = None
    energy_delivered_tariff_1: Energy = None
    energy_delivered_tariff_2: Energy = None
    power_used: Power = None
    power_delivered: Power = None
    tariff: int | None = None
    volts_l1: Volts = None
    volts_l2: Volts = None
    volts_l3: Volts = None
    amperes_l1: Amperes = None
    amperes_l2: Amperes = None
    amperes_l3: Amperes = None
    gas: Gas = None
    gas_at: datetime | None = None


class Settings(BaseModel):
    port: str
    """Best one of /dev/serial/by-id; or socket://host:port."""
    baudrate: int = 115200
    bytesize: Literal[7, 8] = 8
    parity: Literal["N", "E"] = "N"
    every: str = "10s"


OBIS = {
    "1-0:1.8.1": "energy_used_tariff_1", "1-0:1.8.2": "energy_used_tariff_2",
    "1-0:2.8.1": "energy_delivered_tariff_1", "1-0:2.8.2": "energy_delivered_tariff_2",
    "1-0:1.7.0": "power_used", "1-0:2.7.0": "power_delivered", "0-0:96.14.0": "tariff",
    "1-0:32.7.0": "volts_l1", "1-0:52.7.0": "volts_l2", "1-0:72.7.0": "volts_l3",
    "1-0:31.7.0": "amperes_l1", "1-0:51.7.0": "amperes_l2", "1-0:71.7.0": "amperes_l3",
}  # fmt: skip
LINE = re.compile(r"(\d+-\d+:\d+\.\d+\.\d+)\(([^)]*)\)(?:\(([^)]*)\))?")


def decode(telegram: bytes) -> Meter:
    """Read a telegram. Raises `GarbledData` where a number is none."""
    found: dict[str, Any] = {}
    for code, first, second in LINE.findall(telegram.decode("ascii", "replace")):
        if code in OBIS:
            found[OBIS[code]] = number(code, first)
        elif re.fullmatch(r"0-\d:24\.2\.1", code) and second:
            found["gas_at"], found["gas"] = moment(first), number(code, second)
    if not found:
        raise GarbledData("a telegram without a value that is known")
    try:
        return Meter(**found)
    except ValidationError as error:
        raise GarbledData(
            f"a telegram makes no sense: {error.errors()[0]['loc'][0]} is {error.errors()[0]['input']!r}"
        ) from error


def number(code: str, text: str) -> float:
    """The value of an OBIS line, without its unit."""
    try:
        return float(text.partition("*")[0])
    except ValueError as error:
        raise GarbledData(f"{code} is {text!r}, and no number") from error


def moment(text: str) -> datetime | None:
    """``YYMMDDhhmmssX``, in the Netherlands and Belgium: X is S in summer, W in winter."""
    try:
        local = datetime.strptime(text[:12], "%y%m%d%H%M%S").replace(
            tzinfo=timezone(timedelta(hours=2 if text[12:] == "S" else 1))
        )
    except ValueError:
        return None
    return local.astimezone(UTC)


def port_at(settings: Settings) -> tuple[SerialPort]:
    """The port of the settings."""
    at = settings
    return (SerialPort(at.port, at.baudrate, bytesize=at.bytesize, parity=at.parity, framer=P1Framer()),)


def simulated(settings: Settings) -> tuple[SerialPort]:
    """A meter that says a telegram every second."""
    from leadsman.testing.twins import SerialTwin

    return (SerialTwin(says=telegrams(), framer=P1Framer()),)


def telegrams() -> Callable[[], tuple[float, bytes]]:
    """What comes after how many seconds."""
    energy = 1234.0

    def following() -> tuple[float, bytes]:
        nonlocal energy
        energy += 0.001
        return (
            1.0,
            b"/DEMO5\\demo\r\n\r\n1-0:1.8.1(%010.3f*kWh)\r\n1-0:1.7.0(00.412*kW)\r\n0-0:96.14.0(0001)\r\n!\r\n"
            % energy,
        )

    return following


app = App(
    "p1meter2mqtt",
    version="0.1.0",
    settings=Settings,
    adapters=port_at,
    twins=simulated,
)


def devices(settings: Settings) -> dict[str, Device]:
    """The one meter, as often as the settings say."""
    return {"meter": Device(publish=Every(settings.every))}


@app.source(devices, stale_after="2m")
async def meter(port: SerialPort) -> AsyncIterator[Meter]:
    """Each telegram, as it comes."""
    async for telegram in port.messages(silence="30s"):
        yield decode(telegram)


main = command_line(app, demo={"port": "twin", "every": "1s"})
