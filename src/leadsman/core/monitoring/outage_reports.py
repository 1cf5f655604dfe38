"""Reports outages on the error topics and in the log, which both use the notices of `leadsman.core.monitoring.outage`,
and flaky devices in the log."""

import logging
import math
from collections.abc import Callable
from typing import NamedTuple

from leadsman.core.events import (
    AppFault,
    Event,
    ReadingTaken,
    StateFailed,
)
from leadsman.core.loop.clock import rfc3339
from leadsman.core.loop.durations import human
from leadsman.core.loop.user_code import frames_of
from leadsman.core.monitoring import outage as outages
from leadsman.core.monitoring.bugs import is_bug, place
from leadsman.core.monitoring.health import Health, HealthRecords
from leadsman.core.monitoring.outage import Notice, Outage
from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.topics import Topics, encode
from leadsman.core.resilience.policy import REASONS
from leadsman.core.text import clean, count_noun, describe, log_fields
from leadsman.core.text.log_lines import Lines, left_out_before

MAX_FIRST_READINGS = 20
"""First readings that are logged, each with a line; a person who sets up thousands of devices reads no more."""

WINDOW = 20
"""How many of the last polls count."""
MANY, FEW = 10, 2
"""A device is flaky if at least `MANY` of these polls needed retries, and steady again if at most `FEW` did."""
REPORT_AGAIN = 3600.0
"""Seconds between two reports that a device is flaky."""

logger = logging.getLogger("leadsman")


class Flaky(NamedTuple):
    """The record of a device some of whose last polls needed retries.

    A flaky device is one whose polls succeed, but too often only after retries, so that neither an error nor an outage
    is reported. It becomes flaky when half of its last polls needed retries, and steady again when almost none did. It
    is reported as flaky once an hour at most.
    """

    numbers: tuple[int, ...]
    """The numbers of these polls, counted from the start."""
    reported: bool = False
    """Whether the device was reported as flaky, and not yet as steady."""
    reported_at: float = -math.inf
    """The time of the last report, monotonic seconds."""


def _flaky_after(flaky: Flaky | None, polls: int, now: float, *, retried: bool) -> tuple[Flaky | None, str | None]:
    """Process a poll that succeeded.

    Args:
        flaky: the record of the device; None for a steady one.
        polls: the number of polls since the start, this one included.
        now: monotonic seconds.
        retried: whether this poll needed retries.

    Returns:
        The new record, and ``"flaky"`` or ``"steady"`` if that must be reported.
    """
    before = flaky or Flaky(())
    numbers = tuple(number for number in before.numbers if number > polls - WINDOW)
    if retried:
        numbers += (polls,)
    after = before._replace(numbers=numbers)
    if not before.reported and len(numbers) >= MANY and now - before.reported_at >= REPORT_AGAIN:
        return after._replace(reported=True, reported_at=now), "flaky"
    if before.reported and len(numbers) <= FEW:
        return after._replace(reported=False), "steady"
    return (after if numbers or after.reported or now - after.reported_at < REPORT_AGAIN else None), None


class OutageReporter:
    """Observes polls and reports each outage: in the log, and at ``{prefix}/{device}/error``.

    Args:
        topics: the app's topics.
        send: takes a message and returns at once.
        records: the health records of the devices; it has processed each event before.
        lines: limits the log lines of each device.
        transient: errors that the adapters of a device declare as worth a retry.
        jobs: the names of the side jobs, which give no readings.
        where: where the readings of a device are, for people.
    """

    def __init__(
        self,
        topics: Topics,
        send: Callable[[Message], None],
        records: HealthRecords,
        lines: Lines,
        transient: Callable[[str], tuple[type[Exception], ...]],
        jobs: frozenset[str],
        where: Callable[[str], str],
    ) -> None:
        self._topics = topics
        self._where = where
        self._send = send
        self._records = records
        self._lines = lines
        self._transient = transient
        self._outages: dict[str, Outage] = {}
        self._flaky: dict[str, Flaky] = {}
        self._retried: dict[str, int] = {}
        self._watched: set[str] = set()
        """Entities whose next success matters: they are in an outage, or some of their last polls needed retries."""
        self._read = set(jobs)
        """Entities that have been read since the start."""
        self._firsts = 0

    def restore(self, entity: str, outage: Outage) -> None:
        """Continue an outage that began before a restart. It has been reported already."""
        self._outages[entity] = outage
        self._watched.add(entity)

    def forget(self, entity: str) -> None:
        """Remove an entity, after its last event."""
        for kept in (self._outages, self._flaky, self._retried):
            kept.pop(entity, None)
        self._watched.discard(entity)
        self._read.discard(entity)
        self._lines.forget(entity)

    def observe(self, event: Event) -> None:
        """Process one event. Observes in `Phase.REPORT`, after the health records."""
        if type(event) is ReadingTaken and event.entity not in self._watched:  # the most frequent event
            if event.entity not in self._read and not event.empty:
                self._read_first(event.entity)
            return
        if isinstance(event, AppFault | StateFailed):
            self._fault(event)
            return
        entity: str | None = getattr(event, "entity", None)
        if entity is None:
            return
        before, health = self._outages.get(entity), self._records.entities[entity]
        after, notice = outages.step(before, event, never_read=health.success_wall is None)
        if after is not None:
            self._outages[entity] = after
            self._watched.add(entity)
        elif before is not None:
            del self._outages[entity]
        if notice is not None:
            self._report(notice, event.at)
        if type(event) is ReadingTaken:
            if entity not in self._read and not event.empty:
                self._read_first(entity, reported=notice is not None)
            self._look_for_retries(event, health, before)

    def _read_first(self, entity: str, *, reported: bool = False) -> None:
        """Log the first reading of a device since the start: a reader of the log sees that it is read. After an
        outage that is `reported` with its recovery."""
        self._read.add(entity)
        if reported:
            return
        self._firsts += 1
        if self._firsts <= MAX_FIRST_READINGS:
            more = "; those of further devices are not logged" if self._firsts == MAX_FIRST_READINGS else ""
            about = log_fields("first reading", entity)
            logger.info("%s: first reading, %s%s", entity, self._where(entity), more, extra=about)

    def _look_for_retries(self, event: ReadingTaken, health: Health, outage: Outage | None) -> None:
        """Check whether too many polls of a device succeed only after retries."""
        entity = event.entity
        retried = health.counters.retried_polls > self._retried.get(entity, 0)
        self._retried[entity] = health.counters.retried_polls
        flaky, change = _flaky_after(self._flaky.get(entity), health.polls, event.at, retried=retried)
        if flaky is None:
            self._flaky.pop(entity, None)
            self._watched.discard(entity)
        else:
            self._flaky[entity] = flaky
            self._watched.add(entity)
        if change is None or flaky is None:
            return
        share = f"{len(flaky.numbers)} of its last {WINDOW} polls needed retries"
        about = log_fields(change, entity, retries=health.counters.retries)
        if change == "flaky":
            last = "" if outage is None else f", the last one after {outage.error_type}: {outage.message}"
            logger.warning("%s: flaky: %s%s", entity, share, last, extra=about)
        else:
            logger.info("%s: no longer flaky: %s", entity, share, extra=about)

    def _fault(self, event: AppFault | StateFailed) -> None:
        where = event.where if isinstance(event, AppFault) else f"the state file {clean(event.file)}"
        payload = {"event": "fault", "where": where, "type": type(event.error).__name__}
        self._send(
            Message(self._topics.error, encode(payload | {"message": describe(event.error), "at": rfc3339(event.wall)}))
        )

    def _report(self, notice: Notice, at: float) -> None:
        where, frames = self._place(notice)
        if where:
            notice = notice._replace(message=f"{notice.message} ({where})")
        payload = {
            "event": notice.kind,
            "type": notice.type,
            "message": notice.message,
            "failures": notice.failures,
            "since": rfc3339(notice.since),
            "outage_seconds": round(notice.seconds, 3),
        }
        if _ended(notice):
            payload["reason"] = notice.reason
        if notice.retry_in is not None:
            payload["retry_in"] = round(notice.retry_in, 3)
        if notice.kind not in (outages.UNREAD, outages.READ):
            self._send(Message(self._topics.device_error(notice.entity), encode(payload)))
        begins = notice.new or notice.kind == outages.UNREAD
        left_out = self._lines.left_out(notice.entity, at, f"{notice.type}: {notice.message}" if begins else None)
        if left_out is None:
            return
        about = log_fields(
            notice.kind,
            notice.entity,
            error_type=notice.type,
            failures=notice.failures,
            outage_seconds=payload["outage_seconds"],
            reason=payload.get("reason"),
        )
        level = logging.INFO if notice.kind in (outages.RECOVERED, outages.READ) else logging.WARNING
        line = f"{notice.entity}: {_sentence(notice)}{left_out_before(left_out)}"
        logger.log(level, "%s", "\n".join([line, *frames]), extra=about)

    def _place(self, notice: Notice) -> tuple[str | None, list[str]]:
        """The line of the user's code at which a call hung or a bug is, and the frames that led to a bug; nothing for
        another error that any device may have."""
        error, expected = notice.error, self._transient(notice.entity)
        if error is None or not is_bug(error, expected):
            return None if error is None else place(error, expected), []
        repeated = notice.retry_in is not None or (notice.attempts > 1 and notice.reason != "filtered")
        if repeated:
            return None, []
        return place(error), frames_of(error) if notice.new else []


def _ended(notice: Notice) -> str:
    """Why the poll ended; empty for a poll that has no retries, where it goes without saying."""
    return "" if notice.reason == "count" and notice.attempts <= 1 else REASONS.get(notice.reason, "")


def _sentence(notice: Notice) -> str:
    lasted = human(round(notice.seconds))
    skipped = f", {count_noun(notice.skipped, 'poll')} skipped by the open circuit" if notice.skipped else ""
    more = [] if notice.attempts <= 1 else [count_noun(notice.attempts, "call")]
    more += [_ended(notice)] if _ended(notice) else []
    more += [] if notice.retry_in is None else [f"again in {human(round(notice.retry_in, 1))}"]
    calls = f" ({', '.join(more)})" if more else ""
    match notice.kind:
        case outages.UNREAD:
            return f"the first call failed: {notice.type}: {notice.message}{calls}"
        case outages.READ:
            return f"answered for the first time, {lasted} after the first call failed"
        case outages.ONSET:
            return f"failing: {notice.type}: {notice.message}{calls}"
        case outages.REMINDER:
            polls = f"{count_noun(notice.failures, 'poll')}{skipped}, " if notice.failures else ""
            return f"still failing after {lasted}: {polls}last {notice.type}: {notice.message}{calls}"
    failed = f" and {count_noun(notice.failures, 'failed poll')}" if notice.failures else ", within one poll"
    return f"recovered after {lasted}{failed}{skipped}"
