"""An outage is told when it begins, now and then while it lasts, and when it is over, with its length.

One line per failed poll floods a log; one line per error type hides an outage of a day. So: an onset; reminders at
failures 2, 4, 8, … in the first hour and hourly after it; at once, but only once, for each new type of error; and a
recovery. The log and the error topic both speak from here.
"""

from typing import NamedTuple

from leadsman.events import AttemptFailed, Event, PollFailed, PollSkipped, ReadingTaken, long_failing
from leadsman.wording import told

FIRST_HOUR = 3600.0
"""Seconds during which reminders follow the doubling of failures; after it they come once per this many seconds."""


class Notice(NamedTuple):
    """Something worth telling about an outage. `kind` is ``onset``, ``reminder`` or ``recovered``.

    `since` is epoch seconds; `seconds` is how long the outage has lasted; `failures` counts failed polls, `skipped` the
    polls that an open circuit kept back, and `attempts` the calls of the last failed poll. A recovery repeats the last error.
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


class Outage(NamedTuple):
    """What is remembered of an outage between two events. `at` and `told_at` are monotonic seconds."""

    at: float
    wall: float
    told_at: float
    error_type: str
    message: str
    types: frozenset[str]
    failures: int = 0
    skipped: int = 0
    attempts: int = 0


def step(outage: Outage | None, event: Event) -> tuple[Outage | None, Notice | None]:
    """Take one event of an entity; answer what is remembered after it, and what is worth telling."""
    match event, outage:
        case ReadingTaken(), Outage():
            return None, _notice(event.entity, "recovered", outage, event.at)
        case PollFailed(), None:
            kind = type(event.error).__name__
            begun = Outage(
                event.at, event.wall, event.at, kind, told(event.error), frozenset({kind}), 1, 0, event.attempts
            )
            return begun, _notice(event.entity, "onset", begun, event.at)
        case PollFailed(), Outage():
            return _failed_again(outage, event)
        case AttemptFailed(), _ if long_failing(event):
            return _failing_still(outage, event)
        case PollSkipped(), Outage():
            outage = outage._replace(skipped=outage.skipped + 1)
            return _reminded(outage, event.entity, event.at, due=_hour_passed(outage, event.at))
    return outage, None


def _failing_still(outage: Outage | None, event: AttemptFailed) -> tuple[Outage | None, Notice | None]:
    """A poll that has failed for long, and still retries."""
    kind = type(event.error).__name__
    if outage is None:
        begun = Outage(
            event.since, event.outage, event.at, kind, told(event.error), frozenset({kind}), 0, 0, event.attempt
        )
        return begun, _notice(event.entity, "onset", begun, event.at)
    due = kind not in outage.types or _hour_passed(outage, event.at)
    outage = outage._replace(
        error_type=kind, message=told(event.error), types=outage.types | {kind}, attempts=event.attempt
    )
    return _reminded(outage, event.entity, event.at, due=due)


def _failed_again(outage: Outage, event: PollFailed) -> tuple[Outage, Notice | None]:
    kind, failures = type(event.error).__name__, outage.failures + 1
    doubled = failures & (failures - 1) == 0 and event.at - outage.at < FIRST_HOUR
    due = doubled or kind not in outage.types or _hour_passed(outage, event.at)
    outage = outage._replace(
        failures=failures,
        error_type=kind,
        message=told(event.error),
        types=outage.types | {kind},
        attempts=event.attempts,
    )
    return _reminded(outage, event.entity, event.at, due=due)


def _reminded(outage: Outage, entity: str, now: float, *, due: bool) -> tuple[Outage, Notice | None]:
    if not due:
        return outage, None
    return outage._replace(told_at=now), _notice(entity, "reminder", outage, now)


def _hour_passed(outage: Outage, now: float) -> bool:
    return now - outage.at >= FIRST_HOUR and now - outage.told_at >= FIRST_HOUR


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
