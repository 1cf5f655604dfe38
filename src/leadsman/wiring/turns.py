"""Runs an app that several nodes share: whenever it is this node's turn, and until another node has it."""

import asyncio
import contextlib
import logging
import time
from typing import NamedTuple

from leadsman.monitoring.watchdog import PERIOD, HealthSummary, Notifier, health_file, write_health
from leadsman.mqtt.link import Access
from leadsman.runtime.supervision import cancel
from leadsman.standby.machine import Ended, TakingOver
from leadsman.standby.member import Member
from leadsman.text import clean, log_fields
from leadsman.timing.clock import system_clock
from leadsman.wiring.plan import Plan
from leadsman.wiring.run import serve

_CLOSE = 0.3
"""Seconds for the observation to end, and for its connection to close, each."""

logger = logging.getLogger("leadsman")


class _Signs:
    """Shows the service manager and a container that a node that stands by is well. While it is active, the watchdog of
    the app does that."""

    def __init__(self, plan: Plan) -> None:
        self._notifier = Notifier.from_environment(plan.variables)
        self._path = health_file(plan.variables)
        watchdog = None if self._notifier is None else self._notifier.watchdog
        self.period = PERIOD if watchdog is None else min(PERIOD, watchdog / 2)
        """Seconds between two signs."""

    def give(self, words: str) -> None:
        if self._notifier is not None:
            self._notifier.send("READY=1", f"STATUS={words}", "WATCHDOG=1")
        if self._path is not None:
            with contextlib.suppress(OSError):  # the app reports it as soon as it is active
                write_health(self._path, HealthSummary(time.monotonic(), self.period, True, words))

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


async def serve_in_turns(plan: Plan, access: Access, stopping: asyncio.Event) -> int:
    """Run an app on this node whenever it owns it, until `stopping` is set.

    Returns:
        The number of calls that did not end and were left behind.

    Raises:
        Stopped: see `leadsman.wiring.run.serve`. Another node takes over.
    """
    assert plan.standby is not None  # who calls this has looked
    clock = system_clock(asyncio.get_running_loop())
    versions = plan.version, plan.leadsman
    member = Member(plan.topics, plan.client_id, plan.standby.ttl, versions, access, clock)
    member.report.devices = plan.devices
    if plan.keep_state:
        member.share_state()
    about = log_fields("standing by", node=member.name)
    what = "%s: this node, %s, shares the app with others, and takes over when none is active; its lease holds for %g s"
    logger.info(what, plan.name, member.name, plan.standby.ttl, extra=about)
    observing = asyncio.get_running_loop().create_task(member.observer.run())
    signs, left_behind = _Signs(plan), 0
    try:
        while await _turn_comes(member, stopping, signs):
            turn = _begin(member, stopping, signs)
            try:
                left_behind += await serve(plan, member.access, turn.ending, member)
            finally:
                turn.following.cancel()
                turn.showing.cancel()
                plan.live.ask_poll = None
            if stopping.is_set():
                break
            member.feed(Ended())
        return left_behind
    finally:
        await cancel([observing], _CLOSE)
        await member.close()
        signs.close()


async def _turn_comes(member: Member, stopping: asyncio.Event, signs: _Signs) -> bool:
    """Wait until this node takes over. False if the process is to stop."""
    while not stopping.is_set():
        words = "stands by" if member.owner is None else f"stands by for {clean(member.owner)}"
        signs.give("drains" if member.draining else words)
        if await member.turn_or(stopping, signs.period):
            return True
    return False


def _begin(member: Member, stopping: asyncio.Event, signs: _Signs) -> _Turn:
    ending = asyncio.Event()
    member.begin(ending)

    async def follow() -> None:
        await stopping.wait()
        ending.set()

    async def show() -> None:
        while isinstance(member.state, TakingOver):  # for a TTL at most, which may be longer than WatchdogSec
            signs.give("takes over")
            await asyncio.sleep(signs.period)

    loop = asyncio.get_running_loop()
    return _Turn(ending, loop.create_task(follow()), loop.create_task(show()))
