"""What a simulation gives: the stage that all policies share, and under each of them what was recorded, the day of each
device, the figures that sum it up, and the day in columns of equal length, for a drawing."""

import heapq
import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from leadsman.loop.durations import human
from leadsman.text import count_noun
from leadsman.tools.simulation.scenario import BROKER, FaultPlan, merge_spans

READ, FAILED, SKIPPED, MISSED, DEFERRED, HELD = "read", "failed", "circuit open", "missed", "deferred", "held"
"""What became of a slot."""


class Lost(NamedTuple):
    """`slots` slots had no reading at `at`, seconds since the start, because of `cause`."""

    at: float
    cause: str
    slots: int = 1


class DeviceRecord(NamedTuple):
    """What happened to one device. All times in seconds since the start, in order."""

    device: str
    calls: tuple[float, ...] = ()
    """When the device was called."""
    failures: tuple[float, ...] = ()
    """When a call began that failed, or when one failed before it reached the device."""
    readings: tuple[float, ...] = ()
    lost: tuple[Lost, ...] = ()
    circuits: tuple[tuple[float, str], ...] = ()
    """When the circuit changed, and its new state: ``closed``, ``open`` or ``half_open``."""


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


class DeviceDay(NamedTuple):
    """What a day of one device comes to."""

    device: str
    slots: int
    """Polls that were due: the sum of the readings and of what was lost."""
    readings: int
    lost: tuple[tuple[str, int], ...]
    """Slots without a reading, by cause."""
    gaps: tuple[ReadingGap, ...]
    open: tuple[tuple[float, float], ...]
    """The times in which the circuit was not closed."""
    calls: int
    failures: int


def day_of(record: DeviceRecord, end: float) -> DeviceDay:
    """Fold the record of one device into its day, which ends at `end` seconds."""
    lost: dict[str, int] = {}
    for each in record.lost:
        lost[each.cause] = lost.get(each.cause, 0) + each.slots
    return DeviceDay(
        record.device,
        len(record.readings) + sum(lost.values()),
        len(record.readings),
        tuple(sorted(lost.items())),
        gaps_of(record, end),
        open_times(record, end),
        len(record.calls),
        len(record.failures),
    )


def gaps_of(record: DeviceRecord, end: float) -> tuple[ReadingGap, ...]:
    """The gaps of a device, in order. Gaps of no length are left out."""
    troubles = heapq.merge(((at, FAILED) for at in record.failures), ((each.at, each.cause) for each in record.lost))
    found: list[ReadingGap] = []
    readings = iter(record.readings)
    reading = next(readings, None)
    begin: float | None = None
    cause = ""
    for at, what in troubles:
        while reading is not None and reading < at:
            if begin is not None:
                found.append(ReadingGap(begin, reading, cause))
                begin = None
            reading = next(readings, None)
        if begin is None and at < end:
            begin, cause = at, what
    if begin is not None:
        over = reading is not None
        found.append(ReadingGap(begin, end if reading is None else reading, cause, over))
    return tuple(gap for gap in found if gap.seconds > 0)


def open_times(record: DeviceRecord, end: float) -> tuple[tuple[float, float], ...]:
    """The times in which the circuit was open or half open."""
    found: list[tuple[float, float]] = []
    begin: float | None = None
    for at, state in record.circuits:
        if state == "closed":
            if begin is not None:
                found.append((begin, at))
            begin = None
        elif begin is None:
            begin = at
    if begin is not None:
        found.append((begin, end))
    return tuple((first, last) for first, last in found if last > first)


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


def figures_of(days: Sequence[DeviceDay], dropped: int = 0) -> Figures:
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
    records: tuple[DeviceRecord, ...]
    days: tuple[DeviceDay, ...]
    figures: Figures


def brief(seconds: float) -> str:
    """A duration with two parts at most: ``2.1s``, ``40s``, ``12m30s`` or ``3h05m``."""
    if seconds < 10:
        return f"{seconds:.1f}s".replace(".0s", "s")
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"
    return f"{minutes // 60}h{minutes % 60:02d}m"


def title_of(stage: Stage, outcome: PolicyDay) -> str:
    """The title of a strip."""
    return f"{outcome.policy}: {stage.written}" if outcome.policy == WRITTEN else outcome.policy


def cut(text: str, width: int) -> str:
    """A text of at most so many characters; an ellipsis shows that it was longer."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def hours_between(length: float, most: int) -> int:
    """The hours between two marks of an axis that has at most so many."""
    hours = length / 3600
    return next((step for step in (1, 3, 6, 12, 24, 48, 96) if hours / step <= most), 168)


Span = tuple[float, float]
"""Begin and end, in seconds since the start."""


class Columns(NamedTuple):
    """What happened in each column of a day."""

    gaps: tuple[float, ...]
    """The share of the devices that had a gap, 0 to 1, on average over the column."""
    open: tuple[float, ...]
    """The share of the devices whose circuit was not closed, likewise."""
    calls: tuple[int, ...]
    """Calls that began in it."""
    failed: tuple[int, ...]
    """Those of them that failed."""


def columns_of(records: Sequence[DeviceRecord], days: Sequence[DeviceDay], count: int, end: float) -> Columns:
    """Divide the day of all devices, which ends at `end` seconds, into `count` columns."""
    devices = len(days) or 1
    return Columns(
        coverage([[(gap.begin, gap.end) for gap in day.gaps] for day in days], count, end, devices),
        coverage([day.open for day in days], count, end, devices),
        count_in_columns(((at for record in records for at in record.calls)), count, end),
        count_in_columns(((at for record in records for at in record.failures)), count, end),
    )


def draw_columns(outcomes: Sequence[PolicyDay], count: int, end: float) -> tuple[list[Columns], int]:
    """The day under each policy in `count` columns, and the most calls in one of them, at least 1."""
    found = [columns_of(each.records, each.days, count, end) for each in outcomes]
    return found, max((calls for each in found for calls in each.calls), default=1) or 1


def coverage(spans: Iterable[Sequence[Span]], count: int, end: float, devices: int) -> tuple[float, ...]:
    """The share of time in each column that the spans of `devices` devices cover, on average, 0 to 1."""
    width = end / count
    found = [0.0] * count
    for own in spans:
        for begin, last in merge_spans(own):
            column = int(begin / width)
            while column < count and column * width < last:
                found[column] += max(0.0, min(last, (column + 1) * width) - max(begin, column * width))
                column += 1
    return tuple(min(1.0, round(each / width / devices, 6)) for each in found)


def count_in_columns(times: Iterable[float], count: int, end: float) -> tuple[int, ...]:
    """How many of the times lie in each column. Those at the end belong to the last one."""
    found = [0] * count
    for at in times:
        found[min(count - 1, int(at * count / end))] += 1
    return tuple(found)


class Lane(NamedTuple):
    """A fault of the plan over time."""

    name: str
    shares: tuple[float, ...]
    """How much of it is away in each column, 0 to 1."""


MOST_ADAPTERS = 4
"""Adapters with a lane each; more of them share one."""


def lanes_of(stage: Stage, count: int) -> list[Lane]:
    """The faults of a day, in lanes: the adapters, the devices together, and the broker. Lanes without a fault are left
    out."""
    plan, end = stage.plan, stage.length
    wires: list[tuple[str, tuple[str, ...]]] = [(label, (label,)) for label in stage.adapters]
    if len(wires) > MOST_ADAPTERS:
        wires = [("adapters", stage.adapters)]
    wires += [("devices", stage.devices), ("broker", (BROKER,))]
    lanes = []
    for name, own in wires:
        spans = [[(fault.begin, fault.end) for fault in plan.of([wire])] for wire in own]
        lanes.append(Lane(name, coverage(spans, count, end, len(own) or 1)))
    return [lane for lane in lanes if any(lane.shares)]
