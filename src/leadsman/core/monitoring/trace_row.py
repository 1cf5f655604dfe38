"""A row about a device that fails: what happened, and what was decided. The trace has them."""

from typing import NamedTuple


class TraceRow(NamedTuple):
    """One row. `number` counts from 1 since the start of the app; `at` is epoch seconds."""

    number: int
    at: float
    handler: str
    """The device; or the adapter, the filter of the subscription, or the part of the app, in rows about one."""
    reason: str
    """``retry``; why there is none (``count``, ``budget``, ``next-poll``, …); ``recovered``, ``circuit open``,
    ``held``, …"""
    cycle: int | None = None
    """Polls of the outage that failed before this one."""
    attempt: int | None = None
    """The call within the poll, from 1."""
    delay: float | None = None
    """Seconds until the next attempt. In a ``deferred`` row, the length of the pause that the device asked for."""
    error_type: str | None = None
    error_message: str | None = None
    traceback: str | None = None
    policy: str | None = None
    breaker: str | None = None
    by: str | None = None
    """The person, in a row about an action of a person."""
