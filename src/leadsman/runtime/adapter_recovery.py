"""Adapters that no longer work though they are open: closed and opened again, then made anew, then a hook of the user's.

Counted are failed polls in a row, and failed calls once a poll has retried for a minute, of all the handlers that share an adapter, as long as none of them succeeds: one dead
device on a bus of eight is no fault of the bus. Only failures count that an adapter can cause. An adapter that has a
``probe`` and passes it is left alone. The rungs come at `FIRST` failures and each doubling, up to every `MOST`:

    reopen → reset (where the adapter has one) → the user's hook (where there is one) → reopen → …
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from leadsman.adapters.adapter import ManagedAdapter
from leadsman.errors import TransientError
from leadsman.events import AppFault, AttemptFailed, Event, PollFailed, ReadingTaken, long_failing
from leadsman.registration.injection import Dependencies
from leadsman.resilience.environment import Environment

FIRST, MOST = 3, 48
"""Failed polls in a row before the first rung, and between two rungs at the most."""
HOOK_TIMEOUT = 60.0
"""Seconds for the user's hook."""

LastResort = Callable[[str, int], Awaitable[object]]

logger = logging.getLogger("leadsman")


class EscalationLadder:
    """One adapter's count and rung."""

    __slots__ = ("climbing", "failures", "next_at", "rung", "slot")

    def __init__(self, slot: ManagedAdapter) -> None:
        self.slot = slot
        self.failures = 0
        self.next_at = FIRST
        self.rung = 0
        self.climbing: asyncio.Task[None] | None = None


class AdapterRecovery:
    """Observes polls, and reopens adapters."""

    def __init__(
        self,
        slots: Sequence[ManagedAdapter],
        needs: Mapping[str, Dependencies],
        last_resort: LastResort | None,
        world: Environment,
    ) -> None:
        ladders = {id(slot): EscalationLadder(slot) for slot in slots}
        self._ladders: dict[str, list[EscalationLadder]] = {}
        for entity, asked in needs.items():
            self._ladders[entity] = [ladders[id(offer)] for _, offer in asked if id(offer) in ladders]
        self._last_resort = last_resort
        self._world = world

    def observe(self, event: Event) -> None:
        """Take one event."""
        if type(event) is ReadingTaken:
            for ladder in self._ladders.get(event.entity, ()):
                if ladder.failures:
                    ladder.failures, ladder.next_at, ladder.rung = 0, FIRST, 0
        elif isinstance(event, PollFailed) or (isinstance(event, AttemptFailed) and long_failing(event)):
            for ladder in self._ladders.get(event.entity, ()):
                if isinstance(event.error, (OSError, TransientError, *ladder.slot.transient_errors)):
                    self._failed(ladder)

    def _failed(self, ladder: EscalationLadder) -> None:
        ladder.failures += 1
        if ladder.failures >= ladder.next_at and (ladder.climbing is None or ladder.climbing.done()):
            ladder.next_at = ladder.failures + min(ladder.failures, MOST)
            ladder.climbing = asyncio.get_running_loop().create_task(self._climb(ladder))

    async def _climb(self, ladder: EscalationLadder) -> None:
        slot, failures = ladder.slot, ladder.failures
        if await slot.probe():
            return
        has_reset = callable(getattr(slot.adapter, "reset", None))
        rungs = ["reopen", *(["reset"] if has_reset else []), *(["hook"] if self._last_resort else [])]
        rung = rungs[ladder.rung % len(rungs)]
        ladder.rung += 1
        if rung == "hook":
            await self._ask(slot, failures)
        elif slot.reopen(remake=rung == "reset"):
            _tell(failures, "%s: %d failed polls in a row; it is %s", slot.label, failures, _WORDS[rung])

    async def _ask(self, slot: ManagedAdapter, failures: int) -> None:
        assert self._last_resort is not None  # else there is no such rung
        _tell(failures, "%s: %d failed polls in a row; the last resort is called", slot.label, failures)
        try:
            async with asyncio.timeout(HOOK_TIMEOUT):
                await self._last_resort(slot.label, failures)
        except Exception as error:
            clock = self._world.clock
            where = f"the last resort for {slot.label}"
            self._world.events.emit(AppFault(clock.monotonic(), clock.wall(), where, error))
        slot.reopen(remake=False)


def _tell(failures: int, message: str, *words: object) -> None:
    """Told once round the ladder; after that the reminders of the outage say enough."""
    logger.log(logging.WARNING if failures <= MOST else logging.DEBUG, message, *words)


_WORDS = {"reopen": "closed and opened again", "reset": "made anew and opened again"}
