"""What a simulation gives: the stage that all policies share, and under each of them what was recorded, the day of each
device and the figures that sum it up; and which of the policies would have done best, and at which cost."""

import heapq
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import NamedTuple

from leadsman.core.loop.durations import human
from leadsman.core.text import count_noun
from leadsman.tools.simulation.scenario import FaultPlan

FAILED, SKIPPED, MISSED, DEFERRED, HELD = "failed", "circuit open", "missed", "deferred", "held"
"""Why a slot has no reading."""


class Lost(NamedTuple):
    """`slots` slots had no reading at `at`, seconds since the start, because of `cause`."""

    at: float
    cause: str
    slots: int = 1


class ReadingGap(NamedTuple):
    """No reading from `begin`, when one was due, to `end`. `over` is False if the day ended before."""

    begin: float
    end: float
    cause: str
    over: bool = True

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return self.end - self.begin


@dataclass
class DeviceDay:
    """What happens to one device on a day, in order. All times in seconds since the start, to the millisecond."""

    device: str
    """Its name."""
    end: float
    """The length of the day."""
    interval: float | None = None
    """Seconds between its polls; None by a cron expression."""
    calls: list[float] = field(default_factory=list)
    """When the device was called."""
    under_way: float | None = None
    """When the last call began, until its outcome is known."""
    failures: list[float] = field(default_factory=list)
    """When a call began that failed, or when one failed before it reached the device."""
    readings: list[float] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    circuits: list[tuple[float, str]] = field(default_factory=list)
    """When the circuit changed, and its new state: ``closed``, ``open`` or ``half_open``."""

    def call(self, at: float) -> None:
        """The device is called."""
        self.under_way = round(at, 3)
        if at < self.end:
            self.calls.append(self.under_way)

    @property
    def causes(self) -> dict[str, int]:
        """Slots without a reading, by cause."""
        lost = Counter[str]()
        for each in self.lost:
            lost[each.cause] += each.slots
        return dict(sorted(lost.items()))

    @property
    def slots(self) -> int:
        """Polls that were due: the sum of the readings and of what was lost."""
        return len(self.readings) + sum(each.slots for each in self.lost)

    @cached_property
    def gaps(self) -> tuple[ReadingGap, ...]:
        """The gaps, in order. Gaps of no length are left out."""
        troubles = heapq.merge(
            ((at, FAILED) for at in sorted(self.failures)), ((each.at, each.cause) for each in self.lost)
        )
        found: list[ReadingGap] = []
        readings = iter(self.readings)
        reading = next(readings, None)
        begin: float | None = None
        cause = ""
        for at, what in troubles:
            while reading is not None and reading < at:
                if begin is not None:
                    found.append(ReadingGap(begin, reading, cause))
                    begin = None
                reading = next(readings, None)
            if begin is None and at < self.end:
                begin, cause = at, what
        if begin is not None:
            over = reading is not None
            found.append(ReadingGap(begin, self.end if reading is None else reading, cause, over))
        return tuple(gap for gap in found if gap.seconds > 0)

    @cached_property
    def open(self) -> tuple[tuple[float, float], ...]:
        """The times in which the circuit was open or half open."""
        found: list[tuple[float, float]] = []
        begin: float | None = None
        for at, state in [*self.circuits, (self.end, "closed")]:
            if state != "closed":
                begin = at if begin is None else begin
            elif begin is not None:
                found.append((begin, at))
                begin = None
        return tuple((first, last) for first, last in found if last > first)


class Figures(NamedTuple):
    """What a day of all devices comes to under one policy."""

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


def figures_of(days: Sequence[DeviceDay], dropped: int = 0) -> Figures:
    """The figures of a day of several devices."""
    lengths = sorted(gap.seconds for day in days for gap in day.gaps)
    slots, readings = sum(day.slots for day in days), sum(len(day.readings) for day in days)
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
        attempts=sum(len(day.calls) for day in days),
        failed=sum(len(day.failures) for day in days),
        opened=sum(len(day.open) for day in days),
        dropped=dropped,
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """The nearest rank: the smallest of `ordered` numbers that at least `share` of them do not exceed; 0 if there are
    none. To the millisecond."""
    return round(ordered[max(0, math.ceil(round(share * len(ordered), 9)) - 1)], 3) if ordered else 0.0


WRITTEN = "as written"
"""The name of the app's own policy."""


class Stage(NamedTuple):
    """What all policies have in common."""

    app: str
    title: str
    """That of the built-in day."""
    devices: tuple[str, ...]
    adapters: tuple[str, ...]
    """Their labels."""
    stand_ins: tuple[str, ...]
    """Devices whose handlers are not called."""
    stopping: tuple[str, ...]
    """Devices that would end the app when they fail; in the simulation it goes on."""
    zoneless: tuple[str, ...]
    """Devices whose cron schedules name no zone: they are in UTC here, and in the zone of the host in the app."""
    plan: FaultPlan
    begins: datetime
    length: float
    """Seconds."""
    seed: int
    shifts: tuple[float, ...]
    """When daylight saving begins or ends in the zone of a cron schedule, seconds since the start."""
    written: str
    """The app's own policy."""

    @property
    def heading(self) -> str:
        """One line about it."""
        begins = f"{self.begins:%Y-%m-%d %H:%M} {self.begins.tzname()}"
        devices, length = count_noun(len(self.devices), "device"), human(self.length)
        return f"{devices}, {length} from {begins}, seed {self.seed}"


class PolicyDay(NamedTuple):
    """A day under one policy."""

    policy: str
    days: tuple[DeviceDay, ...]
    figures: Figures


def title_of(stage: Stage, outcome: PolicyDay) -> str:
    """The title of a strip."""
    return f"{outcome.policy}: {stage.written}" if outcome.policy == WRITTEN else outcome.policy


def conclusion(compared: Sequence[PolicyDay]) -> str:
    """One sentence about policies, the first of which is that of the app as it is written."""
    written, *_ = compared
    if not written.figures.slots:
        return "No poll was due in this time: simulate a longer one, with --for."
    if not any(each.figures.gaps for each in compared):
        return "No policy had a gap on this day: nothing to gain. Try --day outages, or another --seed."
    if len(compared) == 1:
        return _summary(written)
    best = min(compared, key=_loss)
    if not _gains(best.figures, written.figures):
        return f"Keep the app as it is written: {_fewest(written)}, and no other policy here does better."
    return f"{best.policy} would do best: {_against(best.figures, written.figures)}."


def _loss(each: PolicyDay) -> tuple[int, float, int]:
    """What is to be as small as possible: first the lost readings, then the time without one, then the calls."""
    return each.figures.lost, each.figures.gap_total, each.figures.attempts


def _gains(figures: Figures, other: Figures) -> bool:
    """Whether fewer readings were lost than with the other policy, or as many in a time that is shorter by a second."""
    if figures.lost != other.lost:
        return figures.lost < other.lost
    return other.gap_total - figures.gap_total >= 1


def _against(figures: Figures, written: Figures) -> str:
    saved = written.lost - figures.lost
    parts = []
    if saved:
        parts.append(f"{count_noun(figures.lost, 'reading')} lost instead of {written.lost:,}")
    shorter = written.gap_total - figures.gap_total
    if abs(shorter) >= 1:
        parts.append(f"{human(round(abs(shorter)))} {'less' if shorter > 0 else 'more'} without a reading")
    gained = ", ".join(parts) or "as many readings lost"
    return f"{gained}, {'for' if figures.attempts >= written.attempts else 'with'} {_cost(figures, written)}"


def _cost(figures: Figures, written: Figures) -> str:
    calls = figures.attempts - written.attempts
    much = f"{100 * abs(calls) / written.attempts:.0f} %" if written.attempts else f"{abs(calls):,}"
    return f"{much} {'more' if calls > 0 else 'fewer'} calls" if calls else "no more calls"


def _fewest(written: PolicyDay) -> str:
    return f"it lost {count_noun(written.figures.lost, 'reading')} of {written.figures.slots:,}"


def _summary(written: PolicyDay) -> str:
    figures = written.figures
    return (
        f"The app as it is written lost {figures.lost:,} of {figures.slots:,} readings, and its longest gap was "
        f"{human(round(figures.gap_max))}. Compare it with others: --policy retry=3 --policy UNTIL_NEXT_POLL"
    )
