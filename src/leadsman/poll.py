"""The poll loop: wait till due, call, tell.

One heap holds what is due; a poll is a task only while it runs. A handler is never polled twice at a time: a point of
the schedule that comes while it runs, or that the process slept through, is a missed poll, counted and not replayed.
The loop hands its messages to the outbox and never waits for the broker.

This is the one place that catches what handlers raise. Nothing a handler does ends another one, the loop or the process.
"""

import asyncio
import math
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from leadsman.clock import rfc3339
from leadsman.errors import Abandoned, DeviceUnavailable, ResultError
from leadsman.events import AppFault, FieldsLeftOut, PollFailed, PollMissed, PollSkipped, ReadingTaken
from leadsman.injection import bound, closed_coroutine
from leadsman.mqtt.message import Message
from leadsman.mqtt.topics import Topics, encode
from leadsman.publish import Told
from leadsman.reading import fields_of
from leadsman.resilience.execution import Execution, Snapshot, Turns, World
from leadsman.schedule import next_on_grid, spread_offset
from leadsman.telemetry import Telemetry
from leadsman.workers import Worker

CLOCK_CHECK = 30.0
"""Seconds between two looks at the wall clock while a cron handler waits: a step of the clock is noticed within them."""

Send = Callable[[Message], None]


class Poll:
    """One handler at run time. An alarm in the heap: it rings when the handler is due."""

    __slots__ = (
        "_blocked",
        "_left_out",
        "_poller",
        "_worker",
        "due",
        "execution",
        "last_slot",
        "task",
        "telemetry",
        "told",
        "topic",
    )

    def __init__(self, telemetry: Telemetry, poller: "Poller", worker: Worker | None, turns: Turns | None) -> None:
        self.telemetry = telemetry
        self.topic = poller.topics.state(telemetry.name)
        self.due = math.inf
        """When the next poll is due: monotonic seconds, or epoch seconds for cron."""
        self.last_slot: float | None = None
        """The cron slot polled last, epoch seconds."""
        self.told: Told | None = None
        self.task: asyncio.Task[None] | None = None
        self._poller = poller
        self._worker = worker
        self._blocked: Future[Any] | None = None
        self._left_out: tuple[str, ...] = ()
        call = self._call_plain if telemetry.plain else self._call_async
        self.execution = Execution(
            telemetry.name, call, telemetry.rules, poller.world, turns=turns, abandoned=self._abandoned
        )

    @property
    def busy(self) -> bool:
        """Whether an earlier poll still runs, or its thread does."""
        return self.task is not None or (self._blocked is not None and not self._blocked.done())

    def ring(self, now: float) -> None:
        """The handler is due."""
        self._poller.on_due(self, now)

    async def _call_async(self) -> Any:
        telemetry = self.telemetry
        if telemetry.needs:
            result = await bound(telemetry.handler, telemetry.needs)()
        else:
            result = await telemetry.handler()
        return None if result is None else fields_of(result)

    async def _call_plain(self) -> Any:
        worker = self._worker
        assert worker is not None  # the poller gives one to every plain handler
        if (
            self._blocked is not None and not self._blocked.done()
        ):  # a retry, after the thread did not come back in time
            raise DeviceUnavailable("the thread of an earlier call is still busy")
        self._blocked = future = worker.submit(bound(self.telemetry.handler, self.telemetry.needs))
        try:
            result = await self._poller.wait_for(future)
        except asyncio.CancelledError:
            if not self.telemetry.needs:  # nobody shares a device with it, so another thread may serve the others
                worker.give_up(future)
            raise
        if closed_coroutine(result):
            raise ResultError("the handler returned a coroutine; declare it 'async def', or await inside it")
        return None if result is None else fields_of(result)

    async def cycle(self, horizon: float) -> None:
        """One poll, from its first call to its end. Raises nothing but a cancellation from outside."""
        world = self._poller.world
        started = world.clock.monotonic()
        try:
            result = await self.execution.run(horizon)
            now, wall = world.clock.monotonic(), world.clock.wall()
            self._poller.succeeded(self, ReadingTaken(self.telemetry.name, now, wall, now - started), result)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            self._failed(error)  # it came out of the handler by itself
        except GeneratorExit:
            raise  # the loop is gone
        except BaseException as error:  # SystemExit and KeyboardInterrupt too: a handler does not end the process
            self._failed(error)
        finally:
            self.task = None

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, Abandoned):
            return  # told when it was abandoned
        self._poller.failed(self, error)

    def _abandoned(self, error: Abandoned) -> None:
        self._poller.failed(self, error)

    def tell(self, fields: dict[str, Any], left_out: tuple[str, ...], now: float, wall: float) -> None:
        """Publish a reading, if the rule wants it told."""
        if left_out != self._left_out:
            if left_out:
                self._poller.world.events.emit(FieldsLeftOut(self.telemetry.name, now, wall, left_out))
            self._left_out = left_out
        rule = self.telemetry.publish
        if rule is not None:
            if self.told is not None and not self._wanted(fields, now):
                self.told = self.told._replace(since=self.told.since + 1)
                return
            self.told = Told(fields, now)
        delivery = self.telemetry.delivery
        if delivery.taken_at is not None:
            fields = fields | {"taken_at": rfc3339(wall)}
        expires = None if delivery.expiry is None else now + delivery.expiry
        self._poller.send(Message(self.topic, encode(fields), delivery.qos, delivery.retain, wall, expires))

    def _wanted(self, fields: dict[str, Any], now: float) -> bool:
        rule, told = self.telemetry.publish, self.told
        assert rule is not None  # asked by `tell`
        assert told is not None  # as above
        try:
            return rule.wants(told, fields, now)
        except Exception as error:  # a rule of the user's own; a reading too many is better than one too few
            world = self._poller.world
            world.events.emit(AppFault(now, world.clock.wall(), f"publish rule of {self.telemetry.name}", error))
            return True


class Poller:
    """Polls all handlers of an app.

    Args:
        world: timers, clock and events.
        topics: where readings go.
        send: takes a message and returns at once.
    """

    def __init__(self, world: World, topics: Topics, send: Send) -> None:
        self.world = world
        self.topics = topics
        self.send = send
        self.polls: dict[str, Poll] = {}
        self._loop = asyncio.get_running_loop()
        self._workers: dict[int, Worker] = {}
        self._turns: dict[str, Turns] = {}
        self._taken: list[tuple[Poll, ReadingTaken, Any]] = []

    def start(self, telemetries: Iterable[Telemetry]) -> None:
        """Poll every enabled handler for the first time now, or within its `spread`, or at its cron schedule."""
        for telemetry in telemetries:
            poll = Poll(telemetry, self, self._worker_of(telemetry), self._turns_of(telemetry.group))
            self.polls[telemetry.name] = poll
            if telemetry.cron is not None:
                self._start_cron(poll, telemetry.cron.at_start)
            else:
                # Members of a group spread together, so that they stay on common ticks.
                offset = spread_offset(telemetry.group or telemetry.name, telemetry.spread)
                poll.due = self.world.timers.first_slot(offset)
                self.world.timers.add(poll.due, poll)

    def look(self, name: str) -> tuple[Snapshot, float | None]:
        """What a device's execution remembers, and when it will be asked next: epoch seconds, or None for never.

        The poll that an open circuit will skip is passed over: the device is not asked then.
        """
        poll = self.polls[name]
        snapshot, telemetry, due = poll.execution.snapshot(), poll.telemetry, poll.due
        if telemetry.cron is not None:
            due = telemetry.cron.after(due) if snapshot.refusals else due
        else:
            due += snapshot.refusals * (telemetry.interval or 0.0)
            due += self.world.clock.wall() - self.world.clock.monotonic()
        return snapshot, due if math.isfinite(due) else None

    async def stop(self, grace: float) -> int:
        """Cancel what runs and wait at most `grace` seconds for it. Returns how many calls are still alive."""
        tasks = [poll.task for poll in self.polls.values() if poll.task is not None]
        for task in tasks:
            task.cancel()
        pending: set[asyncio.Task[None]] = set()
        if tasks:
            _, pending = await asyncio.wait(tasks, timeout=grace)
        for worker in self._workers.values():
            worker.stop()
        return len(pending)

    async def wait_for(self, future: Future[Any]) -> Any:
        """Await a thread's call."""
        return await asyncio.wrap_future(future, loop=self._loop)

    def on_due(self, poll: Poll, now: float) -> None:
        """Set the next poll, and start this one unless the last one still runs or the circuit is open."""
        if not self._advance(poll, now):
            return
        if poll.busy:
            self._missed(poll, now, 1)
        elif not poll.execution.admit():
            self.world.events.emit(PollSkipped(poll.telemetry.name, now, self.world.clock.wall()))
        else:
            poll.task = self._loop.create_task(poll.cycle(self._horizon(poll, now)))

    def succeeded(self, poll: Poll, event: ReadingTaken, result: Any) -> None:
        """Tell that a poll succeeded. Its reading is published once all handlers of this tick were called, so that
        publishing makes nobody late."""
        self.world.events.emit(event)
        if result is not None:
            self._taken.append((poll, event, result))
            if len(self._taken) == 1:
                self._loop.call_soon(self._publish_taken)

    def _publish_taken(self) -> None:
        taken, self._taken = self._taken, []
        for poll, event, (fields, left_out) in taken:
            try:
                poll.tell(fields, left_out, event.at, event.wall)
            except Exception as error:  # a fault of ours: this reading is lost, and the others are not
                self.world.events.emit(AppFault(event.at, event.wall, f"publishing {event.entity}", error))

    def failed(self, poll: Poll, error: BaseException) -> None:
        """Tell a poll that failed for good."""
        clock = self.world.clock
        attempts = poll.execution.attempts
        self.world.events.emit(PollFailed(poll.telemetry.name, clock.monotonic(), clock.wall(), error, attempts))

    def _advance(self, poll: Poll, now: float) -> bool:
        """Put the next poll into the heap. Whether this one is really due: cron looks at the wall clock first."""
        timers, interval = self.world.timers, poll.telemetry.interval
        if interval is None:
            return self._advance_cron(poll, now)
        due, missed = next_on_grid(poll.due, interval, now)
        if missed:
            self._missed(poll, now, missed)
        poll.due = due
        timers.add(due, poll)
        return True

    def _start_cron(self, poll: Poll, at_start: bool) -> None:
        cron, now = poll.telemetry.cron, self.world.timers.origin
        assert cron is not None  # asked by `start`
        wall = self.world.clock.wall()
        poll.due = wall if at_start else cron.after(wall)
        self.world.timers.add(now if at_start else now + min(poll.due - wall, CLOCK_CHECK), poll)

    def _advance_cron(self, poll: Poll, now: float) -> bool:
        cron, wall = poll.telemetry.cron, self.world.clock.wall()
        assert cron is not None  # asked by `_advance`
        due = wall >= poll.due
        if due:
            poll.last_slot = poll.due
        poll.due = cron.next(poll.last_slot, wall)  # looked up each time: the clock may have been set meanwhile
        self.world.timers.add(now + min(poll.due - wall, CLOCK_CHECK), poll)
        return due

    def _horizon(self, poll: Poll, now: float) -> float:
        if poll.telemetry.overrun:
            return math.inf
        if poll.telemetry.cron is None:
            return poll.due
        return now + poll.due - self.world.clock.wall()

    def _missed(self, poll: Poll, now: float, count: int) -> None:
        self.world.events.emit(PollMissed(poll.telemetry.name, now, self.world.clock.wall(), count))

    def _worker_of(self, telemetry: Telemetry) -> Worker | None:
        """One thread per adapter, and one for the plain handlers without any."""
        if not telemetry.plain:
            return None
        slot = telemetry.needs[0][1] if telemetry.needs else None
        worker = self._workers.get(id(slot))
        if worker is None:
            worker = self._workers[id(slot)] = Worker(slot.label if slot else "handlers")
        return worker

    def _turns_of(self, group: str | None) -> Turns | None:
        if group is None:
            return None
        return self._turns.setdefault(group, Turns())
