"""Real nodes of a cluster with 10,000 devices: one is killed, all are restarted in turn, and what a node costs while
nothing is read. With a real NATS server and a real mosquitto."""

import atexit
import functools
import json
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import psutil

from benchmarks import bare_python
from benchmarks.ear import Ear, Heard
from benchmarks.measures import ROOT, with_state
from benchmarks.rows import NONE, Row, note
from leadsman.testing import Mosquitto
from leadsman_rigs.nats_server import NatsServer

DEVICES, INTERVAL, TTL = 10_000, 60.0, 15.0
NAMES = ("n1", "n2", "n3", "n4")
RARE = 6 * 3600.0
"""Seconds between two readings of a device, where the rest of what a node does is measured."""
WARM_UP, MEASURED = 60.0, 60.0
"""Seconds. An app that starts still works for a while: it introspects, and Python collects garbage."""
LATEST = 120.0
"""Seconds for which a state of the cluster is waited for."""


class Node:
    """A process that may be killed and started again. `cluster`: the URL of the engine; None for an app without one."""

    def __init__(self, name: str, port: int, cluster: str | None, devices: int, interval: float) -> None:
        given = {"CLUSTER__ENGINE": cluster, "CLUSTER__NODE": name, "CLUSTER__TTL": f"{TTL:g}s"} if cluster else {}
        self.name, self._environment = name, {**with_state(), **given}
        words = map(str, (port, devices, interval))
        self._command = [bare_python.executable("nats"), "-m", "benchmarks.nodes_job", *words]
        self.start()

    def start(self) -> None:
        """Start it, also again."""
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(self._command, cwd=ROOT, env=self._environment, stdout=quiet, stderr=quiet)
        atexit.register(self._process.kill)  # a node must not outlive a benchmark that fails

    def kill(self) -> None:
        """Let it end at once."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Let it end as a service manager does."""
        self._process.terminate()
        self._process.wait(30)

    def cpu(self) -> float:
        """Seconds of CPU so far."""
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)


class Readings:
    """What came of each device: when last, from which node, and the longest time between two."""

    def __init__(self) -> None:
        self.last: dict[str, tuple[float, str]] = {}
        self.gaps: dict[str, float] = {}
        self.parts: dict[str, int] = {}
        """How many devices each node says it owns."""
        self._lock = threading.Lock()

    def hear(self, heard: Heard) -> None:
        """Count a message."""
        device = heard.topic.split("/")[1]
        with self._lock:
            if device == "nodes":
                self._tell(heard)
            elif not heard.retained:
                before = self.last.get(device, (heard.at, ""))[0]
                self.gaps[device] = max(self.gaps.get(device, 0.0), heard.at - before)
                self.last[device] = heard.at, json.loads(heard.payload)["node"]

    def of(self, node: str) -> set[str]:
        """The devices that this node has read last."""
        with self._lock:
            return {device for device, (_, reader) in self.last.items() if reader == node}

    def since(self, begin: float) -> dict[str, float]:
        """When each device that was read since then was read last."""
        with self._lock:
            return {device: at for device, (at, _) in self.last.items() if at >= begin}

    def gap(self) -> float:
        """The longest time in seconds for which a device was not read since this was asked before."""
        now = time.perf_counter()
        with self._lock:
            longest = max(*self.gaps.values(), *(now - at for at, _ in self.last.values()))
            self.gaps = {}
            return longest

    def _tell(self, heard: Heard) -> None:
        name = heard.topic.rsplit("/", 1)[1]
        if heard.payload:
            self.parts[name] = json.loads(heard.payload)["device_count"]
        else:
            self.parts.pop(name, None)


@contextmanager
def cluster(interval: float) -> Iterator[tuple[dict[str, Node], Readings]]:
    """Four nodes that share the devices, and what is heard of them."""
    with ExitStack() as stack:
        broker, engine = stack.enter_context(Mosquitto()), stack.enter_context(NatsServer()).url
        readings = Readings()
        ear = Ear(broker.port, ("job/+/state", "job/nodes/+"), readings.hear)
        stack.callback(ear.close)
        nodes = {name: Node(name, broker.port, engine, DEVICES, interval) for name in NAMES}
        for node in nodes.values():
            stack.callback(node.kill)
        _shared(readings, len(NAMES))
        yield nodes, readings


def _shared(readings: Readings, count: int) -> list[int]:
    """Wait until so many nodes have equal parts, to 10 % of the mean; the parts."""

    def even() -> bool:
        parts = list(readings.parts.values())
        return len(parts) == count and sum(parts) == DEVICES and max(parts) - min(parts) <= 0.2 * DEVICES / count

    _until(even, f"{count} nodes with equal parts, not {readings.parts}")
    return sorted(readings.parts.values())


def _has_a_part(readings: Readings, node: str) -> bool:
    return readings.parts.get(node, 0) > 0


def _until(look: Callable[[], bool], what: str) -> None:
    end = time.perf_counter() + LATEST
    while not look():
        if time.perf_counter() > end:
            raise TimeoutError(f"not within {LATEST:g} s: {what}")
        time.sleep(0.05)


def _faults() -> list[Row]:
    """One is killed and comes back, then all are restarted in turn."""
    note("10,000 devices on four real nodes: about five minutes")
    with cluster(INTERVAL) as (nodes, readings):
        time.sleep(INTERVAL + 5)
        devices, killed = readings.of("n2"), time.perf_counter()
        nodes["n2"].kill()
        _until(lambda: devices <= readings.since(killed).keys(), "its devices are read")
        taken = max(at for device, at in readings.since(killed).items() if device in devices) - killed
        readings.parts.pop("n2", None)
        parts = _shared(readings, 3)
        note(f"  it had {len(devices):,} devices")
        nodes["n2"].start()
        _shared(readings, 4)
        time.sleep(INTERVAL + 5)
        readings.gap()
        for node in nodes.values():
            node.stop()
            readings.parts.pop(node.name, None)
            node.start()
            _until(functools.partial(_has_a_part, readings, node.name), f"{node.name} has a part")
            _shared(readings, 4)
        time.sleep(INTERVAL + 5)
        gap = readings.gap()
    off = max(abs(part - DEVICES / 3) for part in parts) / (DEVICES / 3)
    return [
        Row(
            "10,000 devices at 60 s on 4 real nodes, one is killed: all of its devices are read by others",
            NONE,
            f"{taken:.1f} s",
            wanted="≤ 22.5 s (1.5 TTL)",
        ),
        Row(
            f"… devices of the other three, {off:.0%} from the mean at most",
            NONE,
            " ".join(map(str, parts)),
            wanted="within 10 %",
        ),
        Row("… all are restarted in turn: longest time between two readings", NONE, f"{gap:.1f} s", wanted="≤ 62 s"),
    ]


def _upkeep() -> list[Row]:
    """What a node needs while nothing is read, above an app without a cluster."""
    note("what a node costs: two minutes")
    with cluster(RARE) as (nodes, _), Mosquitto() as other:
        alone = Node("alone", other.port, None, DEVICES // len(NAMES), RARE)
        try:
            time.sleep(WARM_UP)
            everything = [*nodes.values(), alone]
            before = [node.cpu() for node in everything]
            time.sleep(MEASURED)
            shares = [(node.cpu() - was) / MEASURED * 100 for node, was in zip(everything, before, strict=True)]
        finally:
            alone.kill()
    of_nodes, without = shares[: len(NAMES)], shares[-1]
    most = max(of_nodes) - without
    note(f"  nodes {' '.join(f'{each:.2f}' for each in of_nodes)} %, without a cluster {without:.2f} %")
    return [
        Row(
            "… nothing is read: CPU of a node above an app with a quarter of the devices, median (most)",
            NONE,
            f"{statistics.median(of_nodes) - without:.2f} % ({most:.2f} %)",
            wanted="≤ 2 %",
        )
    ]


def nodes(_: int) -> list[Row]:
    """The rows of the table."""
    return [*_faults(), *_upkeep()]
