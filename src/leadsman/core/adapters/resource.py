"""What an adapter needs of the machine or the network. Only adapters and ``leadsman doctor`` import this."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Literal, NamedTuple

ResourceKind = Literal["serial", "bluetooth", "calendars", "http", "i2c", "onewire"]


Way = Literal["whole", "whole while small", "by time"]
"""How a calendar is read: always whole, whole while it is small, or by a search by time."""


class CalendarSearch(NamedTuple):
    """How far a search by time on a calendar server can be trusted, for one calendar."""

    calendar: str
    """Its name."""
    read: Way
    """How the adapter reads this calendar."""
    lost: tuple[str, ...] = ()
    """The titles of events that take place within a year and that the search leaves out, one for each event."""
    fault: str | None = None
    """Why this could not be compared; None if it was."""


class Resource(NamedTuple):
    """What an adapter needs of the machine or the network, for ``leadsman doctor``."""

    kind: ResourceKind
    name: str
    """The path or URL of a serial port, the name of a Bluetooth adapter such as ``hci0`` (empty: any), the URL of a
    server without its credentials (empty: each call names its own), the file of an I²C bus, or the directory of
    one-wire."""
    log_in: Callable[[], Awaitable[object]] | None = None
    """Logs in at a server, or opens a bus, and raises any exception if that fails. It changes nothing there. None where
    there is neither."""
    compare: Callable[[], AsyncGenerator[CalendarSearch, None]] | None = None
    """Compares searches on the calendars of a server, one calendar after another. It changes nothing there, and raises
    any exception if that fails. None where there are no calendars."""
