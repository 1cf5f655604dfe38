"""Runs one polled handler: calls it when it is due or requested, and reports its reading or its failure.

A handler never has two polls at the same time. If a poll is due while an earlier one still runs, or while the process
sleeps, it counts as missed and is not made up for. Messages go to the outbox, so a poll never waits for the broker.

A device that asks for a pause beyond its next poll is polled once when the pause ends, besides its schedule, as if that
had been requested: this poll has no slot. If no budget is left, the poll has failed, and the next one is on schedule.

Nothing that a handler raises ends another handler, the loop or the process.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from leadsman.core.events import (
    AppFault,
    DeviceHeld,
    DeviceReleased,
    PollDeferred,
    PollFailed,
    PollMissed,
    PollSkipped,
    PollWithoutReading,
    ReadingTaken,
    Unread,
)
from leadsman.core.loop.durations import human
from leadsman.core.loop.tasks import begin_at_once, outcome, user_error
from leadsman.core.readings.reading import Reading, reading_of
from leadsman.core.registration.injection import bound
from leadsman.core.registration.telemetry import Fallback, Telemetry, facts_of
from leadsman.core.resilience import overrides
from leadsman.core.resilience.environment import Environment, Snapshot
from leadsman.core.resilience.failure import Property, RetryRequested
from leadsman.core.resilience.retry_loop import Execution
from leadsman.core.runtime.handler_calls import PlainCall, SharedResources
from leadsman.core.runtime.poll_schedule import schedule_of
from leadsman.core.runtime.publisher import PublisherContext, PublishQueue, StatePublisher, publisher_of
from leadsman.core.runtime.runner import Answer, Goodbye, report_goodbye
from leadsman.core.text import clean
from leadsman.errors import Abandoned, DeviceUnavailable, PollRefused, ResultError, UnknownDevice

if TYPE_CHECKING:
    from leadsman.core.mqtt.answers import Json
    from leadsman.core.runtime.document import Counted

MAX_REQUESTS = 16
"""Requests that may wait for one poll: a handler that hangs must not collect them without limit."""


FALLBACK_TIMEOUT = 60.0
"""Seconds for a fallback after a failed poll."""


REPORT_EACH = 1.0
"""Seconds between two reports of a device whose interval is shorter than that. Others report at once."""


NO_PAYLOAD: Mapping[str, object] = MappingProxyType({})
"""The payload of a poll that has none: one on schedule, and most requests."""


UNBLOCKED = frozenset({"closed", "disabled"})
"""The states of a circuit in which a poll besides the schedule may begin."""


class PollContext(NamedTuple):
    """The services that all polls of an app share."""

    environment: Environment
    publishing: PublisherContext
    resources: SharedResources
    queue: PublishQueue
    loop: asyncio.AbstractEventLoop
    end_app: Callable[[str, BaseException], None]
    """Ends the app, because a device that must work does not."""


class PollRequests:
    """Who waits for the poll under way, and when one was requested last."""

    __slots__ = ("answers", "given", "polled_at")

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        """Who waits for the poll under way."""
        self.given: Mapping[str, object] = NO_PAYLOAD
        """The payload of the request that began the poll under way, by the name of its parameter."""
        self.polled_at = -math.inf
        """When a poll was last requested, monotonic seconds."""

    def answer(self, result: Reading | BaseException | None) -> None:
        """Answer all that wait."""
        answers, self.answers = self.answers, []
        for answer in answers:
            answer(result)


def check_circuit(execution: Execution[Reading | None], now: float) -> None:
    """Let a requested poll pass the circuit, as one that is due does.

    Raises:
        PollRefused: the device is held or asked for a pause, or the circuit is open.
    """
    circuit = execution.circuit
    if circuit.held:
        raise PollRefused("the device is held; release it first")
    if (until := circuit.deferred_until) > now:
        raise PollRefused(f"the device asked for a pause, which lasts another {human(round(until - now, 1))}")
    if execution.snapshot().circuit not in UNBLOCKED or not execution.admit():
        raise PollRefused(
            "the circuit is open: the device failed several polls in a row, and is only probed on schedule; to poll it "
            "at once, close the circuit"
        )


class MissedPolls:
    """The missed polls of a device that are not reported yet. Pure.

    They are reported at once, and then as one sum each second: an app that is asked for more than it can do misses
    polls before most of its readings, and to report each time would cost it a third of the readings that it can do.

    Args:
        interval: seconds between two polls; None with a cron expression, whose slots are a minute apart.
    """

    __slots__ = ("_each", "_next_at", "_waiting")

    def __init__(self, interval: float | None) -> None:
        self._each = 0.0 if interval is None or interval >= REPORT_EACH else REPORT_EACH
        self._next_at = -math.inf
        self._waiting = 0

    def add(self, polls: int, now: float) -> int:
        """Count missed polls. Returns how many to report at `now`, monotonic seconds: all that wait, or 0 if there are
        none, or if the last report was less than a second ago."""
        self._waiting += polls
        if now < self._next_at or not self._waiting:
            return 0
        self._next_at = now + self._each
        return self.drain()

    def drain(self) -> int:
        """All that wait, to report them before they are due. They do not wait any more."""
        taken, self._waiting = self._waiting, 0
        return taken

    def over(self, now: float) -> bool:
        """Whether this can be forgotten: nothing waits, and the next missed poll is reported at once."""
        return not self._waiting and now >= self._next_at


async def fall_back(
    telemetry: Telemetry, error: BaseException, publisher: StatePublisher, environment: Environment
) -> None:
    """Call the fallback of `telemetry`, if it has one, with the error of the poll, and publish the reading that it
    returns. A fallback that fails is reported as a fault of the app."""
    fallback = telemetry.on_failure
    if isinstance(fallback, str):
        return
    reading, fault = await outcome(_read(telemetry, fallback, error, environment), environment.stopping)
    if fault is not None:
        environment.events.emit(AppFault(f"on_failure of {telemetry.name}", fault))
    elif reading is not None:
        publisher.try_publish(reading)


async def _read(
    telemetry: Telemetry, fallback: Fallback, error: BaseException, environment: Environment
) -> Reading | None:
    async with asyncio.timeout(FALLBACK_TIMEOUT):
        result = await fallback(error)
    validate = None if telemetry.field is None else telemetry.validate_result
    make = reading_of if telemetry.content is None else telemetry.content.reading_of
    return None if telemetry.job else make(telemetry.name, result, environment.clock, validate)


class PauseEnd:
    """An alarm at the end of a pause.

    Args:
        at: monotonic seconds.
        resume: called then, with this.
    """

    __slots__ = ("_resume", "at")

    def __init__(self, at: float, resume: "Callable[[PauseEnd], None]") -> None:
        self.at = at
        self._resume = resume

    def ring(self, now: float) -> None:
        """The pause is over."""
        self._resume(self)


class PollRunner:
    """Runs one handler. It is an alarm in the heap, which rings when the handler is due."""

    __slots__ = (
        "_began",
        "_call",
        "_context",
        "_goodbye",
        "_missed",
        "_pause_end",
        "_polling_since",
        "_reading_of",
        "_requests",
        "due",
        "execution",
        "filters",
        "publisher",
        "schedule",
        "task",
        "telemetry",
    )

    def __init__(self, telemetry: Telemetry, context: PollContext) -> None:
        self.telemetry = telemetry
        self.schedule = schedule_of(telemetry.interval, telemetry.cron)
        self.publisher = publisher_of(telemetry.name, telemetry.publish, telemetry.delivery, context.publishing)
        self.filters = None if telemetry.filters is None else telemetry.filters.begin()
        """See `Reader`."""
        self._reading_of = reading_of if self.filters is None else self.filters.reading_of
        if telemetry.content is not None:
            self._reading_of = telemetry.content.reading_of
        self.task: asyncio.Task[None] | None = None
        """The poll under way."""
        self.due: float | None = None
        """When the poll under way came due by the schedule, monotonic seconds; None if none is under way, or it was
        requested."""
        self._began = self._polling_since = math.inf
        self._context = context
        self._goodbye: Goodbye | None = None
        self._requests: PollRequests | None = None
        self._pause_end: PauseEnd | None = None  # None while no pause is in effect
        self._missed: MissedPolls | None = None  # None where no poll was missed of late
        self._call: Callable[[], Awaitable[object]]
        thread = None
        if telemetry.plain:
            timeout = telemetry.guards.timeout
            thread = PlainCall(telemetry.handler, telemetry.needs, context.resources, telemetry.name, timeout)
            self._call = thread
        else:
            self._call = bound(telemetry.handler, telemetry.needs)
        self.execution: Execution[Reading | None] = Execution(
            telemetry.name,
            self._call if telemetry.request is None else self._call_requested,
            telemetry.guards,
            context.environment,
            bus_lock=context.resources.bus_lock(telemetry.group),
            thread=thread,
            caller=self,
            shared=context.resources.shared_guards(telemetry.guards.breaker, telemetry.needs),
        )

    @property
    def name(self) -> str:
        """The name of the device."""
        return self.telemetry.name

    @property
    def busy(self) -> bool:
        """Whether an earlier poll still runs, or its thread does."""
        return self.task is not None or (isinstance(self._call, PlainCall) and self._call.busy)

    # On schedule

    def start(self, pending: float, shift: float) -> None:
        """Poll for the first time now, or within the handler's `spread`, or at its cron schedule; or in `pending`
        seconds, where an attempt was waited for when the app ended. The polls after it lie `shift` seconds later on the
        grid."""
        environment, telemetry = self._context.environment, self.telemetry
        offset = max(telemetry.offset, min(pending, telemetry.interval or 0.0))
        self._polling_since = environment.clock.monotonic()
        environment.timers.add(self.schedule.start(offset, shift, environment), self)
        self._await_pause_end()

    def ring(self, now: float) -> None:
        """Set the next poll. Start this one, unless it is not due, an earlier one still runs, or the circuit is
        open."""
        environment, execution = self._context.environment, self.execution
        is_due, missed, following = self.schedule.advance(now, environment)
        environment.timers.add(following, self)
        if missed:
            since = self.schedule.missed_since(missed)
            why: Unread = "starting" if since <= self._polling_since else "late"
            self._report_missed(missed, now, "the app did not poll yet" if why == "starting" else "")
            self._without_reading(now, why, since, missed)
        elif self._missed is not None:
            self._report_missed(0, now)
        if not is_due:
            return
        if execution.circuit.held:
            self._without_reading(now, "held", now)
        elif self.busy:
            cause = (
                "the poll before still ran" if self.task is not None else "the thread of an earlier call is still busy"
            )
            self._report_missed(1, now, cause)
            self._without_reading(now, "missed", now)
        elif execution.calm or execution.admit():
            self.due = now
            # One of a handler that works begins at once, since most end without a wait; others wait for the next turn
            # of the loop, so that polls of one moment ask a shared circuit before one of them ends.
            loop = self._context.loop
            task = begin_at_once(self.cycle(), loop) if execution.calm else loop.create_task(self.cycle())
            self.task = None if task.done() else task
        elif now < execution.circuit.deferred_until:
            self._without_reading(now, "deferred", now)
        else:
            environment.events.emit(PollSkipped(self.name, isolated=execution.circuit.isolated))

    def _without_reading(self, now: float, why: Unread, due: float, polls: int = 1) -> None:
        """Report polls that give no reading, the first of which came due at `due`, monotonic seconds."""
        environment = self._context.environment
        wall = environment.clock.wall()
        environment.events.emit(PollWithoutReading(self.telemetry.name, why, due, polls, now, wall))

    def _ended_without_reading(self, why: Unread) -> None:
        """Report that the poll under way gives no reading, unless it was requested."""
        due, self.due = self.due, None
        if due is not None:
            self._without_reading(self._context.environment.clock.monotonic(), why, due)

    def _report_missed(self, polls: int, now: float, cause: str = "") -> None:
        """Count missed polls, and report those that are to be reported now: once the app stops, all of them."""
        missed, environment = self._missed, self._context.environment
        if missed is None:
            missed = self._missed = MissedPolls(self.telemetry.interval)
        reported = missed.add(polls, now) or (missed.drain() if environment.stopping.is_set() else 0)
        if reported:
            environment.events.emit(PollMissed(self.telemetry.name, reported, cause=cause))
        elif not polls and missed.over(now):
            self._missed = None

    def snapshot(self) -> tuple[Snapshot, float | None]:
        """See `Runner`. A poll that an open circuit will refuse is not counted, since it does not reach the device."""
        snapshot = self.execution.snapshot()
        if snapshot.circuit == "isolated" or self.execution.circuit.held:
            return snapshot, None
        clock, pause = self._context.environment.clock, snapshot.deferred_until
        earliest = max(pause or -math.inf, snapshot.open_until or -math.inf)
        due = self.schedule.next_due(earliest, snapshot.refusals, clock)
        if pause is not None and self._pause_end is not None and snapshot.circuit in UNBLOCKED:
            resumed = pause + clock.wall() - clock.monotonic()
            due = resumed if due - resumed > self.telemetry.throttle else due
        return snapshot, due if math.isfinite(due) else None

    # On request

    def ask(self, answer: Answer, given: Mapping[str, object] = NO_PAYLOAD) -> None:
        """Poll now, or wait for the poll under way. The schedule stays as it is.

        Args:
            answer: called with the result.
            given: the payload of the request, by the name of its parameter. Retries have it, too.

        Raises:
            PollRefused: asked again within the handler's `throttle`, the circuit is open, an earlier call still hangs,
                a poll with another payload is under way, or `MAX_REQUESTS` others wait already.
        """
        requests = self._requests = self._requests or PollRequests()
        if self.task is None:
            now = self._context.environment.clock.monotonic()
            self._check_request(now)
            requests.polled_at, requests.given = now, given
            self._begin()
        elif given != requests.given:
            raise PollRefused("a poll with another payload is under way; send this one again when it has ended")
        if len(requests.answers) >= MAX_REQUESTS:
            raise PollRefused(f"{MAX_REQUESTS} requests already wait for the current poll; send this one again later")
        requests.answers.append(answer)

    @property
    def throttled_until(self) -> float:
        """The earliest time of the next requested poll, monotonic seconds."""
        return -math.inf if self._requests is None else self._requests.polled_at + self.telemetry.throttle

    def _check_request(self, now: float) -> None:
        if (too_soon := self.throttled_until - now) > 0:
            throttle, rest = human(self.telemetry.throttle), human(max(0.1, round(too_soon, 1)))
            raise PollRefused(
                f"throttled: two requested polls are at least {throttle} apart; ask again in {rest}, or take the last "
                "reading, which is at its topic"
            )
        if self.busy:
            raise PollRefused("the thread of an earlier poll is still busy")
        check_circuit(self.execution, now)

    def _begin(self) -> None:
        """Start a poll besides the schedule; the circuit has admitted it."""
        self.task = asyncio.get_running_loop().create_task(self.cycle(), context=overrides.handler_context())

    # After a pause

    def _await_pause_end(self) -> None:
        """If the device asked for a pause, poll when it ends."""
        until, environment = self.execution.circuit.deferred_until, self._context.environment
        if until > environment.clock.monotonic():
            self._pause_end = PauseEnd(until, self._resume)
            environment.timers.add(until, self._pause_end)

    def _resume(self, pause_end: PauseEnd) -> None:
        """A pause is over: poll now, unless the schedule does so within `throttle`. A person may have ended the pause
        before; an open circuit is probed on schedule only."""
        execution = self.execution
        if pause_end is not self._pause_end or execution.circuit.deferred_until != pause_end.at:
            return
        self._pause_end, execution.circuit.deferred_until = None, -math.inf
        clock = self._context.environment.clock
        now = clock.monotonic()
        soon = self.schedule.horizon(now, clock) - now <= self.telemetry.throttle
        if soon or self.busy or execution.circuit.held or execution.circuit.name not in UNBLOCKED:
            return
        if execution.admit():
            self._requests = self._requests or PollRequests()
            self._requests.polled_at = now
            self._begin()

    def _answer(self, result: Reading | BaseException | None) -> None:
        if self._requests is not None:
            self._requests.answer(result)

    def hold(self) -> bool:
        """See `Reader`."""
        self.execution.circuit.held = True
        return True

    def leave(self, reason: str) -> None:
        """See `Reader`. It is polled as before, so that its return is noticed."""
        self._goodbye = report_goodbye(self.name, reason, self._context.environment)

    def release(self, by: str) -> bool:
        """See `Reader`. The first poll follows at once."""
        execution, environment = self.execution, self._context.environment
        if not execution.circuit.held:
            return False
        execution.circuit.held = False
        execution.close()
        environment.events.emit(DeviceReleased(self.name, by))
        if not self.busy and execution.admit():
            self._begin()
        return True

    def stopped(self) -> None:
        """The app has stopped: report what is not reported yet, and answer the requests that still wait."""
        if self._missed is not None:
            self._report_missed(0, math.inf)
        self._ended_without_reading("stopped")
        self._answer(DeviceUnavailable("the app stopped before the poll ended"))

    def retries(self) -> int:
        """See `Runner`."""
        return self.execution.context_attempts()

    def count(self, document: "Counted") -> None:
        """See `Runner`: whether a poll runs. The others are in the health record."""
        if self.busy:
            document["busy"] = True

    # One poll

    async def cycle(self) -> None:
        """One poll, from its first call to its end. Raises nothing but the cancellation that ends the app."""
        environment = self._context.environment
        self._began, self._pause_end = environment.clock.monotonic(), None
        try:
            reading = await self.execution.run(self._began)
            if reading is not None and self.telemetry.job:
                raise ResultError("a periodic job has no topic for what it returns; use @app.telemetry")
            self._succeeded(reading)
        except BaseException as raised:
            error = user_error(raised, environment.stopping, self._context.loop)
            await self._failed(error)
            error.__traceback__ = None  # one that is raised again at the next poll must not gather frames for years
        finally:
            self.task = None
            if self._requests is not None:
                self._requests.given = NO_PAYLOAD

    async def _call_requested(self) -> object:
        """Call a handler that takes the payload of a request."""
        given, telemetry, call = (
            NO_PAYLOAD if self._requests is None else self._requests.given,
            self.telemetry,
            self._call,
        )
        if isinstance(call, PlainCall):
            return await call(**given)
        result: object = await bound(telemetry.handler, telemetry.needs, given)()
        return result

    def _succeeded(self, reading: Reading | None) -> None:
        if self._goodbye is not None:
            self._heard_after(self._goodbye, reading)
            return
        clock = self._context.environment.clock
        at, wall = (clock.monotonic(), clock.wall()) if reading is None else (reading.at, reading.wall)
        self._context.environment.events.emit(
            ReadingTaken(self.telemetry.name, at, wall, at - self._began, reading is None)
        )
        due = self.due
        if self._requests is not None and self._requests.answers:
            if reading is not None:
                self.publisher.publish(reading, due, always=True)  # whatever the publish rule decides
            self._answer(reading)
        elif reading is not None:
            self._context.queue.add(self.publisher, reading, due)
        self.due = None
        if reading is None and due is not None:
            self.publisher.pass_over(due)

    def _heard_after(self, goodbye: Goodbye, reading: Reading | None) -> None:
        """A poll has ended without an error, and before or in it the device was marked as unavailable."""
        if reading is None:
            self._ended_without_reading("deferred")
            self._answer(DeviceUnavailable(goodbye.cause))
            return
        self._goodbye = None
        self._succeeded(reading)
        if goodbye.at >= self._began:
            self.leave(goodbye.reason)

    async def _failed(self, error: BaseException) -> None:
        if isinstance(error, Abandoned):
            return  # reported when it was abandoned
        if self.execution.circuit.isolated:
            self._ended_without_reading("circuit_open")
            self._answer(DeviceUnavailable("the circuit was isolated by hand; close it to continue"))
        elif isinstance(error, RetryRequested) and self.execution.gave_up not in ("budget", "time"):
            self._deferred(error)
        else:
            self.abandoned(error)
            if not isinstance(error, RetryRequested):
                self._await_pause_end()
            await fall_back(self.telemetry, error, self.publisher, self._context.environment)

    def _deferred(self, request: RetryRequested) -> None:
        """Report that the device asked for a later poll. That is not a failure."""
        self._answer(DeviceUnavailable(f"the handler asked for another attempt: {request}"))
        environment = self._context.environment
        due, self.due = self.due, None
        seconds = max(0.0, self.execution.circuit.deferred_until - environment.clock.monotonic())
        environment.events.emit(PollDeferred(self.name, seconds, request.reason, due=due))
        self._await_pause_end()

    def abandoned(self, error: BaseException) -> None:
        """Report a poll that failed for good, or a call that does not end."""
        due, self.due = self.due, None
        self._answer(error)
        environment = self._context.environment
        emit, took = environment.events.emit, environment.clock.monotonic() - self._began
        emit(PollFailed(self.name, error, self.execution.attempts, duration=took, due=due))
        if self.telemetry.on_failure == "hold":
            self.hold()
            emit(DeviceHeld(self.name))
        elif self.telemetry.on_failure == "stop":
            self._context.end_app(self.name, error)

    # What the execution asks and reports

    def facts(self) -> Mapping[str, Property]:
        """The properties of the handler that a policy may ask about."""
        return facts_of(self.telemetry)

    def taken(self, result: object) -> Reading | None:
        """See `Caller`: the reading that the handler has returned."""
        telemetry = self.telemetry
        return self._reading_of(telemetry.name, result, self._context.environment.clock, telemetry.validate_result)

    def horizon(self) -> float:
        """See `Caller`. Where the next poll was missed meanwhile, retries go on in place of it."""
        clock = self._context.environment.clock
        return math.inf if self.telemetry.overrun else self.schedule.horizon(clock.monotonic(), clock)

    def isolated(self) -> None:
        """Nothing to do: nothing runs between two polls, and retries check the circuit themselves."""


def ask(polls: Mapping[str, PollRunner], name: str, answer: Answer, request: "Json", text: bytes) -> None:
    """Poll a device now; see `PollRunner.ask`.

    Args:
        polls: those of the app.
        name: the device.
        answer: called with the result.
        request: what was sent, decoded, without its transaction. Empty text and an empty object ask for the poll that
            the schedule makes. A handler that takes no payload is called as always.
        text: the same as it was sent.

    Raises:
        UnknownDevice: no device of that name is polled.
        PayloadError: the handler does not take this payload.
        PollRefused: it must not be polled now.
    """
    runner = polls.get(name)
    if runner is None or runner.telemetry.job:
        raise UnknownDevice(f"there is no device {clean(name)!r} that can be polled")
    takes = runner.telemetry.request
    if takes is None or request in ("", {}):
        runner.ask(answer)
    else:
        from leadsman.core.registration.command import convert_payload  # few requests for a poll have a payload

        runner.ask(answer, convert_payload(takes.payload, takes.validate, request, text))
