"""The part of an outbox on disk: decides which rows are written, deleted and read back. Pure.

A reading that waits in memory has a row as well once it has waited. Where the memory has no room, and behind older
readings of its topic that are on disk only, a new reading is held until it is written; then it is on disk only, too.
Rows come back in the order of their numbers, a page at a time, as the outbox has room. So the readings of a topic keep
their order, and a topic without rows on disk sends at once. The rows of a topic of which only the newest counts come
back before all others.

The number of a reading is the number of its row, and they count upwards over all lives of the app.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from leadsman.core.mqtt.message import Message, Receipt
from leadsman.core.mqtt.message_state import (
    COMMIT,
    EVICT,
    FAIL,
    FORGET,
    GONE,
    HOLD,
    INHERIT,
    RELEASE,
    STORABLE,
    UNWRITTEN,
    WRITE,
    WRITTEN,
    Item,
    find_on_disk,
)
from leadsman.core.mqtt.outbox import BURST, Cause, Dropped, OnDisk, Outbox, Store
from leadsman.core.spool.eviction import FIRST_TIME
from leadsman.core.spool.row import EXPIRED, FULL, SUPERSEDED, Evicted, SpoolRow, TopicRows

# The readings of a topic that are on disk only.

STEP = 0.5
"""Seconds. A difference between wall clock and uptime that changes by less was not set."""


class Times(NamedTuple):
    """The clocks of one moment."""

    wall: float
    """Epoch seconds."""
    monotonic: float


class Span:
    """Readings in a row that one receipt counts, and that were taken while the wall clock was set to one offset."""

    __slots__ = ("first", "last", "last_taken_at", "offset", "read", "receipt", "rows", "taken_at")

    def __init__(self, number: int, message: Message) -> None:
        self.first = self.last = number
        self.read = 0
        """The number of the last one that came back."""
        self.rows = 1
        """Those of them that did not come back and were not deleted."""
        self.receipt: Receipt | None = message.receipt
        self.offset = message.clock_offset
        self.taken_at = self.last_taken_at = message.taken_at

    def adjoins(self, message: Message) -> bool:
        """Whether a further reading belongs to it."""
        if message.receipt is not self.receipt or message.clock_offset is None or self.offset is None:
            return False
        return abs(message.clock_offset - self.offset) < STEP

    def extend(self, number: int, message: Message) -> None:
        """Add a further reading."""
        self.rows += 1
        if number > self.last:
            self.last, self.last_taken_at = number, message.taken_at

    def dropped(self, number: int) -> None:
        """One of these readings will never arrive. The time that the receipt learns is right for the first and the last
        of them; the others have that of the first."""
        self.rows -= 1
        self._drop(self.last_taken_at if number == self.last else self.taken_at, 1)

    def lost(self) -> None:
        """Readings that did not come back will never arrive. The receipt learns of all of them."""
        rows, self.rows = self.rows, 0
        newest = 1 if rows and self.read < self.last else 0
        if rows > newest:
            self._drop(self.taken_at, rows - newest)
        if newest:
            self._drop(self.last_taken_at, 1)

    def _drop(self, taken_at: float | None, readings: int) -> None:
        if self.receipt is not None and taken_at is not None and self.offset is not None:
            self.receipt.dropped(taken_at - self.offset, readings)

    def replaced(self) -> None:
        """A newer reading took the place of one of these."""
        self.rows -= 1
        if self.receipt is not None:
            self.receipt.replaced()


class Tail:
    """The newest readings of a topic: `rows` are on disk only, and those that are `held` come after them. The spans are
    in the order of their first numbers."""

    __slots__ = ("held", "newest", "rows", "spans")

    def __init__(self) -> None:
        self.rows = 0
        self.newest = 0
        """The largest number of those on disk only, or a larger one."""
        self.held: deque[Item] = deque()
        self.spans: deque[Span] = deque()

    def put(self, number: int, message: Message) -> None:
        """A further reading is on disk only, the newest."""
        self.rows += 1
        self.newest = number
        if self.spans and self.spans[-1].adjoins(message):
            self.spans[-1].extend(number, message)
        else:
            self.spans.append(Span(number, message))

    def span_of(self, number: int) -> Span | None:
        """The span of a reading that is deleted."""
        return next((span for span in self.spans if span.first <= number <= span.last), None)

    def read(self, number: int) -> Span | None:
        """The span of a reading that comes back. They come in order: what did not come back of those before is lost."""
        while self.spans and self.spans[0].last < number:
            self.spans.popleft().lost()
        if not self.spans or self.spans[0].first > number:
            return None
        span = self.spans[0]
        span.rows -= 1
        span.read = number
        return span

    def lost(self) -> None:
        """No more rows can be read."""
        for span in self.spans:
            span.lost()
        self.spans.clear()


UNSURE = 3600.0
"""Seconds. A reading that is worth something for longer is kept where its age is not known, since the clock was not set
when it was written, or is behind since. One that is worth something for less, such as an event, is dropped by the next
run."""


def row_of(item: Item, run: int, now: Times) -> SpoolRow:
    """The row of a reading of the process with the number `run`."""
    topic, payload, qos, retain, taken_at, expires, latest, *_ = item.message
    lasts = None if expires is None else expires - now.monotonic
    if lasts is not None and lasts > UNSURE and now.wall < FIRST_TIME:
        lasts = None  # the clock is not set, so the age of the reading cannot be computed later
    expires_at = None if lasts is None else now.wall + lasts
    return SpoolRow(item.number, run, topic, payload, qos, retain, taken_at or 0.0, expires_at, latest)


def item_of(row: SpoolRow, span: Span | None, now: Times) -> Item:
    """The reading of a row that comes back. `span`: its times; None of one of an earlier run."""
    expires = None
    if row.expires_at is not None:
        lasts = row.expires_at - max(now.wall, row.taken_at)
        if span is None and lasts <= UNSURE and now.wall < max(FIRST_TIME, row.taken_at):
            lasts = 0.0  # the clock is not set, or was set back: the age of the reading is not known
        expires = now.monotonic + lasts
    offset, receipt = (None, None) if span is None else (span.offset, span.receipt)
    times = (row.taken_at, expires, row.latest, None, offset, receipt)
    message = Message(row.topic, row.payload, row.qos, row.retain, *times, replayed=True)
    return find_on_disk(row.id, message)


# The readings of an outbox that are to be written.

MAX_ROWS = 1000
"""Rows that are written at once: some milliseconds of work for the event loop."""


class Unstored:
    """Readings that wait and have no row. Some of them arrived, or were written, since they were added."""

    def __init__(self) -> None:
        self._items: list[Item] = []

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: Item) -> None:
        """A reading is to be written."""
        self._items.append(item)

    def tidy(self, messages: int) -> None:
        """Forget what need not be written any more, if that is most of it. `messages` wait in the outbox."""
        if len(self._items) > 2 * messages + 64:  # as many arrived, or have a row, since the last time
            self._items = [each for each in dict.fromkeys(self._items) if each.is_unstored]

    def waiting(self, number: int) -> bool:
        """Whether there is one with this number or a lower one."""
        return any(item.number <= number and item.is_unstored for item in self._items)

    def batch(self, number: int, flying: Iterable[Item]) -> list[Item]:
        """Take the readings to be written, up to this number, in order, those in flight included: `MAX_ROWS` at the
        most. All later ones of their topics are written with them, so that what is newest on disk of a topic is as new
        as what the broker may have of it."""
        unstored = dict.fromkeys(item for item in self._items if item.is_unstored)
        unstored |= dict.fromkeys(item for item in flying if item.is_unstored)
        topics = {item.message.topic for item in unstored if item.number <= number}
        ripe = sorted((item for item in unstored if item.message.topic in topics), key=lambda item: item.number)
        del ripe[MAX_ROWS:]
        for item in ripe:
            item.change_row(WRITE)
            item.row = item.number
            del unstored[item]
        self._items = list(unstored)
        return ripe


MAX_DEAD = 1000
"""Dead letters that wait to be written, at most: as many as the file keeps. The newest are kept."""
DAMAGED = "damaged on the disk"
REPLACED = "the file of the outbox was replaced"


MIN_PAGE_ROWS = 60
"""Rows at least: three windows of a broker that allows 20."""
MAX_PAGE_ROWS = 960
"""Rows at most, unless three windows are more. A fast broker takes them in some 25 ms, which is longer than the
thread needs to write a batch of new readings before it reads."""


class PageSize:
    """Doubles when the connection has sent all there was before a page came.

    An app that is asked for more than it can do writes its readings and reads them back at the same time. With pages of
    `MIN_PAGE_ROWS` rows it delivered a quarter of what it can, and never caught up.
    """

    def __init__(self) -> None:
        self._rows = MIN_PAGE_ROWS

    def rows(self, window: int) -> int:
        """Rows of the next page, for a connection with so many messages in flight."""
        return max(self._rows, 3 * window)

    def came(self, *, waited: bool, last: bool) -> None:
        """A page came. `waited`: nothing was left to send before it. `last`: no more rows follow it."""
        if last:
            self._rows = MIN_PAGE_ROWS
        elif waited:
            self._rows = min(2 * self._rows, MAX_PAGE_ROWS)


class Backlog:
    """The keeper of an outbox (`leadsman.core.mqtt.outbox.Keeper`).

    Args:
        outbox: what it keeps.
        run: the random number of this process.
        wake: called when a row is no longer needed.
    """

    def __init__(self, outbox: Outbox, run: int, wake: Callable[[], None]) -> None:
        self._outbox = outbox
        self._run = run
        self._wake = wake
        self._tails: dict[str, Tail] = {}
        self._unstored = Unstored()
        self._stored: dict[int, Item] = {}
        self._settled: dict[int, str] = {}
        """Rows that are no longer needed, and the topic of each that is on disk for certain; else no text."""
        self._held = 0
        self._listed: Collection[str] | None = None
        self._page_size = PageSize()
        self._first: list[int] = []
        self.store: Store = "opening"
        """Whether the disk can be used."""
        self.known = False
        """Whether the rows on disk are known, or cannot be known. Until then readings are held: all of them,
        or those of the topics that may have rows, see `list_topics`."""
        self.works = True
        """Whether rows can be written."""
        self.rows = 0
        """Readings that are on disk only."""
        self.read = 0
        """The number of the last row that was read back."""
        self.replayed = 0
        """Readings that were read back since the start."""
        self.taken_at: float | None = None
        """When the first reading on disk after `read` was taken, epoch seconds; None if that is not known."""
        self.dead = 0
        """Readings since the start that the broker does not take."""
        self.room: int | None = None
        """See `OnDisk`."""
        self._buried: list[tuple[Item, str]] = []
        self.outdated = False
        """Whether a topic has rows on disk that arrived, and no others: what it sends from now on has no row."""

    @property
    def kept(self) -> int:
        """Readings on disk that did not arrive."""
        return self.rows + len(self._stored)

    @property
    def oldest(self) -> float | None:
        """See `Keeper`. The time of a reading that was taken before the clock was set is of no use."""
        known = self.rows > 0 and self.taken_at is not None and self.taken_at >= FIRST_TIME
        return self.taken_at if known else None

    @property
    def on_disk(self) -> OnDisk:
        """See `Keeper`."""
        return OnDisk(self.store, self.kept, self.rows, self.replayed, self.dead, self.room)

    @property
    def held(self) -> Iterator[Item]:
        """See `Keeper`."""
        return (item for tail in self._tails.values() for item in tail.held)

    @property
    def heads(self) -> Iterator[Item]:
        """See `Keeper`."""
        return (tail.held[0] for tail in self._tails.values() if tail.held)

    def holds(self, topic: str) -> bool:
        """See `Keeper`."""
        return topic in self._tails or self._may_have_rows(topic)

    def readings(self, topic: str) -> int:
        """See `Keeper`."""
        tail = self._tails.get(topic)
        return 0 if tail is None else tail.rows + len(tail.held)

    def follow(self, topic: str, number: int) -> bool:
        """See `Keeper`."""
        tail = self._tails.get(topic)
        return tail is not None and (bool(tail.held) or (tail.rows > 0 and tail.newest > number))

    def takes(self, topic: str, *, full: bool) -> bool:
        """See `Keeper`."""
        return topic in self._tails or self._may_have_rows(topic) or (full and self.works)

    def _may_have_rows(self, topic: str) -> bool:
        """Whether it is not known yet that a topic has no rows."""
        return not self.known and (self._listed is None or topic in self._listed)

    def hold(self, item: Item) -> list[Dropped]:
        """Keep a reading behind those of its topic that are on disk. Returns the messages dropped for it: the
        oldest of these, if nothing can be written and the memory is full."""
        topic = item.message.topic
        tail = self._tails.setdefault(topic, Tail())
        if tail.held and item.message.latest and tail.held[-1].message.latest:
            self._outbox.take_place(tail.held[-1], item)
            self.waits(tail.held[-1])
            return []
        item.move(HOLD)
        tail.held.append(item)
        self._held += 1
        self.waits(item)
        if len(tail.held) == 1 or not self._outbox.is_full(1 - BURST if self.works else 0):
            return []
        self._held -= 1
        return self._outbox.drop(tail.held.popleft(), FULL, "full")

    def waits(self, item: Item) -> None:
        """See `Keeper`."""
        self._unstored.add(item)
        self._unstored.tidy(self._outbox.messages)

    def waiting(self, number: int) -> bool:
        """See `Keeper`."""
        return self._unstored.waiting(number)

    def bury(self, item: Item, why: str) -> None:
        """See `Keeper`."""
        self.dead += 1
        buried = Item(item.number, item.message, item.size)
        self._buried = [*self._buried, (buried, why)][-MAX_DEAD:]
        self._wake()

    def dead_letters(self) -> list[tuple[Item, str]]:
        """Take the readings to be written among the dead letters, each with its reason."""
        buried, self._buried = self._buried, []
        return buried

    def settled(self, row: int) -> None:
        """See `Keeper`."""
        item = self._stored.pop(row, None)
        topic = self._settled[row] = "" if item is None else item.message.topic
        if item is not None and not self.outdated:
            self.outdated = not (self.readings(topic) or self._outbox.stores(topic))
        self._wake()

    def superseded(self, row: int, newer: Item) -> None:
        """See `Keeper`. A newer reading that is being written needs the row in case that fails."""
        needs_none = newer.row_state not in STORABLE or self._stored.get(newer.row) is newer
        if needs_none or row not in self._stored:
            self.settled(row)
            return
        self._stored[row] = newer
        if newer.row_state is UNWRITTEN:
            self._inherit(newer, row)

    def _inherit(self, item: Item, row: int) -> None:
        """An item has the row of an older one until it is written."""
        item.change_row(INHERIT)
        item.row = row

    def list_topics(self, topics: Collection[str]) -> None:
        """Only these topics may have rows on disk, as far as it is known before `begin`: the others go on. Nothing is
        written before `begin` in any case."""
        if not self.known:
            self._listed = topics
            for topic in [topic for topic in self._tails if topic not in topics]:
                self._release(topic)

    def begin(
        self, rows: Mapping[str, TopicRows], next_row: int | None, evicted: Sequence[Evicted] = ()
    ) -> list[Dropped]:
        """The disk has these rows of each topic. With `next_row`, all are of earlier lives of the app, and numbers go
        on there; else rows may be among them that wait in memory as well, or arrived since they were counted. `evicted`
        were deleted before. Returns the readings that were on disk only, and are not there any more."""
        lost = [] if next_row is None else self._begin_again(next_row)
        lost += self._all_evicted(evicted)
        self._listed = None
        mine = Counter(item.message.topic for item in self._stored.values())
        mine.update(self._settled.values())
        for topic, found in rows.items():
            only, latest = found.rows - mine[topic], found.latest
            if only == found.rows == 1 and latest is not None and self._outbox.is_superseded(topic, latest):
                self._settled[latest] = topic
            elif only > 0:
                tail = self._tails.setdefault(topic, Tail())
                tail.rows, tail.newest = only, found.newest
                self.rows += only
        self._first = [each.latest for each in rows.values() if each.rows == 1 and each.latest is not None]
        self.read = 0
        self.known = self.works = True
        self._release_all(with_rows=False)
        self._outbox.fall_in()
        return lost

    def give_up(self) -> None:
        """Nothing can be written or read for now: send the readings in memory. Rows on disk come back in another life,
        or with `begin`."""
        self.known, self.works, self.rows = True, False, 0
        self._outbox.go_ahead()
        self._release_all()

    def batch(self, number: int) -> list[Item]:
        """Take the readings to be written, up to this number, in order, see `Unstored.batch`."""
        return self._unstored.batch(number, self._outbox.flying)

    def row(self, item: Item, now: Times) -> SpoolRow:
        """The row of a reading."""
        return row_of(item, self._run, now)

    def to_delete(self) -> list[int]:
        """Take the rows that are no longer needed."""
        rows = list(self._settled)
        self._settled.clear()
        self.outdated = False
        return rows

    @property
    def deletes(self) -> int:
        """How many rows are no longer needed, dead letters included."""
        return len(self._settled) + len(self._buried)

    def written(self, batch: Iterable[Item], evicted: Sequence[Evicted]) -> list[Dropped]:
        """Readings were written, and rows deleted to make room. Returns the messages lost by that."""
        self.works = True
        topics: dict[str, None] = {}
        for item in batch:
            if item.place is not GONE:
                item.change_row(COMMIT)
                self._stored[item.row] = item
                topics[item.message.topic] = None
        for topic in topics:
            tail = self._tails.get(topic)
            while tail is not None and tail.held and tail.held[0].row_state is WRITTEN:
                self._put_away(tail, tail.held.popleft())
        return self._all_evicted(evicted)

    def failed(
        self,
        batch: Iterable[Item],
        deleted: Iterable[int],
        dead: Sequence[tuple[Item, str]] = (),
    ) -> None:
        """Nothing was written or deleted: it must be done another time."""
        self._buried = [*dead, *self._buried][-MAX_DEAD:]
        for item in batch:
            if item.place is not GONE:
                item.change_row(FAIL)
                self._unstored.add(item)
        self._settled = dict.fromkeys(deleted, "") | self._settled
        self._restore_rows()
        self.works = False
        self._release_all(with_rows=False)

    def _restore_rows(self) -> None:
        """Readings that took the place of older ones were not written: they have the rows of these, as before."""
        for row, item in list(self._stored.items()):
            if item.place is GONE:  # it arrived meanwhile
                del self._stored[row]
                self._settled[row] = ""
            elif item.row_state is UNWRITTEN:
                self._inherit(item, row)

    def wanted(self, window: int) -> int:
        """How many rows to read back, for a connection with so many messages in flight. None while enough wait."""
        enough = self._page_size.rows(window)
        if not self.rows or self._outbox.is_full(0.5) or self._outbox.sendable(enough) >= enough // 2:
            return 0
        return enough

    def first(self) -> list[int]:
        """Take the rows to be read before all others: those of topics of which only the newest counts."""
        first, self._first = self._first[:MAX_PAGE_ROWS], self._first[MAX_PAGE_ROWS:]
        return first

    def page(self, rows: Sequence[SpoolRow], now: Times, first: Sequence[SpoolRow] = ()) -> list[Dropped]:
        """Rows were read back, those that follow `read`, and some that come before all others. If there are none,
        nothing is left: returns those that were there and cannot be read."""
        self._page_size.came(waited=not self._outbox.ready, last=len(rows) >= self.rows)
        if rows:
            self.read = rows[-1].id
        for row in chain(first, rows):
            if row.id in self._stored or row.id in self._settled:
                continue
            tail = self._tails.get(row.topic)
            if tail is None or not tail.rows:
                continue
            tail.rows -= 1
            self.rows -= 1
            self.replayed += 1
            item = self._stored[row.id] = item_of(row, tail.read(row.id), now)
            self._outbox.bring_back(item)
            if not tail.rows:
                self._release(row.topic)
        if rows:
            return []
        self._outbox.drops["damaged"] += self.rows
        self.rows = 0
        lost = [Dropped(topic, tail.rows, DAMAGED, "damaged") for topic, tail in self._tails.items() if tail.rows]
        for tail in self._tails.values():
            tail.lost()
        self._release_all()
        return lost

    def _put_away(self, tail: Tail, item: Item) -> None:
        """A reading that was held is on disk only."""
        self._held -= 1
        self.rows += 1
        del self._stored[item.row]
        tail.put(item.row, self._outbox.leave_on_disk(item))

    def _release_all(self, *, with_rows: bool = True) -> None:
        """Let held readings go on, of all topics, or of those that have no rows on disk only."""
        for topic in [topic for topic, tail in self._tails.items() if with_rows or not tail.rows]:
            self._release(topic)

    def _release(self, topic: str) -> None:
        """Nothing of a topic is on disk only: held readings go on."""
        tail = self._tails.pop(topic)
        self._held -= len(tail.held)
        for item in tail.held:
            item.move(RELEASE)
            self._outbox.admit(item)

    def _all_evicted(self, evicted: Iterable[Evicted]) -> list[Dropped]:
        return [drop for each in evicted if (drop := self._evicted(each)) is not None]

    def _evicted(self, evicted: Evicted) -> Dropped | None:
        """Rows were deleted. What waits in memory as well is sent in spite of it, and is not written again. As long as
        the disk cannot be used, nothing else is known of rows: all others are on disk only."""
        lost = 0
        tail = self._tails.get(evicted.topic)
        for row in evicted.ids:
            item = self._stored.pop(row, None)
            if item is not None:
                if item.row == row:
                    item.change_row(EVICT)
            elif row in self._settled:
                continue  # it arrived meanwhile
            elif not self.works:
                lost += 1
            elif tail is not None and tail.rows and row > self.read:
                tail.rows -= 1
                self.rows -= 1
                lost += 1
                span = tail.span_of(row)
                if span is not None and evicted.reason == SUPERSEDED:
                    span.replaced()
                elif span is not None:
                    span.dropped(row)
        if tail is not None and not tail.rows:
            self._release(evicted.topic)
        if not lost or evicted.reason == SUPERSEDED:
            return None
        cause: Cause = "expired" if evicted.reason == EXPIRED else "full"
        self._outbox.drops[cause] += lost
        return Dropped(evicted.topic, lost, evicted.reason, cause)

    def _begin_again(self, next_row: int) -> list[Dropped]:
        """No row is ours: what waits in memory is written, or written again."""
        by = next_row - 1
        self._outbox.renumber(by)
        for item in dict.fromkeys(self._stored.values()):
            if item.place is not GONE:
                item.change_row(FORGET)
                self._unstored.add(item)
        self._stored.clear()
        self._settled.clear()
        for item, _ in self._buried:
            item.number += by
        lost = []
        for topic, tail in self._tails.items():
            for item in tail.held:
                item.number += by
            if tail.rows:
                lost.append(Dropped(topic, tail.rows, REPLACED, "damaged"))
                tail.lost()
                tail.rows = 0
        self._outbox.drops["damaged"] += self.rows
        self.rows = 0
        return lost
