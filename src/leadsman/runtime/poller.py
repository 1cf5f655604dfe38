"""The poll loop: waits until a handler is due, calls it, and reports the result.

One heap holds everything that is due; a poll is a task only while it runs. A handler never has two polls at the same
time. If
a poll is due while an earlier one still runs, or while the process sleeps, it counts as missed and is not made up for.
The
loop hands its messages to the outbox and never waits for the broker.

This is the one place that catches exceptions of polled handlers. Nothing that a handler does ends another handler, the
loop or
the process.
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Any

from leadsman.adapters.managed import adapter_names
from leadsman.errors import Abandoned, DeviceUnavailable, PollRefused, ResultError
from leadsman.events import (
    AppFault,
    DeviceHeld,
    DeviceReleased,
    PollDeferred,
    PollFailed,
    PollMissed,
    PollSkipped,
    ReadingTaken,
)
from leadsman.reading import fields_of
from leadsman.registration.injection import bound
from leadsman.registration.telemetry import Fallback, Telemetry
from leadsman.resilience import scope
from leadsman.resilience.environment import Snapshot
from leadsman.resilience.execution import Execution
from leadsman.resilience.failure import Property, RetryRequested
from leadsman.runtime.calls import PlainCall, SharedResources
from leadsman.runtime.publisher import PublisherContext, StatePublisher, outlet_of
from leadsman.tasks import forget_cancellations
from leadsman.timing.durations import human
from leadsman.timing.schedule import Wait, look, next_after, next_on_grid

CLOCK_CHECK = 30.0
"""Seconds between two checks of the wall clock while a cron handler waits. A change of the clock is noticed within
this time."""

FALLBACK_TIMEOUT = 60.0
"""Seconds for a fallback after a failed poll."""

MOST_ASKING = 16
"""Requests that may wait for one poll: a handler that hangs must not collect them without limit."""

Answer = Callable[[dict[str, Any] | BaseException | None], None]
"""Called with the result of a requested poll: its fields, None if there is nothing to publish, or the error."""


class PollRunner:
    """Runs one handler. It is an alarm in the heap and rings when the handler is due."""

    __slots__ = (
        "_call",
        "_plain",
        "_poller",
        "asked_at",
        "due",
        "execution",
        "outlet",
        "task",
        "telemetry",
        "wait",
    )

    def __init__(self, telemetry: Telemetry, poller: "Poller", outlet: StatePublisher) -> None:
        self.telemetry = telemetry
        self.outlet = outlet
        self.due = math.inf
        """When the next poll is due: monotonic seconds, or epoch seconds for cron."""
        self.wait: Wait | None = None
        """What a cron handler waits for."""
        self.asked_at = -math.inf
        """When a poll was last requested, monotonic seconds."""
        self.task: asyncio.Task[None] | None = None
        self._poller = poller
        self._plain: PlainCall | None = None
        if telemetry.plain:
            self._plain = PlainCall(telemetry.handler, telemetry.needs, poller.lanes)
            self._call: Callable[[], Any] = self._plain
        else:
            self._call = bound(telemetry.handler, telemetry.needs)
        self.execution = Execution(
            telemetry.name,
            self._fields,
            telemetry.guards,
            poller.mail.environment,
            bus_lock=poller.lanes.bus_lock(telemetry.group),
            caller=self,
            shared=poller.lanes.shared_guards(telemetry.guards.breaker, telemetry.needs),
        )

    @property
    def held(self) -> bool:
        """Whether the handler is held: it is not polled until it is released."""
        return self.execution.circuit.held

    @held.setter
    def held(self, held: bool) -> None:
        self.execution.circuit.held = held

    @property
    def busy(self) -> bool:
        """Whether an earlier poll still runs, or its thread does."""
        return self.task is not None or (self._plain is not None and self._plain.busy)

    def ring(self, now: float) -> None:
        """The handler is due."""
        self._poller.on_due(self, now)

    async def _fields(self) -> Any:
        result = await self._call()
        return None if result is None else fields_of(result)

    async def cycle(self, horizon: float) -> None:
        """One poll, from its first call to its end. Raises nothing but a cancellation from outside."""
        environment = self._poller.mail.environment
        started = environment.clock.monotonic()
        try:
            result = await self.execution.run(horizon)
            if result is not None and self.telemetry.job:
                raise ResultError("a periodic job has no topic for what it returns; use @app.telemetry")
            now, wall = environment.clock.monotonic(), environment.clock.wall()
            self._poller.succeeded(self, ReadingTaken(self.telemetry.name, now, wall, now - started), result)
        except BaseException as error:  # SystemExit and KeyboardInterrupt too: a handler does not end the process
            if self._poller.ends(error):
                raise
            forget_cancellations()
            await self._failed(error)
            error.__traceback__ = None  # one that is raised again at the next poll must not gather frames for years
        finally:
            self.task = None

    async def _failed(self, error: BaseException) -> None:
        if isinstance(error, Abandoned):
            return  # told when it was abandoned
        if self.execution.circuit.isolated:
            self._poller.ended(self, DeviceUnavailable("the circuit was isolated by hand; close it to continue"))
        elif isinstance(error, RetryRequested) and self.execution.gave_up not in ("budget", "time"):
            self._poller.deferred(self, error)
        else:
            self._poller.failed(self, error)
            if not isinstance(self.telemetry.on_failure, str):
                await self._fall_back(self.telemetry.on_failure, error)

    async def _fall_back(self, fallback: Fallback, error: BaseException) -> None:
        clock, name = self._poller.mail.environment.clock, self.telemetry.name
        try:
            async with asyncio.timeout(FALLBACK_TIMEOUT):
                result = await fallback(error)
            if result is not None and not self.telemetry.job:
                self.outlet.tell(*fields_of(result), clock.monotonic(), clock.wall())
        except BaseException as fault:  # as the handler itself, it does not end the process
            if self._poller.ends(fault):
                raise
            self._poller.mail.environment.events.emit(AppFault(f"on_failure of {name}", fault))

    def facts(self) -> Mapping[str, Property]:
        """What a policy may ask about the handler."""
        telemetry = self.telemetry
        facts: dict[str, Property] = {
            "handler": telemetry.name,
            "adapter": adapter_names(telemetry.needs),
            "verb": "poll",
        }
        return facts if telemetry.interval is None else facts | {"interval": telemetry.interval}

    def abandoned(self, error: Abandoned) -> None:
        """Report a call that does not end."""
        self._poller.failed(self, error)

    def isolated(self) -> None:
        """Nothing to do: nothing runs between two polls, and retries check the circuit themselves."""


class Poller:
    """Polls all handlers of an app.

    Args:
        mail: the `PublisherContext`: the environment, the topics, and how to send.
        lanes: the `SharedResources`: threads and bus locks, shared with everything else that calls handlers.
        give_up: ends the app, because a device that must work does not.
    """

    def __init__(
        self, mail: PublisherContext, lanes: SharedResources, give_up: Callable[[str, BaseException], None]
    ) -> None:
        self._give_up = give_up
        self.mail = mail
        self.lanes = lanes
        self.environment = mail.environment
        self.polls: dict[str, PollRunner] = {}
        self._loop = asyncio.get_running_loop()
        self._asked: dict[str, list[Answer]] = {}
        self._taken: list[tuple[PollRunner, ReadingTaken, Any]] = []

    def ends(self, error: BaseException) -> bool:
        """Whether `error` came because the app ends, and not out of a handler by itself."""
        if isinstance(error, asyncio.CancelledError):
            return self.environment.stopping.is_set()
        return isinstance(error, GeneratorExit) and not self._loop.is_running()

    def add(self, telemetry: Telemetry) -> PollRunner:
        """Make a handler ready to be polled."""
        outlet = outlet_of(telemetry.name, telemetry.publish, telemetry.delivery, self.mail)
        poll = self.polls[telemetry.name] = PollRunner(telemetry, self, outlet)
        return poll

    def start(self, pending: Mapping[str, float]) -> None:
        """Poll every handler for the first time now, or within its `spread`, or at its cron schedule; or in `pending` seconds,
        where an attempt was waited for when the app ended."""
        for poll in self.polls.values():
            telemetry = poll.telemetry
            if telemetry.cron is not None:
                self._start_cron(poll, telemetry.cron.at_start)
            else:
                wait = min(pending.get(telemetry.name, 0.0), telemetry.interval or 0.0)
                poll.due = self.environment.timers.first_slot(max(telemetry.offset, wait))
                self.environment.timers.add(poll.due, poll)

    def ask(self, name: str, answer: Answer) -> None:
        """Poll a device now, or wait for the poll under way. The schedule stays as it is.

        Raises:
            PollRefused: asked again within the handler's `throttle`, the circuit is open, an earlier call still hangs, or
                `MOST_ASKING` others wait already.
        """
        poll, now = self.polls[name], self.environment.clock.monotonic()
        if poll.task is None:
            if (rest := poll.asked_at + poll.telemetry.throttle - now) > 0:
                raise PollRefused(f"throttled; retry in {human(round(rest, 1))}")
            if poll.busy:
                raise PollRefused("the thread of an earlier poll is still busy")
            if poll.held:
                raise PollRefused("the device is held since its last failure; release it first")
            if (until := poll.execution.circuit.deferred_until) > now:
                raise PollRefused(f"the device asked for a pause, which lasts another {human(round(until - now, 1))}")
            if poll.execution.snapshot().circuit not in ("closed", "disabled") or not poll.execution.admit():
                raise PollRefused(
                    "the circuit is open: the device failed several polls in a row, and is only probed on schedule"
                )
            poll.asked_at = now
            poll.task = self._loop.create_task(poll.cycle(self._horizon(poll, now)), context=scope.handler_context())
        asking = self._asked.setdefault(name, [])
        if len(asking) >= MOST_ASKING:
            raise PollRefused(f"{MOST_ASKING} requests already wait for the current poll; send this one again later")
        asking.append(answer)

    def look(self, name: str) -> tuple[Snapshot, float | None]:
        """The snapshot of a device's execution, and when the device will be polled next: epoch seconds, or None for
        never.

        A poll that an open circuit will skip is not counted, since it does not reach the device.
        """
        poll = self.polls[name]
        snapshot, cron = poll.execution.snapshot(), poll.telemetry.cron
        if snapshot.circuit == "isolated" or poll.held:
            return snapshot, None
        ahead = self.environment.clock.wall() - self.environment.clock.monotonic()
        rest = max(snapshot.deferred_until or -math.inf, snapshot.open_until or -math.inf)
        if cron is not None:
            due = next_after(cron, 0.0, poll.due, rest + ahead, snapshot.refusals)
        else:
            due = next_after(None, poll.telemetry.interval or 0.0, poll.due, rest, snapshot.refusals) + ahead
        return snapshot, due if math.isfinite(due) else None

    async def stop(self, grace: float) -> int:
        """Cancel what runs and wait at most `grace` seconds for it. Returns how many calls are still alive."""
        tasks = [poll.task for poll in self.polls.values() if poll.task is not None]
        for task in tasks:
            task.cancel()
        pending: set[asyncio.Task[None]] = set()
        if tasks:
            _, pending = await asyncio.wait(tasks, timeout=grace)
        for name in list(self._asked):
            for answer in self._asked.pop(name):
                answer(DeviceUnavailable("the app stopped before the poll ended"))
        return len(pending)

    def on_due(self, poll: PollRunner, now: float) -> None:
        """Set the next poll, and start this one unless the last one still runs or the circuit is open."""
        if not self._advance(poll, now) or poll.execution.circuit.held:
            return
        if poll.busy:
            self._missed(poll, 1)
            poll.execution.horizon = self._horizon(poll, now)  # retries of the poll under way go on in its place
        elif not poll.execution.admit():
            if now >= poll.execution.circuit.deferred_until:
                self.environment.events.emit(PollSkipped(poll.telemetry.name))
        else:
            poll.task = self._loop.create_task(poll.cycle(self._horizon(poll, now)))

    def succeeded(self, poll: PollRunner, event: ReadingTaken, result: Any) -> None:
        """Report a successful poll. Its reading is published after all handlers of this tick were called, so that
        publishing delays none of them."""
        self.environment.events.emit(event)
        if self._asked and poll.telemetry.name in self._asked:
            self._answer(poll, event, result)
        elif result is not None:
            self._taken.append((poll, event, result))
            if len(self._taken) == 1:
                self._loop.call_soon(self._publish_taken)

    def _publish_taken(self) -> None:
        taken, self._taken = self._taken, []
        for poll, event, (fields, left_out) in taken:
            try:
                poll.outlet.tell(fields, left_out, event.at, event.wall)
            except Exception as error:  # a fault of ours: this reading is lost, and the others are not
                self.environment.events.emit(AppFault(f"publishing {event.entity}", error))

    def _answer(self, poll: PollRunner, event: ReadingTaken, result: Any) -> None:
        """Publish the reading of a requested poll, whatever the publish rule says, and answer the requests."""
        fields = None
        if result is not None:
            fields, left_out = result
            poll.outlet.tell(fields, left_out, event.at, event.wall, always=True)
        for answer in self._asked.pop(event.entity):
            answer(fields)

    def ended(self, poll: PollRunner, error: BaseException) -> None:
        """Answer the requests for a poll that gave no reading."""
        for answer in self._asked.pop(poll.telemetry.name, ()):
            answer(error)

    def deferred(self, poll: PollRunner, request: RetryRequested) -> None:
        """Report a poll whose device asked for a later retry. It is not a failure."""
        self.ended(poll, DeviceUnavailable(f"the handler asked for another attempt: {request}"))
        rest = max(0.0, poll.execution.circuit.deferred_until - self.environment.clock.monotonic())
        self.environment.events.emit(PollDeferred(poll.telemetry.name, rest, request.reason))

    def failed(self, poll: PollRunner, error: BaseException) -> None:
        """Report a poll that failed for good."""
        self.ended(poll, error)
        name = poll.telemetry.name
        self.environment.events.emit(PollFailed(name, error, poll.execution.attempts))
        if poll.telemetry.on_failure == "hold":
            poll.held = True
            self.environment.events.emit(DeviceHeld(name))
        elif poll.telemetry.on_failure == "stop":
            self._give_up(name, error)

    def release(self, name: str, by: str = "") -> bool:
        """Poll a held device again, from now on, as if nothing had failed. Whether it was held; `by` says who asked."""
        poll = self.polls[name]
        if not poll.held:
            return False
        poll.held = False
        poll.execution.close()
        self.environment.events.emit(DeviceReleased(name, by))
        if not poll.busy and poll.execution.admit():
            now = self.environment.clock.monotonic()
            poll.task = self._loop.create_task(poll.cycle(self._horizon(poll, now)), context=scope.handler_context())
        return True

    def _advance(self, poll: PollRunner, now: float) -> bool:
        """Put the next poll into the heap. Whether this one is really due: cron looks at the wall clock first."""
        timers, interval = self.environment.timers, poll.telemetry.interval
        if interval is None:
            return self._advance_cron(poll, now)
        due, missed = next_on_grid(poll.due, interval, now)
        if missed:
            self._missed(poll, missed)
        poll.due = due
        timers.add(due, poll)
        return True

    def _start_cron(self, poll: PollRunner, at_start: bool) -> None:
        cron, now, wall = poll.telemetry.cron, self.environment.timers.origin, self.environment.clock.wall()
        assert cron is not None  # asked by `start`
        poll.wait = Wait(wall if at_start else cron.after(wall), wall, self.environment.clock.monotonic())
        poll.due = poll.wait.slot
        self.environment.timers.add(now if at_start else self._next_look(poll, now, wall), poll)

    def _advance_cron(self, poll: PollRunner, now: float) -> bool:
        cron, wait, wall = poll.telemetry.cron, poll.wait, self.environment.clock.wall()
        assert cron is not None  # asked by `_advance`
        assert wait is not None  # made by `_start_cron`
        poll.wait, due, missed = look(cron, wait, wall, now)
        poll.due = poll.wait.slot
        if missed:
            self._missed(poll, missed)
        self.environment.timers.add(self._next_look(poll, now, wall), poll)
        return due

    def _next_look(self, poll: PollRunner, now: float, wall: float) -> float:
        """At the slot, or before it together with all others that wait: the loop wakes up once for all of them."""
        origin = self.environment.timers.origin
        check = origin + (math.floor((now - origin) / CLOCK_CHECK + 1e-6) + 1) * CLOCK_CHECK
        return min(now + poll.due - wall, check)

    def _horizon(self, poll: PollRunner, now: float) -> float:
        if poll.telemetry.overrun:
            return math.inf
        if poll.telemetry.cron is None:
            return poll.due
        return now + poll.due - self.environment.clock.wall()

    def _missed(self, poll: PollRunner, count: int) -> None:
        self.environment.events.emit(PollMissed(poll.telemetry.name, count))
