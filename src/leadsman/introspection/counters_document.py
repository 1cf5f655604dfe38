"""The types of the counters in the document about an app; see `leadsman.introspection.document`."""

from typing_extensions import TypedDict


class Counters(TypedDict):
    """The counters of a device since the start of the app; see `leadsman.monitoring.totals`."""

    polls: int
    """Polls that ended."""
    failed_polls: int
    retried_polls: int
    """Polls that succeeded after at least one failed call."""
    calls: int
    failed_calls: int
    retries: int
    opens: int
    """Times at which the circuit opened; one more each time a probe fails."""
    deferrals: int
    """Polls that ended with a pause that the device asked for."""
    missed_polls: int
    published: int
    """Readings that were handed to the outbox."""


class Life(Counters):
    """The counters of a device over all lives of the app."""

    since: str
    """When counting began."""


class Commands(TypedDict):
    """The commands of a device since the start of the app."""

    done: int
    """Executed, with those that failed."""
    failed: int
    refused: int
    """Not executed: wrong, too late, or one too many."""
    waiting: int
    last_error: str | None
    """Why the last one failed or was refused; null if it did what was asked."""


class Subscribed(TypedDict):
    """What became of the messages of one subscription since the start of the app."""

    received: int
    failed: int
    """Messages whose payload was refused, or whose handler failed."""
    dropped: int
    """Messages that came faster than they were handled."""
    waiting: int
    received_at: str | None
    """When the last one came."""
    last_error: str | None
    """Why the last message failed; null if it did not."""
    device: str | None
    """The device that they feed, as far as the registration says that."""
