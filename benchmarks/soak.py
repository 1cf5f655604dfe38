"""``python -m benchmarks soak --minutes 20``: half of what leadsman can sustain, and the broker killed each minute.

``--minutes 30 --kill-every 20 --failing`` kills it each 20 seconds, and one read of ten fails.

The app reaches the broker through a proxy, which lets it in again once the subscriber is there. The broker writes a
message to its subscriber before it acknowledges it, so what was acknowledged comes, unless the subscriber was slow and
the message waited in the memory of the broker when it was killed. Each device numbers its readings; the app says at its
end what the broker acknowledged, see `benchmarks.account`. So for each reading that did not come it is known who had it
last.
"""

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
from benchmarks.measures import WIDE, highest_rates, job
from benchmarks.overload import PROBED
from benchmarks.rows import note
from leadsman.mqtt.queues import MOST_MESSAGES
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
    """Messages that waited in the outbox at the most."""
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


class Soak:
    """One run.

    Args:
        plan: what it does.
        rate: readings a second in all.
    """

    def __init__(self, plan: Plan, rate: float) -> None:
        self.plan, self.seconds, self.rate = plan, plan.minutes * 60, rate
        self.outbox = max(MOST_MESSAGES, round(HELD * rate))
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
            f"{first[field]} after {first.at:.0f} s, {last[field]} at the end,"
            f" at most {max(each[field] for each in settled)},"
            f" {_slope(half, field):+.2f} a minute in the second half"
            for field in (2, 3)
        )
        return [
            f"* Memory after {first.at:.0f} s: {first.memory:.1f} MiB; at half of the time {half[0].memory:.1f} MiB;"
            f" at the end {last.memory:.1f} MiB; at most {max(each.memory for each in settled):.1f} MiB. It grew by"
            f" {_slope(settled, 1) * 1024:+.1f} KiB a minute, and in the second half by {_slope(half, 1) * 1024:+.1f}"
            " (linear regression).",
            f"* Descriptors: {descriptors}. Threads: {threads}.",
        ]


def _sample(process: "subprocess.Popen[str]", at: float) -> Sample:
    seen = psutil.Process(process.pid)
    return Sample(at, seen.memory_info().rss / 2**20, seen.num_fds(), seen.num_threads())


def _slope(samples: Sequence[Sample], field: int) -> float:
    """How much a field of the samples grows in a minute."""
    return statistics.linear_regression([each.at for each in samples], [each[field] for each in samples]).slope * 60


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
