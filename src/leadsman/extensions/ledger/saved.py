"""Writes the ledger of a device for the state file, and reads it after a restart. Pure.

Each period is a row of its own, so that an hour costs one small row. Row 0 of a device has its gaps, and when the
ledger was written. Times in the rows are epoch seconds.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from leadsman.extensions.ledger.ledger import CAUSES, DISPOSITIONS, PERIODS, Cause, Counts, Disposition, Gap, Ledger

Json = Any
"""Values that JSON can represent."""
HEAD = 0
"""The key of the row with the gaps."""
HOUR = 3600.0
KEPT_SECONDS = PERIODS * HOUR
"""Seconds of history that are read."""

CountSlots = Callable[[float, float, float], int]
"""Takes a slot of an interval, and returns the slots after a second time, up to a third: see
`leadsman.core.loop.schedule.slots_between`."""


class LedgerRow(NamedTuple):
    """A row of the file."""

    key: int
    """The epoch seconds at which the period began, by the clock at the start of the app; or `HEAD`."""
    document: Json


class Now(NamedTuple):
    """A moment by two clocks."""

    uptime: float
    wall: float

    @property
    def offset(self) -> float:
        """Seconds that the wall clock is ahead."""
        return self.wall - self.uptime


def rows(ledger: Ledger, now: Now, first_offset: float, *, stopped: bool) -> Iterator[LedgerRow]:
    """Yield the rows that have changed since the current period began.

    Args:
        ledger: the ledger of a device.
        now: this moment.
        first_offset: what the wall clock was ahead of the uptime when the app started, so that a period keeps its key.
        stopped: whether the app stops now.
    """
    gaps = [_row_of(gap, now.offset) for gap in ledger.gaps()]
    yield LedgerRow(HEAD, {"at": now.wall, "stopped": stopped, "gaps": gaps})
    for counts in ledger.open_periods():
        yield _row(counts, now.offset, round(counts.start + first_offset))


def restore(
    ledger: Ledger, found: Iterable[LedgerRow], now: Now, count: CountSlots, *, durable: bool = False
) -> list[LedgerRow]:
    """Continue an earlier ledger. The slots since it was written are missed.

    Args:
        ledger: the ledger of a device, in which nothing has happened.
        found: the rows, in the order of their keys.
        now: this moment.
        count: counts the slots of the schedule.
        durable: whether what waited was on disk, and is sent now.

    Returns:
        The rows that are new, and those that are no longer what they were: they must be written.

    Raises:
        LookupError, TypeError, ValueError: the rows are not what `rows` returned. The ledger is unchanged then.
    """
    head, *others = found
    if head.key != HEAD:
        raise LookupError("its first row is missing")
    at, stopped = _time(head.document["at"]), head.document["stopped"] is True
    gaps = [_gap(each, now.offset) for each in head.document["gaps"]]
    earliest = now.wall - KEPT_SECONDS
    counts = {row.key: _counts(row.document, now.offset) for row in others if _time(row.document["start"]) >= earliest}
    for gap in gaps:
        if gap.until is None or gap.until + now.offset >= earliest:
            ledger.remember_gap(gap)
    changed: list[LedgerRow] = []
    for key, each in counts.items():
        ended = _end(each, "replayed" if durable else "dropped")
        ledger.remember(ended)
        if ended != each:
            changed.append(_row(ended, now.offset, key))
    unsent = sum(each.by.get("buffered", 0) for each in counts.values())
    if unsent and not durable:
        last = at - now.offset
        ledger.remember_gap(Gap(last, last, "dropped", {"dropped": unsent}))
    absent = _absent(ledger, max(at, earliest), now, count, "stopped" if stopped else "killed")
    return [*changed, *(_row(each, now.offset, round(each.start + now.offset)) for each in absent)]


def _absent(ledger: Ledger, since: float, now: Now, count: CountSlots, cause: Cause) -> list[Counts]:
    """Count the slots while the app did not run, by the hour."""
    total, start, found = 0, since, list[Counts]()
    while start < now.wall:
        end = min(now.wall, (start // HOUR + 1) * HOUR)
        slots = count(since, start, end)
        if slots:
            found.append(Counts(start - now.offset, slots, {"missed": slots}))
            ledger.remember(found[-1])
        total, start = total + slots, end
    if total:
        gap = ledger.silent(cause, since - now.offset)
        gap.slots["missed"] = gap.slots.get("missed", 0) + total
    return found


def _row_of(gap: Gap, offset: float) -> list[Json]:
    return [gap.since + offset, _shift(gap.until, offset), gap.cause, gap.slots]


def _row(counts: Counts, offset: float, key: int) -> LedgerRow:
    return LedgerRow(key, {"start": counts.start + offset, "slots": counts.slots, "by": dict(counts.by)})


def _end(counts: Counts, waited: Disposition) -> Counts:
    """A period of an app that has ended: what waited has the disposition `waited`, and a poll that was under way gave
    nothing."""
    by = dict(counts.by)
    unsent = by.pop("buffered", 0)
    if unsent:
        by[waited] = by.get(waited, 0) + unsent
    if (under_way := counts.slots - sum(by.values())) > 0:
        by["missed"] = by.get("missed", 0) + under_way
    return counts._replace(by=by)


def _counts(document: Json, offset: float) -> Counts:
    return Counts(_time(document["start"]) - offset, _number(document["slots"]), _by(document["by"]))


def _gap(document: Any, offset: float) -> Gap:
    since, until, cause, slots = document
    if cause not in CAUSES:
        raise ValueError(f"{cause!r:.40} is no cause")
    if cause == "dropped" and (until is None or "dropped" not in slots):
        raise ValueError("a gap of dropped readings does not say how many, or has not ended")
    ended = None if until is None else _time(until) - offset
    return Gap(_time(since) - offset, ended, cause, _by(slots))


def _by(document: Any) -> dict[Disposition, int]:
    """Slots by disposition."""
    if not set(document) <= set(DISPOSITIONS):
        raise ValueError("it contains an unknown disposition")
    return {word: _number(count) for word, count in document.items()}


def _time(value: object) -> float:
    """Epoch seconds of the years 1970 to 5138."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e11:
        raise ValueError(f"{value!r:.40} is not a time")
    return float(value)


def _number(value: object) -> int:
    """Slots of a period, so few that sums of such numbers fit into 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise ValueError(f"{value!r:.40} is not a number of slots")
    return value


def _shift(at: float | None, by: float) -> float | None:
    return None if at is None else at + by
