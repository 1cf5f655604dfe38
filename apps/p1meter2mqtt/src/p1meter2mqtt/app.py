"""The app: one source, the meter."""

from collections.abc import AsyncIterator

from leadsman import App, Device, Every, command_line
from leadsman.adapters.serial import SerialPort
from leadsman.adapters.serial.metering import P1Framer
from p1meter2mqtt.decoding import decode
from p1meter2mqtt.payloads import Meter
from p1meter2mqtt.settings import DEMO, Settings


def ports(settings: Settings) -> tuple[SerialPort]:
    """The port of the settings."""
    port = SerialPort(
        settings.port,
        settings.baudrate,
        bytesize=settings.bytesize,
        parity=settings.parity,
        framer=P1Framer(),
    )
    return (port,)


def simulated_ports(settings: Settings) -> tuple[SerialPort]:
    """A port without hardware."""
    from p1meter2mqtt.twin import simulated_port  # only a demo or a dry run loads it

    return (simulated_port(),)


app = App("p1meter2mqtt", version="0.1.0", settings=Settings, adapters=ports, twins=simulated_ports)


def devices(settings: Settings) -> dict[str, Device]:
    """The one meter, published as often as the settings say."""
    return {"meter": Device(publish=Every(settings.every))}


@app.source(devices, stale_after="2m")
async def meter(port: SerialPort) -> AsyncIterator[Meter]:
    """Each telegram, as it comes."""
    async for telegram in port.messages(silence="30s"):
        yield decode(telegram)


main = command_line(app, demo=DEMO)
