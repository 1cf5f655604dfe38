"""What a bug of the user's code is, and the place of an error: the line of a bug, or that at which a call hung. Pure.

Every report of an error asks here, whatever kind of registration the code belongs to: polls and sources by
`leadsman.core.monitoring.outage_reports`, commands and faults by `leadsman.core.monitoring.event_log`, messages of
other programs by `leadsman.core.runtime.subscriber`.
"""

from leadsman.core.loop.user_code import place_of
from leadsman.core.text import describe
from leadsman.errors import DeviceTimeout, LeadsmanError


def is_bug(error: BaseException, expected: tuple[type[BaseException], ...] = ()) -> bool:
    """Whether an error is neither one that any device may have, nor one of leadsman's. `expected`: further errors that
    are no bugs."""
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
