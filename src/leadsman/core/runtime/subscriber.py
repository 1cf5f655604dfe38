"""Receives the messages of other programs, and calls the handlers of `@app.subscribe`.

Each subscription has a line of work of its own: one message is handled at a time, in the order of arrival, and a slow
handler delays no other. If too many messages wait, the oldest is dropped, since most of them are states. Messages that
are refused or dropped, and calls that fail, are counted, and logged a few times a minute at most.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from leadsman.core.events import MessageFailed
from leadsman.core.loop.tasks import outcome
from leadsman.core.monitoring.bugs import placed
from leadsman.core.monitoring.event_log import Tracebacks
from leadsman.core.mqtt.answers import decode_json
from leadsman.core.mqtt.connection import Received
from leadsman.core.registration.command import convert_payload
from leadsman.core.registration.injection import bound
from leadsman.core.registration.subscription import Subscription
from leadsman.core.resilience.environment import Environment
from leadsman.core.resilience.guards import guard_call
from leadsman.core.runtime.handler_calls import PlainCall, SharedResources
from leadsman.core.runtime.supervision import cancel
from leadsman.core.text import clean, explain, log_fields
from leadsman.core.text.log_lines import left_out_before, others
from leadsman.errors import Abandoned, PayloadError

REMEMBERED = 1000
"""Topics of one subscription whose latest messages are remembered."""

logger = logging.getLogger("leadsman")


class MessageCounts(NamedTuple):
    """The counts of the messages of one subscription since the start."""

    received: int
    failed: int
    """Those whose payload was refused, or whose handler failed."""
    dropped: int
    """Those that came faster than they were handled, or that an earlier run may have handled."""
    waiting: int
    received_at: float | None = None
    """When the last one came, epoch seconds; None if none did."""
    last_error: str | None = None
    """Why the last message failed; None if it did not."""


class Subscriber:
    """Handles the messages of one subscription.

    Args:
        subscription: the registration.
        environment: the clock, and whether the app ends.
        shared: the threads of plain handlers.
    """

    def __init__(self, subscription: Subscription, environment: Environment, shared: SharedResources) -> None:
        self.subscription = subscription
        self.task: asyncio.Task[None] | None = None
        self._received = self._failed = self._dropped = 0
        self._received_at: float | None = None
        self._last_error: str | None = None
        self._waiting: deque[Received] = deque()
        self._current: Received | None = None
        self._lines = others()
        self._tracebacks = Tracebacks()
        self._environment = environment
        self._latest: dict[str, int] = {}
        """The content of the latest message of each topic."""
        self._plain = None
        timeout = subscription.timeout
        if subscription.plain:
            name = f"a message at {clean(subscription.topic_filter)}"
            self._plain = PlainCall(subscription.handler, subscription.needs, shared, name, timeout)
        self._call = guard_call(self._handle, self, environment, timeout=timeout, bus_lock=None, thread=self._plain)

    def on_message(self, received: Received) -> None:
        """Handle a message now, or after those that wait; but not one of which an earlier run may have handled it, nor
        one that the broker kept if it is no news."""
        if self._is_known(received):
            return
        self._received += 1
        self._received_at = self._environment.clock.wall()
        if received.redelivered:
            self._dropped += 1
            self._log(received, "dropped, since the app may have handled it before it was restarted")
            return
        if self.task is None:
            self._current = received
            self.task = asyncio.get_running_loop().create_task(self._run(received))
            return
        if len(self._waiting) >= self.subscription.queue:
            self._dropped += 1
            self._log(self._waiting.popleft(), "dropped, since its handler is slower than the messages come")
        self._waiting.append(received)

    @property
    def counts(self) -> MessageCounts:
        """The counts of the messages since the start."""
        numbers = self._received, self._failed, self._dropped, len(self._waiting)
        return MessageCounts(*numbers, self._received_at, self._last_error)

    def abandoned(self, error: Abandoned) -> None:
        """The current call does not end. The next message is handled once it has."""
        self._report(error)

    async def stop(self, grace: float) -> int:
        """Cancel the call that runs, and wait at most `grace` seconds for it. What waits is not handled, and
        logged. Returns how many calls are still alive."""
        unhandled, alive = list(self._waiting), 0
        self._waiting.clear()
        if (task := self.task) is not None:
            alive = await cancel([task], grace)
            if self._current is not None and (alive or task.cancelled()):
                unhandled.insert(0, self._current)
        self._dropped += len(unhandled)
        for each in unhandled:
            self._log(each, "not handled to its end, since the app ends")
        return alive

    def _is_known(self, received: Received) -> bool:
        """Whether the broker kept an event, which is over, or what was the last message of its topic before. It sends
        what it keeps with each connection."""
        before = self._latest.pop(received.topic, None)
        content = self._latest[received.topic] = hash((received.payload, received.taken_at))
        if len(self._latest) > REMEMBERED:
            del self._latest[next(iter(self._latest))]
        return received.retain and (self.subscription.event or content == before)

    async def _run(self, received: Received) -> None:
        following: Received | None = received
        try:
            while following is not None:
                self._current = following
                error = (await outcome(self._call(), self._environment.stopping)).error
                if error is not None:
                    self._report(error)
                else:
                    self._last_error = None
                following = self._waiting.popleft() if self._waiting else None
        finally:
            self.task = None

    async def _handle(self) -> None:
        subscription, received = self.subscription, self._current
        assert received is not None  # set by `_run`
        given: Mapping[str, object] = {}
        if subscription.payload is not None:
            value = decode_json(received.payload)
            given = convert_payload(subscription.payload, subscription.validate, value, received.payload)
        subscription.message.value = received
        if self._plain is not None:
            result = await self._plain(**given)
        else:
            result = await bound(subscription.handler, subscription.needs, given)()
        if subscription.readings is not None and result is not None:
            subscription.readings.put(result)

    def _report(self, error: BaseException) -> None:
        """Report the failure of the current message, unless that was done before."""
        current, self._current = self._current, None
        if current is not None:
            self._failed += 1
            self._last_error = clean(explain(error) if isinstance(error, PayloadError) else placed(error))
            if isinstance(error, PayloadError):
                self._log(current, f"refused: {explain(error)}")
                return
            self._environment.events.emit(MessageFailed(self.subscription.topic_filter, error))
            lines = self._tracebacks.lines(self.subscription.topic_filter, error)
            self._log(current, placed(error), lines)

    def _log(self, received: Received, what: str, frames: Sequence[str] = ()) -> None:
        topic_filter = self.subscription.topic_filter
        before = self._lines.left_out(topic_filter, self._environment.clock.monotonic())
        if before is not None:
            about = log_fields("message failed", topic=received.topic)
            line = f"message at {clean(received.topic)}: {what}{left_out_before(before)}"
            logger.warning("%s", "\n".join([line, *frames]), extra=about)
