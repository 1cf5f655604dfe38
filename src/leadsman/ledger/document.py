"""The types of the ledger of a device, in its message and in introspection; see `leadsman.introspection.document`."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict

Disposition = Literal[
    "published",
    "replayed",
    "suppressed",
    "buffered",
    "dropped",
    "failed",
    "timed_out",
    "circuit_open",
    "deferred",
    "held",
    "missed",
    "starting",
    "disabled",
]
"""The outcome of a slot of the schedule; see `leadsman.ledger.ledger`."""


class LedgerHour(TypedDict):
    """The slots that came due in a period, which is mostly an hour. It ends where the next one begins."""

    start: str
    slots: int
    """0 of a source, which has no schedule."""
    counts: dict[Disposition, int]
    """Those that are 0 are left out. Their sum is `slots`, or one less while a poll is under way."""


class LedgerGap(TypedDict):
    """A time without readings."""

    since: str
    """When the first slot without a reading came due."""
    until: str | None
    """The next reading; null while there is none."""
    seconds: float
    cause: str
    """Why the first slot gave no reading."""
    slots: dict[Disposition, int]


class DeviceLedger(TypedDict):
    """The message at ``{prefix}/{device}/ledger``, with a day of hours and the latest 20 gaps; also what introspection
    has of a device, with all that is kept."""

    at: str
    slots: int
    events: NotRequired[int]
    """How many it sent, by `counts`; present only if it sends events, of which none has a slot."""
    counts: dict[Disposition, int]
    """Of all hours below."""
    availability: float | None
    """The slots that gave a reading, per cent of all but the disabled ones. null if there are none, as of a source."""
    hours: list[LedgerHour]
    gaps: list[LedgerGap]
