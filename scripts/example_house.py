"""The app of the pictures of a simulated day: a house with a serial bus, Bluetooth thermometers and an inverter."""

from typing import TypedDict

from leadsman import App, CircuitBreaker, OnChange
from leadsman.adapters.ble import BleRadio
from leadsman.adapters.serial import SerialPort

app = App("house", mqtt="mqtt://localhost", adapters=(SerialPort("/dev/ttyUSB0"), BleRadio()))


class Air(TypedDict):
    """A thermometer in a room."""

    celsius: float
    humidity: float


@app.telemetry(["kitchen", "attic", "cellar", "bath"], interval="25m")
async def thermometer(radio: BleRadio) -> Air:
    """Read over Bluetooth."""
    raise NotImplementedError


@app.telemetry(["boiler", "pump"], interval="1m", circuit_breaker=CircuitBreaker(5), publish=OnChange(0.1), group="bus")
async def heating(port: SerialPort) -> dict[str, float]:
    """Read over the bus."""
    raise NotImplementedError


@app.telemetry("inverter", interval="10m", retry=3)
async def inverter() -> dict[str, float]:
    """Read from the inverter."""
    return {"watts": 412.0}


@app.telemetry("calendar", schedule="*/30 * * * *")
async def calendar() -> dict[str, str]:
    """Read what is due today."""
    return {"next": "paper"}
