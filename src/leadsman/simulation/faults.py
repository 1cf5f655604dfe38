"""The faults of a simulated day, as values, and chance that depends on nothing but the seed and what it is about.

Chance is a hash, not a sequence: whether a call at 10:15:03 fails depends on the seed, the device and the second, and
not on the calls before it. So all policies meet the same faults, and all versions of Python draw the same day.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

BROKER = "\0broker"
"""The `wire` of a fault of the broker. A device may be called ``broker``, and none has a name with a zero byte."""


def chance(*about: object) -> float:
    """A number in [0, 1) that is the same for the same arguments, on every machine. The first argument is the seed."""
    text = "\x1f".join(map(str, about))
    return int.from_bytes(blake2b(text.encode(), digest_size=6).digest()) / 2**48


class Luck:
    """The chance of moments of one device: the same as `chance` with the moment as its last argument, and faster."""

    __slots__ = ("_begun",)

    def __init__(self, *about: object) -> None:
        self._begun = blake2b("\x1f".join([*map(str, about), ""]).encode(), digest_size=6)

    def at(self, moment: int) -> float:
        """A number in [0, 1)."""
        hashed = self._begun.copy()
        hashed.update(b"%d" % moment)
        return int.from_bytes(hashed.digest()) / 2**48


class Fault(NamedTuple):
    """Something fails from `begin` to `end`, seconds since the start of the day."""

    wire: str
    """What fails: the label of an adapter, the name of a device, or `BROKER`."""
    begin: float
    end: float
    silent: bool = False
    """Whether calls get no answer, until their timeout or the end of the fault. Else they fail at once."""


class Weakness(NamedTuple):
    """How a device does outside its faults."""

    failing: float = 0.0
    """The share of its calls that fail, 0 to 1."""
    slow: float = 0.0
    """The share of its calls that are slow, 0 to 1."""
    slower: float = 0.0
    """Seconds that a slow call takes longer."""


class ClockStep(NamedTuple):
    """The wall clock is set at `at` seconds since the start of the day: by `seconds` forward, or back if negative."""

    at: float
    seconds: float


class FaultPlan(NamedTuple):
    """All that goes wrong on a day."""

    faults: tuple[Fault, ...] = ()
    weaknesses: tuple[tuple[str, Weakness], ...] = ()
    """By device."""
    steps: tuple[ClockStep, ...] = ()

    def of(self, wires: Sequence[str]) -> tuple[Fault, ...]:
        """The faults of these wires, in the order of their begin."""
        return tuple(sorted((fault for fault in self.faults if fault.wire in wires), key=lambda fault: fault.begin))

    def weakness(self, device: str) -> Weakness:
        """How a device does outside its faults."""
        return dict(self.weaknesses).get(device, Weakness())


def merged(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans of time in order, and without overlaps."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found
