"""Runs sources: starts their generators, and restarts them when they end, fail or fall silent.

A run without a reading counts as failed for the backoff and for the breaker. Each reading resets their counters.
"""

import asyncio
import math
from collections.abc import Mapping
from typing import Any

from leadsman.adapters.managed import adapter_names
from leadsman.errors import Abandoned, DeviceTimeout, DeviceUnavailable, ResultError
from leadsman.events import AppFault, PollFailed, PollSkipped, ReadingTaken
from leadsman.reading import fields_of
from leadsman.registration.injection import bound
from leadsman.registration.source import Source
from leadsman.resilience import scope
from leadsman.resilience.execution import GRACE, Execution
from leadsman.resilience.failure import Property
from leadsman.runtime.calls import SharedResources
from leadsman.runtime.publisher import PublisherContext, outlet_of
from leadsman.tasks import Outcome, begin, end
from leadsman.timing.durations import human

_AT_A_STRETCH = 50
"""Readings taken before the event loop gets a turn, so that a generator with a full buffer does not block it."""

_SILENCE, _ISOLATED = "it was silent", "its circuit was isolated"
"""Why a run was cancelled."""


class SourceRunner:
    """Runs one source. It is an alarm in the heap and rings when the source may have fallen silent."""

    __slots__ = (
        "_cancelled", "_mail", "_run", "_slot", "_started", "_stubborn", "execution", "failures", "heard_at", "outlet", "restarts", "source",
    )  # fmt: skip

    def __init__(self, source: Source, mail: PublisherContext, lanes: SharedResources) -> None:
        self.source = source
        self.outlet = outlet_of(source.name, source.publish, source.delivery, mail)
        self.execution = Execution(
            source.name,
            self._readings,
            source.guards,
            mail.environment,
            caller=self,
            shared=lanes.shared_guards(source.guards.breaker, source.needs),
        )
        self.failures = 0
        """Runs in a row that gave no reading."""
        self.restarts = 0
        """Runs begun after the first."""
        self.heard_at = -math.inf
        """When the last reading arrived, monotonic seconds."""
        self._mail = mail
        self._run: asyncio.Task[Outcome[Any]] | None = None
        self._cancelled = ""
        self._stubborn = False
        self._slot = 0
        self._started = 0.0

    def facts(self) -> Mapping[str, Property]:
        """What a policy may ask."""
        return {"handler": self.source.name, "adapter": adapter_names(self.source.needs), "verb": "poll"}

    def abandoned(self, error: Abandoned) -> None:
        """A source has no timeout that could abandon it."""

    def isolated(self) -> None:
        """A person works at the device: end the run."""
        if self._run is not None and not self._cancelled:
            self._mail.environment.timers.remove(self._slot, self)
            self._cancel(_ISOLATED)

    async def run(self) -> None:
        """Run the generator until cancelled."""
        scope.IN_HANDLER.set(True)
        environment, name = self._mail.environment, self.source.name
        while True:
            if self.execution.admit():
                error = await self._once()
                if error is not None and self._cancelled != _ISOLATED:
                    self._failed(error)
                    error.__traceback__ = None  # told by now; it holds the frames until the next run has ended
            else:
                self.failures += 1
                environment.events.emit(PollSkipped(name))
            await environment.timers.sleep(self.execution.wait(max(1, self.failures)))
            self.restarts += 1

    async def _once(self) -> BaseException | None:
        timers, silence = self._mail.environment.timers, self.source.silence
        self._cancelled, self._stubborn = "", False
        self._run = begin(self.execution.run)
        if silence is not None:
            self._slot = timers.add(self._mail.environment.clock.monotonic() + silence, self)
        try:
            return (await end(self._run)).error
        finally:
            self._run = None
            timers.remove(self._slot, self)

    async def _readings(self) -> None:
        """Take readings until the generator has no more; to end after some of them is no failure."""
        self._started = self._mail.environment.clock.monotonic()
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

    def _take(self, result: Any) -> None:
        environment, name = self._mail.environment, self.source.name
        now, wall = environment.clock.monotonic(), environment.clock.wall()
        try:
            fields, left_out = ({}, ()) if result is None else fields_of(result)
        except ResultError as error:  # one bad reading does not end the source
            environment.events.emit(PollFailed(name, error, 1))
            return
        self.heard_at = now
        self.failures = 0
        self.execution.succeed()
        environment.events.emit(ReadingTaken(name, now, wall, 0.0))
        if result is not None:
            try:
                self.outlet.tell(fields, left_out, now, wall)
            except Exception as error:  # a fault of ours: this reading is lost, and the others are not
                environment.events.emit(AppFault(f"publishing {name}", error))

    def _failed(self, error: BaseException) -> None:
        self.failures += 1
        if isinstance(error, Abandoned):
            return
        self._mail.environment.events.emit(PollFailed(self.source.name, error, 1))

    def _fell_silent(self) -> bool:
        return self._cancelled == _SILENCE and not self._mail.environment.stopping.is_set()

    def _silence(self) -> DeviceTimeout:
        return DeviceTimeout(f"silent for {human(self.source.silence or 0.0)}")

    def _cancel(self, reason: str) -> None:
        timers, run = self._mail.environment.timers, self._run
        assert run is not None  # seen by whoever asks
        self._cancelled = reason
        run.cancel()
        self._slot = timers.add(self._mail.environment.clock.monotonic() + GRACE, self)

    def ring(self, now: float) -> None:
        """Check whether the source is silent. If so, cancel its run; if the run does not end, report that once."""
        silence = self.source.silence
        if self._run is None or self._stubborn:
            return
        if self._cancelled:
            self._stubborn = True
            error = Abandoned(f"still running {human(GRACE)} after it was cancelled: {self._cancelled}")
            self._mail.environment.events.emit(PollFailed(self.source.name, error, 1))
        elif silence is not None:
            # A source that asked to be left alone is silent from its next call on.
            due = max(self.heard_at, self._started, self.execution.resumes_at) + silence
            if due > now + 0.001:
                self._slot = self._mail.environment.timers.add(due, self)
            else:
                self._cancel(_SILENCE)
