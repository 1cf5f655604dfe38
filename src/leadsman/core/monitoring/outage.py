"""Decides when an outage is reported: when it begins, now and then while it lasts, and when it is over, with its
length.

An outage begins when the first call begins that gives no reading, even if it is reported later. One line per failed
poll floods a log; one line per error type hides an outage of a day. So there are four kinds of report: an onset after
the first failed poll; reminders at failures 2, 4, 8, … in the first hour, at least `MIN_NOTICE_INTERVAL` apart, and
hourly after it; one report for each new type of error, at once; and a recovery. The log and the error topic both use
these reports.

A person who sets up a device waits for its first reading, so the first failed call of a device that was never read is
logged at once. The error topic may wake someone up, so it reports such a device only after its calls have failed for
`MIN_NOTICE_INTERVAL`.
"""

from typing import NamedTuple

from leadsman.core.events import (
    AttemptFailed,
    Event,
    PollFailed,
    PollSkipped,
    ReadingTaken,
    failing_early,
    long_failing,
)
from leadsman.core.text import describe

ONSET, REMINDER, RECOVERED = "onset", "reminder", "recovered"
UNREAD, READ = "unread", "read"
"""Only for the log: a device that was never read starts to fail, and it is read before an outage was reported."""
FIRST_HOUR = 3600.0
"""Seconds during which reminders follow the doubling of failures; after it they come once per this many seconds."""
MIN_NOTICE_INTERVAL = 10.0
"""Seconds between two notices about the same error, so that a device that is polled each second does not cause many."""


class Notice(NamedTuple):
    """A report about an outage. `kind` is ``onset``, ``reminder`` or ``recovered``; or, for the log only, ``unread``
    or ``read``.

    `since` is epoch seconds; `seconds` is how long the outage has lasted; `failures` counts failed polls, `skipped`
    the polls that an open circuit skipped, and `attempts` the calls of the last failed poll. A recovery repeats the
    last error.
    """

    entity: str
    kind: str
    type: str
    message: str
    failures: int
    skipped: int
    since: float
    seconds: float
    attempts: int
    reason: str = ""
    """Why the last failed call is not repeated, a key of `leadsman.core.resilience.policy.REASONS`; empty if that is
    unknown."""
    retry_in: float | None = None
    """Seconds until the poll under way calls again; None if no poll is under way."""
    error: BaseException | None = None
    """The error that the notice is about; None in a recovery. It is not kept."""
    new: bool = False
    """Whether the error is the first of its type in this outage."""


class Outage(NamedTuple):
    """The state of an outage between two events. `at` and `reported_at` are monotonic seconds."""

    at: float
    """When the first call began that gave no reading."""
    wall: float
    reported_at: float
    """The last report; before the first one, when a call failed first."""
    error_type: str
    message: str
    types: frozenset[str]
    """The types of errors reported so far. Empty: nothing was reported yet."""
    failures: int = 0
    skipped: int = 0
    attempts: int = 0
    reason: str = ""
    unread: bool = False
    """Whether the log has reported that a device that was never read fails."""


def step(outage: Outage | None, event: Event, *, never_read: bool = False) -> tuple[Outage | None, Notice | None]:
    """Process one event of an entity. Returns the new state of its outage, and a report if there is one.

    Args:
        never_read: the entity has given no reading so far, not even before a restart that it remembers.
    """
    match event, outage:
        case ReadingTaken(), Outage():
            kind = RECOVERED if outage.types else READ
            worth = outage.types or outage.unread
            return None, _notice(event.entity, kind, outage, event.at) if worth else None
        case AttemptFailed(), _:
            outage = outage or Outage(event.began, event.outage, event.at, "", "", frozenset())
            outage = outage._replace(reason="" if event.delay is not None else event.reason)
            if event.requested:
                return outage, None
            failed = _failing(outage, event.error, event.attempt)
            tried = event.at - (outage.at if outage.types else outage.reported_at)  # since a call has failed
            if long_failing(event) or (failing_early(event, never_read=never_read) and tried >= MIN_NOTICE_INTERVAL):
                return _reported(failed, outage, event, event.error, event.delay)
            if failed.unread or failed.types or not failing_early(event, never_read=never_read):
                return failed, None
            first = _notice(event.entity, UNREAD, failed, event.at)
            return failed._replace(unread=True), first._replace(retry_in=event.delay, error=event.error)
        case PollFailed(), _:
            outage = outage or Outage(event.began, event.outage, event.at, "", "", frozenset())
            failed = _failing(outage, event.error, event.attempts)._replace(failures=outage.failures + 1)
            after, notice = _reported(failed, outage, event, event.error)
            return after._replace(reason=""), notice
        case PollSkipped(), Outage():
            outage = outage._replace(skipped=outage.skipped + 1)
            if outage.types and _hour_passed(outage, event.at):
                return outage._replace(reported_at=event.at), _notice(event.entity, REMINDER, outage, event.at)
    return outage, None


def _failing(outage: Outage, error: BaseException, attempts: int) -> Outage:
    return outage._replace(error_type=type(error).__name__, message=describe(error), attempts=attempts)


def _reported(
    now: Outage, before: Outage, event: AttemptFailed | PollFailed, error: BaseException, retry_in: float | None = None
) -> tuple[Outage, Notice | None]:
    """Report the outage if a report is due. `now` and `before` are its states after and before the event."""
    if not _due(now, before, event.at):
        return now, None
    now = now._replace(reported_at=event.at, types=before.types | {now.error_type})
    notice = _notice(event.entity, REMINDER if before.types else ONSET, now, event.at)
    return now, notice._replace(
        reason=now.reason, retry_in=retry_in, error=error, new=now.error_type not in before.types
    )


def _due(now: Outage, before: Outage, at: float) -> bool:
    doubled = 0 < before.failures < now.failures and now.failures & (now.failures - 1) == 0
    apart = at - before.reported_at >= MIN_NOTICE_INTERVAL
    return (
        now.error_type not in before.types or (doubled and apart and at - now.at < FIRST_HOUR) or _hour_passed(now, at)
    )


def _hour_passed(outage: Outage, now: float) -> bool:
    return now - outage.at >= FIRST_HOUR and now - outage.reported_at >= FIRST_HOUR


def _notice(entity: str, kind: str, outage: Outage, now: float) -> Notice:
    return Notice(
        entity,
        kind,
        outage.error_type,
        outage.message,
        outage.failures,
        outage.skipped,
        outage.wall,
        now - outage.at,
        outage.attempts,
    )
