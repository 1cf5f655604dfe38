"""A Viessmann Vitodens 200-W: its signals in groups, its settings, and hot water against legionella."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel

from leadsman import UNTIL_NEXT_POLL, App, Context, Device, ExponentialBackoff, OnChange, Sensor
from leadsman.adapters.framing import FixedFramer
from leadsman.adapters.optolink import Optolink
from leadsman.adapters.serial import SerialPort
from leadsman.cli.standalone import command_line
from leadsman.errors import PayloadError, PermanentError
from vito2mqtt.codecs import CT, IS10, IU3600, IUNON, PR3
from vito2mqtt.signals import GROUPS, MODELS, WEEK, WRITABLE, Signal, encoded

if TYPE_CHECKING:
    from leadsman.testing.optolink import Boiler

SETPOINT, HOT = GROUPS["hot_water"]["setpoint"], 68
"""Degrees Celsius that end legionella; at the outlet."""
HEATING, LEFT = timedelta(minutes=40), timedelta(minutes=30)
"""How long it is held, and how much of the timer's period must be left to begin."""
RUN = uuid.uuid4().hex
"""This life of the process: who finds another one's heating finishes it."""


class Settings(BaseModel):
    port: str
    """Best one of /dev/serial/by-id; or socket://host:port."""
    protocol: Literal["P300", "KW"] = "P300"
    parity: Literal["E", "N"] = "E"
    """E as Optolink wants it; N behind gateways that set it themselves."""
    interval: str = "5m"


class Action(BaseModel):
    action: Literal["start", "cancel"]


class Legionella(BaseModel):
    state: Literal["idle", "checking", "rejected", "heating", "restoring", "recovered"]
    minutes_left: Annotated[int, Sensor("min", device_class="duration")] = 0
    reason: str | None = None


def boiler_at(settings: Settings) -> tuple[Optolink]:
    """The boiler of the settings."""
    stopbits = 2 if settings.parity == "E" else 1
    port = SerialPort(
        settings.port, 4800, parity=settings.parity, stopbits=stopbits, framer=FixedFramer(1), timeout="2s"
    )
    return (Optolink(port, settings.protocol),)


def simulated(settings: Settings) -> tuple[Optolink]:
    """A boiler in memory, in which everything is plausible."""
    from leadsman.testing.twins import SerialTwin

    boiler = simulated_boiler(settings.protocol)
    return (
        Optolink(
            SerialTwin(boiler.receive, says=lambda: (2.0, boiler.beat()), framer=FixedFramer(1)), settings.protocol
        ),
    )


def simulated_boiler(protocol: str = "P300") -> "Boiler":
    """Its memory: 5.0 °C where a temperature is, 50 °C of hot water, pumps on, and timers from 5 to 23 o'clock."""
    from leadsman.testing.optolink import Boiler

    timer, memory = bytes((5 << 3, 23 << 3)).ljust(8, b"\xff"), dict[int, bytes]()
    for signal in [signal for each in GROUPS.values() for signal in each.values()]:
        plain = bytes((50,)) if signal.codec in (IS10, IUNON, IU3600, PR3) else b"\1"
        data = timer if signal.codec is CT else bytes(9) if signal.length > 8 else plain.ljust(signal.length, b"\0")
        memory[signal.address] = max(memory.get(signal.address, b""), data, key=len)
    return Boiler(memory, protocol)


app = App("vito2mqtt", version="0.1.0", settings=Settings, adapters=boiler_at, twins=simulated)


LACKING: set[tuple[str, str]] = set()
"""Signals that this boiler said it has not, in this life of the app."""


async def signals(boiler: Optolink, group: str, context: Context) -> BaseModel:
    """All signals of a group that this boiler has."""
    found = {}
    for name, signal in GROUPS[group].items():
        if signal.readable and (group, name) not in LACKING:
            try:
                found[name] = signal.decode(await boiler.read(signal.address, signal.length))
            except PermanentError as error:
                context.logger.warning("%s is not asked for any more: %s", name, error)
                LACKING.add((group, name))
    return MODELS[group](**found)


def register(group: str) -> None:
    """One device: a group that is polled, and written where something of it may be."""

    def device(settings: Settings) -> dict[str, Device]:
        return {group: Device(interval="1h" if group == "system" else settings.interval)}

    async def read(boiler: Optolink, context: Context) -> BaseModel:
        return await signals(boiler, group, context)

    async def write(wishes: dict[str, Any], boiler: Optolink, context: Context) -> BaseModel:
        """Writing wears the boiler's memory, so only what differs is written; ``__force`` writes all."""
        force = wishes.pop("__force", False)
        for name, data in encoded(group, wishes).items():
            signal = GROUPS[group][name]
            if force or not signal.readable or await boiler.read(signal.address, signal.length) != data:
                await boiler.write(signal.address, data)
        return await signals(boiler, group, context)

    read.__annotations__["return"] = write.__annotations__["return"] = MODELS[group]
    rules: Any = {"retry": UNTIL_NEXT_POLL, "backoff": ExponentialBackoff("2s", "30s"), "publish": OnChange()}
    app.telemetry(device, group="optolink", timeout="1m", **rules)(read)
    if group in WRITABLE:
        app.command(group, group="optolink", timeout="1m")(write)


for each in GROUPS:
    register(each)


@app.command("legionella", group="optolink", timeout="30s")
async def treat(action: Action, boiler: Optolink, context: Context) -> Legionella:
    """Heat the hot water once, or stop doing so."""
    state = state_of(context)
    if action.action == "cancel":
        return await restored(boiler, context, "idle") if state.state == "heating" else state
    if state.state == "heating":
        raise PayloadError("it is heating already")
    if (reason := await refused(boiler, context.now())) is not None:
        return Legionella(state="rejected", reason=reason)
    until = context.now() + HEATING
    before = (await boiler.read(SETPOINT.address, SETPOINT.length))[0]
    context.store.update({"before": before, "until": until.timestamp(), "run": RUN})
    await asyncio.to_thread(context.store.save)  # on the disk first: whoever finds it knows what to restore
    await boiler.write(SETPOINT.address, SETPOINT.encode(HOT))
    return state_of(context)


@app.source("legionella", publish=OnChange(), stale_after="10m")
async def legionella(boiler: Optolink, context: Context) -> AsyncIterator[Legionella]:
    """Count down. What is heated when the app ends is restored first; where that fails, the next life does it."""
    try:
        while True:
            yield await progress(boiler, context)
            await context.sleep("30s")
    except asyncio.CancelledError:
        if state_of(context).state == "heating":
            await restored(boiler, context, "idle")
        raise


async def progress(boiler: Optolink, context: Context) -> Legionella:
    """Restore when it is over, or when another life of this app began it."""
    state = state_of(context)
    if state.state != "heating":
        return state
    if context.store["run"] != RUN:
        return await restored(boiler, context, "recovered")
    return await restored(boiler, context, "idle") if state.minutes_left <= 0 else state


def state_of(context: Context) -> Legionella:
    """What the store says."""
    if "before" not in context.store:
        return Legionella(state="idle")
    left = context.store["until"] - context.now().timestamp()
    return Legionella(state="heating", minutes_left=max(0, round(left / 60)))


async def restored(boiler: Optolink, context: Context, state: Literal["idle", "recovered"]) -> Legionella:
    """Give the boiler its setpoint back, and forget it only then."""
    await boiler.write(SETPOINT.address, SETPOINT.encode(context.store["before"]))
    for key in ("before", "until", "run"):
        del context.store[key]
    await asyncio.to_thread(context.store.save)
    return Legionella(state=state)


async def refused(boiler: Optolink, now: datetime) -> str | None:
    """Why not now: the timer must leave the hot water on for long enough."""
    timer: Signal = GROUPS["hot_water"][f"timer_{WEEK[now.weekday()]}"]
    for on, off in timer.decode(await boiler.read(timer.address, timer.length)):
        begin, end = (at(now, text) for text in (on, off))
        if begin <= now and now + LEFT < end:
            return None
    return f"the timer of hot water does not leave {LEFT.seconds // 60} minutes"


def at(day: datetime, text: str) -> datetime:
    """A time of that day; 24:00 is its end."""
    hour, minute = text.split(":")
    return day.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(hours=int(hour), minutes=int(minute))


main = command_line(app, demo={"port": "twin", "interval": "5s"})
