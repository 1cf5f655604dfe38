"""The demo of a cluster: three nodes share sixty meters; one is killed, comes back, and another one is stopped. Its
processes are a NATS server and the nodes."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from leadsman.errors import LeadsmanError
from leadsman.mqtt.broker import Broker
from leadsman.mqtt.connection import Received
from leadsman.testing.mosquitto import free_port
from leadsman.tools.cli.own_broker import Viewer, demo_broker
from leadsman.tools.demo.board import ClusterBoard, Takeovers, describe_takeovers, print_text, show
from leadsman.tools.demo.cluster_app import INTERVAL, METERS, NODE, PREFIX

NODES = ("pi-1", "pi-2", "pi-3")
TTL = 3
"""Seconds; the shortest that is allowed, so that nobody waits for long."""
APP = "leadsman.tools.demo.cluster_app:app"
QUIET = 2 * INTERVAL
"""Seconds without a change, after which the nodes agree."""
LOOK = 2.0
"""Seconds to look at what came of it."""
PATIENCE = 60.0
"""Seconds until what must happen has not."""
START_TIMEOUT = 60.0
"""Seconds."""
STOP_TIMEOUT = 10.0
"""Seconds that a process has to end by SIGTERM."""
INSTALL = (
    "the demo of a cluster needs nats-server, which keeps the leases; on Debian: apt-get install nats-server;"
    " elsewhere: https://docs.nats.io/running-a-nats-service/introduction/installation"
)
LAST_LINES = 5
"""Of the log of a node that did not start."""


def nats_executable() -> str | None:
    """The path of nats-server, also in ``/usr/sbin`` if the search path lacks it; None if it is not installed."""
    return shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin:/usr/local/sbin")


@contextlib.contextmanager
def nats_server() -> Iterator[str]:
    """Run a NATS server with JetStream on the loopback interface. Gives its URL, for ``[cluster] engine``.

    Raises:
        LeadsmanError: nats-server is not installed, or did not start.
    """
    program, port = nats_executable(), free_port()
    if program is None:
        raise LeadsmanError(INSTALL)
    with contextlib.ExitStack() as stack:
        directory = tempfile.TemporaryDirectory(prefix="leadsman-nats-", ignore_cleanup_errors=True)
        conf = Path(stack.enter_context(directory), "nats.conf")
        store = json.dumps(str(conf.with_name("data")))
        conf.write_text(f"listen: 127.0.0.1:{port}\njetstream {{ store_dir: {store} }}\n")
        process = subprocess.Popen(
            [program, "-c", str(conf)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        stack.callback(end, process)
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 0.2).close()
                break
            if time.monotonic() > deadline or process.poll() is not None:
                raise LeadsmanError(f"nats-server did not start; try: {program} -js -p {port}")
            time.sleep(0.01)
        yield f"nats://127.0.0.1:{port}"


class NodeProcess:
    """One node: a process with a state of its own. It ends with the ``with`` block.

    Args:
        name: the name of the node.
        directory: for its state and its log.
        environment: its variables beside those of this process.
    """

    def __init__(self, name: str, directory: Path, environment: dict[str, str]) -> None:
        self.name = name
        self._directory = directory
        self._log = directory / f"{name}.log"
        self._environment = {NODE: name, "STATE_DIRECTORY": str(directory / name), **environment}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it; do not wait until it reads."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "leadsman", "run", APP],
                cwd=self._directory,  # where no settings of another app lie
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demo, which ends its nodes itself
            )

    def stop(self) -> None:
        """End it as a service manager does."""
        process, self._process = self._process, None
        if process is not None:
            end(process)

    def kill(self) -> None:
        """End it as a power cut does."""
        if self._process is not None:
            self._process.kill()
        self.stop()

    def check(self) -> None:
        """See that it runs, if it should.

        Raises:
            LeadsmanError: it has ended by itself; with the end of its log.
        """
        if self._process is not None and (code := self._process.poll()) is not None:
            log = "\n".join(self._log.read_text(errors="replace").splitlines()[-LAST_LINES:])
            raise LeadsmanError(f"node {self.name} ended with exit code {code}:\n{log}")


def end(process: "subprocess.Popen[bytes]") -> None:
    """SIGTERM, and SIGKILL if that is not enough."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class ClusterDemo:
    """The faults on a timetable, and what came of them.

    Args:
        nodes: by name.
        broker: where they publish.
        title: which servers there are.
        lines: print lines instead of drawing a board.
    """

    def __init__(self, nodes: Mapping[str, NodeProcess], broker: Broker, title: str, *, lines: bool) -> None:
        self._nodes = nodes
        self._broker = broker
        self._lines = lines
        self._takeovers = Takeovers()
        self._states = dict.fromkeys(nodes, "starting")
        self._board = ClusterBoard(self._takeovers, self._states, title)
        self.summary: list[str] = []
        """What came of each fault, in a line."""

    async def run(self) -> None:
        """Start the nodes, and show what happens when they fail.

        Raises:
            LeadsmanError: a node ended by itself, or what must happen did not.
        """
        viewer = Viewer(self._broker, f"{PREFIX}-viewer", f"{PREFIX}/+/state", self._hear)
        tasks = [
            asyncio.create_task(viewer.listen()),
            *([] if self._lines else [asyncio.create_task(show(self._board))]),
        ]
        try:
            await self._faults()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _faults(self) -> None:
        first, second, third = NODES
        self._note(f"three nodes start; each has the registrations of all {METERS} meters")
        for name in NODES:
            self._start(name)
        await self._shared(NODES)
        await asyncio.sleep(LOOK)

        at = time.time()
        self._note(f"on purpose: {second} is killed (kill -9)")
        self._nodes[second].kill()
        self._states[second] = "killed"
        await self._shared((first, third))
        self._report(f"{second} was killed", at, second)
        await asyncio.sleep(LOOK)

        at = time.time()
        self._note(f"{second} comes back, and takes its part")
        self._start(second)
        await self._shared(NODES)
        self._report(f"{second} came back", at)
        await asyncio.sleep(LOOK)

        at = time.time()
        self._note(f"on purpose: {third} is stopped (SIGTERM), as by an upgrade")
        self._states[third] = "ending"
        await asyncio.to_thread(self._nodes[third].stop)
        self._states[third] = "ended"
        await self._shared((first, second))
        self._report(f"{third} was stopped", at, third)
        await asyncio.sleep(LOOK)

    def _start(self, name: str) -> None:
        self._nodes[name].start()
        self._states[name] = "running"

    async def _shared(self, names: tuple[str, ...]) -> None:
        """Wait until these nodes read all meters, and report how many each."""
        end = time.monotonic() + PATIENCE
        while not self._takeovers.settled(names, METERS, time.time(), QUIET):
            for node in self._nodes.values():
                node.check()
            if time.monotonic() > end:
                raise LeadsmanError(f"not all meters were read by {', '.join(names)} within {PATIENCE:.0f} s")
            await asyncio.sleep(0.05)
        parts = ", ".join(f"{name} {len(self._takeovers.owned(name))}" for name in names)
        self._event(f"{METERS} meters: {parts}")

    def _report(self, what: str, at: float, before: str | None = None) -> None:
        line = f"{what}: {describe_takeovers(self._takeovers.since(at, before))}"
        self.summary.append(line)
        self._event(line)

    def _note(self, note: str) -> None:
        self._board.note = note
        self._event(f"--- {note}")

    def _event(self, event: str) -> None:
        self._board.events.append(f"{time.strftime('%H:%M:%S')} {event}")
        if self._lines:
            print_text(event)

    def _hear(self, message: Received) -> None:
        if not message.retain:
            device = message.topic.removeprefix(f"{PREFIX}/").removesuffix("/state")
            self._takeovers.hear(device, json.loads(message.payload)["read_by"], time.time())


def run_cluster_demo() -> None:
    """Run the demo to its end, or until Ctrl-C.

    Raises:
        LeadsmanError: a server is not installed or did not start, a node ended, or the demo did not go as it should.
    """
    if find_spec("nats") is None:
        raise LeadsmanError('the demo of a cluster needs the client of NATS; type: pip install "leadsman[nats]"')
    lines = not sys.stdout.isatty()
    with contextlib.ExitStack() as stack:
        engine = stack.enter_context(nats_server())
        url, description, _ = stack.enter_context(demo_broker())
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="leadsman-demo-")))
        environment = {"MQTT__URL": url, "CLUSTER__ENGINE": engine, "CLUSTER__TTL": f"{TTL}s"}
        nodes = {name: stack.enter_context(NodeProcess(name, directory, environment)) for name in NODES}
        broker = Broker.from_url(url)
        title = f"{broker} ({description}), {engine}"
        demo = ClusterDemo(nodes, broker, title, lines=lines)
        if lines:
            print_text(f"leadsman demo --cluster at {title}")
            print_text(f"a lease lasts {TTL} s without a renewal; that is the shortest, and 15 s the default")
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(demo.run())
    print("\n".join(demo.summary) or "Nothing was shown.")
