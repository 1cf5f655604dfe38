"""The app: each calendar of the settings is a device."""

from caldates2mqtt.payloads import Dates, Entry, Query
from caldates2mqtt.settings import DEMO, Calendar, Settings
from leadsman import UNTIL_NEXT_POLL, App, Context, Cron, Device, ExponentialBackoff, command_line
from leadsman.adapters.caldav import CalDav

MAX_TITLE_CHARS = 100
"""Characters; what is longer is cut, since a display is not wider."""


def servers(settings: Settings) -> dict[str, CalDav]:
    """The servers of the settings."""
    return {
        name: CalDav(
            server.url,
            server.username,
            server.password_file or server.password,
            token=server.token,
            search=server.search,
            zone=server.zone,
            timeout=server.timeout,
        )
        for name, server in settings.servers.items()
    }


def simulated_servers(settings: Settings) -> dict[str, CalDav]:
    """Servers in memory."""
    from caldates2mqtt.twin import simulated_server  # only a demo or a dry run loads it

    return {name: simulated_server(settings, name) for name in settings.servers}


app = App("caldates2mqtt", version="0.1.0", settings=Settings, adapters=servers, twins=simulated_servers)


def devices(settings: Settings) -> dict[str, Device]:
    """One device for each calendar: polled by its schedule, and it takes commands."""
    found = {}
    for key, calendar in settings.calendars.items():
        schedule = Cron(calendar.schedule, zone=settings.servers[calendar.server].zone, at_start=True)
        found[key] = Device(calendar, adapter=calendar.server, schedule=schedule)
    return found


@app.telemetry(devices, retry=UNTIL_NEXT_POLL, backoff=ExponentialBackoff("10s"), timeout="90s", throttle="60s")
async def dates(calendars: CalDav, calendar: Calendar) -> Dates:
    """The next whole-day events of a calendar."""
    return await next_dates(calendars, calendar, Query())


@app.command(devices, timeout="90s")
async def ask(query: Query | None, calendars: CalDav, calendar: Calendar, context: Context) -> Dates | None:
    """The same, once, for another number of entries or days. An empty message asks for a poll."""
    if query is not None:
        return await next_dates(calendars, calendar, query)
    context.poll()
    return None


async def next_dates(calendars: CalDav, calendar: Calendar, query: Query) -> Dates:
    """The next whole-day events of a calendar."""
    events = await calendars.events(calendar.calendar, days=query.days or calendar.days)
    whole_days = [event for event in events if event.all_day and event.summary]
    today = calendars.today()
    entries = [
        Entry(title=event.summary[:MAX_TITLE_CHARS], date=event.start, days_left=max((event.start - today).days, 0))
        for event in whole_days[: query.entries or calendar.entries]
    ]
    return Dates(events=entries, days_left=entries[0].days_left if entries else None)


main = command_line(app, demo=DEMO)
