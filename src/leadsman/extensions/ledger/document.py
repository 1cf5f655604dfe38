"""The types of the ledger of a device, in its message and in introspection; see
`leadsman.core.introspection.document`."""

from typing import NotRequired

from typing_extensions import TypedDict

from leadsman.core.document import Percent, Seconds, Time
from leadsman.core.extension import Documents
from leadsman.extensions.ledger.ledger import Cause, Disposition


class LedgerHour(TypedDict):
    """The slots that came due in a period, which is mostly an hour. It ends where the next one begins."""

    start: Time
    """When the period begins."""
    slots: int
    """0 of a source, which has no schedule."""
    counts: dict[Disposition, int]
    """Those that are 0 are left out. Their sum is `slots`, or one less while a poll is under way."""


class LedgerGap(TypedDict):
    """A time without readings; or one in which readings were dropped, among others that may have arrived."""

    since: Time
    """When the first slot without a reading came due."""
    until: Time | None
    """The next reading; null while there is none."""
    seconds: Seconds
    """How long it was, or has been so far."""
    cause: Cause
    """What happened to the first slot."""
    slots: dict[Disposition, int]
    """The slots in it without a reading, by their outcome."""


class DeviceLedger(TypedDict):
    """The message at ``{prefix}/{device}/ledger``, with a day of hours and the latest 20 gaps; also what introspection
    has of a device, with all that is kept. It comes at each full hour, and
    within a minute after a gap has ended. It is retained."""

    at: Time
    """When this was written."""
    slots: int
    """The slots of all hours below."""
    events: NotRequired[int]
    """How many it sent, by `counts`; present only if it sends events, of which none has a slot."""
    counts: dict[Disposition, int]
    """Their outcomes. Those that are 0 are left out."""
    availability: Percent | None
    """The slots that gave a reading, of all but the disabled ones; null if there are none, as of a source."""
    hours: list[LedgerHour]
    """The periods, the oldest first."""
    gaps: list[LedgerGap]
    """The gaps, the oldest first."""


class LedgerSection(TypedDict, total=False):
    """The section of the ledgers."""

    ledger: dict[str, DeviceLedger]
    """What became of the slots of each device. Present only if the request names this section."""


DOCUMENTS = Documents(sections=LedgerSection, of_device={"ledger": DeviceLedger})
