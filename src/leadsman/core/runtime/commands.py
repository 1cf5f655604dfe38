"""Receives commands at ``{prefix}/{device}/set``, executes those of one device one after another, and answers them.

A retained message is ignored: it would arrive again at every reconnect. Each other command is executed once, in the
order of arrival. What became of it is published at ``set/result``, and at the response topic if the sender names one.
What the handler returns is published as the device's state.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from leadsman.core.adapters.managed import uses_adapters
from leadsman.core.events import AppFault, CommandDone
from leadsman.core.loop.tasks import outcome
from leadsman.core.monitoring.bugs import placed
from leadsman.core.mqtt.answers import EXPIRY, Json, RetainedRequests, answer_to, decode, document
from leadsman.core.mqtt.connection import Received
from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.topics import encode
from leadsman.core.readings.reading import Reading, reading_of
from leadsman.core.registration.command import Command, convert_payload
from leadsman.core.registration.injection import bound
from leadsman.core.resilience.environment import NO_GUARDS, Snapshot
from leadsman.core.resilience.failure import RetryRequested, sift
from leadsman.core.resilience.guards import guard_call
from leadsman.core.resilience.turns import LineUser
from leadsman.core.runtime.handler_calls import PlainCall, SharedResources
from leadsman.core.runtime.publisher import PublisherContext, StatePublisher
from leadsman.core.runtime.supervision import cancel
from leadsman.core.text import clean, describe, explain, log_fields
from leadsman.core.text.log_lines import left_out_before, others
from leadsman.errors import Abandoned, Busy, DeviceUnavailable, PayloadError

if TYPE_CHECKING:
    from leadsman.core.runtime.document import Counted

logger = logging.getLogger("leadsman")


class PendingCommand(NamedTuple):
    """A command that was received and has not been answered."""

    received: Received
    transaction: Json
    arguments: dict[str, object]
    """Of the handler."""


class CommandAnswers:
    """Reports and answers commands.

    Args:
        context: the environment, the topics, and how to send.
        queues: the commands of the devices that take some. No other gets a topic: otherwise anyone could fill the
            broker with topics by inventing devices.
    """

    def __init__(self, context: PublisherContext, queues: "Mapping[str, CommandQueue]") -> None:
        self._context = context
        self._queues = queues
        self._lines = others()

    def answer(
        self,
        device: str,
        command: PendingCommand,
        reading: Reading | None,
        error: BaseException | None,
        took: float = 0.0,
    ) -> None:
        """Answer a command that was executed, in `took` seconds, or refused."""
        context, text = self._context, None if error is None else explain(error)
        context.environment.events.emit(CommandDone(device, took, error))
        fields = None if reading is None else reading.fields
        answer = document(fields, text, context.environment.clock.wall(), command.transaction)
        expires = context.environment.clock.monotonic() + EXPIRY
        if device in self._queues:
            context.send(Message(context.topics.set_result(device), encode(answer), expires=expires))
        if command.received.response_topic is None:
            return
        try:
            context.send(answer_to(command.received, context.topics, answer)._replace(expires=expires))
        except PayloadError as refused:
            before = self._lines.left_out("answer failed", context.environment.clock.monotonic())
            if before is not None:
                logger.warning(
                    "The request at %s cannot be answered: %s%s",
                    clean(command.received.topic),
                    describe(refused),
                    left_out_before(before),
                    extra=log_fields("answer failed", topic=command.received.topic),
                )

    def refuse(self, device: str, command: PendingCommand, error: PayloadError | Busy) -> None:
        """Answer a command that is not executed."""
        queue = self._queues.get(device)
        if queue is not None:
            queue.refused += 1
            queue.last_error = explain(error)
        self.answer(device, command, None, error)


class CommandQueue:
    """The commands of one device: one is executed, the others wait."""

    __slots__ = (
        "_answers",
        "_began",
        "_bus_lock",
        "_call",
        "_context",
        "_current",
        "_plain",
        "command",
        "done",
        "failed",
        "last_error",
        "publisher",
        "refused",
        "task",
        "waiting",
    )

    def __init__(
        self,
        command: Command,
        context: PublisherContext,
        resources: SharedResources,
        publisher: StatePublisher,
        answers: CommandAnswers,
    ) -> None:
        self.command = command
        self.publisher = publisher
        self.waiting: deque[PendingCommand] = deque()
        self.task: asyncio.Task[None] | None = None
        self.done = self.failed = 0
        """Commands executed since the start, and how many of them failed."""
        self.refused = 0
        """Commands since the start that were not executed."""
        self.last_error: str | None = None
        """Why the last command failed or was refused; None if it was done."""
        self._answers = answers
        self._context = context
        self._current: PendingCommand | None = None
        self._began = 0.0
        self._plain = None
        if command.plain:
            name = f"a command of {command.name}"
            self._plain = PlainCall(command.handler, command.needs, resources, name, command.timeout)
        self._bus_lock = resources.bus_lock(command.group)
        environment = context.environment
        self._call = guard_call(
            self._execute,
            self,
            environment,
            timeout=command.timeout,
            bus_lock=self._bus_lock,
            thread=self._plain,
            lines=LineUser(command.name, looks=False) if uses_adapters(command.needs) else None,
        )

    @property
    def name(self) -> str:
        """The name of the device."""
        return self.command.name

    def put(self, command: PendingCommand) -> None:
        """Execute a command now, or after those that wait. If too many wait, it is refused, or the oldest of them
        is."""
        if self.task is None:
            self.task = asyncio.get_running_loop().create_task(self._run(command))
            return
        if len(self.waiting) >= self.command.queue:
            if not self.command.drop_oldest:
                full = PayloadError("the queue of the command is full; send it again later")
                self._answers.refuse(self.name, command, full)
                return
            replaced = PayloadError("a newer command replaced this one")
            self._answers.refuse(self.name, self.waiting.popleft(), replaced)
        self.waiting.append(command)

    async def _run(self, command: PendingCommand) -> None:
        environment = self._context.environment
        following: PendingCommand | None = command
        try:
            while following is not None:
                self._current, self._began = following, environment.clock.monotonic()
                reading, error = await outcome(self._call(), environment.stopping)
                self._finish(reading, _reason(error))
                following = self.waiting.popleft() if self.waiting else None
        finally:
            self.task = None

    async def _execute(self) -> Reading | None:
        """Call the handler. A command is executed once, so nothing repeats it; the sender may send it again."""
        command, current = self.command, self._current
        assert current is not None  # set by `_run`
        if self._plain is not None:
            result = await self._plain(**current.arguments)
        else:
            result = await bound(command.handler, command.needs, current.arguments)()
        return reading_of(self.name, result, self._context.environment.clock, command.validate_result)

    def _finish(self, reading: Reading | None, error: BaseException | None) -> None:
        """Publish and answer what became of the current command, unless that was done before."""
        current, self._current = self._current, None
        if current is None:
            return
        self.done += 1
        self.failed += error is not None
        self.last_error = None if error is None else clean(placed(error))
        environment = self._context.environment
        took = environment.clock.monotonic() - self._began
        try:
            if reading is not None:
                self.publisher.publish(reading, always=True)
            self._answers.answer(self.name, current, reading, error, took)
        except Exception as fault:  # a fault of ours: this answer is lost, and the commands after it are not
            environment.events.emit(AppFault(f"answering a command of {self.name}", fault))

    def end(self) -> None:
        """The app has stopped: answer all commands that are left."""
        self._finish(None, DeviceUnavailable("the app stopped before the command ended"))
        while self.waiting:
            self._current = self.waiting.popleft()
            self._finish(None, DeviceUnavailable("the app stopped before the command was executed"))

    def abandoned(self, error: Abandoned) -> None:
        """The current call does not end: answer it now, and let others use the bus. The next command starts once the
        call has ended."""
        if self._bus_lock is not None:
            self._bus_lock.give_back(self)
        self._finish(None, error)

    def snapshot(self) -> tuple[Snapshot, float | None]:
        """See `Runner`. Commands have no schedule, no circuit and no retries."""
        return NO_GUARDS._replace(attempts=min(1, self.failed)), None

    def count(self, document: "Counted") -> None:
        """See `Runner`."""
        document["commands"] = {
            "done": self.done,
            "failed": self.failed,
            "refused": self.refused,
            "waiting": len(self.waiting),
            "last_error": self.last_error,
        }

    def retries(self) -> int:
        """See `Runner`. There are none, as a command is executed once."""
        return 0


class Dispatcher:
    """Passes what is received on to the command queues of an app.

    Args:
        context: the environment, the topics, and how to send.
        queues: the command queues, by the names of their devices.
        readers: the devices that give readings.
        resources: threads and bus locks, shared with everything else that calls handlers.
    """

    def __init__(
        self,
        context: PublisherContext,
        queues: "Mapping[str, CommandQueue]",
        readers: Container[str],
        resources: SharedResources,
    ) -> None:
        self._context = context
        self._resources = resources
        self._queues = queues
        self._readers = readers
        self._answers = CommandAnswers(context, self._queues)
        self._retained = RetainedRequests()

    def queue(self, command: Command, context: PublisherContext, publisher: StatePublisher) -> CommandQueue:
        """Make what runs a registered command."""
        return CommandQueue(command, context, self._resources, publisher, self._answers)

    async def stop(self, grace: float, names: Iterable[str]) -> int:
        """Cancel what runs, of the commands of some devices, and wait at most `grace` seconds for it. Returns how many
        calls are still alive."""
        busy = [(queue, queue.task) for queue in map(self._queues.__getitem__, names) if queue.task is not None]
        alive = await cancel([task for _, task in busy], grace)
        for queue, _ in busy:
            queue.end()
        return alive

    def on_set(self, received: Received) -> None:
        """Handle a received command."""
        self.execute(self._context.topics.device_of(received.topic), received)

    def execute(self, device: str, received: Received) -> bool:
        """Execute a command of a device. Returns whether it was accepted: a retained one, and one that the handler does
        not take, are not."""
        if received.retain:
            self._retained.warn(device)
            return False
        queue, command = self._queues.get(device), PendingCommand(received, None, {})
        try:
            if queue is None:
                raise PayloadError(f"there is no command for the device {clean(device)!r}")
            value, transaction = decode(received.payload)
            command = command._replace(transaction=transaction)
            arguments = convert_payload(queue.command.payload, queue.command.validate, value, received.payload)
            command = command._replace(arguments=arguments)
        except PayloadError as error:
            self._answers.refuse(device, command, error if received.payload else self._empty(device, error))
            return False
        queue.put(command)
        return True

    def _empty(self, device: str, error: PayloadError) -> PayloadError:
        """The error of an empty message. Somebody who sends one may have wanted a reading."""
        polls = device in self._readers
        hint = f", or an empty message to {self._context.topics.of(device, 'get')} to poll the device" if polls else ""
        return PayloadError(f"the message is empty: {error}{hint}")

    def refuse(self, device: str, received: Received, error: PayloadError | Busy) -> None:
        """Answer a command that is not executed."""
        if received.retain:
            self._retained.warn(device)
            return
        try:
            _, transaction = decode(received.payload)
        except PayloadError:
            transaction = None
        self._answers.refuse(device, PendingCommand(received, transaction, {}), error)


def _reason(error: BaseException | None) -> BaseException | None:
    """The error with which the sender of a command is answered. A request for another attempt is a refusal, since
    nothing repeats a command."""
    if isinstance(error, Exception):
        error = sift(error)
    if isinstance(error, RetryRequested):
        return DeviceUnavailable(f"the handler asked for another attempt: {error}")
    return error
