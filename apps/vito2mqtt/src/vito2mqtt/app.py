"""The app: each group of signals is a device, and so is the hot water against legionella."""

from leadsman import UNTIL_NEXT_POLL, App, CircuitBreaker, Context, Device, ExponentialBackoff, OnChange, command_line
from leadsman.adapters.serial import SerialPort
from leadsman.adapters.serial.framing import FixedFramer
from leadsman.errors import PermanentError
from vito2mqtt.boiler import Vitodens
from vito2mqtt.codecs import Json
from vito2mqtt.legionella import router as legionella
from vito2mqtt.payloads import GROUP_PAYLOADS, WISHES
from vito2mqtt.settings import DEMO, Settings
from vito2mqtt.signals import GROUPS, WRITABLE_GROUPS, encoded

SYSTEM_INTERVAL = "1h"
"""Of the group ``system``, which hardly changes."""
BUS = CircuitBreaker(3, recovery=0, shared="optolink")
"""When all groups failed three times in a row, each poll makes one call, until the boiler answers. A rest of the
circuit would leave the hot water unread for longer. The group ``system`` has no part in it: it is polled so rarely that
it would hold up the rounds for hours."""


def boilers(settings: Settings) -> tuple[Vitodens]:
    """The boiler of the settings."""
    port = SerialPort(
        settings.port,
        settings.baudrate,
        parity=settings.parity,
        stopbits=2 if settings.parity == "E" else 1,
        framer=FixedFramer(1),
        timeout="2s",
    )
    return (Vitodens(port, settings.protocol),)


def simulated_boilers(settings: Settings) -> tuple[Vitodens]:
    """A boiler without hardware."""
    from vito2mqtt.twin import simulated_vitodens  # only a demo or a dry run loads it

    return (simulated_vitodens(settings.protocol),)


app = App("vito2mqtt", version="0.1.0", settings=Settings, adapters=boilers, twins=simulated_boilers)


def register(group: str) -> None:
    """Register a group as a device that is polled, and that takes commands where something of it may be written."""
    payload, wishes = GROUP_PAYLOADS[group], WISHES[group]

    def device(settings: Settings) -> dict[str, Device]:
        if group == "system":
            return {group: Device(interval=SYSTEM_INTERVAL)}
        return {group: Device(interval=settings.interval, circuit_breaker=BUS)}

    @app.telemetry(
        device,
        group="optolink",
        timeout="1m",
        retry=UNTIL_NEXT_POLL,
        backoff=ExponentialBackoff("2s", "30s"),
        publish=OnChange(),
    )
    async def read(boiler: Vitodens, context: Context) -> payload:  # type: ignore[valid-type]  # made of the signals
        return payload(**await values_of(boiler, group, context))

    if group not in WRITABLE_GROUPS:
        return

    @app.command(group, group="optolink", timeout="1m")
    async def write(values: wishes, boiler: Vitodens, context: Context) -> payload:  # type: ignore[valid-type]
        await write_changes(boiler, group, values.model_dump(exclude_unset=True))  # type: ignore[attr-defined]
        return payload(**await values_of(boiler, group, context))


async def values_of(boiler: Vitodens, group: str, context: Context) -> dict[str, Json]:
    """The values of a group, but for what this boiler does not have."""
    values = {}
    for name, signal in GROUPS[group].items():
        if not signal.readable or signal in boiler.missing:
            continue
        try:
            values[name] = signal.decode(await boiler.read_signal(signal))
        except PermanentError as error:
            context.logger.warning("%s is not read any more: %s", name, error)
            boiler.missing.add(signal)
    return values


async def write_changes(boiler: Vitodens, group: str, values: dict[str, Json]) -> None:
    """Write what differs: writing wears the boiler's memory. ``"__force": true`` writes all."""
    force = values.pop("__force", False)
    for name, data in encoded(group, values).items():
        signal = GROUPS[group][name]
        if force or not signal.readable or await boiler.read_signal(signal) != data:
            await boiler.write(signal.address, data)


for name in GROUPS:
    register(name)
app.include(legionella)

main = command_line(app, demo=DEMO)
