"""The types of the lines of a session."""

from typing import NotRequired

from typing_extensions import TypedDict

from leadsman.core.document import Seconds, Time


class SessionHead(TypedDict):
    """The first line of the file of a session. Each further line is one of the next document."""

    session: int
    """The version of the format, 1."""
    app: str
    """The name of the app."""
    began: Time
    """When the recording began."""


class SessionLine(TypedDict):
    """A line of the file of a session: one event. Which further fields it has depends on the event."""

    at: Seconds
    """How long after the beginning it happened."""
    wire: NotRequired[str]
    """The kind of the wire, `serial`, `http`, `bluetooth`, `calendars`, `i2c`, `onewire` or `program`, and its name, if
    it has one. Present only where the app does something."""
    n: NotRequired[int]
    """The number of the exchange: what the app does begins one, and what the device does then belongs to it. Left out
    in the last line."""
    event: str
    """What happened; `end` in the last line."""
    text: NotRequired[str]
    """The bytes, where they are printable. Left out elsewhere, and of an event that has none."""
    hex: NotRequired[str]
    """The bytes in hexadecimal digits. Present only where they are not printable."""
    error: NotRequired[str]
    """The class of the error. Present only if the event is `failed`."""
    message: NotRequired[str | None]
    """The message of the error; null if there was none. Present only if the event is `failed` or `lost`."""
