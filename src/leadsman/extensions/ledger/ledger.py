"""Keeps the ledger of a device: what became of each slot of its schedule, and its gaps.

A slot is a time at which the schedule asks for a poll. It is counted in the period in which it comes due, mostly an
hour, and gets exactly one disposition there:

==================  ====================================================================================================
``published``       the broker acknowledged the reading
``replayed``        the broker acknowledged the reading, which had waited over an outage of the connection
``suppressed``      the device was read, and the publish rule kept the reading back, a newer reading took its place, or
                    there was nothing to publish
``buffered``        the reading waits for the broker; it becomes ``published``, ``replayed`` or ``dropped``
``dropped``         the outbox dropped the reading, or the app ended before the broker had it
``failed``          the poll failed for good
``timed_out``       the poll failed for good, and its last error is a timeout
``circuit_open``    the circuit of the device was open or isolated
``deferred``        the device had asked for a pause
``held``            the device is held until a person releases it
``missed``          an earlier poll still ran, the app was late, or it did not run
``starting``        the app had not begun to poll
``disabled``        the device is not enabled
==================  ====================================================================================================

So the slots of a period are the sum of its dispositions, and one more while a poll is under way.

A gap begins with the first slot that gives no reading, and ends with the next reading. Readings that were dropped are
gaps of their own, beside the others. A gap goes on where one of the same cause ended less than `SAME` before, and one
of dropped readings within `SAME_DROPS`: so a device that fails or is late at every other poll, however short its
interval is, has one gap, which counts all slots, and not as many as push the other gaps out.

Pure. All times are seconds of `leadsman.core.loop.clock.Clock.uptime`, which is never set, unless noted otherwise.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, get_args

from leadsman.core.loop.durations import NEVER

if TYPE_CHECKING:
    from leadsman.core.mqtt.message import Receipt

Read = Literal["published", "replayed", "suppressed", "buffered"]
"""The device was read, and the reading is not lost."""
Lost = Literal["dropped", "failed", "timed_out", "circuit_open", "deferred", "held", "missed", "starting"]
"""The slot gave no reading, or the reading is lost."""
Disposition = Literal[Read, Lost, "disabled"]
"""The outcome of a slot of the schedule."""
Cause = Literal[Lost, "late", "stopped", "killed", "silent", "left"]
"""Why there is a gap: what happened to its first slot, where `late`, `stopped` and `killed` are those that are missed
since the app was late, did not run, or did not run and had ended without a stop. Of a source, it was silent; a device
has left, if it was marked unavailable."""
READ, DISPOSITIONS, CAUSES = get_args(Read), get_args(Disposition), get_args(Cause)
"""All of them."""
PERIODS = 48
"""Periods that are kept besides the current one: two days of hours."""
MAX_GAPS = 50
"""Gaps that are kept."""
SAME = 1.0
"""Seconds from a gap to the next one of the same cause, less than which they are one."""
SAME_DROPS = 3600.0
"""Dropped readings no more than this many seconds apart form one gap."""


class Polled(Protocol):
    """A runner that polls a device by a schedule."""

    @property
    def due(self) -> float | None:
        """When the poll under way came due by the schedule, monotonic seconds; None if none is under way, or it was
        requested."""
        ...


class NeverPolled:
    """Stands for what polls a device that is not enabled."""

    due = None


NEVER_POLLED = NeverPolled()


class Gap:
    """A time without readings, or with readings that were dropped."""

    __slots__ = ("cause", "since", "slots", "until")

    def __init__(self, since: float, until: float | None, cause: Cause, slots: dict[Disposition, int]) -> None:
        self.since = since
        """When the first slot without a reading came due."""
        self.until = until
        """The next reading; None while there is none."""
        self.cause = cause
        self.slots = slots
        """The slots without a reading, by disposition. None of a source, which has no schedule."""


class Counts(NamedTuple):
    """A period, for those who read."""

    start: float
    slots: int
    """Slots that came due. 0 of a source, which has no schedule."""
    by: Mapping[Disposition, int]
    """How many have each disposition. Those with none are left out."""


class Period:
    """Counts what became of the slots that came due in one period. It is the receipt of their readings: the
    code that publishes and delivers these adds to it directly, since a reading may cost no more than that."""

    __slots__ = ("_ledger", "_others", "opened", "published", "replayed", "sent", "start", "suppressed")

    def __init__(self, start: float, opened: float, ledger: "Ledger") -> None:
        self.start = start
        self.opened = opened
        """The same moment, monotonic seconds; minus infinity for the first period of the app."""
        self.sent = self.suppressed = 0
        """See `leadsman.core.runtime.publisher.ReadingReceipt`."""
        self.published = self.replayed = 0
        """See `leadsman.core.mqtt.message.Receipt`."""
        self._others: dict[Disposition, int] | None = None
        self._ledger = ledger

    @property
    def waiting(self) -> int:
        """Readings that the broker does not have yet."""
        dropped = 0 if self._others is None else self._others.get("dropped", 0)
        return self.sent - self.published - self.replayed - dropped

    def add(self, disposition: Disposition, slots: int) -> None:
        """Count slots without a reading."""
        others = self._others = self._others or {}
        others[disposition] = others.get(disposition, 0) + slots

    def dropped(self, at: float, messages: int = 1) -> None:
        """See `leadsman.core.mqtt.message.Receipt`."""
        self.add("dropped", messages)
        self._ledger.dropped(at, messages)

    def replaced(self) -> None:
        """See `leadsman.core.mqtt.message.Receipt`."""
        self.sent -= 1
        self.suppressed += 1
        if self._ledger.comparison is not None:
            self._ledger.comparison.replaced()

    def counts(self, under_way: int = 0) -> Counts:
        """The counts at this moment. `under_way`: slots whose poll is under way."""
        by: dict[Disposition, int] = {"published": self.published, "replayed": self.replayed}
        by |= {"suppressed": self.suppressed, "buffered": self.waiting, **(self._others or {})}
        by = {word: count for word, count in by.items() if count}
        slots = 0 if self._ledger.poll is None else sum(by.values()) + under_way
        return Counts(self.start, slots, by)


class Ledger:
    """The ledger of one device.

    Args:
        start: now.
        poll: polls the device; None for a source, which has no slots.
    """

    __slots__ = (
        "_drops",
        "_ended",
        "_gaps",
        "_kept",
        "_past",
        "_settled",
        "comparison",
        "gap",
        "news",
        "period",
        "poll",
    )

    def __init__(self, start: float, poll: Polled | None = NEVER_POLLED) -> None:
        self.poll = poll
        self.period = Period(start, NEVER, self)
        """The current period."""
        self.gap: Gap | None = None
        """The gap that has not ended."""
        self.news = False
        """Whether a gap has ended since this was set to False."""
        self.comparison: Receipt | None = None
        """Learns of readings that will never arrive, too; None if nobody compares readings."""
        self._past: tuple[Period, ...] = ()
        self._settled = 0  # how many of these, from the oldest on, do not change any more
        self._kept = _NONE  # the slots of those
        self._ended = _NONE  # the slots of this run in periods that do not change any more, also in those not kept
        self._gaps: tuple[Gap, ...] = ()
        self._drops: tuple[Gap, ...] = ()  # the gaps of readings that were dropped

    def receipt(self, due: float) -> Period:
        """The receipt of the reading of a slot that came due at `due`, monotonic seconds: its period, or the current
        one if that does not change any more."""
        period = self.period
        if due >= period.opened:
            return period
        return next((past for past in reversed(self._past[self._settled :]) if past.opened <= due), period)

    def lost(self, period: Period, disposition: Lost, since: float, slots: int = 1, cause: Cause | None = None) -> None:
        """Slots of `period`, the first of which came due at `since`, gave no reading. `cause`: that of a gap that they
        begin, if it is not `disposition`."""
        period.add(disposition, slots)
        gap = self.silent(cause or disposition, since)
        gap.slots[disposition] = gap.slots.get(disposition, 0) + slots

    def silent(self, cause: Cause, since: float) -> Gap:
        """There has been no reading since `since`. Returns the gap."""
        gap = self.gap
        if gap is not None:
            gap.since = min(gap.since, since)
            return gap
        last = self._gaps[-1] if self._gaps else None
        if last is not None and last.cause == cause and since - (last.until or 0.0) < SAME:
            gap, last.until = last, None
        else:
            gap = Gap(since, None, cause, {})
            self._gaps = (*self._gaps, gap)[-MAX_GAPS:]
        self.gap = gap
        return gap

    def heard(self, at: float) -> None:
        """The device was read: its gap ends, if there is one."""
        gap, self.gap = self.gap, None
        if gap is not None:
            gap.until = max(at, gap.since)
            self.news = True

    def dropped(self, at: float, messages: int = 1) -> None:
        """Readings that were taken at `at`, or since, will never arrive. `Period` counts them."""
        if self.comparison is not None:
            self.comparison.dropped(at, messages)
        last = self._drops[-1] if self._drops else None
        if last is not None and last.since - SAME_DROPS <= at <= (last.until or 0.0) + SAME_DROPS:
            last.since, last.until = min(last.since, at), max(last.until or 0.0, at)
            last.slots["dropped"] += messages
        else:
            self._drops = (*self._drops, Gap(at, at, "dropped", {"dropped": messages}))[-MAX_GAPS:]
            self.news = True

    def begin(self, start: float, opened: float) -> None:
        """Begin a period: `start` is now, and `opened` the same moment in monotonic seconds. The one before stays open
        until the next, since a reading of it may be about to be published."""
        under_way = self._under_way
        for past in self._past[self._settled :]:
            if past.waiting or past is under_way:
                break
            by = past.counts().by
            self._settle(by)
            self._ended = _sum((self._ended, by))
        self._past = (*self._past, self.period)
        self._forget()
        self.period = Period(start, opened, self)

    def end(self, at: float) -> None:
        """The app ends: what the broker does not have is lost."""
        for period in self._open():
            if period.waiting:
                period.dropped(at, period.waiting)

    def remember(self, counts: Counts) -> None:
        """Add a period of an earlier run. They come in order, before anything else."""
        past = Period(counts.start, NEVER, self)
        past.sent = counts.by.get("dropped", 0)
        for word, slots in counts.by.items():
            past.add(word, slots)
        self._past = (*self._past, past)
        self._settle(counts.by)
        self._forget()

    def remember_gap(self, gap: Gap) -> None:
        """Add a gap of an earlier run. They come in order, before anything else."""
        if gap.cause == "dropped":
            self._drops = (*self._drops, gap)[-MAX_GAPS:]
        else:
            self._gaps = (*self._gaps, gap)[-MAX_GAPS:]
            self.gap = gap if gap.until is None else None

    def open_periods(self) -> list[Counts]:
        """The periods that may have changed since the last `begin`, the oldest first."""
        return self._counts(self._open())

    def periods(self) -> list[Counts]:
        """The periods, the oldest first."""
        return self._counts((*self._past, self.period))

    def slots_since_start(self) -> dict[Disposition, int]:
        """The slots since the start of the app, by disposition, those that the ledger has forgotten included. Those
        that wait for the broker are left out, so no number ever falls."""
        found = _sum((self._ended, total(self.open_periods())))
        found.pop("buffered", None)
        return found

    def availability(self) -> float | None:
        """See `availability`: that of all periods that are kept."""
        return availability(_sum((self._kept, total(self.open_periods()))))

    def gaps(self) -> list[Gap]:
        """The gaps, in the order in which they began."""
        return sorted((*self._gaps, *self._drops), key=lambda gap: gap.since)[-MAX_GAPS:]

    @property
    def _under_way(self) -> Period | None:
        """The period of the slot whose poll is under way."""
        due = None if self.poll is None else self.poll.due
        return None if due is None else self.receipt(due)

    def _open(self) -> tuple[Period, ...]:
        """The periods in which something may change."""
        return (*self._past[self._settled :], self.period)

    def _counts(self, periods: Iterable[Period]) -> list[Counts]:
        under_way = self._under_way
        return [each.counts(each is under_way) for each in periods]

    def _settle(self, by: Mapping[Disposition, int]) -> None:
        """The oldest period in which something might change has these slots, and does not change any more."""
        self._kept = _sum((self._kept, by))
        self._settled += 1

    def _forget(self) -> None:
        """Two days are over. What may still change has its numbers of now among those since the start."""
        if len(self._past) <= PERIODS:
            return
        oldest, *rest = self._past
        by = oldest.counts().by
        self._past = tuple(rest)
        if self._settled:
            self._settled -= 1
            self._kept = {word: slots - by.get(word, 0) for word, slots in self._kept.items()}
        else:
            self._ended = _sum((self._ended, by))
            self._ended.pop("buffered", None)


def availability(by: Mapping[Disposition, int]) -> float | None:
    """The slots that gave a reading, as per cent of those of an enabled device; None if there are none.

    Args:
        by: slots by disposition.
    """
    asked = sum(by.values()) - by.get("disabled", 0)
    return 100.0 * sum(by.get(word, 0) for word in READ) / asked if asked else None


def total(periods: Iterable[Counts]) -> dict[Disposition, int]:
    """The counts of several periods together."""
    return _sum(each.by for each in periods)


def _sum(counts: Iterable[Mapping[Disposition, int]]) -> dict[Disposition, int]:
    found: dict[Disposition, int] = {}
    for by in counts:
        for word, count in by.items():
            found[word] = found.get(word, 0) + count
    return found


_NONE: Mapping[Disposition, int] = {}
