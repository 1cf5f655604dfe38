"""Reports what code of the user raises: the place of each bug and of each call that hung, and the traceback of a bug
once.

Every report of an error passes through here, whatever kind of registration the code belongs to: polls and sources by
`leadsman.monitoring.outage_reports`, commands and faults by `leadsman.monitoring.event_log`, messages of other programs
by `leadsman.runtime.subscriber`.
"""

import logging

from leadsman.errors import DeviceTimeout, LeadsmanError
from leadsman.places import frames_of, place_of
from leadsman.text import describe, log_fields

logger = logging.getLogger("leadsman")

MOST_PLACES = 1000
"""Bugs whose traceback is not logged again. Past that number, the oldest may have a second one."""


def is_bug(error: BaseException, expected: tuple[type[BaseException], ...] = ()) -> bool:
    """Whether an error is none that any device may have, and none of leadsman's. `expected`: further errors that are no
    bugs."""
    return not isinstance(error, (OSError, LeadsmanError, *expected))


def place(error: BaseException, expected: tuple[type[BaseException], ...] = ()) -> str | None:
    """The line of the user's code at which a call hung or a bug is; None for another error that any device may have.
    For `expected`, see `is_bug`."""
    if isinstance(error, DeviceTimeout):
        return error.place
    return place_of(error) if is_bug(error, expected) else None


def message_of(error: BaseException) -> str:
    """The message of an error, and its place: ``'t' (plant.py:57)``."""
    where = place(error)
    return f"{describe(error)} ({where})" if where else describe(error)


def placed(error: BaseException) -> str:
    """An error as text, with its place: ``KeyError: 't' (plant.py:57)``."""
    return f"{type(error).__name__}: {message_of(error)}"


class Tracebacks:
    """Which tracebacks have been logged. Each bug, which is an error at a place of a handler, has one in the log, and
    one at each occurrence if the log shows DEBUG."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str | None], None] = {}

    def lines(self, about: str, error: BaseException) -> list[str]:
        """The lines of a traceback that is due; none for an error that is no bug. `about`: the handler."""
        if not is_bug(error):
            return []
        key = about, type(error).__name__, place(error)
        if key in self._known and not logger.isEnabledFor(logging.DEBUG):
            return []
        self._known[key] = None
        if len(self._known) > MOST_PLACES:
            del self._known[next(iter(self._known))]
        return frames_of(error)

    def log(self, about: str, error: BaseException) -> None:
        """Log the traceback that is due on a line of its own, after lines that count several errors."""
        lines = self.lines(about, error)
        if lines:
            fields = log_fields("bug", handler=about, error_type=type(error).__name__)
            logger.warning("%s", "\n".join([f"{about}: {placed(error)}", *lines]), extra=fields)
