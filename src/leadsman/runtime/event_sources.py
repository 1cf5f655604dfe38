"""Runs sources of events. Their silence shows nothing of how they are, so a run that has neither ended nor failed for a
while is taken for one that listens: its device is well, and available again if it was not."""

import math

from leadsman.errors import ResultError
from leadsman.loop.clock import Clock
from leadsman.readings.buffer import LASTS
from leadsman.readings.reading import Reading
from leadsman.registration.event import FIELD
from leadsman.registration.result import ValidateResult
from leadsman.registration.source import Source
from leadsman.runtime.handler_calls import SharedResources
from leadsman.runtime.publisher import PublisherContext
from leadsman.runtime.sources import SourceRunner
from leadsman.text import clean, join_words

LISTENS_AFTER = 5.0
"""Seconds. What cannot be reached mostly fails sooner: an adapter that is not open at once, a refused connection within
a second. A source that needs longer yields None once it listens."""


class EventRunner(SourceRunner):
    """Runs one source of events. While a run goes on, it is the alarm that finds out whether that listens."""

    __slots__ = ("_read", "_silent_since", "_slot", "_types")

    def __init__(self, source: Source, context: PublisherContext, resources: SharedResources) -> None:
        super().__init__(source, context, resources)
        assert source.events is not None  # else it is run by a `SourceRunner`
        self._types = source.events.types
        self._read, self._reading_of = self._reading_of, self._event_of
        self._slot = 0
        self._silent_since = 0.0

    async def _readings(self) -> None:
        expiry = self.source.delivery.expiry
        LASTS.set(math.inf if expiry is None else expiry)  # of this run, which is a task of its own
        self._arm()
        try:
            await super()._readings()
        finally:
            self._context.environment.timers.remove(self._slot, self)

    def _arm(self) -> None:
        """Find out later whether the run that begins, or goes on after what is no event, listens."""
        environment = self._context.environment
        environment.timers.remove(self._slot, self)
        self._silent_since = environment.clock.monotonic()
        self._slot = environment.timers.add(self._silent_since + LISTENS_AFTER, self)

    def ring(self, now: float) -> None:
        """The run has lasted; see `leadsman.loop.timers.Alarm`."""
        if self.heard_at <= self._silent_since:
            self._well(now, self._context.environment.clock.wall(), empty=True)

    def take(self, result: object) -> None:
        """See `SourceRunner`. None is no event, and is not counted as one."""
        if result is None:
            clock = self._context.environment.clock
            self._well(clock.monotonic(), clock.wall(), empty=True)
            return
        before = self.heard_at
        super().take(result)
        if self.heard_at == before and self.source.found_by is None:  # it was no event, and the run goes on
            self._arm()

    def _event_of(
        self, entity: str, result: object, clock: Clock, validate: ValidateResult | None = None
    ) -> Reading | None:
        """The event. Raises `ResultError` if it is none of those that the type lists: nobody expects another."""
        reading = self._read(entity, result, clock, validate)
        if reading is not None and (found := reading.fields.get(FIELD)) not in self._types:
            given = "no event_type" if FIELD not in reading.fields else f"event_type {clean(repr(found)[:100])}"
            raise ResultError(f"the event has {given}; yield one of {join_words(self._types, 'or')}")
        return reading
