"""Runs sources: starts their generators, and restarts them when they end, fail or fall silent. One that only waits for
messages in a `Buffer` is not restarted for its silence, which is reported: a restart would make it deaf.

A device that was found at run time has a runner too, which is not run: its readings are handed over by the handler that
found it.

A run without a reading counts as failed for the backoff and for the breaker. Each reading resets their counters.
"""

import asyncio
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from leadsman.core.adapters.managed import adapter_names
from leadsman.core.events import PollFailed, PollSkipped, ReadingTaken
from leadsman.core.loop.clock import Clock
from leadsman.core.loop.durations import human
from leadsman.core.loop.tasks import Outcome, begin, end
from leadsman.core.readings.buffer import LASTS, waits
from leadsman.core.readings.reading import Reading, reading_of
from leadsman.core.registration.event import FIELD
from leadsman.core.registration.injection import bound
from leadsman.core.registration.result import ValidateResult
from leadsman.core.registration.source import Source
from leadsman.core.resilience import overrides
from leadsman.core.resilience.backoff import MAX_WAIT_SECONDS
from leadsman.core.resilience.deadline import Silence
from leadsman.core.resilience.environment import Snapshot
from leadsman.core.resilience.failure import Property
from leadsman.core.resilience.retry_loop import Execution
from leadsman.core.runtime.handler_calls import SharedResources
from leadsman.core.runtime.publisher import PublisherContext, publisher_of
from leadsman.core.runtime.runner import report_goodbye
from leadsman.core.text import clean, join_words
from leadsman.errors import Abandoned, DeviceTimeout, DeviceUnavailable, ResultError

if TYPE_CHECKING:
    from leadsman.core.runtime.document import Counted

LISTENS_AFTER = 5.0
"""Seconds. What cannot be reached mostly fails sooner: an adapter that is not open at once, a refused connection within
a second. A source that needs longer yields None once it listens."""
_AT_A_STRETCH = 50
"""Readings taken before the event loop gets a turn, so that a generator with a full buffer does not block it."""


class SourceRunner:
    """Runs one source. A run that gives no reading for too long is cancelled and started again."""

    __slots__ = (
        "_context",
        "_isolated",
        "_reading_of",
        "_run",
        "_silence",
        "_silence_reported_after",
        "execution",
        "failures",
        "filters",
        "heard_at",
        "publisher",
        "restarts",
        "source",
    )

    def __init__(self, source: Source, context: PublisherContext, resources: SharedResources) -> None:
        self.source = source
        self.publisher = publisher_of(source.name, source.publish, source.delivery, context)
        self.filters = None if source.filters is None else source.filters.begin()
        """See `Reader`."""
        self._reading_of = reading_of if self.filters is None else self.filters.reading_of
        if source.content is not None:
            self._reading_of = source.content.reading_of
        silence = MAX_WAIT_SECONDS if source.silence is None else source.silence
        self._silence = Silence(self._readings, silence, context.environment, self, self._only_waits)
        self.execution: Execution[None] = Execution(
            source.name,
            self._silence,
            source.guards,
            context.environment,
            caller=self,
            shared=resources.shared_guards(source.guards.breaker, source.needs),
        )
        self.failures = 0
        """Runs in a row that gave no reading."""
        self.restarts = 0
        """Runs begun after the first."""
        self.heard_at = -math.inf
        """When the last reading arrived, monotonic seconds."""
        self._context = context
        self._run: asyncio.Task[Outcome[None]] | None = None
        self._isolated = False
        self._silence_reported_after = math.nan  # the time of the last reading before it

    @property
    def name(self) -> str:
        """The name of the device."""
        return self.source.name

    def snapshot(self) -> tuple[Snapshot, float | None]:
        """See `Runner`. A source has no schedule."""
        return self.execution.snapshot(), None

    def count(self, document: "Counted") -> None:
        """See `Runner`."""
        if self.source.found_by is None:
            document["restarts"] = self.restarts

    def retries(self) -> int:
        """See `Runner`."""
        return self.execution.context_attempts()

    def hold(self) -> bool:
        """See `Reader`. A source cannot be held."""
        return False

    def leave(self, reason: str) -> None:
        """See `Reader`. Its generator goes on, so that its return is noticed."""
        report_goodbye(self.name, reason, self._context.environment)

    def release(self, by: str) -> bool:
        """See `Reader`. A source is never held."""
        return False

    def facts(self) -> Mapping[str, Property]:
        """The properties of the handler that a policy may ask about."""
        return {"handler": self.source.name, "adapter": adapter_names(self.source.needs), "verb": "poll"}

    def taken(self, result: None) -> None:
        """See `Caller`. A run returns nothing: its readings are taken as they come."""

    def horizon(self) -> float:
        """See `Caller`. A source has no polls."""
        return math.inf

    def abandoned(self, error: Abandoned) -> None:
        """Report a run that does not end. The source is started again once it has ended."""
        self._report(error)

    def isolated(self) -> None:
        """A person works at the device: end the run."""
        if self._run is not None and not self._silence.expired and not self._isolated:
            self._isolated = True
            self._run.cancel()
            self._silence.interrupted("its circuit was isolated")

    async def run(self) -> None:
        """Run the generator until cancelled."""
        overrides.IN_HANDLER.set(True)
        environment, name = self._context.environment, self.source.name
        while True:
            if self.execution.admit():
                error = await self._once()
                if error is not None and not self._isolated:
                    self._failed(error)
                    error.__traceback__ = None  # reported by now; it holds the frames until the next run has ended
            else:
                self.failures += 1
                environment.events.emit(PollSkipped(name))
            await environment.timers.sleep(self.execution.wait(max(1, self.failures)))
            self.restarts += 1

    def _only_waits(self, task: "asyncio.Task[object]") -> bool:
        """The source is silent: report it, once, if it only waits for messages. No restart brings those."""
        if not waits(task):
            return False
        if self.heard_at != self._silence_reported_after:
            self._silence_reported_after = self.heard_at
            self._report(DeviceTimeout(f"silent for {human(self._silence.seconds)}"))
        return True

    async def _once(self) -> BaseException | None:
        self._isolated = False
        self._run = begin(self.execution.run)
        try:
            return (await end(self._run)).error
        finally:
            self._run = None

    async def _readings(self) -> None:
        """Take readings until the generator has no more; to end after some of them is no failure."""
        readings = bound(self.source.handler, self.source.needs)()
        taken = 0
        try:
            async for result in readings:
                self.accept(result)
                taken += 1
                if taken % _AT_A_STRETCH == 0:
                    await asyncio.sleep(0)
        except Exception as error:
            if self._silence.expired:  # clean-up made another error of the cancellation
                raise asyncio.CancelledError from error
            raise
        finally:
            await readings.aclose()
        if not taken and not self._silence.expired:
            raise DeviceUnavailable("the source ended without a reading; it is started again")

    def accept(self, result: object) -> None:
        """Take a reading, or None, which only shows that the device is there. One that cannot be published is reported
        as a failure."""
        environment, name = self._context.environment, self.source.name
        try:
            reading = self._reading_of(name, result, environment.clock, self.source.validate_result)
        except ResultError as error:  # one bad reading does not end the source
            environment.events.emit(PollFailed(name, error, 1))
            return
        clock = environment.clock
        at, wall = (clock.monotonic(), clock.wall()) if reading is None else (reading.at, reading.wall)
        self._well(at, wall, empty=reading is None)
        if reading is not None:
            self.publisher.try_publish(reading, at)
        else:
            self.publisher.pass_over(at)

    def _well(self, at: float, wall: float, *, empty: bool) -> None:
        """The device was heard, or at least is there."""
        self.heard_at = at
        self._silence.heard(at)
        self.failures = 0
        self.execution.succeed()
        self._context.environment.events.emit(ReadingTaken(self.name, at, wall, 0.0, empty))

    def _failed(self, error: BaseException) -> None:
        self.failures += 1
        if not isinstance(error, Abandoned):  # it was reported when it was abandoned
            self._report(error)

    def _report(self, error: BaseException) -> None:
        self._context.environment.events.emit(PollFailed(self.source.name, error, 1))


class EventRunner(SourceRunner):
    """Runs one source of events. Its silence shows nothing of how it is, so a run that has neither ended nor failed for
    a while is taken for one that listens: its device is well, and available again if it was not. While a run goes on,
    it is the alarm that finds that out."""

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
        """The run has lasted; see `leadsman.core.loop.timers.Alarm`."""
        if self.heard_at <= self._silent_since:
            self._well(now, self._context.environment.clock.wall(), empty=True)

    def accept(self, result: object) -> None:
        """See `SourceRunner`. None is no event, and is not counted as one."""
        if result is None:
            clock = self._context.environment.clock
            self._well(clock.monotonic(), clock.wall(), empty=True)
            return
        before = self.heard_at
        super().accept(result)
        if self.heard_at == before and self.source.found_by is None:  # it was no event, and the run goes on
            self._arm()

    def _event_of(
        self, entity: str, result: object, clock: Clock, validate: ValidateResult | None = None
    ) -> Reading | None:
        """The event. Raises `ResultError` if the type does not list it: nobody expects another."""
        reading = self._read(entity, result, clock, validate)
        if reading is not None and (found := reading.fields.get(FIELD)) not in self._types:
            given = "no event_type" if FIELD not in reading.fields else f"event_type {clean(repr(found)[:100])}"
            raise ResultError(f"the event has {given}; yield one of {join_words(self._types, 'or')}")
        return reading
