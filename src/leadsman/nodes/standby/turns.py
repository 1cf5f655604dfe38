"""Runs an app that several nodes share: whenever it is this node's turn, and until another node has it."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import NamedTuple, TypeVar

from leadsman.health_file import PERIOD, HealthSummary, health_file
from leadsman.loop.clock import system_clock
from leadsman.monitoring.watchdog import Notifier, write_health
from leadsman.mqtt.link import Access
from leadsman.nodes.shared_app import SharedApp
from leadsman.nodes.standby.machine import AppEnded, TakingOver
from leadsman.nodes.standby.node import StandbyNode
from leadsman.runtime.supervision import cancel
from leadsman.text import clean, log_fields

A = TypeVar("A", bound=SharedApp)
Serve = Callable[[A, Access, asyncio.Event, StandbyNode], Coroutine[object, object, int]]
"""Runs an app while this node owns it."""

_CLOSE = 0.3
"""Seconds for the observation to end, and for its connection to close, each."""

logger = logging.getLogger("leadsman")


class _Signs:
    """Shows the service manager and a container that a node that stands by is well. While it is active, the watchdog of
    the app does that."""

    def __init__(self, app: SharedApp) -> None:
        self._notifier = Notifier.from_environment(app.variables)
        file = health_file(app.variables)
        self._path = None if file is None else Path(file)
        watchdog = None if self._notifier is None else self._notifier.watchdog
        self.period = PERIOD if watchdog is None else min(PERIOD, watchdog / 2)
        """Seconds between two signs."""

    def give(self, text: str) -> None:
        if self._notifier is not None:
            self._notifier.send("READY=1", f"STATUS={text}", "WATCHDOG=1")
        if self._path is not None:
            with contextlib.suppress(OSError):  # the app reports it as soon as it is active
                write_health(self._path, HealthSummary(time.monotonic(), self.period, True, text))

    def close(self) -> None:
        if self._notifier is not None:
            self._notifier.close()
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)


class _Turn(NamedTuple):
    """One time for which this node is active."""

    ending: asyncio.Event
    """Set when the app must stop on this node."""
    following: asyncio.Task[None]
    """Sets it when the process is to stop."""
    showing: asyncio.Task[None]
    """Shows that the node is well until it is active."""


async def serve_in_turns(serve: Serve[A], app: A, access: Access, stopping: asyncio.Event) -> int:
    """Run an app on this node whenever it owns it, until `stopping` is set.

    Args:
        serve: runs the app until an event is set, and returns the number of calls that it left behind.
        app: the app.
        access: the broker, and how a connection to it is made.
        stopping: is set when the process shall end.

    Returns:
        The number of calls that did not end and were left behind.

    Raises:
        Stopped: as `serve`. Another node takes over.
    """
    assert app.standby is not None  # the caller checks this
    node = StandbyNode(app, access, system_clock(asyncio.get_running_loop()))
    about = log_fields("standing by", node=node.name)
    what = "%s: this node, %s, shares the app with others, and takes over when none is active; its lease holds for %g s"
    logger.info(what, app.name, node.name, app.standby.ttl, extra=about)
    observing = asyncio.get_running_loop().create_task(node.observer.run())
    signs, left_behind = _Signs(app), 0
    try:
        while await _turn_comes(node, stopping, signs):
            turn = _begin(node, stopping, signs)
            try:
                left_behind += await serve(app, node.access, turn.ending, node)
            finally:
                turn.following.cancel()
                turn.showing.cancel()
            if stopping.is_set():
                break
            node.feed(AppEnded())
        return left_behind
    finally:
        await cancel([observing], _CLOSE)
        await node.close()
        signs.close()


async def _turn_comes(node: StandbyNode, stopping: asyncio.Event, signs: _Signs) -> bool:
    """Wait until this node takes over. False if the process is to stop."""
    while not stopping.is_set():
        text = "stands by" if node.owner is None else f"stands by for {clean(node.owner)}"
        signs.give("drains" if node.draining else text)
        if await node.turn_or(stopping, signs.period):
            return True
    return False


def _begin(node: StandbyNode, stopping: asyncio.Event, signs: _Signs) -> _Turn:
    ending = asyncio.Event()
    node.begin(ending)

    async def follow() -> None:
        await stopping.wait()
        ending.set()

    async def show() -> None:
        while isinstance(node.state, TakingOver):  # for a TTL at most, which may be longer than WatchdogSec
            signs.give("takes over")
            await asyncio.sleep(signs.period)

    loop = asyncio.get_running_loop()
    return _Turn(ending, loop.create_task(follow()), loop.create_task(show()))
