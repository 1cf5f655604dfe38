"""Calendars in memory, for tests, demos and dry runs."""

from caldates2mqtt.settings import Settings
from leadsman.testing import CalDavTwin

WEEKLY = (
    "BEGIN:VCALENDAR\r\n"
    "VERSION:2.0\r\n"
    "PRODID:-//demo//\r\n"
    "BEGIN:VEVENT\r\n"
    "UID:demo\r\n"
    "SUMMARY:Paper bin\r\n"
    "DTSTART;VALUE=DATE:20260107\r\n"
    "RRULE:FREQ=WEEKLY\r\n"
    "END:VEVENT\r\n"
    "END:VCALENDAR\r\n"
)
"""A collection every Wednesday."""


def simulated_server(settings: Settings, name: str) -> CalDavTwin:
    """One of the servers, with its calendars."""
    calendars = {each.calendar: [WEEKLY] for each in settings.calendars.values() if each.server == name}
    return CalDavTwin(calendars, zone=settings.servers[name].zone)
