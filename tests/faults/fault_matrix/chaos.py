"""Faults at random, one after the other. ``make faults ARGS="55 --minutes 10 --seed 7"`` goes on for ten minutes."""

import os
import random
import time
from collections import Counter
from collections.abc import Callable

import psutil

from fault_matrix.row import P0, P2, TIME, row
from fault_matrix.stand import Job, Stand
from leadsman.testing import Mosquitto
from leadsman_rigs.proxy import Proxy

SECONDS = float(os.environ.get("FAULTS_SECONDS", "20"))
SEED = int(os.environ.get("FAULTS_SEED", "55"))
TEN = "meters(10, 0.1)"


@row("55", P2, f"faults of the broker and the network at random, for {SECONDS:g} s", "loses nothing; nothing grows")
def at_random(stand: Stand) -> None:
    Chaos(stand).run(kills=False)


@row("55b", P0, f"the same, and the app is killed (-9), for {SECONDS:g} s", "loses nothing accepted", TIME)
def at_random_with_kills(stand: Stand) -> None:
    Chaos(stand).run(kills=True)


class Chaos:
    """An app behind a proxy, and all that happens to it."""

    def __init__(self, stand: Stand, code: str = TEN, conf: str = "", **environment: str) -> None:
        self.stand, self.dice = stand, random.Random(SEED)
        self.broker: Mosquitto = stand.broker(conf)
        self.proxy: Proxy = stand.proxy(self.broker.port)
        stand.listen(self.broker.port)
        self.app: Job = stand.app(self.proxy.url, code, **environment)
        self.kills: list[float] = []
        self.done = Counter[str]()

    def run(self, *, kills: bool) -> None:
        """Do it, and count the readings."""
        faults: list[Callable[[], None]] = [self.kill_broker, self.freeze, self.cut, self.stall, self.lead_nowhere]
        if kills:
            faults += [self.kill_app, self.kill_app]
        self.stand.until(lambda: self.stand.tally.came >= 50, "50 readings")
        before = self._size()
        self.fail(faults)
        self._measure(before)

    def fail(self, faults: list[Callable[[], None]]) -> None:
        """Let one after the other happen, each once before any happens again."""
        end = time.monotonic() + SECONDS
        left: list[Callable[[], None]] = []
        while time.monotonic() < end:
            left = left or self.dice.sample(faults, len(faults))
            fault = left.pop()
            fault()
            self.done[fault.__name__] += 1
            time.sleep(self.dice.uniform(0.5, 3))

    def _measure(self, before: tuple[float, int]) -> None:
        expected = self.app.accepted(self.kills)
        began = time.monotonic()
        while self.stand.tally.lost(expected) and time.monotonic() - began < 30:
            time.sleep(0.1)
        self.stand.figure("faults", self.done.total(), least=3)
        self.stand.figure("taken", sum(map(len, expected.values())), least=100)
        self.stand.figure("accepted and lost", sum(map(len, self.stand.tally.lost(expected).values())), most=0)
        self.stand.order(duplicates=200 * self.done.total())
        if not self.kills:
            size, descriptors = self._size()
            self.stand.figure("more memory", size - before[0], "MB", most=20)
            self.stand.figure("more descriptors", descriptors - before[1], most=5)
        self.stand.stop(self.app)

    def _size(self) -> tuple[float, int]:
        """Its memory in MB, and its descriptors."""
        process = psutil.Process(self.app.process.pid)
        return process.memory_info().rss / 2**20, process.num_fds()

    def kill_broker(self) -> None:
        self.stand.kill_broker(self.broker, self.proxy, self.dice.uniform(0.2, 2))

    def freeze(self) -> None:
        self.broker.freeze()
        time.sleep(self.dice.uniform(0.5, 3))
        self.broker.thaw()

    def cut(self) -> None:
        self.proxy.cut()

    def stall(self) -> None:
        self.proxy.stall()
        time.sleep(self.dice.uniform(0.5, 3))
        self.proxy.resume()

    def lead_nowhere(self) -> None:
        self.stand.lead_nowhere(self.proxy)
        time.sleep(self.dice.uniform(0.5, 3))
        self.proxy.target = self.broker.port

    def kill_app(self) -> None:
        self.app.kill()
        self.kills.append(time.time())
        self.app.start()
