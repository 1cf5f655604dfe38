"""The demo of a cluster, in lines: three nodes share sixty meters; one is killed, comes back, and another one is
stopped. Its processes are a NATS server and the nodes."""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping

from leadsman.core.mqtt.broker import Broker
from leadsman.core.mqtt.connection import Received
from leadsman.core.text import count_noun
from leadsman.errors import LeadsmanError
from leadsman.testing.mosquitto import free_port
from leadsman.tools.cli.own_broker import Viewer, demo_broker
from leadsman.tools.demo.cluster_app import INTERVAL, METERS, NODE, PREFIX
from leadsman.tools.demo.demo import print_text

NODES = ("pi-1", "pi-2", "pi-3")
TTL = 3
"""Seconds; the shortest that is allowed, so that nobody waits for long."""
APP = "leadsman.tools.demo.cluster_app:app"
SETTLED_SECONDS = 2 * INTERVAL
"""Seconds without a change, after which the nodes agree."""
VIEW_SECONDS = 2.0
"""Seconds to look at what came of it."""
STEP_TIMEOUT = 60.0
"""Seconds until what must happen has not."""
INSTALL = (
    "the demo of a cluster needs nats-server, which keeps the leases; on Debian: apt-get install nats-server;"
    " elsewhere: https://docs.nats.io/running-a-nats-service/introduction/installation"
)


def nats_executable() -> str | None:
    """The path of nats-server, also in ``/usr/sbin`` if the search path lacks it; None if it is not installed."""
    return shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin:/usr/local/sbin")


class Takeovers:
    """An account of the readings that came: which node read each device last, and how long devices waited for another
    node."""

    def __init__(self) -> None:
        self.gaps: list[float] = []
        """Seconds from the last reading of a device by one node to the first one by another node."""
        self._last: dict[str, tuple[str, float]] = {}
        self._changed_at = 0.0

    def hear(self, device: str, node: str, at: float) -> None:
        """A node read a device at this time, seconds."""
        before, last_at = self._last.get(device, (node, at))
        if before != node:
            self.gaps.append(at - last_at)
            self._changed_at = at
        self._last[device] = node, at

    def owned(self, node: str) -> list[str]:
        """The devices that this node read last, sorted."""
        return sorted(device for device, (last, _) in self._last.items() if last == node)

    def settled(self, nodes: Collection[str], count: int, now: float, quiet: float) -> bool:
        """Whether so many devices are read by exactly these nodes, all within the last `quiet` seconds, in which no
        device changed its node."""
        return (
            len(self._last) == count
            and {node for node, _ in self._last.values()} == set(nodes)
            and all(now - at <= quiet for _, at in self._last.values())
            and now - self._changed_at > quiet
        )

    def account(self) -> str:
        """How many devices changed their node since the last account, and how long they waited."""
        gaps, self.gaps = sorted(self.gaps), []
        if not gaps:
            return "no device changed its node"
        median = gaps[len(gaps) // 2]
        return f"{count_noun(len(gaps), 'device')} moved, longest gap {gaps[-1]:.1f} s, median {median:.1f} s"


class ClusterDemo:
    """The faults in their order, and what came of them.

    Args:
        directory: where the processes run, and where no settings of another app lie.
        environment: the variables of each node beside those of this process.
    """

    def __init__(self, directory: str, environment: Mapping[str, str]) -> None:
        self._directory = directory
        self._environment = environment
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._takeovers = Takeovers()
        self.summary: list[str] = []
        """What came of each fault, in a line."""

    def start(self, name: str, *command: str) -> None:
        """Start a process. Ctrl-C is for the demo, which ends it."""
        own = {NODE: name, "STATE_DIRECTORY": f"{self._directory}/{name}", "LOG_LEVEL": "ERROR"}
        self._processes[name] = subprocess.Popen(
            command, cwd=self._directory, env={**os.environ, **self._environment, **own}, start_new_session=True
        )

    def end(self) -> None:
        """End all processes."""
        for process in self._processes.values():
            process.terminate()
            process.wait()

    def check(self) -> None:
        """See that all processes run.

        Raises:
            LeadsmanError: one has ended by itself.
        """
        for name, process in self._processes.items():
            if (code := process.poll()) is not None:
                raise LeadsmanError(f"{name} ended with exit code {code}; it has written why")

    async def run(self, broker: Broker) -> None:
        """Start the nodes, and print what happens when they fail.

        Raises:
            LeadsmanError: a node ended by itself, or what must happen did not.
        """
        first, second, third = NODES
        viewer = Viewer(broker, f"{PREFIX}/+/state", self._hear)
        listening = asyncio.create_task(viewer.listen())
        try:
            print_text(f"--- three nodes start; each has the registrations of all {METERS} meters")
            for name in NODES:
                self._start_node(name)
            await self._shared(*NODES)
            self._takeovers.account()  # who read what before all were there, is none
            print_text(f"--- on purpose: {second} is killed (kill -9)")
            await self._ended(second, subprocess.Popen.kill)
            await self._report(f"{second} was killed", first, third)
            print_text(f"--- {second} comes back, and takes its part")
            self._start_node(second)
            await self._report(f"{second} came back", *NODES)
            print_text(f"--- on purpose: {third} is stopped (SIGTERM), as by an upgrade")
            await self._ended(third, subprocess.Popen.terminate)
            await self._report(f"{third} was stopped", first, second)
        finally:
            listening.cancel()
            await asyncio.wait([listening])

    def _start_node(self, name: str) -> None:
        self.start(name, sys.executable, "-m", "leadsman", "run", APP)

    async def _ended(self, name: str, stop: Callable[["subprocess.Popen[bytes]"], None]) -> None:
        process = self._processes.pop(name)
        stop(process)
        await asyncio.to_thread(process.wait)

    async def _report(self, what: str, *readers: str) -> None:
        """Wait until these nodes share the meters, and report what moved."""
        await self._shared(*readers)
        self.summary.append(f"{what}: {self._takeovers.account()}")
        print_text(self.summary[-1])

    async def _shared(self, *names: str) -> None:
        """Wait until these nodes read all meters, report how many each, and leave time to look."""
        deadline = time.monotonic() + STEP_TIMEOUT
        while not self._takeovers.settled(names, METERS, time.time(), SETTLED_SECONDS):
            self.check()
            if time.monotonic() > deadline:
                raise LeadsmanError(f"not all meters were read by {', '.join(names)} within {STEP_TIMEOUT:.0f} s")
            await asyncio.sleep(0.05)
        print_text(f"{METERS} meters: {', '.join(f'{name} {len(self._takeovers.owned(name))}' for name in names)}")
        await asyncio.sleep(VIEW_SECONDS)

    def _hear(self, message: Received) -> None:
        if not message.retain:
            device = message.topic.removeprefix(f"{PREFIX}/").removesuffix("/state")
            self._takeovers.hear(device, json.loads(message.payload)["read_by"], time.time())


def run_cluster_demo() -> None:
    """Run the demo to its end, or until Ctrl-C.

    Raises:
        LeadsmanError: a server is not installed or did not start, a node ended, or the demo did not go as it should.
    """
    program, port = nats_executable(), free_port()
    if program is None:
        raise LeadsmanError(INSTALL)
    engine = f"nats://127.0.0.1:{port}"
    with contextlib.ExitStack() as stack:
        url, description, _ = stack.enter_context(demo_broker())
        directory = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="leadsman-demo-", ignore_cleanup_errors=True)
        )
        environment = {"MQTT__URL": url, "CLUSTER__ENGINE": engine, "CLUSTER__TTL": f"{TTL}s"}
        demo = ClusterDemo(directory, environment)
        stack.callback(demo.end)
        log = f"{directory}/nats.log"  # what it logs is about a server, and not what the demo shows
        demo.start("nats-server", program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", directory, "-l", log)
        while not _listens(port):
            demo.check()
            time.sleep(0.01)
        print_text(f"leadsman demo --cluster at {url} ({description}), {engine}")
        print_text(f"a lease lasts {TTL} s without a renewal; that is the shortest, and 15 s the default")
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(demo.run(Broker.from_url(url)))
    print("\n".join(demo.summary) or "Nothing was shown.")


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 0.2).close()
        return True
    return False
