"""The types of the counters in the document about an app; see `leadsman.introspection.document`."""

from typing_extensions import TypedDict


class Counters(TypedDict):
    """The counters of a device since the start of the app."""

    polls: int
    """Polls that ended."""
    failed_polls: int
    retried_polls: int
    """Polls that succeeded after at least one failed call."""
    calls: int
    failed_calls: int
    retries: int


class Commands(TypedDict):
    """The commands of a device since the start of the app."""

    done: int
    failed: int
    waiting: int
