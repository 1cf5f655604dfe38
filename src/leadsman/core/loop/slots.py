"""The slots of the timers: due times are rounded up to them, and devices are spread over them.

The devices of one interval are spread over a short time, so that they are not all due at once: they are divided into
batches of `BATCH`, which is what the event loop rings in one turn. The batches lie `GAP` apart, over the interval but
at most over `MAX_SPREAD` seconds. A device that shares its interval with fewer others than a batch has is not moved.
Where a device lies depends on the names alone.

Pure: names and intervals go in, seconds come out.
"""

import zlib
from collections.abc import Iterable, Mapping

FINE = 0.005
"""Seconds; the slot of alarms due within a second."""
COARSE = 10
"""Fine slots in a coarse one (50 ms), for alarms due later than that."""
BATCH = 20
"""Alarms that ring in one turn of the event loop. Each may start a poll, which takes some tenth of a millisecond, and
makes a message. So many may be unacknowledged at a mosquitto that is not configured."""
EPSILON = 1e-6
"""Of a slot: what a float may be off."""


GAP = 0.05
"""Seconds between two batches: a machine that makes 500 polls a second has finished one when the next is due. Shorter
where the interval has no room for them."""
MAX_SPREAD = 1.0
"""Seconds over which the devices of one interval are spread at most, however many there are."""


def offset_of(name: str, spread: float) -> float:
    """Where within `spread` seconds a handler's first poll falls: the same for a name, at every start."""
    return _place(name) * spread


def shifts(units: Mapping[str, float]) -> dict[str, float]:
    """By how many seconds the schedule of each unit is moved. A unit is a device, or a group that has common ticks.

    Args:
        units: the interval of each unit in seconds, by its name.
    """
    cohorts: dict[float, list[str]] = {}
    for name, interval in units.items():
        cohorts.setdefault(interval, []).append(name)
    return {name: shift for interval, names in cohorts.items() for name, shift in _spread(names, interval)}


def _spread(names: list[str], interval: float) -> Iterable[tuple[str, float]]:
    """The units of one interval with their shifts."""
    batches = -(-len(names) // BATCH)
    slot = FINE if interval <= MAX_SPREAD else FINE * COARSE  # what the timers round to
    room = min(interval, MAX_SPREAD)
    gap = max(slot, int(min(GAP, room / batches) / slot + EPSILON) * slot)
    places = max(1, min(batches, int(room / gap + EPSILON)))
    for rank, name in enumerate(sorted(names, key=lambda name: (_place(name), name))):
        yield name, rank * places // len(names) * gap


def _place(name: str) -> float:
    """A number from 0 to 1 that depends on the name only."""
    return zlib.crc32(name.encode()) / 2**32
