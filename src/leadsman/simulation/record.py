"""What happened to one device on a simulated day, and what it comes to: slots, gaps, and times of an open circuit.

A **gap** begins when a poll was due that gave no reading at its first call, and ends with the next reading. It is how
much later a reading came than it was due: an outage that is over at the first retry is a gap of two seconds, whatever
the interval. Of a poll that an open circuit skipped, the gap goes on.
"""

import heapq
from typing import NamedTuple

READ, FAILED, SKIPPED, MISSED, DEFERRED, HELD = "read", "failed", "circuit open", "missed", "deferred", "held"
"""What became of a slot."""


class Lost(NamedTuple):
    """`slots` slots had no reading at `at`, seconds since the start, because of `cause`."""

    at: float
    cause: str
    slots: int = 1


class Record(NamedTuple):
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


class Gap(NamedTuple):
    """No reading from `begin`, when one was due, to `end`. `over` is False if the day ended before."""

    begin: float
    end: float
    cause: str
    over: bool = True

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return self.end - self.begin


class Day(NamedTuple):
    """What a day of one device comes to."""

    device: str
    slots: int
    """Polls that were due: the sum of the readings and of what was lost."""
    readings: int
    lost: tuple[tuple[str, int], ...]
    """Slots without a reading, by cause."""
    gaps: tuple[Gap, ...]
    open: tuple[tuple[float, float], ...]
    """The times in which the circuit was not closed."""
    calls: int
    failures: int


def day_of(record: Record, end: float) -> Day:
    """Fold the record of one device into its day, which ends at `end` seconds."""
    lost: dict[str, int] = {}
    for each in record.lost:
        lost[each.cause] = lost.get(each.cause, 0) + each.slots
    return Day(
        record.device,
        len(record.readings) + sum(lost.values()),
        len(record.readings),
        tuple(sorted(lost.items())),
        gaps_of(record, end),
        open_times(record, end),
        len(record.calls),
        len(record.failures),
    )


def gaps_of(record: Record, end: float) -> tuple[Gap, ...]:
    """The gaps of a device, in order. Gaps of no length are left out."""
    troubles = heapq.merge(((at, FAILED) for at in record.failures), ((each.at, each.cause) for each in record.lost))
    found: list[Gap] = []
    readings = iter(record.readings)
    reading = next(readings, None)
    begin: float | None = None
    cause = ""
    for at, what in troubles:
        while reading is not None and reading < at:
            if begin is not None:
                found.append(Gap(begin, reading, cause))
                begin = None
            reading = next(readings, None)
        if begin is None and at < end:
            begin, cause = at, what
    if begin is not None:
        over = reading is not None
        found.append(Gap(begin, end if reading is None else reading, cause, over))
    return tuple(gap for gap in found if gap.seconds > 0)


def open_times(record: Record, end: float) -> tuple[tuple[float, float], ...]:
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
