"""The built-in days: how often adapters, devices and the broker fail, and for how long. A day and a seed make a plan of
faults. Chance is a hash, not a sequence: whether a call at 10:15:03 fails depends on the seed, the device and the
second, and not on the calls before it. So all policies meet the same faults, and all versions of Python draw the same
day.

The numbers are those of a household: a radio loses one call in ten, a stick that hangs is noticed after hours, a broker
is restarted for an update, and a host without a battery-backed clock sets its time once the network is there.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import NamedTuple

BROKER = "\0broker"
"""The `wire` of a fault of the broker. A device may be called ``broker``, and none has a name with a zero byte."""


def chance(*about: object) -> float:
    """A number in [0, 1) that is the same for the same arguments, on every machine. The first argument is the seed."""
    *before, last = about
    return Chance(*before).at(last)


class Chance:
    """The chance of moments of one device: the same as `chance` with the moment as its last argument. The others are
    hashed once."""

    __slots__ = ("_begun",)

    def __init__(self, *about: object) -> None:
        self._begun = blake2b("\x1f".join([*map(str, about), ""]).encode(), digest_size=6)

    def at(self, moment: object) -> float:
        """A number in [0, 1)."""
        hashed = self._begun.copy()
        hashed.update(str(moment).encode())
        return int.from_bytes(hashed.digest()) / 2**48


class PlannedFault(NamedTuple):
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


class WallClockStep(NamedTuple):
    """The wall clock is set at `at` seconds since the start of the day: by `seconds` forward, or back if negative."""

    at: float
    seconds: float


class FaultPlan(NamedTuple):
    """All that goes wrong on a day."""

    faults: tuple[PlannedFault, ...] = ()
    weaknesses: tuple[tuple[str, Weakness], ...] = ()
    """By device."""
    steps: tuple[WallClockStep, ...] = ()

    def of(self, wires: Sequence[str]) -> tuple[PlannedFault, ...]:
        """The faults of these wires, in the order of their begin."""
        return tuple(sorted((fault for fault in self.faults if fault.wire in wires), key=lambda fault: fault.begin))

    def weakness(self, device: str) -> Weakness:
        """How a device does outside its faults."""
        return dict(self.weaknesses).get(device, Weakness())


def merge_spans(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans of time in order, and without overlaps."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


DAY = 86_400.0
"""Seconds. The numbers of faults of a `Scenario` are for so long."""


class OutageRange(NamedTuple):
    """How often something is away in a day, and for how long."""

    fewest: int
    most: int
    shortest: float
    """Seconds."""
    longest: float
    """Seconds."""


SILENT_SHARE = 0.5
"""The share of the outages in which calls get no answer, 0 to 1."""
NO_OUTAGES = OutageRange(0, 0, 1.0, 1.0)


class Scenario(NamedTuple):
    """A built-in day."""

    name: str
    title: str
    begins: datetime
    adapters: OutageRange
    """Those of each adapter: all its devices are away."""
    devices: OutageRange
    """Those of each device."""
    broker: OutageRange
    failing: tuple[float, float] = (0.0, 0.0)
    """The share of calls that fail besides, between these two, for each device its own."""
    slow: float = 0.0
    """The share of calls that are slow, 0 to 1."""
    slower: float = 0.0
    """Seconds that a slow call takes longer."""
    steps: tuple[tuple[float, float], ...] = ()
    """When the wall clock is set, as a part of the day from 0 to 1; and by how many seconds."""


QUIET_DAY = Scenario(
    "quiet",
    "a quiet day",
    datetime(2026, 1, 14, tzinfo=UTC),
    adapters=NO_OUTAGES,
    devices=OutageRange(0, 2, 5, 90),
    broker=NO_OUTAGES,
    failing=(0.0, 0.004),
)
FLAKY = Scenario(
    "flaky",
    "a flaky day",
    datetime(2026, 2, 10, tzinfo=UTC),
    adapters=OutageRange(2, 4, 30, 240),
    devices=OutageRange(4, 10, 20, 420),
    broker=OutageRange(2, 2, 20, 90),
    failing=(0.05, 0.2),
    slow=0.1,
    slower=1.5,
)
OUTAGES = Scenario(
    "outages",
    "a day of outages",
    datetime(2026, 3, 28, 23, tzinfo=UTC),
    adapters=OutageRange(1, 2, 1200, 10_800),
    devices=OutageRange(1, 3, 180, 3600),
    broker=OutageRange(1, 3, 60, 2400),
    failing=(0.0, 0.02),
    steps=((0.3, -45.0), (0.8, 90.0)),
)
SCENARIOS: dict[str, Scenario] = {each.name: each for each in (QUIET_DAY, FLAKY, OUTAGES)}
"""By name. The day of outages begins at midnight in Berlin, in the night in which Europe sets its clocks forward."""


def plan_of(scenario: Scenario, adapters: Sequence[str], devices: Sequence[str], length: float, seed: int) -> FaultPlan:
    """The faults of a day.

    Args:
        scenario: the day.
        adapters: the labels of the adapters.
        devices: the names of the devices. Each has faults of its own, which no other device changes.
        length: seconds of the simulation. A longer one has more faults.
        seed: any whole number.
    """
    faults = [
        *(fault for label in adapters for fault in _outages(scenario, scenario.adapters, label, length, seed)),
        *(fault for name in devices for fault in _outages(scenario, scenario.devices, name, length, seed)),
        *_outages(scenario, scenario.broker, BROKER, length, seed),
    ]
    low, high = scenario.failing
    shares = {name: low + (high - low) * chance(seed, scenario.name, "failing", name) for name in devices}
    weaknesses = tuple(
        (name, Weakness(round(share, 4), scenario.slow, scenario.slower)) for name, share in shares.items()
    )
    steps = tuple(WallClockStep(round(part * length), seconds) for part, seconds in scenario.steps)
    return FaultPlan(tuple(sorted(faults)), weaknesses, steps)


def _outages(scenario: Scenario, outages: OutageRange, wire: str, length: float, seed: int) -> Iterator[PlannedFault]:
    about = (seed, scenario.name, wire.removeprefix("\0"))
    spread = outages.most - outages.fewest + 1
    count = round((outages.fewest + int(spread * chance(*about, "count"))) * length / DAY)
    for number in range(count):
        low, high = outages.shortest, outages.longest
        # Most outages are short: as many last 1 to 10 minutes as 10 to 100.
        lasting = round(low * (high / low) ** chance(*about, number, "length"))
        begin = round(chance(*about, number, "begin") * length)
        silent = chance(*about, number, "silent") < SILENT_SHARE
        yield PlannedFault(wire, float(begin), float(min(begin + lasting, length)), silent)
