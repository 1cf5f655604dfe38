"""The app: a device for each meter, read by its table."""

from leadsman import UNTIL_NEXT_POLL, App, Device, command_line
from leadsman.adapters.modbus import Modbus, Table
from meter2mqtt.settings import DEMO, TABLES, Meter, Settings


def lines(settings: Settings) -> tuple[Modbus]:
    """The line of the settings."""
    line = Modbus(
        settings.port,
        settings.baudrate,
        parity=settings.parity,
        timeout=settings.timeout,
        pause_between_requests=settings.pause_between_requests,
        pause_after_connect=settings.pause_after_connect,
    )
    return (line,)


def simulated_lines(settings: Settings) -> tuple[Modbus]:
    """A line without hardware."""
    from meter2mqtt.twin import simulated_line  # only a demo or a dry run loads it

    return (simulated_line(settings),)


app = App("meter2mqtt", version="0.1.0", settings=Settings, adapters=lines, twins=simulated_lines)


def register(name: str, table: Table) -> None:
    """Register the meters with a table; the table is the type of their readings."""

    def devices(settings: Settings) -> dict[str, Device]:
        return {key: Device(one, interval=one.interval) for key, one in settings.meters.items() if one.table == name}

    @app.telemetry(devices, timeout="30s", retry=UNTIL_NEXT_POLL)
    async def read(meter: Meter, line: Modbus) -> table.reading:  # type: ignore[name-defined]  # made of the table
        return await line.read(meter.unit, table)


for name, table in TABLES.items():
    register(name, table)

main = command_line(app, demo=DEMO)
