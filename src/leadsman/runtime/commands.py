"""Executes commands (``set``) and requested polls (``get``), and publishes their answers.

Commands of one device are executed one after another, in the order of arrival, and each only once. The result is
published at
``set/result``, and at the response topic if the sender names one. What the handler returns is published as the
device's state.
A retained command is ignored: it would be executed again at every reconnect.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from leadsman.errors import Abandoned, DeviceUnavailable, PayloadError, PollRefused
from leadsman.events import AppFault, CommandDone
from leadsman.mqtt.connection import Received
from leadsman.mqtt.message import STANDARD, Message
from leadsman.mqtt.requests import Json, answer_anyway, answer_to, decode, document
from leadsman.mqtt.topics import encode
from leadsman.reading import fields_of
from leadsman.registration.command import Command, validated
from leadsman.registration.injection import bound
from leadsman.resilience.bus_lock import in_turn
from leadsman.resilience.deadline import Deadline
from leadsman.resilience.environment import NO_GUARDS, Snapshot
from leadsman.resilience.failure import sifted
from leadsman.runtime.calls import PlainCall, SharedResources
from leadsman.runtime.poller import Poller
from leadsman.runtime.publisher import PublisherContext, StatePublisher, outlet_of
from leadsman.tasks import forget_cancellations
from leadsman.text import clean, describe, explained

if TYPE_CHECKING:
    from leadsman.runtime.sources import SourceRunner

MOST_TOLD = 100
"""The number of devices whose retained commands are logged, once each: the broker sends them again at every
reconnect."""

logger = logging.getLogger("leadsman")


class _Waiting(NamedTuple):
    received: Received
    arguments: dict[str, Any]
    transaction: Json


class CommandQueue:
    """The command queue of one device: one command runs, the others wait."""

    __slots__ = (
        "_arguments",
        "_began",
        "_bus_lock",
        "_call",
        "_dispatcher",
        "_made_for",
        "_plain",
        "command",
        "done",
        "failed",
        "task",
        "waiting",
    )

    def __init__(self, command: Command, dispatcher: "Dispatcher", lanes: SharedResources) -> None:
        self.command = command
        self.waiting: deque[_Waiting] = deque()
        self.task: asyncio.Task[None] | None = None
        self.done = self.failed = 0
        """Commands executed since the start, and how many of them failed."""
        self._dispatcher = dispatcher
        self._arguments: dict[str, Any] = {}
        self._made_for: _Waiting | None = None
        self._began = 0.0
        self._plain = PlainCall(command.handler, command.needs, lanes) if command.plain else None
        self._bus_lock = lanes.bus_lock(command.group)
        call: Callable[[], Awaitable[Any]] = self._execute
        if command.timeout is not None:
            call = Deadline(call, command.timeout, dispatcher.mail.environment, self).call
        if self._bus_lock is not None:
            call = in_turn(call, self._bus_lock, self)
        self._call = call

    async def _execute(self) -> Any:
        """Call the handler. A command is executed once, so nothing repeats it; the sender may send it again."""
        command = self.command
        if self._plain is not None:
            result = await self._plain(**self._arguments)
        else:
            result = await bound(command.handler, command.needs, self._arguments)()
        return None if result is None else fields_of(result)

    def snapshot(self) -> Snapshot:
        """What is known of the device's failures, where only commands reach it."""
        return NO_GUARDS._replace(attempts=min(1, self.failed))

    def retries(self) -> int:
        """Retries since the last success: none, as a command is executed once."""
        return 0

    def abandoned(self, error: Abandoned) -> None:
        """The current call does not end: send its answer now, and let others use the bus. The next command starts
        once the call has ended."""
        if self._bus_lock is not None:
            self._bus_lock.give_back(self)
        self._settle(None, error)

    def _settle(self, result: Any, error: BaseException | None) -> None:
        made, self._made_for = self._made_for, None
        if made is None:
            return
        try:
            self._dispatcher.made(self, made.received, made.transaction, result, error, self._began)
        except Exception as fault:  # a fault of ours: this answer is lost, and the commands after it are not
            where = f"answering a command of {self.command.name}"
            self._dispatcher.mail.environment.events.emit(AppFault(where, fault))

    def end(self) -> None:
        """The app stopped: answer all waiting commands."""
        self._settle(None, DeviceUnavailable("the app stopped before the command ended"))
        while self.waiting:
            self._made_for = self.waiting.popleft()
            self._settle(None, DeviceUnavailable("the app stopped before the command was executed"))

    def _ends(self, error: BaseException) -> bool:
        """Whether `error` came because the app ends: as a cancellation, or as an error that clean-up made of it."""
        if isinstance(error, asyncio.CancelledError | Exception):
            return self._dispatcher.mail.environment.stopping.is_set()
        return isinstance(error, GeneratorExit) and not self._dispatcher.loop.is_running()

    def begin(self, command: _Waiting) -> None:
        """Execute a command, and then the commands that are waiting behind it."""
        self.task = asyncio.get_running_loop().create_task(self._run(command))

    async def _run(self, command: _Waiting) -> None:
        following: _Waiting | None = command
        try:
            while following is not None:
                self._made_for = following
                self._arguments = following.arguments
                error: BaseException | None = None
                result = None
                self._began = self._dispatcher.mail.environment.clock.monotonic()
                try:
                    result = await self._call()
                except BaseException as raised:  # a handler does not end the process
                    if self._ends(raised):
                        if isinstance(raised, Exception):  # clean-up made another error of the cancellation
                            raise asyncio.CancelledError from raised
                        raise
                    forget_cancellations()
                    error = sifted(raised) if isinstance(raised, Exception) else raised
                self._settle(result, error)
                following = self.waiting.popleft() if self.waiting else None
        finally:
            self.task = None


class Dispatcher:
    """Receives commands and requests for polls, and answers them."""

    def __init__(
        self,
        mail: PublisherContext,
        poller: Poller,
        feeds: "Mapping[str, SourceRunner]",
        lines: dict[str, CommandQueue],
        lanes: SharedResources,
    ) -> None:
        self.mail = mail
        self.lines = lines
        self._poller = poller
        self._feeds = feeds
        self._lanes = lanes
        self._outlets: dict[str, StatePublisher] = {}
        self._retained: set[str] = set()
        self.loop = asyncio.get_running_loop()

    def add(self, command: Command) -> CommandQueue:
        """Add a registered command."""
        device = self._poller.polls.get(command.name) or self._feeds.get(command.name)
        own = outlet_of(command.name, None, STANDARD, self.mail)
        self._outlets[command.name] = own if device is None else device.outlet
        line = self.lines[command.name] = CommandQueue(command, self, self._lanes)
        return line

    async def stop(self, grace: float) -> int:
        """Cancel what runs and wait at most `grace` seconds for it. Returns how many calls are still alive."""
        busy = [line for line in self.lines.values() if line.task is not None]
        tasks = [line.task for line in busy if line.task is not None]
        if not tasks:
            return 0
        for task in tasks:
            task.cancel()
        _, pending = await asyncio.wait(tasks, timeout=grace)
        for line in busy:
            line.end()
        return len(pending)

    def on_set(self, received: Received) -> None:
        """Handle a received command."""
        device = self.mail.topics.device_of(received.topic)
        if received.retain:
            return self._ignored(device)
        line, transaction = self.lines.get(device), None
        if line is None:
            return self._refuse(
                received, device, None, PayloadError(f"there is no command for the device {clean(device)!r}")
            )
        try:
            value, transaction = decode(received.payload)
            arguments = validated(line.command, value, received.payload)
        except PayloadError as error:
            return self._refuse(received, device, transaction, error)
        command = _Waiting(received, arguments, transaction)
        if line.task is None:
            return line.begin(command)
        if len(line.waiting) >= line.command.queue:
            full = PayloadError("the queue of the command is full; send it again later")
            if not line.command.drop_oldest:
                return self._refuse(received, device, transaction, full)
            oldest = line.waiting.popleft()
            self._refuse(oldest.received, device, oldest.transaction, PayloadError("a newer command replaced this one"))
        line.waiting.append(command)
        return None

    def on_get(self, received: Received) -> None:
        """Handle a request for a reading."""
        device, transaction = self.mail.topics.device_of(received.topic), None
        if received.retain:
            return self._ignored(device)
        poll = self._poller.polls.get(device)
        try:
            _, transaction = decode(received.payload)
            if poll is None or poll.telemetry.job:
                raise PollRefused(f"there is no device {clean(device)!r} that can be polled")
            self._poller.ask(device, lambda outcome: self._polled(received, transaction, outcome))
        except (PayloadError, PollRefused) as error:
            self._polled(received, transaction, error)
        return None

    def made(
        self,
        line: CommandQueue,
        received: Received,
        transaction: Json,
        result: Any,
        error: BaseException | None,
        began: float,
    ) -> None:
        """A command ended: publish its result, and the state that its handler returned."""
        clock, device = self.mail.environment.clock, line.command.name
        now, wall = clock.monotonic(), clock.wall()
        line.done += 1
        line.failed += error is not None
        fields = None
        if error is None and result is not None:
            fields, left_out = result
            self._outlets[device].tell(fields, left_out, now, wall, always=True)
        self._tell(received, device, transaction, fields, error, now - began)

    def _refuse(self, received: Received, device: str, transaction: Json, error: PayloadError) -> None:
        self._tell(received, device, transaction, None, error, 0.0)

    def _tell(
        self, received: Received, device: str, transaction: Json, fields: Any, error: BaseException | None, took: float
    ) -> None:
        self.mail.environment.events.emit(CommandDone(device, took, error))
        text = None if error is None else explained(error)
        answer = document(fields, text, self.mail.environment.clock.wall(), transaction)
        if device in self.lines:  # nobody can fill the broker with topics by inventing devices
            self.mail.send(Message(self.mail.topics.set_result(device), encode(answer)))
        if received.response_topic is None:
            return
        try:
            self.mail.send(answer_to(received, self.mail.topics, answer))
        except PayloadError as refused:
            logger.warning("The request at %s cannot be answered: %s", clean(received.topic), describe(refused))

    def _polled(self, received: Received, transaction: Json, outcome: dict[str, Any] | BaseException | None) -> None:
        """Answer a request for a reading. A sender without a response topic sees the reading as the device's state.
        It only gets an answer if something went wrong, or if the request carried a transaction."""
        error = explained(outcome) if isinstance(outcome, BaseException) else None
        if received.response_topic is None and error is None and transaction is None:
            return
        if error is not None:
            logger.info("%s: %s", clean(received.topic), error)
        data = None if isinstance(outcome, BaseException) else outcome
        answer = document(data, error, self.mail.environment.clock.wall(), transaction)
        self.mail.send(answer_anyway(received, self.mail.topics, answer))

    def _ignored(self, device: str) -> None:
        if device in self._retained or len(self._retained) >= MOST_TOLD:
            return
        self._retained.add(device)
        logger.warning(
            "%s: a retained message at 'set' or 'get' is ignored, because it would arrive again at every reconnect; "
            "clear the topic, and send without retain",
            clean(device),
        )
