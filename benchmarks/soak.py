"""``python -m benchmarks soak --minutes 20``: half of what leadsman can sustain, and the broker killed each minute.

``--minutes 30 --kill-every 20 --failing`` kills it each 20 seconds, and one read of ten fails.

The app reaches the broker through a proxy, which lets it in again once the subscriber is there. The broker writes a
message to its subscriber before it acknowledges it, so what was acknowledged comes, unless the subscriber was slow and
the message waited in the memory of the broker when it was killed. Each device numbers its readings; the app says at its
end what the broker acknowledged, see `benchmarks.account`. So for each reading that did not come it is known who had it
last.

Memory is flat if, in the second half,

* what Python has handed out grows by less than half a block for each device and kill: the least that a leak for each
  device or reading of a kill could be is one block. Left out and counted apart are two things that are bounded, and
  fill late: the gaps of ledgers, and the source files in which a traceback had a frame;
* what malloc has handed out grows by less than `MALLOC_GROWS`;
* the resident memory, as the median of the last third of the run and that of the third before it, grows by no more than
  `ARENA`, the step in which Python takes memory.

Only samples with few messages in the outbox count in the first two, for a backlog is meant to be in memory; the third
takes all samples, so that a backlog whose memory is not used again shows.
"""

import itertools
import json
import signal
import socket
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import psutil

from benchmarks.account import Numbers, spans
from benchmarks.ear import Ear, Heard
from benchmarks.held import Held
from benchmarks.measures import WIDE, highest_rates, job
from benchmarks.overload import PROBED
from benchmarks.rows import note
from leadsman.core.mqtt.outbox import MAX_MESSAGES
from leadsman.testing import Mosquitto
from leadsman_rigs.proxy import Proxy

DEVICES = 200
AWAY = 0.5
"""Seconds from the death of the broker to its return."""
HELD = 5.0
"""Seconds of readings that the outbox holds at least. After `AWAY` the link tries again each 0.1 to 0.8 s, and a busy
machine needs a second more; then the backlog is sent while new readings come."""
SAMPLE_EVERY = 5.0
SETTLED = 30.0
"""Seconds after which memory is looked at."""
EXAMPLES = 5
MALLOC_GROWS = 10.0
"""KiB a minute. Half a block of Python's for each device and kill is 5 to 25 of them."""
ARENA = 1.0
"""MiB. Python 3.10 and later take memory for small objects in arenas of that size (``Objects/obmalloc.c``)."""


class Tally:
    """The readings that came, by the numbers that their devices gave them."""

    def __init__(self) -> None:
        self.readings = self.disordered = 0
        """Different readings that came; those of them that came after a later one of their device."""
        self.numbers: dict[str, Numbers] = defaultdict(Numbers)
        """Those of each device."""
        self.oldest = 0.0
        """The greatest age of a reading that came, in seconds."""

    def heard(self, heard: Heard) -> None:
        """Count one message."""
        reading = heard.reading
        number, device = int(reading["n"]), heard.topic.split("/")[1]
        later = number < self.numbers[device].greatest
        if self.numbers[device].add(number):  # else once more, after a break or because it is retained
            self.readings += 1
            self.disordered += later
            self.oldest = max(self.oldest, heard.age)

    @property
    def missing(self) -> int:
        """Readings that have not come, though a later one of their device came."""
        return sum(len(numbers.missing) for numbers in self.numbers.values())


class Verdict(NamedTuple):
    """What became of the readings."""

    taken: int
    dropped: int
    """Messages that the outbox dropped, and reported."""
    most: int
    """Messages that waited in the outbox at most."""
    left: int
    """Messages that were in the outbox when the app ended, and reported."""
    lost: int
    """Readings that were taken, and neither acknowledged by the broker, nor dropped, nor left."""
    lost_by: dict[str, set[int]]
    """The numbers of readings of devices that have lost some: what the broker did not acknowledge."""
    unheard: dict[str, set[int]]
    """The numbers of readings that the broker acknowledged, and did not hand to the subscriber."""


def verdict(said: Mapping[str, Any], heard: Mapping[str, Numbers]) -> Verdict:
    """Compare what the job said at its end with what came."""
    devices = said["devices"]
    not_put = said["calls"] - sum(each["put"] for each in devices.values())
    lost, lost_by, unheard = 0, dict[str, set[int]](), dict[str, set[int]]()
    for device, each in devices.items():
        unacknowledged = set(each["unacknowledged"])
        if len(unacknowledged) > each["dropped"]:
            lost += len(unacknowledged) - each["dropped"]
            lost_by[device] = unacknowledged
        if missing := heard[device].not_seen(each["put"]) - unacknowledged:
            unheard[device] = missing
    lost = not_put + max(0, lost - said["left"])
    return Verdict(said["calls"], said["dropped"], said["most"], said["left"], lost, lost_by if lost else {}, unheard)


class Plan(NamedTuple):
    """What a run does."""

    minutes: float
    """How long."""
    rate: float | None
    """Readings a second in all; None is half of what was sustained for seconds."""
    kill_every: float
    """Seconds between two deaths of the broker."""
    failing: bool
    """Whether one read of ten fails."""


class Sample(NamedTuple):
    """What the process has at one time."""

    at: float
    """Seconds since the start."""
    memory: float
    """MiB resident."""
    descriptors: int
    threads: int
    held: Held
    """What its allocators have handed out."""


class Soak:
    """One run.

    Args:
        plan: what it does.
        rate: readings a second in all.
    """

    def __init__(self, plan: Plan, rate: float) -> None:
        self.plan, self.seconds, self.rate = plan, plan.minutes * 60, rate
        self.outbox = max(MAX_MESSAGES, round(HELD * rate))
        self.tally, self.samples = Tally(), list[Sample]()
        self.kills = 0

    def run(self) -> str:
        """Do it. Returns what came of it, as lines of Markdown."""
        with Mosquitto(WIDE) as broker, Proxy(broker.port) as proxy:
            ear = Ear(broker.port, hand_on=self.tally.heard)
            kind = "failing" if self.plan.failing else "stamped"
            process = job("ours", proxy.port, DEVICES, DEVICES / self.rate, 0, kind, self.outbox)
            began = time.monotonic()
            while (passed := time.monotonic() - began) < self.seconds:
                time.sleep(SAMPLE_EVERY)
                if self.tally.readings:  # else the app may not answer yet
                    self.samples.append(_sample(process, passed))
                if passed > self.plan.kill_every * (self.kills + 0.5):
                    ear = self._killed(broker, proxy, ear)
            said = _ended(process)
            ear.close()
        return "\n".join((*self._readings(verdict(said, self.tally.numbers)), *self._growth()))

    def _killed(self, broker: Mosquitto, proxy: Proxy, ear: Ear) -> Ear:
        self.kills += 1
        ear = restarted(broker, proxy, ear, self.tally.heard, AWAY)
        note(f"killed {self.kills} times; {self.tally.readings:,} readings came, {self.tally.missing} did not or wait")
        return ear

    def _readings(self, found: Verdict) -> list[str]:
        unheard = sum(map(len, found.unheard.values()))
        lines = [
            f"* {self.seconds / 60:g} minutes at {self.rate:,.0f} readings/s of {DEVICES} devices; the broker was"
            f" killed {self.kills} times, for {AWAY} s each time; the outbox had room for {self.outbox:,} messages"
            f"{'; one read of ten failed' if self.plan.failing else ''}.",
            f"* Readings taken: {found.taken:,}; came: {self.tally.readings:,}; dropped by the outbox:"
            f" {found.dropped:,}; left in it at the end: {found.left:,}; **lost: {found.lost:,}**. At"
            f" most {found.most:,} messages waited there at once."
            f" The oldest that came was {self.tally.oldest:.1f} s old; {self.tally.disordered:,} came out of order.",
        ]
        if unheard:
            lines.append(
                f"* {unheard:,} more were acknowledged by the broker and lost with it, before the subscriber had them:"
                f" {self._examples(found.unheard)}."
            )
        if found.lost_by:
            lines.append(f"* Not acknowledged, and not all of them dropped: {self._examples(found.lost_by)}.")
        return lines

    def _examples(self, numbers: Mapping[str, set[int]]) -> str:
        """Some of the readings, and about when they were taken."""
        interval = DEVICES / self.rate
        named = [(device, *span) for device, each in numbers.items() for span in spans(each)]
        shown = [
            f"{device} {first}–{last} ({first * interval:.0f} s after the start)"
            for device, first, last in named[:EXAMPLES]
        ]
        return ", ".join(shown) + (f" and {len(named) - EXAMPLES:,} more spans" if len(named) > EXAMPLES else "")

    def _growth(self) -> list[str]:
        """How memory, descriptors and threads changed."""
        settled = [each for each in self.samples if each.at > min(SETTLED, self.seconds / 3)]
        half = [each for each in settled if each.at > self.seconds / 2]
        first, last = settled[0], half[-1]
        descriptors, threads = (
            f"{value(first)} after {first.at:.0f} s, {value(last)} at the end,"
            f" at most {max(map(value, settled))}, {_slope(half, value):+.2f} a minute in the second half"
            for value in (_descriptors, _threads)
        )
        return [
            f"* Resident memory after {first.at:.0f} s: {first.memory:.1f} MiB; at half of the time"
            f" {half[0].memory:.1f} MiB; at the end {last.memory:.1f} MiB; at most"
            f" {max(each.memory for each in settled):.1f} MiB. In the second half it grew by"
            f" {_slope(half, lambda each: each.memory * 1024):+.1f} KiB a minute (linear regression).",
            *self._flat(half),
            f"* Descriptors: {descriptors}. Threads: {threads}.",
        ]

    def _flat(self, half: Sequence[Sample]) -> list[str]:
        """Whether memory is flat by each criterion."""
        calm = [each for each in half if each.held.waiting <= DEVICES]
        most = DEVICES * 60 / self.plan.kill_every / 2
        blocks = _typical_slope(calm, lambda each: each.held.rest)
        malloc = _typical_slope(calm, lambda each: each.held.malloc / 1024)
        middle, end = (
            statistics.median(each.memory for each in self.samples if part <= each.at / self.seconds * 3 < part + 1)
            for part in (1, 2)
        )
        early, late = half[0].held, half[-1].held
        return [
            f"* {_verdict(blocks < most)}: blocks of Python: {calm[0].held.rest:,} at half of the time and"
            f" {calm[-1].held.rest:,} at the end, {blocks:+.0f} a minute (flat: less than {most:.0f}); besides, gaps of"
            f" ledgers: {early.gaps:,} and {late.gaps:,}; lines of source for tracebacks: {early.lines:,} and"
            f" {late.lines:,}.",
            f"* {_verdict(malloc < MALLOC_GROWS)}: malloc: {calm[0].held.malloc / 1024:,.0f} KiB and"
            f" {calm[-1].held.malloc / 1024:,.0f} KiB, {malloc:+.1f} KiB a minute (flat: less than {MALLOC_GROWS:g}).",
            f"* {_verdict(end - middle <= ARENA)}: resident memory, medians of the second and the last third:"
            f" {middle:.2f} and {end:.2f} MiB (flat: at most {ARENA:g} MiB more).",
        ]


def _descriptors(sample: Sample) -> int:
    return sample.descriptors


def _threads(sample: Sample) -> int:
    return sample.threads


def _verdict(flat: bool) -> str:
    return "Flat" if flat else "**Not flat**"


def _sample(process: "subprocess.Popen[str]", at: float) -> Sample:
    seen = psutil.Process(process.pid)
    process.send_signal(signal.SIGUSR1)
    assert process.stdout is not None  # `job` pipes it
    held = Held(*json.loads(process.stdout.readline()))
    return Sample(at, seen.memory_info().rss / 2**20, seen.num_fds(), seen.num_threads(), held)


def _slope(samples: Sequence[Sample], value: Callable[[Sample], float]) -> float:
    """How much a value of the samples grows in a minute."""
    return statistics.linear_regression([each.at for each in samples], [value(each) for each in samples]).slope * 60


def _typical_slope(samples: Sequence[Sample], value: Callable[[Sample], float]) -> float:
    """The same as the median of the slopes between any two samples (Theil and Sen): some samples are taken while
    devices fail, or before garbage is collected, and are thousands of blocks above the others."""
    slopes = [
        (value(later) - value(earlier)) / (later.at - earlier.at)
        for earlier, later in itertools.combinations(samples, 2)
    ]
    return statistics.median(slopes) * 60


def restarted(broker: Mosquitto, proxy: Proxy, ear: Ear, hand_on: Callable[[Heard], None], away: float) -> Ear:
    """Kill the broker, and start it again after `away` seconds. Clients reach it through the proxy once the new
    subscriber, which is returned, is there."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nowhere = closed.getsockname()[1]
    broker.kill()
    proxy.target = nowhere  # nobody listens there any more
    ear.close()
    time.sleep(away)
    broker.start()
    ear = Ear(broker.port, hand_on=hand_on)
    proxy.target = broker.port
    return ear


def _ended(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """End the job. Returns what it said of its readings."""
    process.send_signal(signal.SIGTERM)
    said: dict[str, Any] = json.loads(process.communicate(timeout=30)[0])
    return said


def soak(plan: Plan) -> str:
    """Do what is planned. Returns what came of it, as lines of Markdown."""
    rate = highest_rates("ours", 3, PROBED)[0] / 2 if plan.rate is None else plan.rate
    note(f"soak: {rate:,.0f} readings/s")
    return Soak(plan, rate).run()
