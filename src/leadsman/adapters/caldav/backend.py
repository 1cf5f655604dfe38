"""The interface of a `CalDav` to its calendars, and whose they are."""

from datetime import date, tzinfo
from pathlib import Path
from typing import NamedTuple, Protocol

from leadsman.core.text.redaction import Secret
from leadsman.errors import GarbledData


class Account(NamedTuple):
    """The address of a server, and the user who reads its calendars."""

    url: Secret
    username: str | None
    password: Secret | Path | None
    """A `Path` is a file that holds it."""
    token: Secret | None
    ca: str | None
    timeout: float


class CalendarChanges(NamedTuple):
    """A server's answer about the changes of a calendar."""

    token: str | None
    """The current sync token; None if there is none."""
    objects: int | None
    """How many objects changed since the token of the request. If the request had none, how many there are. None if the
    server does not report it."""


class ReplyTooLarge(GarbledData):
    """A reply is longer than allowed."""


class CalendarBackend(Protocol):
    """The calendars of a server, or of a twin in memory. The methods block."""

    def search(self, calendar: str | None, start: date, end: date, zone: tzinfo) -> list[str]:
        """Return the iCalendar texts of all objects with an event in the window, as the server sees it. Raises
        `ReplyTooLarge`, among others."""
        ...

    def search_all(self, calendar: str | None) -> list[str]:
        """Return the iCalendar texts of all objects with an event. Raises `ReplyTooLarge`, among others."""
        ...

    def changes(self, calendar: str | None, token: str | None) -> CalendarChanges:
        """Return what changed since `token`."""
        ...

    def names(self) -> list[str]:
        """Return the names of the calendars."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...
