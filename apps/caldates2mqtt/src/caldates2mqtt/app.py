"""The app: each calendar of the settings is a device."""

from pathlib import Path

from pydantic import SecretStr

from caldates2mqtt.payloads import Dates, Entry, Query
from caldates2mqtt.settings import DEMO, Calendar, Server, Settings
from leadsman import UNTIL_NEXT_POLL, App, Cron, Device, ExponentialBackoff, command_line
from leadsman.adapters.caldav import CalDav
from leadsman.errors import InvalidValue


def servers(settings: Settings) -> tuple[CalDav]:
    """The server of the settings."""
    server = settings.server
    calendars = CalDav(server.url, server.username, password_of(server), token=server.token, zone=server.zone)
    return (calendars,)


def password_of(server: Server) -> SecretStr | Path | None:
    """The password, or the file that holds it."""
    if server.password is not None and server.password_file is not None:
        raise InvalidValue("server.password and server.password_file are both set; write only one of them")
    return server.password_file or server.password


def simulated_servers(settings: Settings) -> tuple[CalDav]:
    """A server in memory."""
    from caldates2mqtt.twin import simulated_server  # only a demo or a dry run loads it

    return (simulated_server(settings),)


app = App("caldates2mqtt", version="0.1.0", settings=Settings, adapters=servers, twins=simulated_servers)


def devices(settings: Settings) -> dict[str, Device]:
    """One device for each calendar: polled by its schedule, and it takes commands."""
    return {
        key: Device(calendar, schedule=Cron(calendar.schedule, at_start=True))
        for key, calendar in settings.calendars.items()
    }


@app.telemetry(devices, retry=UNTIL_NEXT_POLL, backoff=ExponentialBackoff("10s"), timeout="90s")
async def dates(calendars: CalDav, calendar: Calendar) -> Dates:
    """The next whole-day events of a calendar."""
    return await next_dates(calendars, calendar, Query())


@app.command(devices, timeout="90s")
async def ask(query: Query, calendars: CalDav, calendar: Calendar) -> Dates:
    """The same, once, for another number of entries or days."""
    return await next_dates(calendars, calendar, query)


async def next_dates(calendars: CalDav, calendar: Calendar, query: Query) -> Dates:
    """The next whole-day events of a calendar."""
    events = await calendars.events(calendar.calendar, days=query.days or calendar.days)
    whole_days = [event for event in events if event.all_day and event.summary]
    today = calendars.today()
    entries = [
        Entry(title=event.summary, date=event.start, days_left=max((event.start - today).days, 0))
        for event in whole_days[: query.entries or calendar.entries]
    ]
    return Dates(events=entries, days_left=entries[0].days_left if entries else None)


main = command_line(app, demo=DEMO)
