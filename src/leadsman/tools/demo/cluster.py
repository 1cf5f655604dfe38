"""The demo of a cluster: three nodes share sixty meters; one is killed, comes back, and another one is stopped."""

import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from leadsman.errors import LeadsmanError
from leadsman.mqtt.broker import Broker
from leadsman.mqtt.connection import Received
from leadsman.tools.cli.own_broker import demo_broker
from leadsman.tools.cli.viewer import Viewer
from leadsman.tools.demo.cluster_app import INTERVAL, METERS, PREFIX
from leadsman.tools.demo.cluster_board import ClusterBoard, Takeovers, describe_takeovers
from leadsman.tools.demo.nodes import INSTALL, NatsServer, NodeProcess, nats_executable, node_command
from leadsman.tools.demo.terminal import say, show

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

        at = self._now(second, "killed", f"on purpose: {second} is killed (kill -9)", NodeProcess.kill)
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

    def _now(self, name: str, state: str, note: str, fault: Callable[[NodeProcess], None]) -> float:
        at = time.time()
        self._note(note)
        fault(self._nodes[name])
        self._states[name] = state
        return at

    def _start(self, name: str) -> None:
        self._nodes[name].start()
        self._states[name] = "running"

    async def _shared(self, names: tuple[str, ...]) -> None:
        """Wait until these nodes read all meters, and say how many each."""
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
            say(event)

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
    if nats_executable() is None:
        raise LeadsmanError(INSTALL)
    lines = not sys.stdout.isatty()
    with contextlib.ExitStack() as stack:
        url, description, _ = stack.enter_context(demo_broker())
        engine = stack.enter_context(NatsServer())
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="leadsman-demo-")))
        environment = {"MQTT__URL": url, "CLUSTER__ENGINE": engine.url, "CLUSTER__TTL": f"{TTL}s"}
        nodes = {
            name: stack.enter_context(NodeProcess(name, node_command(APP), directory, environment)) for name in NODES
        }
        broker = Broker.from_url(url)
        title = f"{broker} ({description}), {engine.url}"
        demo = ClusterDemo(nodes, broker, title, lines=lines)
        if lines:
            say(f"leadsman demo --cluster at {title}")
            say(f"a lease lasts {TTL} s without a renewal; that is the shortest, and 15 s the default")
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(demo.run())
    print("\n".join(demo.summary) or "Nothing was shown.")
