"""The trace: a record of what happened to failing devices, row by row, from the first failure to the reading that
ended the outage.

A row is written for each verdict about a failed call, each change of a circuit, each hold and release, each adapter
that failed or was reopened, and the recovery. The latest rows of each device are kept in memory, so that a device that
fails each second does not displace the rows of others.
"""

import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter

from leadsman.core.events import (
    AdapterFailed,
    AdapterReopened,
    AppFault,
    AttemptFailed,
    CircuitMoved,
    CircuitRequested,
    CommandDone,
    DeviceHeld,
    DeviceReleased,
    Event,
    MessageFailed,
    PollFailed,
    ReadingTaken,
)
from leadsman.core.monitoring.bugs import is_bug, message_of
from leadsman.core.monitoring.trace_row import TraceRow
from leadsman.core.resilience.failure import RetryRequested
from leadsman.core.text import clean, without_secret_lines

ROWS = 256
"""Rows of one device in memory."""
MAX_ROWS = 4096
"""Rows of all devices in memory. Above this, the device with the most rows loses its oldest one."""
MAX_FRAMES = 16
"""Frames of a traceback, the innermost ones. An error that is raised again and again collects them without end."""
MAX_TRACEBACK_CHARS = 4000
"""Characters. The end is kept, since it shows where the error was raised."""


class Trace:
    """Observes events, and keeps the latest rows.

    Args:
        policy: the retry policy of a device, as text; None for an adapter. Asked once a row.
        rows: how many rows of each device to keep.
        most: how many rows of all devices to keep.
    """

    def __init__(self, policy: Callable[[str], str | None], rows: int = ROWS, most: int = MAX_ROWS) -> None:
        self._policy = policy
        self._limit = rows
        self._most = most
        self._rows: dict[str, deque[TraceRow]] = {}
        self._count = 0
        self._failing: set[str] = set()
        self._tracebacks: dict[str, str] = {}  # the last one of each device: mostly, the next is the same
        self._number = 0

    def resume(self, devices: Iterable[str]) -> None:
        """Continue the outages of these devices, which began before a restart."""
        self._failing.update(devices)

    def observe(self, event: Event) -> None:
        """Process one event."""
        match event:
            case ReadingTaken(entity=entity):
                if entity in self._failing:
                    self._failing.discard(entity)
                    self._add(event.wall, entity, "recovered")
            case AttemptFailed():
                self._attempt(event)
            case PollFailed(entity=entity, error=error) if entity not in self._failing:  # it never raised: it hung
                self._failing.add(entity)
                self._add(event.wall, entity, "failed", error=error)
            case CircuitMoved(entity=entity, state=state):
                self._moved(event.wall, entity, f"circuit {state}")
            case CircuitRequested(entity=entity, action=action, by=by):
                self._add(event.wall, entity, f"asked to {action} the circuit", by=by)
            case DeviceHeld(entity=entity, by=by):
                self._add(event.wall, entity, "held", by=by or None)
            case DeviceReleased(entity=entity, by=by):
                self._add(event.wall, entity, "released", by=by or None)
            case AdapterFailed(adapter=adapter, error=error, retry_in=delay):
                self._add(event.wall, adapter, "adapter failed", error=error, delay=delay)
            case CommandDone(device=device, error=error) if error is not None and is_bug(error):
                self._add(event.wall, device, "command failed", error=error)
            case MessageFailed(topic_filter=topic_filter, error=error):
                self._add(event.wall, topic_filter, "message failed", error=error)
            case AppFault(where=where, error=error):
                self._add(event.wall, where, "fault", error=error)
            case AdapterReopened(adapter=adapter, how=how):
                self._add(event.wall, adapter, f"adapter {how}")

    def rows(self, handlers: "frozenset[str] | None" = None, since: float = 0.0, after: int = 0) -> list[TraceRow]:
        """The rows that are kept, oldest first.

        Args:
            handlers: only of these.
            since: not before this, epoch seconds.
            after: only with a higher number.
        """
        return [
            row
            for row in self
            if (handlers is None or row.handler in handlers) and row.at >= since and row.number > after
        ]

    def __iter__(self) -> Iterator[TraceRow]:
        return iter(sorted((row for rows in self._rows.values() for row in rows), key=attrgetter("number")))

    def _moved(self, at: float, name: str, word: str) -> None:
        """Add a row about a change of a circuit. If another device made the probe of a shared circuit and failed, the
        circuit was half open and is open again: nothing happened to this device, so the ``half_open`` row is
        removed."""
        rows = self._rows.get(name)
        if rows and word == "circuit open" and rows[-1].reason == "circuit half_open":
            rows.pop()
            self._count -= 1
            return
        self._add(at, name, word)

    def _keep(self, row: TraceRow) -> None:
        rows = self._rows.setdefault(row.handler, deque())
        rows.append(row)
        self._count += 1
        if len(rows) > self._limit:
            rows.popleft()
            self._count -= 1
        elif self._count > self._most:
            max(self._rows.values(), key=len).popleft()
            self._count -= 1

    def _attempt(self, event: AttemptFailed) -> None:
        name, error = event.entity, event.error
        self._failing.add(name)
        asked = error.delay if event.reason == "deferred" and isinstance(error, RetryRequested) else None
        self._number += 1
        row = TraceRow(
            self._number,
            event.wall,
            name,
            event.reason,
            event.cycle,
            event.attempt,
            event.delay if asked is None else asked,
            type(event.error).__name__,
            message_of(event.error),
            self._shared(name, _traceback(event.error)),
            self._policy(name),
            event.circuit,
        )
        self._keep(row)

    def _shared(self, name: str, text: str) -> str:
        """A traceback, which is one object in the rows of a device that have the same: most of a row is its text."""
        if self._tracebacks.get(name) != text:
            self._tracebacks[name] = text
        return self._tracebacks[name]

    def _add(
        self,
        at: float,
        handler: str,
        reason: str,
        *,
        error: BaseException | None = None,
        delay: float | None = None,
        by: str | None = None,
    ) -> None:
        self._number += 1
        kind, message = (None, None) if error is None else (type(error).__name__, message_of(error))
        self._keep(
            TraceRow(
                self._number,
                at,
                handler,
                reason,
                delay=delay,
                error_type=kind,
                error_message=message,
                traceback=None
                if error is None or error.__traceback__ is None
                else self._shared(handler, _traceback(error)),
                by=by,
            )
        )


def _traceback(error: BaseException) -> str:
    text = without_secret_lines("".join(traceback.format_exception(error, limit=-MAX_FRAMES)))
    lines = text[-MAX_TRACEBACK_CHARS:].splitlines()  # the last ones have the error's message
    return "\n".join(clean(line) for line in lines)
