"""Recovers adapters that are open but no longer work: it reopens them, then resets them, then calls the user's hook.

It counts failed polls in a row, and failed calls once a poll has retried for a minute, of all handlers that share an
adapter.
A success of any of them resets the count: one dead device on a bus of eight is not a fault of the bus. Only failures
that an
adapter can cause are counted. An adapter whose ``probe`` succeeds is left alone. The first step follows after `FIRST`
failures,
the next ones each time the count has doubled, and finally after every `MOST`:

    reopen → reset (if the adapter has one) → the user's hook (if there is one) → reopen → …
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from leadsman.adapters.managed import ManagedAdapter
from leadsman.errors import TransientError
from leadsman.events import AppFault, AttemptFailed, Event, PollFailed, ReadingTaken, long_failing
from leadsman.registration.injection import Dependencies
from leadsman.resilience.environment import Environment

FIRST, MOST = 3, 48
"""Failed polls in a row before the first step, and the most between two steps."""
HOOK_TIMEOUT = 60.0
"""The longest time for the user's hook in seconds."""

LastResort = Callable[[str, int], Awaitable[object]]

logger = logging.getLogger("leadsman")


class EscalationLadder:
    """The failure count and the current step of one adapter."""

    __slots__ = ("climbing", "failures", "next_at", "rung", "slot")

    def __init__(self, slot: ManagedAdapter) -> None:
        self.slot = slot
        self.failures = 0
        self.next_at = FIRST
        self.rung = 0
        self.climbing: asyncio.Task[None] | None = None


class AdapterRecovery:
    """Observes polls and recovers adapters."""

    def __init__(
        self,
        slots: Sequence[ManagedAdapter],
        needs: Mapping[str, Dependencies],
        last_resort: LastResort | None,
        environment: Environment,
    ) -> None:
        ladders = {id(slot): EscalationLadder(slot) for slot in slots}
        self._ladders: dict[str, list[EscalationLadder]] = {}
        for entity, asked in needs.items():
            self._ladders[entity] = [ladders[id(offer)] for _, offer in asked if id(offer) in ladders]
        self._last_resort = last_resort
        self._environment = environment

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
        rungs = ["reopen", *(["reset"] if slot.supports_reset else []), *(["hook"] if self._last_resort else [])]
        rung = rungs[ladder.rung % len(rungs)]
        ladder.rung += 1
        if rung == "hook":
            await self._ask(slot, failures)
        elif slot.reopen(with_reset=rung == "reset"):
            _tell(failures, "%s: %d failed polls in a row; it is %s", slot.label, failures, _WORDS[rung])

    async def _ask(self, slot: ManagedAdapter, failures: int) -> None:
        assert self._last_resort is not None  # else there is no such rung
        _tell(failures, "%s: %d failed polls in a row; the last resort is called", slot.label, failures)
        try:
            async with asyncio.timeout(HOOK_TIMEOUT):
                await self._last_resort(slot.label, failures)
        except Exception as error:
            self._environment.events.emit(AppFault(f"the last resort for {slot.label}", error))
        slot.reopen(with_reset=False)


def _tell(failures: int, message: str, *words: object) -> None:
    """Log a warning in the first cycle of steps only. After that, the reminders of the outage are enough."""
    logger.log(logging.WARNING if failures <= MOST else logging.DEBUG, message, *words)


_WORDS = {"reopen": "closed and opened again", "reset": "reset and opened again"}
