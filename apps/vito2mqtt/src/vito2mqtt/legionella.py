"""Hot water against legionella: heated once, for a while, and restored whatever happens."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Literal

from leadsman import Context, OnChange, Router
from leadsman.errors import PayloadError
from vito2mqtt.boiler import Vitodens
from vito2mqtt.payloads import Action, Legionella
from vito2mqtt.settings import Treatment
from vito2mqtt.signals import GROUPS, WEEK

SETPOINT = GROUPS["hot_water"]["setpoint"]

router = Router()


@router.command("legionella", group="optolink", timeout="30s")
async def treat(action: Action, boiler: Vitodens, treatment: Treatment, context: Context) -> Legionella:
    """Heat the hot water once, or stop doing so."""
    state = state_of(context)
    if action.action == "cancel":
        return await restored(boiler, context, "idle") if state.state == "heating" else state
    if state.state == "heating":
        raise PayloadError("it is heating already")
    if (reason := await refusal(boiler, context.now(), timedelta(minutes=treatment.margin))) is not None:
        return Legionella(state="rejected", reason=reason)
    until = context.now() + timedelta(minutes=treatment.minutes)
    before = (await boiler.read_signal(SETPOINT))[0]
    context.store.update({"before": before, "until": until.timestamp(), "run": boiler.life})
    await asyncio.to_thread(context.store.save)  # on the disk first: the next life must know what to restore
    await boiler.write(SETPOINT.address, SETPOINT.encode(treatment.temperature))
    return state_of(context)


@router.source("legionella", publish=OnChange(), stale_after="10m")
async def legionella(boiler: Vitodens, context: Context) -> AsyncIterator[Legionella]:
    """Count down. What is heated when the app ends is restored first; where that fails, the next life does it."""
    try:
        while True:
            yield await progress(boiler, context)
            await context.sleep("30s")
    except asyncio.CancelledError:
        if state_of(context).state == "heating":
            await restored(boiler, context, "idle")
        raise


async def progress(boiler: Vitodens, context: Context) -> Legionella:
    """Restore when it is over, or when another life of this app began it."""
    state = state_of(context)
    if state.state != "heating":
        return state
    if context.store["run"] != boiler.life:
        return await restored(boiler, context, "recovered")
    return await restored(boiler, context, "idle") if state.minutes_left <= 0 else state


def state_of(context: Context) -> Legionella:
    """What the store says."""
    if "before" not in context.store:
        return Legionella(state="idle")
    left = context.store["until"] - context.now().timestamp()
    return Legionella(state="heating", minutes_left=max(0, round(left / 60)))


async def restored(boiler: Vitodens, context: Context, state: Literal["idle", "recovered"]) -> Legionella:
    """Give the boiler its setpoint back, and forget it only then."""
    await boiler.write(SETPOINT.address, SETPOINT.encode(context.store["before"]))
    for key in ("before", "until", "run"):
        del context.store[key]
    await asyncio.to_thread(context.store.save)
    return Legionella(state=state)


async def refusal(boiler: Vitodens, now: datetime, margin: timedelta) -> str | None:
    """Why it cannot begin now: the timer must leave the hot water on for long enough."""
    timer = GROUPS["hot_water"][f"timer_{WEEK[now.weekday()]}"]
    for on, off in timer.decode(await boiler.read_signal(timer)):
        if time_of_day(now, on) <= now and now + margin < time_of_day(now, off):
            return None
    return f"the timer of hot water does not leave {margin.seconds // 60} minutes"


def time_of_day(day: datetime, text: str) -> datetime:
    """A time of that day; 24:00 is its end."""
    hour, minute = text.split(":")
    return day.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(hours=int(hour), minutes=int(minute))
