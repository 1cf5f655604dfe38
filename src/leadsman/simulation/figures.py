"""The figures of a day under one policy: those that are printed, compared and asserted."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from leadsman.simulation.record import Day


class Figures(NamedTuple):
    """What a day of all devices comes to under one policy. Each name may be used in an assertion."""

    slots: int
    """Polls that were due."""
    readings: int
    lost: int
    """Slots without a reading."""
    availability: float
    """The share of slots with a reading, in per cent; 100 where nothing was due."""
    gaps: int
    """How often a reading came later than it was due."""
    gap_p50: float
    """Half of the gaps are at most this long, in seconds; 0 without gaps. The others likewise."""
    gap_p90: float
    gap_p99: float
    gap_max: float
    gap_total: float
    """The sum of all gaps, in seconds."""
    attempts: int
    """Calls of devices, retries included."""
    failed: int
    """Calls that failed."""
    opened: int
    """How often a circuit opened."""
    dropped: int
    """Readings that the outbox dropped while the broker was away."""


DURATIONS = frozenset(name for name in Figures._fields if name.startswith("gap_"))
"""The figures that are durations, in seconds."""
PERCENTAGES = frozenset({"availability"})
"""The figures that are percentages."""


def figures_of(days: Sequence[Day], dropped: int = 0) -> Figures:
    """The figures of a day of several devices."""
    lengths = sorted(gap.seconds for day in days for gap in day.gaps)
    slots, readings = sum(day.slots for day in days), sum(day.readings for day in days)
    return Figures(
        slots=slots,
        readings=readings,
        lost=slots - readings,
        availability=round(100 * readings / slots, 4) if slots else 100.0,
        gaps=len(lengths),
        gap_p50=percentile(lengths, 0.5),
        gap_p90=percentile(lengths, 0.9),
        gap_p99=percentile(lengths, 0.99),
        gap_max=round(lengths[-1], 3) if lengths else 0.0,
        gap_total=round(math.fsum(lengths), 3),
        attempts=sum(day.calls for day in days),
        failed=sum(day.failures for day in days),
        opened=sum(len(day.open) for day in days),
        dropped=dropped,
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """The nearest rank: the smallest of `ordered` numbers that at least `share` of them do not exceed; 0 if there are
    none. To the millisecond."""
    return round(ordered[max(0, math.ceil(round(share * len(ordered), 9)) - 1)], 3) if ordered else 0.0
