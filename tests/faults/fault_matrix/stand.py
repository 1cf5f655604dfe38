"""What a row is made of: a real broker, a faulty one, a proxy, apps as processes, and an account of their readings."""

import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.ear import Ear

from fault_matrix.canary import CAGE, CANARY, leaks
from fault_matrix.row import Absent, Figure, Outcome, Row
from fault_matrix.tally import Tally, taken
from leadsman.core.wiring.process import EX_SOFTWARE, STOP_DEADLINE
from leadsman.testing import Mosquitto
from leadsman.testing.mosquitto import free_port
from leadsman_rigs.byte_broker import ByteBroker, Gone, Peer
from leadsman_rigs.processes import Process
from leadsman_rigs.proxy import Proxy, Way

WITHIN = 0.25 + 1.0
"""Seconds after which a reading that was taken is accepted, by the broker or by the disk; a busy machine needs one
more."""
MAX_EXIT_SECONDS = 6.0
"""Seconds. A second is aimed at. After two seconds an app ends itself with another exit code, which happens where a
hundred processes share a core, and is no miss of the app then."""
HEADER = """\
import asyncio, os, sys, time
from pydantic import BaseModel, SecretStr
from leadsman import *

class Settings(BaseModel):
    api_key: SecretStr = SecretStr("")

app = App("row", mqtt=os.environ.get("URL"), settings=Settings, heartbeat=1)
LEDGER = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

class Meter:
    def __init__(self, name, ballast=lambda number: 0):
        self.name, self.ballast = name, ballast
        with open(os.environ["LEDGER"]) as lines:  # a new life goes on with the numbers
            self.number = max((int(line.split()[1]) for line in lines if line.startswith(f"{name} ")), default=0)

    async def __call__(self):
        self.number += 1
        os.write(LEDGER, f"{self.name} {self.number} {time.time()}\\n".encode())
        reading = {"n": self.number, "at": time.time()}
        return reading | {"ballast": "x" * self.ballast(self.number)} if self.ballast(self.number) else reading

def meters(count, interval):
    for number in range(count):
        app.add_telemetry(f"d{number}", Meter(f"d{number}"), interval=interval)

"""
FOOTER = "\nif __name__ == '__main__':\n    app.run()\n"


class Job(Process):
    """An app in a process of its own. Each device writes its readings to `ledger` before it returns them."""

    def __init__(self, code: str, url: str | None, directory: Path, name: str = "app", **environment: str) -> None:
        self.ledger, self.file = directory / f"{name}.ledger", directory / f"{name}_row.py"
        self.file.write_text(HEADER + code + FOOTER)
        secret = directory / CAGE
        secret.write_text(f"{CANARY}\n")
        variables = {
            "LEDGER": str(self.ledger),
            "ROW_API_KEY_FILE": str(secret),
            "STATE_DIRECTORY": str(directory / f"{name}-state"),
            "PYTHONWARNINGS": "error",
            **({"URL": with_password(url)} if url else {}),
            **environment,
        }
        super().__init__([sys.executable, str(self.file)], directory / f"{name}.log", **variables)

    def taken(self, until: float = float("inf")) -> dict[str, set[int]]:
        """See `fault_matrix.tally.taken`."""
        return taken(self.ledger, until)

    def accepted(self, kills: Sequence[float] = ()) -> dict[str, set[int]]:
        """The readings that were taken, without those that were taken just before the process was killed."""
        found = self.taken()
        for kill in kills:
            early, late = self.taken(kill - WITHIN), self.taken(kill)
            found = {device: numbers - (late[device] - early[device]) for device, numbers in found.items()}
        return found

    @property
    def readings(self) -> int:
        """How many were taken so far."""
        return sum(map(len, self.taken().values()))


def with_password(url: str) -> str:
    """The URL with the canary as its password."""
    return url.replace("mqtt://", f"mqtt://bird:{CANARY}@") if "@" not in url else url


def greet(peer: Peer, **connack: object) -> None:
    """Accept a connection of MQTT 5. One of 3.1.1, which an app tries when it got no CONNACK, is closed."""
    try:
        peer.greet(**connack)
    except ValueError:
        raise Gone from None


def good(peer: Peer) -> None:
    """Be a good broker."""
    greet(peer)
    peer.serve()


class Handed(list[tuple[str, bytes]]):
    """The messages of a faulty broker. Each is counted at once."""

    def __init__(self, hear: Callable[[str, bytes], None]) -> None:
        super().__init__()
        self._hear = hear

    def append(self, message: tuple[str, bytes]) -> None:
        super().append(message)
        self._hear(*message)


class Stand:
    """The parts of one row, and what it measures. They end with the ``with`` block.

    Args:
        row: the row.
        directory: an empty one. Each file in it is searched for the canary at the end.
    """

    def __init__(self, row: Row, directory: Path) -> None:
        self.outcome, self.directory = Outcome(row), directory
        self.tally = Tally()
        self.heard: list[tuple[str, bytes]] = []
        """The messages that came, with any topic."""
        self._parts = ExitStack()
        self.jobs: list[Job] = []
        self._ear: Ear | None = None

    def __enter__(self) -> "Stand":
        return self

    def __exit__(self, *exc_info: object) -> None:
        for job in self.jobs:
            job.kill()
            if "Traceback (most" in job.log:
                self.fault(f"a traceback in {job.log_path.name}: {job.log[job.log.index('Traceback') :][:2000]}")
        if self._ear is not None:
            self._ear.close()
        self._parts.close()
        self._search()

    def broker(self, conf: str = "", port: int | None = None) -> Mosquitto:
        """A mosquitto."""
        return self._parts.enter_context(Mosquitto(conf, port=port))

    def proxy(self, port: int, way: Way | None = None) -> Proxy:
        """A proxy before a port."""
        return self._parts.enter_context(Proxy(port, way))

    def faulty(self, *behaviours: object) -> ByteBroker:
        """A broker of these behaviours. What it accepts is counted as what a subscriber hears."""
        broker = ByteBroker(*behaviours)
        broker.messages = Handed(self.hear)
        return self._parts.enter_context(broker)

    def app(self, url: str | None, code: str = "meters(3, 0.2)", name: str = "app", **environment: str) -> Job:
        """Start an app."""
        self.jobs.append(Job(code, url, self.directory, name, **environment))
        return self.jobs[-1]

    def listen(self, port: int) -> None:
        """Count what comes at a broker from now on, and no longer what comes at the one before."""
        if self._ear is not None:
            self._ear.close()
        self._ear = Ear(port, ("#",), hand_on=lambda heard: self.hear(heard.topic, heard.payload, heard.retained))

    def hear(self, topic: str, payload: bytes, retained: bool = False) -> None:
        """Count a message."""
        self.heard.append((topic, payload))
        if topic.startswith("row/"):
            self.tally.add(topic, payload, retained=retained)

    def kill_broker(self, broker: Mosquitto, proxy: Proxy, away: float) -> None:
        """Kill the broker, and let the app in again when the subscriber is there: what the broker acknowledges, it has
        handed over before."""
        self.lead_nowhere(proxy)
        broker.kill()
        time.sleep(away)
        broker.start()
        self.listen(broker.port)
        proxy.target = broker.port

    def lead_nowhere(self, proxy: Proxy) -> None:
        """Let the proxy refuse connections, and cut those that it has."""
        proxy.target = free_port()
        proxy.cut()

    def until(self, look: Callable[[], object], what: str, seconds: float = 120.0) -> float:
        """Wait until `look()` is true; returns the seconds that it took.

        Raises:
            TimeoutError: it did not become true.
        """
        began = time.monotonic()
        while not look():
            if time.monotonic() - began > seconds:
                logs = "; ".join(f"{job.log_path.name}: …{job.log[-200:]}" for job in self.jobs)
                raise TimeoutError(f"not within {seconds:g} s: {what}; {logs}")
            time.sleep(0.02)
        return time.monotonic() - began

    def arrive(self, job: Job, seconds: float = 60.0, kills: Sequence[float] = ()) -> float:
        """Wait until each reading that was accepted by now has come, also over `kills` of the app; returns the seconds.
        Those that did not come are a figure."""
        expected = job.accepted(kills)
        began = time.monotonic()
        while self.tally.lost(expected) and time.monotonic() - began < seconds:
            time.sleep(0.02)
        lost = self.tally.lost(expected)
        self.figure("taken", sum(map(len, expected.values())), least=1)
        self.figure("lost", sum(map(len, lost.values())), most=0)
        return time.monotonic() - began

    def figure(
        self, name: str, value: float, unit: str = "", *, most: float | None = None, least: float | None = None
    ) -> None:
        """Note a figure, and its limits."""
        self.outcome.figures.append(Figure(name, value, unit, most, least))

    def order(self, *, duplicates: float) -> None:
        """Note the order of what came, and the duplicates, of which there may be so many."""
        self.figure("out of order", self.tally.disordered, most=0)
        self.figure("duplicates", self.tally.duplicates, most=duplicates)

    def expect(self, condition: object, fault: str) -> None:
        """Note a fault unless the condition holds."""
        if not condition:
            self.fault(fault)

    def fault(self, fault: str) -> None:
        """Note that something was not as expected."""
        self.outcome.faults.append(fault)

    def stop(self, job: Job) -> float:
        """End an app with SIGTERM; returns how long it took."""
        code, took = job.end(timeout=30.0)
        self.expect(code == 0 or (code == EX_SOFTWARE and took > STOP_DEADLINE), f"exit code {code}")
        self.expect(took <= MAX_EXIT_SECONDS, f"it took {took:.1f} s to end")
        return took

    def _search(self) -> None:
        """Look for the canary in everything that was written or published."""
        for leak in leaks(self.directory, self.heard):
            self.fault(leak)


def dropped(stand: Stand) -> int:
    """How many messages were dropped, as the latest heartbeat says."""
    found = [payload for topic, payload in list(stand.heard) if topic == "row/status"]
    return int(json.loads(found[-1])["mqtt"]["outbox"]["dropped"]) if found else 0


def run(row: Row, directory: Path) -> Outcome:
    """Produce the fault of one row."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    began = time.monotonic()
    stand = Stand(row, directory)
    outcome = stand.outcome
    try:
        with stand:
            assert row.run is not None
            row.run(stand)
    except Absent as error:
        outcome.absent = str(error)
    except Exception as error:
        outcome.faults.append(f"{type(error).__name__}: {error}")
    outcome.seconds = time.monotonic() - began
    return outcome
