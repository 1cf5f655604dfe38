"""The trace: what happened to a device that failed, row by row, from the first failure to the reading that ended the outage.

A row is written for each verdict about a failed call, each move of a circuit, each hold and release, each adapter that failed
or was opened anew, and the recovery. Rows of one outage carry its id. The latest rows are kept in memory.
"""

import traceback
from collections import deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from leadsman.clock import rfc3339
from leadsman.events import (
    AdapterFailed,
    AdapterReopened,
    AttemptFailed,
    CircuitMoved,
    Event,
    Held,
    PollFailed,
    ReadingTaken,
    Released,
)
from leadsman.wording import clean, told

ROWS = 256
"""Rows in memory, of all devices together."""
DEEPEST = 16
"""Frames of a traceback, the innermost; an error that is raised again and again gathers them without end."""
LONGEST_TRACEBACK = 4000
"""Characters; the end is kept, since that is where it happened."""


class Row(NamedTuple):
    """One row. `number` counts from 1 since the start of the app; `at` is epoch seconds."""

    number: int
    at: float
    handler: str
    """The device; or the adapter, in rows about one."""
    reason: str
    """``retry``; why there is none (``count``, ``budget``, ``next-poll``, …); ``recovered``, ``circuit open``, ``held``, …"""
    cycle: int | None = None
    """Polls of the outage that failed before this one."""
    attempt: int | None = None
    """The call within the poll, from 1."""
    delay: float | None = None
    """Seconds until the next attempt."""
    error_type: str | None = None
    error_message: str | None = None
    traceback: str | None = None
    policy: str | None = None
    breaker: str | None = None
    outage_id: str | None = None


class Trace:
    """Observes, and remembers the latest rows.

    Args:
        policies: what decides about each device, in words.
        rows: how many to keep.
    """

    def __init__(self, policies: Mapping[str, str], rows: int = ROWS) -> None:
        self._policies = policies
        self._rows: deque[Row] = deque(maxlen=rows)
        self._outages: dict[str, str] = {}
        self._number = 0

    def resume(self, outages: Mapping[str, float]) -> None:
        """Go on with outages that began in an earlier life of the app, by device; epoch seconds."""
        for name, wall in outages.items():
            self._outages[name] = f"{name}/{rfc3339(wall)}"

    def observe(self, event: Event) -> None:
        """Take one event."""
        match event:
            case ReadingTaken(entity=entity):
                if entity in self._outages:
                    self._add(event.wall, entity, "recovered", outage_id=self._outages.pop(entity))
            case AttemptFailed():
                self._attempt(event)
            case PollFailed(entity=entity, error=error) if entity not in self._outages:  # it never raised: it hung
                self._outages[entity] = f"{entity}/{rfc3339(event.wall)}"
                self._add(event.wall, entity, "failed", error=error, outage_id=self._outages[entity])
            case CircuitMoved(entity=entity, state=state):
                self._add(event.wall, entity, f"circuit {state}", outage_id=self._outages.get(entity))
            case Held(entity=entity) | Released(entity=entity):
                word = "held" if isinstance(event, Held) else "released"
                self._add(event.wall, entity, word, outage_id=self._outages.get(entity))
            case AdapterFailed(adapter=adapter, error=error, retry_in=delay):
                self._add(event.wall, adapter, "adapter failed", error=error, delay=delay)
            case AdapterReopened(adapter=adapter, how=how):
                self._add(event.wall, adapter, f"adapter {how}")

    def rows(
        self, handlers: "frozenset[str] | None" = None, since: float = 0.0, after: int = 0, outage_id: str | None = None
    ) -> list[Row]:
        """The rows that are kept, oldest first.

        Args:
            handlers: only of these.
            since: not before this, epoch seconds.
            after: only with a higher number.
            outage_id: only of this outage.
        """
        return [
            row
            for row in self._rows
            if (handlers is None or row.handler in handlers)
            and row.at >= since
            and row.number > after
            and (outage_id is None or row.outage_id == outage_id)
        ]

    def __iter__(self) -> Iterator[Row]:
        return iter(list(self._rows))

    def _attempt(self, event: AttemptFailed) -> None:
        name = event.entity
        outage_id = self._outages[name] = f"{name}/{rfc3339(event.outage)}"
        self._number += 1
        row = Row(
            self._number,
            event.wall,
            name,
            event.reason,
            event.cycle,
            event.attempt,
            event.delay,
            type(event.error).__name__,
            told(event.error),
            _traceback(event.error),
            self._policies.get(name),
            event.circuit,
            outage_id,
        )
        self._rows.append(row)

    def _add(
        self,
        at: float,
        handler: str,
        reason: str,
        *,
        error: BaseException | None = None,
        delay: float | None = None,
        outage_id: str | None = None,
    ) -> None:
        self._number += 1
        kind, message = (None, None) if error is None else (type(error).__name__, told(error))
        self._rows.append(
            Row(
                self._number,
                at,
                handler,
                reason,
                delay=delay,
                error_type=kind,
                error_message=message,
                outage_id=outage_id,
            )
        )


def _traceback(error: BaseException) -> str:
    text = "".join(traceback.format_exception(error, limit=-DEEPEST))[-LONGEST_TRACEBACK:]
    return "\n".join(clean(line) for line in text.splitlines())  # its last lines are what the error says
