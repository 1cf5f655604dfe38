"""Calendars over CalDAV."""

from leadsman.adapters.caldav.calendar import CalDav
from leadsman.adapters.caldav.recurrence import Event

__all__ = ["CalDav", "Event"]
