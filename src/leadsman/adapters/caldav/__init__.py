"""Calendars over CalDAV."""

from leadsman.adapters.caldav.calendar import CalDav
from leadsman.adapters.caldav.recurrence import CalendarEvent

__all__ = ["CalDav", "CalendarEvent"]
