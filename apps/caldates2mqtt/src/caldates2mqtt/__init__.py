"""Waste collection, birthdays and whatever else takes whole days, from a CalDAV server."""

from datetime import date
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, SecretStr

from leadsman import UNTIL_NEXT_POLL, App, Cron, Device, ExponentialBackoff, Sensor
from leadsman.adapters.caldav import CalDav
from leadsman.cli.standalone import command_line

Entries = Annotated[int, Field(ge=1, le=50)]
Days = Annotated[int, Field(ge=1, le=365)]


class Calendar(BaseModel):
    """A section [calendars.KEY] of leadsman.toml."""

    calendar: str
    """Its name, or its path below the URL, with a slash."""
    entries: Entries = 5
    days: Days = 14
    schedule: str = "0 */2 * * *"


class Server(BaseModel):
    url: str
    username: str | None = None
    password: SecretStr | None = None
    password_file: Path | None = None
    token: SecretStr | None = None
    zone: str | None = None


class Settings(BaseModel):
    server: Server
    calendars: dict[str, Calendar] = {}


class Entry(BaseModel):
    title: str
    date: date
    days_left: int


class Dates(BaseModel):
    events: list[Entry]
    days_left: Annotated[int | None, Sensor("d", icon="mdi:calendar")]
    """Until the first of them."""


class Query(BaseModel):
    """What may be asked for once."""

    entries: Entries | None = None
    days: Days | None = None


def secret(value: SecretStr | None) -> str | None:
    """What a secret holds."""
    return None if value is None else value.get_secret_value()


def server(settings: Settings) -> tuple[CalDav]:
    """The server of the settings."""
    at = settings.server
    return (
        CalDav(
            at.url, at.username, secret(at.password), password_file=at.password_file, token=secret(at.token), zone=at.zone
        ),
    )  # fmt: skip


def simulated(settings: Settings) -> tuple[CalDav]:
    """Each calendar with a collection every week, in memory."""
    from leadsman.testing.calendars import CalDavTwin

    text = (
        "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//demo//\r\nBEGIN:VEVENT\r\nUID:demo\r\nSUMMARY:Paper bin\r\n"
        "DTSTART;VALUE=DATE:20260107\r\nRRULE:FREQ=WEEKLY\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
    )
    return (CalDavTwin({each.calendar: [text] for each in settings.calendars.values()}, zone=settings.server.zone),)


def devices(settings: Settings) -> dict[str, Device]:
    """One device for each calendar."""
    return {key: Device(each, schedule=Cron(each.schedule, at_start=True)) for key, each in settings.calendars.items()}


async def coming(calendars: CalDav, calendar: Calendar, query: Query) -> Dates:
    """The next whole-day events of a calendar."""
    found = await calendars.events(calendar.calendar, days=query.days or calendar.days)
    today = calendars.today()
    days = [each for each in found if each.all_day and each.summary][: query.entries or calendar.entries]
    entries = [Entry(title=each.summary, date=each.start, days_left=max((each.start - today).days, 0)) for each in days]
    return Dates(events=entries, days_left=entries[0].days_left if entries else None)


app = App("caldates2mqtt", version="0.1.0", settings=Settings, adapters=server, twins=simulated)


@app.telemetry(devices, retry=UNTIL_NEXT_POLL, backoff=ExponentialBackoff("10s"), timeout="90s")
async def dates(calendars: CalDav, calendar: Calendar) -> Dates:
    """What the calendar says."""
    return await coming(calendars, calendar, Query())


@app.command(devices, timeout="90s")
async def ask(query: Query, calendars: CalDav, calendar: Calendar) -> Dates:
    """The same, once, for another number of entries or days."""
    return await coming(calendars, calendar, query)


main = command_line(
    app,
    demo={
        "server.url": "https://demo.invalid",
        "calendars": '{"waste": {"calendar": "Waste", "schedule": "* * * * *"}}',
    },
)
