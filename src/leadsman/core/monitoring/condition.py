"""How a device is at one moment: the one description from which all reports about it select, so they cannot contradict
each other. Introspection has most of it; the heartbeat, the health document and the topics of discovery have a part."""

from typing import TYPE_CHECKING, NamedTuple

from leadsman.core.loop.clock import rfc3339
from leadsman.core.monitoring.health import MARKED_UNAVAILABLE, Health, is_deferred, is_offline, is_stale, status

if TYPE_CHECKING:
    from leadsman.core.monitoring.document import PollUnderWay, StatusWord
    from leadsman.core.resilience.breaker import CircuitWord


class Condition(NamedTuple):
    """How a device is. Times are RFC 3339, or None."""

    status: "StatusWord"
    offline: bool
    """Whether no fresh reading is expected soon."""
    left: bool
    """Whether its handler marked it as unavailable, until its next reading."""
    circuit: "CircuitWord"
    failures: int
    """Failed polls in a row."""
    last_success_at: str | None
    """None if it was never read."""
    failing_since: str | None
    """The first failure of its outage."""
    error: str | None
    """The type and the message of its last failure."""
    stale: bool = False
    deferred_until: str | None = None
    """The end of the pause that it asked for."""
    deferred_reason: str | None = None
    """Why it asked for a pause; or why it was marked as unavailable, which comes first."""
    poll_under_way: "PollUnderWay | None" = None
    """The poll that tries again, after failed calls."""


def condition_of(health: Health, now: float, wall: float, pause_end: float | None = None) -> Condition:
    """How a device is at `now`, by its health record.

    Args:
        health: the record.
        now: monotonic seconds.
        wall: the same moment, epoch seconds.
        pause_end: when the pause ends that the device asked for, by its guards, monotonic seconds. None takes that of
            the record, which may have passed, as the poll at its end may be under way, or late.
    """
    trouble, word, ahead = health.trouble, status(health, now), wall - now
    if pause_end is None and is_deferred(health, now):
        pause_end = trouble.deferred_until
    reason = None if pause_end is None else trouble.deferred_reason
    return Condition(
        status=word,
        offline=is_offline(word, health, now),
        left=trouble.left is not None,
        circuit=health.circuit,
        failures=trouble.failures,
        last_success_at=time_of(health.success_wall),
        failing_since=time_of(health.failing_since),
        error=None if trouble.error_type is None else f"{trouble.error_type}: {trouble.error_message}",
        stale=is_stale(health, now),
        deferred_until=time_of(pause_end, ahead),
        deferred_reason=reason if trouble.left is None else f"{MARKED_UNAVAILABLE}: {trouble.left}",
        poll_under_way=_under_way(health, ahead),
    )


def time_of(at: float | None, ahead: float = 0.0) -> str | None:
    """A time as text; None if there is none. `ahead`: what epoch seconds are ahead of those of `at`."""
    return None if at is None else rfc3339(at + ahead)


def _under_way(health: Health, ahead: float) -> "PollUnderWay | None":
    poll = health.trouble.trying
    if poll is None or poll.next_at is None:
        return None
    return {
        "failed_calls": poll.calls,
        "last_error": f"{poll.error_type}: {poll.error_message}",
        "next_call_at": rfc3339(ahead + poll.next_at),
    }
