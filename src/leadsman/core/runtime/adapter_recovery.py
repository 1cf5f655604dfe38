"""Recovers adapters that are open but no longer work: it reopens them, then resets them, then calls the user's hook.

It counts failed polls in a row, and failed calls once a poll has retried for a minute, of all handlers that share an
adapter. A success of any of them resets the count: one dead device on a bus of eight is not a fault of the bus. Only
failures that an adapter can cause are counted. An adapter whose ``probe`` succeeds is left alone. The first step
follows after `FIRST` failures, the next ones each time the count has doubled, and finally after every `MAX_BETWEEN`:

    reopen → reset (if the adapter has one) → the user's hook (if there is one) → reopen → …
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from leadsman.core.adapters.managed import ManagedAdapter
from leadsman.core.events import AppFault, AttemptFailed, Event, PollFailed, ReadingTaken, long_failing
from leadsman.core.monitoring.bugs import placed
from leadsman.core.registration.injection import Dependencies
from leadsman.core.resilience.environment import Environment
from leadsman.core.text import log_fields
from leadsman.errors import TransientError

FIRST, MAX_BETWEEN = 3, 48
"""Failed polls in a row before the first step, and the most between two steps."""
HOOK_TIMEOUT = 60.0
"""The longest time for the user's hook in seconds."""

LastResort = Callable[[str, int], Awaitable[object]]

logger = logging.getLogger("leadsman")


class Escalation:
    """The failure count and the current step of one adapter."""

    __slots__ = ("adapter", "failures", "next_at", "step", "task")

    def __init__(self, adapter: ManagedAdapter) -> None:
        self.adapter = adapter
        self.failures = 0
        self.next_at = FIRST
        """The number of failures at which the next step follows."""
        self.step = 0
        """The number of steps since the last success."""
        self.task: asyncio.Task[None] | None = None
        """The step under way."""


class AdapterRecovery:
    """Observes polls and recovers adapters."""

    def __init__(
        self,
        adapters: Sequence[ManagedAdapter],
        needs: Mapping[str, Dependencies],
        last_resort: LastResort | None,
        environment: Environment,
    ) -> None:
        escalations = {id(adapter): Escalation(adapter) for adapter in adapters}
        self._escalations: dict[str, list[Escalation]] = {}
        for entity, asked in needs.items():
            self._escalations[entity] = [escalations[id(each)] for _, each in asked if id(each) in escalations]
        self._last_resort = last_resort
        self._environment = environment

    def observe(self, event: Event) -> None:
        """Count a failed poll or call, or a success."""
        if type(event) is ReadingTaken:
            for escalation in self._escalations.get(event.entity, ()):
                if escalation.failures:
                    escalation.failures, escalation.next_at, escalation.step = 0, FIRST, 0
        elif isinstance(event, PollFailed) or (isinstance(event, AttemptFailed) and long_failing(event)):
            for escalation in self._escalations.get(event.entity, ()):
                if isinstance(event.error, (OSError, TransientError, *escalation.adapter.transient_errors)):
                    self._failed(escalation)

    def _failed(self, escalation: Escalation) -> None:
        escalation.failures += 1
        if escalation.failures >= escalation.next_at and (escalation.task is None or escalation.task.done()):
            escalation.next_at = escalation.failures + min(escalation.failures, MAX_BETWEEN)
            escalation.task = asyncio.get_running_loop().create_task(self._escalate(escalation))

    async def _escalate(self, escalation: Escalation) -> None:
        """Take the next step, unless the adapter works."""
        adapter, failures = escalation.adapter, escalation.failures
        error = await adapter.probe()
        if error is None:
            return
        probed = f"; its probe: {placed(error)}" if adapter.supports_probe else ""
        steps = ["reopen", *(["reset"] if adapter.supports_reset else []), *(["hook"] if self._last_resort else [])]
        step = steps[escalation.step % len(steps)]
        escalation.step += 1
        if step == "hook":
            await self._call_hook(adapter, failures, probed)
        elif adapter.reopen(with_reset=step == "reset"):
            text = "%s: %d failed polls in a row; it is %s%s"
            _warn(failures, text, adapter.label, failures, _DONE[step], probed)

    async def _call_hook(self, adapter: ManagedAdapter, failures: int, probed: str) -> None:
        assert self._last_resort is not None  # otherwise there is no such step
        text = "%s: %d failed polls in a row; the last resort is called%s"
        _warn(failures, text, adapter.label, failures, probed)
        try:
            async with asyncio.timeout(HOOK_TIMEOUT):
                await self._last_resort(adapter.label, failures)
        except Exception as error:
            self._environment.events.emit(AppFault(f"the last resort for {adapter.label}", error))
        adapter.reopen(with_reset=False)


def _warn(failures: int, message: str, *arguments: object) -> None:
    """Log a warning in the first cycle of steps only. After that, the reminders of the outage are enough."""
    level = logging.WARNING if failures <= MAX_BETWEEN else logging.DEBUG
    logger.log(level, message, *arguments, extra=log_fields("adapter recovery", failures=failures))


_DONE = {"reopen": "closed and opened again", "reset": "reset and opened again"}
