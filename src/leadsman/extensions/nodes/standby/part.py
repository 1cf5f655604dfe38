"""This process as a node that is active while no other one is: it runs the app whenever it is its turn, and until
another node has it."""

import asyncio
import functools
import logging
import time

from leadsman.core.loop.clock import system_clock
from leadsman.core.monitoring.health_file import LAYOUT
from leadsman.core.mqtt.link import Access
from leadsman.core.runtime.supervision import cancel
from leadsman.core.text import clean, log_fields
from leadsman.core.wiring.core import Core, Node
from leadsman.core.wiring.plan import Plan
from leadsman.core.wiring.run import serve
from leadsman.extensions.nodes.added import add_to_documents
from leadsman.extensions.nodes.failure_state import FailureStates
from leadsman.extensions.nodes.standby.machine import AppEnded, TakingOver
from leadsman.extensions.nodes.standby.node import StandbyNode
from leadsman.extensions.watchdog.watchdog import Signs

_CLOSE_TIMEOUT = 0.3
"""Seconds for the observation to end, and for its connection to close, each."""

logger = logging.getLogger("leadsman")


class ActiveNode(Node):
    """The node that takes over. Nothing of it touches a device before it owns the app.

    Args:
        node: decides whether it does.
    """

    takes_turns = True

    def __init__(self, node: StandbyNode) -> None:
        self._node = node
        self.permitted = node.permitted

    @property
    def leaving(self) -> bool:
        """See `Node`."""
        return self._node.leaving

    @property
    def failure_states(self) -> FailureStates | None:
        """See `Node`."""
        return self._node.observer.failure_states

    def join(self, core: Core) -> None:
        """See `Node`."""
        add_to_documents(core, self._node.report, self._node.ownership)
        core.life.waits.append(functools.partial(self._node.owner_or, core.environment.stopping))


class _StandbySigns(Signs):
    """Shows the service manager and a container that a node that stands by is well. While it is active, the watchdog of
    the app does that."""

    def show(self, text: str) -> None:
        if self._notifier is not None:
            self._notifier.send("READY=1", f"STATUS={text}", "WATCHDOG=1")
        if self._file is not None:
            self._file.write(
                {"layout": LAYOUT, "at": time.monotonic(), "period": self.period, "fresh": True, "words": text}
            )


async def serve_as_standby(plan: Plan, access: Access, stopping: asyncio.Event) -> int:
    """Run the app on this node whenever it owns it, until `stopping` is set; see `leadsman.core.wiring.run.serve`.
    After an error another node takes over."""
    node = StandbyNode(plan, access, system_clock(asyncio.get_running_loop()))
    about = log_fields("standing by", node=node.name)
    what = "%s: this node, %s, shares the app with others, and takes over when none is active; its lease holds for %g s"
    logger.info(what, plan.identity.name, node.name, node.ttl, extra=about)
    observing = asyncio.get_running_loop().create_task(node.observer.run())
    signs, left_behind = _StandbySigns(plan.variables), 0
    try:
        while await _turn_comes(node, stopping, signs):
            ending, beside = _begin(node, stopping, signs)
            try:
                left_behind += await serve(plan, node.access, ending, ActiveNode(node))
            finally:
                for task in beside:
                    task.cancel()
            if stopping.is_set():
                break
            node.feed(AppEnded())
        return left_behind
    finally:
        await cancel([observing], _CLOSE_TIMEOUT)
        await node.close()
        signs.close()


async def _turn_comes(node: StandbyNode, stopping: asyncio.Event, signs: _StandbySigns) -> bool:
    """Wait until this node takes over. False if the process is to stop."""
    while not stopping.is_set():
        text = "stands by" if node.owner is None else f"stands by for {clean(node.owner)}"
        signs.show("drains" if node.draining else text)
        if await node.turn_or(stopping, signs.period):
            return True
    return False


def _begin(
    node: StandbyNode, stopping: asyncio.Event, signs: _StandbySigns
) -> tuple[asyncio.Event, tuple[asyncio.Task[None], ...]]:
    """Begin a time for which this node is active. Returns what is set when the app must stop on this node, and the
    tasks beside it: one sets it when the process is to stop, one shows that the node is well until it is active."""
    ending = asyncio.Event()
    node.begin(ending)

    async def follow() -> None:
        await stopping.wait()
        ending.set()

    async def show() -> None:
        while isinstance(node.state, TakingOver):  # for a TTL at most, which may be longer than WatchdogSec
            signs.show("takes over")
            await asyncio.sleep(signs.period)

    loop = asyncio.get_running_loop()
    return ending, (loop.create_task(follow()), loop.create_task(show()))
