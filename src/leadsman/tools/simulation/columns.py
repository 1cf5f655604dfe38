"""Divides a day into columns of equal length, for the picture and for the terminal."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from leadsman.tools.simulation.outcome import DeviceDay, DeviceRecord, Stage
from leadsman.tools.simulation.scenario import BROKER, merge_spans

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
