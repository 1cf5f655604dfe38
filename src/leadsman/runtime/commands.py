"""Receives commands (``set``) and requests for polls (``get``), and passes them on to the devices.

A retained message is ignored: it would arrive again at every reconnect.
"""

import asyncio
import logging
from collections.abc import Callable

from leadsman.errors import PayloadError, PollRefused
from leadsman.mqtt.answers import Json, answer_anyway, decode, document
from leadsman.mqtt.connection import Received
from leadsman.mqtt.message import STANDARD
from leadsman.reading import Reading
from leadsman.registration.command import Command, validated
from leadsman.runtime.calls import SharedResources
from leadsman.runtime.command_queue import CommandAnswers, CommandQueue, PendingCommand
from leadsman.runtime.publisher import PublisherContext, publisher_of
from leadsman.runtime.runner import Answer, Runners
from leadsman.text import clean, explained, log_fields

MOST_WARNED = 100
"""The number of devices whose retained commands are logged, once each: the broker sends them again at every
reconnect."""

logger = logging.getLogger("leadsman")


class Dispatcher:
    """Passes what is received on to the command queues and the polls of an app.

    Args:
        context: the environment, the topics, and how to send.
        runners: where the command queues are added. A command publishes its readings as the reader of its device does.
        resources: threads and bus locks, shared with everything else that calls handlers.
        poll: polls a device and answers later. Raises `PollRefused`.
    """

    def __init__(
        self,
        context: PublisherContext,
        runners: Runners,
        resources: SharedResources,
        poll: Callable[[str, Answer], None],
    ) -> None:
        self._context = context
        self._runners = runners
        self._resources = resources
        self._poll = poll
        self._queues: dict[str, CommandQueue] = {}
        self._answers = CommandAnswers(context, self._queues)
        self._warned: set[str] = set()

    def add(self, command: Command) -> None:
        """Add a registered command."""
        name, context = command.name, self._context
        reader = self._runners.readers.get(name)
        publisher = publisher_of(name, None, STANDARD, context) if reader is None else reader.publisher
        queue = CommandQueue(command, context, self._resources, publisher, self._answers)
        self._queues[name] = self._runners.commands[name] = queue

    async def stop(self, grace: float) -> int:
        """Cancel what runs and wait at most `grace` seconds for it. Returns how many calls are still alive."""
        busy = [queue for queue in self._queues.values() if queue.task is not None]
        tasks = [queue.task for queue in busy if queue.task is not None]
        if not tasks:
            return 0
        for task in tasks:
            task.cancel()
        _, pending = await asyncio.wait(tasks, timeout=grace)
        for queue in busy:
            queue.end()
        return len(pending)

    def on_set(self, received: Received) -> None:
        """Handle a received command."""
        device = self._context.topics.device_of(received.topic)
        if received.retain:
            return self._ignore(device)
        queue, command = self._queues.get(device), PendingCommand(received, None, {})
        try:
            if queue is None:
                raise PayloadError(f"there is no command for the device {clean(device)!r}")
            value, transaction = decode(received.payload)
            command = command._replace(transaction=transaction)
            command = command._replace(arguments=validated(queue.command, value, received.payload))
        except PayloadError as error:
            return self._answers.refuse(device, command, error)
        return queue.put(command)

    def on_get(self, received: Received) -> None:
        """Handle a request for a reading."""
        device, transaction = self._context.topics.device_of(received.topic), None
        if received.retain:
            return self._ignore(device)
        try:
            _, transaction = decode(received.payload)
            self._poll(device, lambda result: self._polled(received, transaction, result))
        except (PayloadError, PollRefused) as error:
            self._polled(received, transaction, error)
        return None

    def _polled(self, received: Received, transaction: Json, result: Reading | BaseException | None) -> None:
        """Answer a request for a reading. A sender without a response topic sees the reading as the device's state. It
        only gets an answer if something went wrong, or if the request carried a transaction."""
        error = explained(result) if isinstance(result, BaseException) else None
        if received.response_topic is None and error is None and transaction is None:
            return
        if error is not None:
            logger.info(
                "%s: %s", clean(received.topic), error, extra=log_fields("request refused", topic=received.topic)
            )
        fields = result.fields if isinstance(result, Reading) else None
        answer = document(fields, error, self._context.environment.clock.wall(), transaction)
        self._context.send(answer_anyway(received, self._context.topics, answer))

    def _ignore(self, device: str) -> None:
        if device in self._warned or len(self._warned) >= MOST_WARNED:
            return
        self._warned.add(device)
        logger.warning(
            "%s: a retained message at 'set' or 'get' is ignored, because it would arrive again at every reconnect; "
            "clear the topic, and send without retain",
            clean(device),
            extra=log_fields("retained request", device),
        )
