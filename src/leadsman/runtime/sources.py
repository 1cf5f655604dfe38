"""Runs sources: starts their generators, and restarts them when they end, fail or fall silent.

A run without a reading counts as failed for the backoff and for the breaker. Each reading resets their counters.
"""

import asyncio
import math
from collections.abc import Mapping

from leadsman.adapters.managed import adapter_names
from leadsman.errors import Abandoned, DeviceTimeout, DeviceUnavailable, ResultError
from leadsman.events import PollFailed, PollSkipped, ReadingTaken
from leadsman.reading import JsonObject, reading_of
from leadsman.registration.injection import bound
from leadsman.registration.source import Source
from leadsman.resilience import scope
from leadsman.resilience.environment import Snapshot
from leadsman.resilience.execution import GRACE, Execution
from leadsman.resilience.failure import Property
from leadsman.runtime.calls import SharedResources
from leadsman.runtime.publisher import PublisherContext, publisher_of
from leadsman.tasks import Outcome, begin, end
from leadsman.timing.durations import human

_AT_A_STRETCH = 50
"""Readings taken before the event loop gets a turn, so that a generator with a full buffer does not block it."""

_SILENCE, _ISOLATED = "it was silent", "its circuit was isolated"
"""Why a run was cancelled."""


class SourceRunner:
    """Runs one source. It is an alarm in the heap and rings when the source may have fallen silent."""

    __slots__ = (
        "_cancelled", "_context", "_run", "_slot", "_started", "_stubborn", "execution", "failures", "heard_at", "publisher", "restarts", "source",
    )  # fmt: skip

    def __init__(self, source: Source, context: PublisherContext, resources: SharedResources) -> None:
        self.source = source
        self.publisher = publisher_of(source.name, source.publish, source.delivery, context)
        self.execution = Execution(
            source.name,
            self._readings,
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
        self._cancelled = ""
        self._stubborn = False
        self._slot = 0
        self._started = 0.0

    @property
    def name(self) -> str:
        """The name of the device."""
        return self.source.name

    def look(self) -> tuple[Snapshot, float | None]:
        """See `Runner`. A source has no schedule."""
        return self.execution.snapshot(), None

    def counters(self) -> JsonObject:
        """See `Runner`."""
        return {"restarts": self.restarts}

    def hold(self) -> bool:
        """See `Runner`. A source cannot be held."""
        return False

    def release(self, by: str) -> bool:
        """See `Runner`. A source is never held."""
        return False

    def facts(self) -> Mapping[str, Property]:
        """What a policy may ask."""
        return {"handler": self.source.name, "adapter": adapter_names(self.source.needs), "verb": "poll"}

    def abandoned(self, error: Abandoned) -> None:
        """A source has no timeout that could abandon it."""

    def isolated(self) -> None:
        """A person works at the device: end the run."""
        if self._run is not None and not self._cancelled:
            self._context.environment.timers.remove(self._slot, self)
            self._cancel(_ISOLATED)

    async def run(self) -> None:
        """Run the generator until cancelled."""
        scope.IN_HANDLER.set(True)
        environment, name = self._context.environment, self.source.name
        while True:
            if self.execution.admit():
                error = await self._once()
                if error is not None and self._cancelled != _ISOLATED:
                    self._failed(error)
                    error.__traceback__ = None  # reported by now; it holds the frames until the next run has ended
            else:
                self.failures += 1
                environment.events.emit(PollSkipped(name))
            await environment.timers.sleep(self.execution.wait(max(1, self.failures)))
            self.restarts += 1

    async def _once(self) -> BaseException | None:
        timers, silence = self._context.environment.timers, self.source.silence
        self._cancelled, self._stubborn = "", False
        self._run = begin(self.execution.run)
        if silence is not None:
            self._slot = timers.add(self._context.environment.clock.monotonic() + silence, self)
        try:
            return (await end(self._run)).error
        finally:
            self._run = None
            timers.remove(self._slot, self)

    async def _readings(self) -> None:
        """Take readings until the generator has no more; to end after some of them is no failure."""
        self._started = self._context.environment.clock.monotonic()
        readings = bound(self.source.handler, self.source.needs)()
        taken = 0
        try:
            async for result in readings:
                self._take(result)
                taken += 1
                if taken % _AT_A_STRETCH == 0:
                    await asyncio.sleep(0)
        except (asyncio.CancelledError, Exception) as error:
            if self._fell_silent():  # also where clean-up made another error of the cancellation
                raise self._silence() from error
            raise
        finally:
            await readings.aclose()
        if self._fell_silent():  # it took the cancellation for its end
            raise self._silence()
        if not taken:
            raise DeviceUnavailable("the source ended without a reading; it is started again")

    def _take(self, result: object) -> None:
        environment, name = self._context.environment, self.source.name
        try:
            reading = reading_of(name, result, environment.clock)
        except ResultError as error:  # one bad reading does not end the source
            environment.events.emit(PollFailed(name, error, 1))
            return
        clock = environment.clock
        at, wall = (clock.monotonic(), clock.wall()) if reading is None else (reading.at, reading.wall)
        self.heard_at = at
        self.failures = 0
        self.execution.succeed()
        environment.events.emit(ReadingTaken(name, at, wall, 0.0))
        if reading is not None:
            self.publisher.try_publish(reading)

    def _failed(self, error: BaseException) -> None:
        self.failures += 1
        if isinstance(error, Abandoned):
            return
        self._context.environment.events.emit(PollFailed(self.source.name, error, 1))

    def _fell_silent(self) -> bool:
        return self._cancelled == _SILENCE and not self._context.environment.stopping.is_set()

    def _silence(self) -> DeviceTimeout:
        return DeviceTimeout(f"silent for {human(self.source.silence or 0.0)}")

    def _cancel(self, reason: str) -> None:
        timers, run = self._context.environment.timers, self._run
        assert run is not None  # seen by whoever asks
        self._cancelled = reason
        run.cancel()
        self._slot = timers.add(self._context.environment.clock.monotonic() + GRACE, self)

    def ring(self, now: float) -> None:
        """Check whether the source is silent. If so, cancel its run; if the run does not end, report that once."""
        silence = self.source.silence
        if self._run is None or self._stubborn:
            return
        if self._cancelled:
            self._stubborn = True
            error = Abandoned(f"still running {human(GRACE)} after it was cancelled: {self._cancelled}")
            self._context.environment.events.emit(PollFailed(self.source.name, error, 1))
        elif silence is not None:
            # A source that asked to be left alone is silent from its next call on.
            due = max(self.heard_at, self._started, self.execution.resumes_at) + silence
            if due > now + 0.001:
                self._slot = self._context.environment.timers.add(due, self)
            else:
                self._cancel(_SILENCE)
