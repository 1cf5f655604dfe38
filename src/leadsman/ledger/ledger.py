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
gaps of their own; where others arrived between them, the gap counts these, and is no silence. Gaps of nothing but
missed polls that have the same cause, and follow each other within `ONE_DELAY`, are one gap: an app that is late at
every other poll of a device with a short interval has one gap, which counts all slots, and not as many as push the
other gaps out.

Pure. All times are seconds of `leadsman.loop.clock.Clock.uptime`, which is never set, unless noted otherwise.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from leadsman.mqtt.message import Receipt

PUBLISHED, REPLAYED, SUPPRESSED, BUFFERED = "published", "replayed", "suppressed", "buffered"
DROPPED, FAILED, TIMED_OUT, CIRCUIT_OPEN = "dropped", "failed", "timed_out", "circuit_open"
DEFERRED, HELD, MISSED, STARTING, DISABLED = "deferred", "held", "missed", "starting", "disabled"
READ = (PUBLISHED, REPLAYED, SUPPRESSED, BUFFERED)
"""The device was read, and the reading is not lost."""
DISPOSITIONS = (*READ, DROPPED, FAILED, TIMED_OUT, CIRCUIT_OPEN, DEFERRED, HELD, MISSED, STARTING, DISABLED)
"""All of them."""
PERIODS = 48
"""Periods that are kept besides the current one: two days of hours."""
MOST_GAPS = 50
"""Gaps that are kept."""
LONGEST_CAUSE = 200
"""Characters of a cause that are kept."""
ONE_DROP = 3600.0
"""Seconds between two readings that were dropped, at the most, if they are one gap."""
ONE_DELAY = 1.0
"""Seconds from a gap of missed polls to the next one, less than which they are one gap. So devices whose interval is
longer mostly have a gap for each delay."""
LATE = "the app was late"
"""The cause of polls that were missed because a timer rang late."""


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


class Gap(NamedTuple):
    """A time without readings."""

    since: float
    """When the first slot without a reading came due."""
    until: float | None
    """The next reading; None while there is none."""
    cause: str
    """Why the first slot gave no reading."""
    slots: dict[str, int]
    """The slots without a reading, by disposition. None of a source, which has no schedule."""
    arrived: int = 0
    """Readings that the broker got between those that were dropped. With any, it is no silence."""


class Counts(NamedTuple):
    """A period, for those who read."""

    start: float
    slots: int
    """Slots that came due. 0 of a source, which has no schedule."""
    by: Mapping[str, int]
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
        """See `leadsman.runtime.publisher.ReadingReceipt`."""
        self.published = self.replayed = 0
        """See `leadsman.mqtt.message.Receipt`."""
        self._others: dict[str, int] | None = None
        self._ledger = ledger

    @property
    def waiting(self) -> int:
        """Readings that the broker does not have yet."""
        dropped = 0 if self._others is None else self._others.get(DROPPED, 0)
        return self.sent - self.published - self.replayed - dropped

    def add(self, disposition: str, slots: int) -> None:
        """Count slots without a reading."""
        others = self._others = self._others or {}
        others[disposition] = others.get(disposition, 0) + slots

    def dropped(self, at: float, messages: int = 1) -> None:
        """See `leadsman.mqtt.message.Receipt`."""
        self.add(DROPPED, messages)
        self._ledger.dropped(at, messages)

    def replaced(self) -> None:
        """See `leadsman.mqtt.message.Receipt`."""
        self.sent -= 1
        self.suppressed += 1
        if self._ledger.comparison is not None:
            self._ledger.comparison.replaced()

    def counts(self, under_way: int = 0) -> Counts:
        """The counts at this moment. `under_way`: slots whose poll is under way."""
        by = {PUBLISHED: self.published, REPLAYED: self.replayed, SUPPRESSED: self.suppressed, BUFFERED: self.waiting}
        by = {word: count for word, count in (by | (self._others or {})).items() if count}
        slots = 0 if self._ledger.poll is None else sum(by.values()) + under_way
        return Counts(self.start, slots, by)


_LATE_CAUSE = f"{MISSED}: {LATE}"
_NOT_ENTERED = Gap(0.0, None, _LATE_CAUSE, {})
"""Stands for the gap of slots that are not entered yet, while no reading has followed them."""


class _Late:
    """Slots that were missed because the app was late, as yet in no period and in no gap."""

    __slots__ = ("group", "group_since", "reported", "since", "slots", "until")

    def __init__(self, since: float, slots: int) -> None:
        self.since = self.group_since = since
        """When the first of them came due, and the first of those that were missed together last."""
        self.slots = self.group = slots
        """How many they are, and those that were missed together last."""
        self.until = since
        """The last reading between them, or after them."""
        self.reported = False


class Ledger:
    """The ledger of one device.

    Args:
        start: now.
        poll: polls the device; None for a source, which has no slots.
        on_news: called when a gap ends.
    """

    __slots__ = (
        "_arrived",
        "_asked",
        "_closed",
        "_delays",
        "_drops",
        "_ended",
        "_late",
        "_past",
        "_read",
        "comparison",
        "gap",
        "news",
        "on_news",
        "period",
        "poll",
    )

    def __init__(
        self,
        start: float,
        poll: Polled | None = NEVER_POLLED,
        on_news: Callable[[], None] | None = None,
    ) -> None:
        self.poll = poll
        self.period = Period(start, -math.inf, self)
        """The current period."""
        self.gap: Gap | None = None
        """The gap that has not ended."""
        self.news = False
        """Whether a gap has ended since this was set to False."""
        self.on_news = on_news
        self.comparison: Receipt | None = None
        """Learns of readings that will never arrive, too; None if nobody compares readings."""
        self._late: _Late | None = None
        self._past: tuple[bytes | Period, ...] = ()
        self._closed: tuple[bytes, ...] = ()
        self._drops: Gap | None = None  # the gap of readings that were dropped, while no other gap has ended since
        self._delays: Gap | None = None  # the gap of missed polls that has ended last, likewise
        self._ended: dict[str, int] | None = None  # the slots of this run in periods that do not change any more
        self._arrived = 0  # the readings that had arrived when the last one was dropped
        self._read = self._asked = 0  # those that count for the availability, in periods that are kept as bytes

    def receipt(self, due: float) -> Period:
        """The receipt of the reading of a slot that came due at `due`, monotonic seconds: its period, or the current
        one if that does not change any more."""
        period = self.period
        return period if due >= period.opened else self._before(due)

    def lost(self, period: Period, disposition: str, cause: str, since: float, slots: int = 1) -> None:
        """Slots of `period`, the first of which came due at `since`, gave no reading."""
        self._enter_late()
        period.add(disposition, slots)
        if self.gap is None or since < self.gap.since:
            self.silent(f"{disposition.replace('_', ' ')}: {cause}", since)
        gap = self.gap
        if gap is not None:
            gap.slots[disposition] = gap.slots.get(disposition, 0) + slots

    def late(self, since: float, slots: int) -> None:
        """Slots of the current period, the first of which came due at `since`, gave no reading since the app was late.
        There is no gap now; `heard` follows as a rule.

        They are entered when somebody asks or something else happens, since `lost` each time would cost an app that is
        late at every poll a part of the readings that it can do.
        """
        late = self._late
        if late is not None and since - late.until < ONE_DELAY:
            late.group_since, late.group = since, slots
            late.slots += slots
        else:
            self._enter_late()
            self._late = _Late(since, slots)
        self.gap = _NOT_ENTERED

    def silent(self, cause: str, since: float) -> None:
        """There has been no reading since `since`."""
        self._enter_late()
        gap = self.gap
        if gap is None:
            self.gap = Gap(since, None, cause[:LONGEST_CAUSE], {})
        elif since < gap.since:
            self.gap = gap._replace(since=since)

    def heard(self, at: float) -> None:
        """The device was read: its gap ends, if there is one."""
        gap, self.gap = self.gap, None
        late = self._late
        if gap is _NOT_ENTERED and late is not None:
            late.until = max(at, late.group_since)
            if not late.reported:
                late.reported = True
                self._notify()
            return
        if gap is None:
            return
        slots, ended = gap.slots, gap._replace(until=max(at, gap.since))
        if len(slots) == 1 and MISSED in slots:
            self._delayed(ended)
        else:
            self._keep(ended)
        self._notify()

    def dropped(self, at: float, messages: int = 1) -> None:
        """Readings that were taken at `at`, or since, will never arrive. `Period` counts them."""
        self._enter_late()
        if self.comparison is not None:
            self.comparison.dropped(at, messages)
        drops, arrived = self._drops, self._all_arrived()
        if drops is not None and drops.until is not None and 0 <= at - drops.until <= ONE_DROP:
            drops.slots[DROPPED] += messages
            self._drops = drops._replace(until=at, arrived=drops.arrived + arrived - self._arrived)
        else:
            if drops is not None:
                self._keep()
            self._drops = Gap(at, at, DROPPED, {DROPPED: messages})
            self._notify()
        self._arrived = arrived

    def explain(self, cause: str) -> None:
        """Why the latest readings were dropped."""
        if self._drops is not None:
            self._drops = self._drops._replace(cause=f"{DROPPED}: {cause}"[:LONGEST_CAUSE])

    def begin(self, start: float, opened: float) -> None:
        """Begin a period: `start` is now, and `opened` the same moment in monotonic seconds. The one before stays open
        until the next, since a reading of it may be about to be published."""
        self._enter_late()
        under_way = self._under_way
        past = tuple(
            self._close(each) if isinstance(each, Period) and not each.waiting and each is not under_way else each
            for each in self._past
        )
        self._keep_periods((*past, self.period))
        self.period = Period(start, opened, self)

    def end(self, at: float, cause: str) -> None:
        """The app ends: what the broker does not have is lost."""
        for period in self._open():
            for _ in range(period.waiting):
                period.dropped(at)
                self.explain(cause)

    def remember(self, counts: Counts) -> None:
        """Add a period of an earlier run. They come in order, before anything else."""
        self._keep_periods((*self._past, self._kept(counts)))

    def remember_gap(self, gap: Gap) -> None:
        """Add a gap of an earlier run. The one that has not ended comes last."""
        if gap.until is None:
            self.gap = gap
        else:
            self._keep(gap)

    def open_periods(self) -> list[Counts]:
        """The periods that may have changed since the last `begin`, the oldest first."""
        under_way = self._under_way
        return [each.counts(each is under_way) for each in self._open()]

    def periods(self) -> Iterator[Counts]:
        """The periods, the oldest first."""
        self._enter_late()
        under_way = self._under_way
        for each in (*self._past, self.period):
            yield each.counts(each is under_way) if isinstance(each, Period) else _counts(each)

    def slots_since_start(self) -> dict[str, int]:
        """The slots since the start of the app, by disposition, those that the ledger has forgotten included. Those
        that wait for the broker are left out, so no number ever falls."""
        found = _sum([self._ended or {}, *(each.by for each in self.open_periods())])
        found.pop(BUFFERED, None)
        return found

    def availability(self) -> float | None:
        """See `availability`: that of all periods that are kept."""
        by = total(self.open_periods())
        read, asked = self._read + _read(by), self._asked + _asked(by)
        return 100.0 * read / asked if asked else None

    def gaps(self) -> list[Gap]:
        """The gaps, in the order in which they ended; one that has not ended is the last."""
        self._enter_late()
        return [
            *(Gap(*json.loads(each)) for each in self._closed),
            *self._latest(),
            *(() if self.gap is None else (self.gap,)),
        ]

    @property
    def _under_way(self) -> Period | None:
        """The period of the slot whose poll is under way."""
        due = None if self.poll is None else self.poll.due
        return None if due is None else self.receipt(due)

    def _all_arrived(self) -> int:
        """The readings that have arrived since the start."""
        ended = self._ended or {}
        periods = (each for each in (*self._past, self.period) if isinstance(each, Period))
        before = ended.get(PUBLISHED, 0) + ended.get(REPLAYED, 0)
        return before + sum(each.published + each.replayed for each in periods)

    def _before(self, due: float) -> Period:
        """See `receipt`."""
        past = (each for each in reversed(self._past) if isinstance(each, Period) and each.opened <= due)
        return next(past, self.period)

    def _close(self, period: Period) -> bytes:
        """A period in which nothing changes any more."""
        counts = period.counts()
        self._ended = _sum([self._ended or {}, counts.by])
        return self._kept(counts)

    def _kept(self, counts: Counts) -> bytes:
        self._read += _read(counts.by)
        self._asked += _asked(counts.by)
        return _pack(counts)

    def _keep_periods(self, past: tuple[bytes | Period, ...]) -> None:
        """Keep the latest of these."""
        for each in past[:-PERIODS]:
            self._forget(each)
        self._past = past[-PERIODS:]

    def _forget(self, past: bytes | Period) -> None:
        """Two days are over. What may still change has its numbers of now among those since the start."""
        if isinstance(past, Period):
            self._ended = _sum([self._ended or {}, past.counts().by])
            self._ended.pop(BUFFERED, None)
        else:
            by = _counts(past).by
            self._read -= _read(by)
            self._asked -= _asked(by)

    def _open(self) -> list[Period]:
        """The periods in which something may change."""
        self._enter_late()
        return [*(past for past in self._past if isinstance(past, Period)), self.period]

    def _latest(self) -> list[Gap]:
        """The gaps that have ended, but may grow, in the order in which they ended."""
        return sorted((gap for gap in (self._drops, self._delays) if gap is not None), key=lambda gap: gap.until or 0.0)

    def _enter_late(self) -> None:
        """Enter the slots that `late` took. The gap of those that no reading followed has not ended."""
        late, self._late = self._late, None
        if late is None:
            return
        self.period.add(MISSED, late.slots)
        ended = late.slots
        if self.gap is _NOT_ENTERED:
            ended -= late.group
            self.gap = Gap(late.group_since, None, _LATE_CAUSE, {MISSED: late.group})
        if ended:
            self._delayed(Gap(late.since, late.until, _LATE_CAUSE, {MISSED: ended}))

    def _delayed(self, gap: Gap) -> None:
        """A gap of nothing but missed polls has ended."""
        delays = self._delays
        if delays is None or delays.cause != gap.cause or gap.since - (delays.until or 0.0) >= ONE_DELAY:
            self._keep()
            self._delays = gap
        else:
            gap.slots[MISSED] += delays.slots[MISSED]
            self._delays = gap._replace(since=delays.since)

    def _keep(self, *gaps: Gap) -> None:
        """Keep the latest gaps, and then these. None of them changes any more."""
        self._closed = (*self._closed, *map(_pack, (*self._latest(), *gaps)))[-MOST_GAPS:]
        self._drops = self._delays = None

    def _notify(self) -> None:
        """A gap has ended."""
        self.news = True
        if self.on_news is not None:
            self.on_news()


def availability(by: Mapping[str, int]) -> float | None:
    """The slots that gave a reading, as per cent of those of an enabled device; None if there are none.

    Args:
        by: slots by disposition.
    """
    asked = _asked(by)
    return 100.0 * _read(by) / asked if asked else None


def total(periods: Iterable[Counts]) -> dict[str, int]:
    """The counts of several periods together."""
    return _sum(each.by for each in periods)


def _sum(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for by in counts:
        for word, count in by.items():
            found[word] = found.get(word, 0) + count
    return found


def _read(by: Mapping[str, int]) -> int:
    """The slots that gave a reading."""
    return sum(by.get(word, 0) for word in READ)


def _asked(by: Mapping[str, int]) -> int:
    """The slots of an enabled device."""
    return sum(by.values()) - by.get(DISABLED, 0)


def _pack(ended: Counts | Gap) -> bytes:
    """Gaps and periods that do not change any more take a fourth of the memory as JSON."""
    return json.dumps(ended, separators=(",", ":")).encode()


def _counts(packed: bytes) -> Counts:
    return Counts(*json.loads(packed))
