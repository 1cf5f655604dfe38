"""Receives commands at ``{prefix}/{device}/set``, and passes them on to the devices.

A retained message is ignored: it would arrive again at every reconnect.
"""

import asyncio
from collections.abc import Iterable

from leadsman.errors import Busy, PayloadError
from leadsman.mqtt.answers import RetainedRequests, decode
from leadsman.mqtt.connection import Received
from leadsman.mqtt.message import STANDARD
from leadsman.registration.command import Command, convert_payload
from leadsman.runtime.calls import SharedResources
from leadsman.runtime.command_queue import CommandAnswers, CommandQueue, PendingCommand
from leadsman.runtime.publisher import PublisherContext, publisher_of
from leadsman.runtime.runner import Reader, Runners
from leadsman.text import clean


class Dispatcher:
    """Passes what is received on to the command queues of an app.

    Args:
        context: the environment, the topics, and how to send.
        runners: where the command queues are added. A command publishes its readings as the reader of its device does.
        resources: threads and bus locks, shared with everything else that calls handlers.
    """

    def __init__(self, context: PublisherContext, runners: Runners, resources: SharedResources) -> None:
        self._context = context
        self._runners = runners
        self._resources = resources
        self._queues = runners.commands
        self._answers = CommandAnswers(context, self._queues)
        self._retained = RetainedRequests()

    def queue(self, command: Command, context: PublisherContext, reader: Reader | None) -> CommandQueue:
        """Make what runs a registered command. It publishes with `context`, or as the `reader` of its device does."""
        publisher = publisher_of(command.name, None, STANDARD, context) if reader is None else reader.publisher
        return CommandQueue(command, context, self._resources, publisher, self._answers)

    async def stop(self, grace: float, names: Iterable[str]) -> int:
        """Cancel what runs, of the commands of some devices, and wait at most `grace` seconds for it. Returns how many
        calls are still alive."""
        queues = [self._queues[name] for name in names]
        busy = [queue for queue in queues if queue.task is not None]
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
            command = command._replace(arguments=convert_payload(queue.command, value, received.payload))
        except PayloadError as error:
            self._answers.refuse(device, command, error if received.payload else self._empty(device, error))
            return False
        queue.put(command)
        return True

    def _empty(self, device: str, error: PayloadError) -> PayloadError:
        """The error of an empty message. Somebody who sends one may have wanted a reading."""
        polls = device in self._runners.readers
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
