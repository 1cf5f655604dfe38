"""``python -m benchmarks soak --minutes 20``: half of what leadsman can sustain, and the broker killed each minute.

The app reaches the broker through a proxy, which lets it in again once the subscriber is there: so the subscriber hears
everything that the broker has acknowledged, and each reading has a number of its device.
"""

import json
import signal
import socket
import statistics
import subprocess
import time
from collections import defaultdict

import psutil

from benchmarks.ear import Ear, Heard
from benchmarks.measures import highest_rates, job
from benchmarks.overload import PROBED
from benchmarks.rows import note
from leadsman.testing import Mosquitto
from leadsman_rigs.proxy import Proxy

DEVICES = 200
AWAY = 0.5
"""Seconds from the death of the broker to its return. What is read meanwhile must fit into the outbox."""
KILL_EVERY = 60.0
SAMPLE_EVERY = 5.0


class Tally:
    """The readings that came, by the numbers that their devices gave them."""

    def __init__(self) -> None:
        self.readings = self.disordered = 0
        """Different readings that came; those of them that came after a later one of their device."""
        self.last: dict[str, int] = defaultdict(int)
        """The greatest number of each device."""
        self.missing: dict[str, set[int]] = defaultdict(set)
        """The smaller numbers that did not come."""
        self.oldest = 0.0
        """The greatest age of a reading that came, in seconds."""

    def heard(self, heard: Heard) -> None:
        """Count one message."""
        reading = heard.reading
        number, last = int(reading["n"]), self.last[heard.topic]
        if number > last:
            self.missing[heard.topic].update(range(last + 1, number))
            self.last[heard.topic] = number
        elif number in self.missing[heard.topic]:
            self.missing[heard.topic].discard(number)
            self.disordered += 1
        else:
            return  # once more, after a break or because it is retained
        self.readings += 1
        self.oldest = max(self.oldest, heard.age)

    @property
    def lost(self) -> int:
        """Readings that did not come, though a later one of their device came."""
        return sum(map(len, self.missing.values()))


class Soak:
    """One run.

    Args:
        minutes: how long.
        rate: readings a second in all.
    """

    def __init__(self, minutes: float, rate: float) -> None:
        self.seconds, self.rate = minutes * 60, rate
        self.tally, self.memory = Tally(), list[tuple[float, float]]()
        self.kills = self.calls = self.dropped = 0

    def run(self) -> None:
        """Do it."""
        with Mosquitto() as broker, Proxy(broker.port) as proxy:
            ear = Ear(broker.port, hand_on=self.tally.heard)
            process = job("ours", proxy.port, DEVICES, DEVICES / self.rate, 0, "stamped")
            began = time.monotonic()
            while (passed := time.monotonic() - began) < self.seconds:
                time.sleep(SAMPLE_EVERY)
                self.memory.append((passed, psutil.Process(process.pid).memory_info().rss / 2**20))
                if passed > KILL_EVERY * (self.kills + 1) - KILL_EVERY / 2:
                    ear = self._killed(broker, proxy, ear)
            self._ended(process)
            ear.close()

    def _killed(self, broker: Mosquitto, proxy: Proxy, ear: Ear) -> Ear:
        self.kills += 1
        with socket.create_server(("127.0.0.1", 0)) as closed:
            nowhere = closed.getsockname()[1]
        broker.kill()
        proxy.target = nowhere  # nobody listens there any more
        ear.close()
        time.sleep(AWAY)
        broker.start()
        ear = Ear(broker.port, hand_on=self.tally.heard)
        proxy.target = broker.port
        note(f"killed {self.kills} times; {self.tally.readings:,} readings came, {self.tally.lost} did not")
        return ear

    def _ended(self, process: "subprocess.Popen[str]") -> None:
        process.send_signal(signal.SIGTERM)
        said = json.loads(process.communicate(timeout=30)[0])
        self.calls, self.dropped = said["calls"], said["dropped"]

    def report(self) -> str:
        """What came of it, as lines of Markdown."""
        settled = [size for at, size in self.memory if at > min(30.0, self.seconds / 3)]
        half = len(settled) // 2
        growth = statistics.fmean(settled[half:]) - statistics.fmean(settled[:half])
        return "\n".join(
            (
                f"* {self.seconds / 60:.0f} minutes at {self.rate:,.0f} readings/s of {DEVICES} devices; the broker was"
                f" killed {self.kills} times, for {AWAY} s each time.",
                f"* {self.calls:,} readings were taken and {self.tally.readings:,} came;"
                f" {self.tally.lost:,} are missing between others, and the outbox dropped {self.dropped:,};"
                f" {self.tally.disordered:,} came out of order;"
                f" the oldest was {self.tally.oldest:.1f} s old.",
                f"* Memory after the first half minute: {settled[0]:.1f} MiB, at the end {settled[-1]:.1f} MiB, at most"
                f" {max(settled):.1f} MiB; the mean of the second half is {growth:+.2f} MiB above that of the first.",
            )
        )


def soak(minutes: float, rate: float | None) -> str:
    """So many readings a second for so many minutes; None is half of what was sustained for seconds."""
    if rate is None:
        rate = highest_rates("ours", 3, PROBED)[0] / 2
    note(f"soak: {rate:,.0f} readings/s")
    run = Soak(minutes, rate)
    run.run()
    return run.report()
