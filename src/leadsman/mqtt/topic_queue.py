"""The messages of one topic in the outbox, in the order in which they were put. Pure."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from heapq import merge
from typing import Literal, NamedTuple, Protocol, get_args

from leadsman.mqtt.message import Message

SETTLED = Message("", b"")
"""Stands in an `Item` whose message was delivered or dropped, so that its bytes are free."""
UNSTORED, NEVER, COPY = 0, -1, -2
"""In place of the row of an item: it has none yet; it shall have none; it is sent again, and arrived before."""

SHARE = 16
"""Messages that come back are put in their places one by one, each found by bisection, while they are fewer than one in
so many of those that wait; else all are merged."""
MOST_BEFORE = 100
"""Topics that are counted to find the place of one of them: introspection asks for the place of each device."""

Cause = Literal["full", "expired", "too_large", "refused", "damaged", "fenced"]
"""Why a message will never arrive: the outbox is full; it is too old; it is larger than the outbox takes; the broker
does not take it; the file on the disk was damaged or replaced; another node has the device by now."""
CAUSES: tuple[Cause, ...] = get_args(Cause)


class Dropped(NamedTuple):
    """So many `messages` of `topic` were dropped because of `reason`."""

    topic: str
    messages: int
    reason: str


class Standing(NamedTuple):
    """Where the messages of one topic are in the outbox."""

    messages: int
    """Those in flight included."""
    in_flight: int
    before: int | None
    """Topics whose next message goes first. None if nothing of this topic may be sent now, or if more than
    `MOST_BEFORE` topics go first."""
    since: float | None
    """When its oldest reading was taken, in seconds as `Outbox.oldest`."""
    paused_until: float | None
    """Nothing of it is sent before, monotonic seconds."""


class Item:
    """A message in the outbox."""

    __slots__ = ("listed", "message", "number", "row", "size", "unretained")

    def __init__(self, number: int, message: Message, size: int) -> None:
        self.number = number
        """Its place in the order in which messages were put."""
        self.message = message
        self.size = size
        """See `Message.size`."""
        self.listed = True
        """Whether the outbox finds it when it makes room."""
        self.row = 0
        """The number of its row on disk, `UNSTORED`, `NEVER` or `COPY`. A number that is not its own is that of an
        older reading whose place it took."""
        self.unretained = False
        """Whether it was handed out to be sent without the retain flag, because a newer reading of its topic waits."""


def copy_of(number: int, message: Message) -> Item:
    """A message that is sent again, arrived before, and is never stored."""
    copy = Item(number, message._replace(receipt=None), message.size)
    copy.row = COPY
    return copy


def is_unstored(item: Item) -> bool:
    """Whether an item is a reading that is to be written, and was not."""
    return item.row != item.number and item.row >= UNSTORED and item.message.taken_at is not None


class OnDisk(NamedTuple):
    """What a keeper has on disk."""

    store: Literal["opening", "ok", "full", "locked", "memory"]
    """``full``: only reading works. ``locked``: another process has the file. ``memory``: it cannot be used."""
    readings: int
    """Those that did not arrive."""
    only: int
    """Those of them that do not wait in memory as well."""
    replayed: int
    """Readings that were read back since the start."""
    dead: int
    """Readings since the start that the broker does not take."""
    room: int | None = None
    """Bytes that the disk takes before the oldest readings are deleted, or nothing is written any more; None if that is
    not known."""


class Keeper(Protocol):
    """Keeps the readings of an outbox on disk. Those of a topic that are on disk only are older than what it holds of
    the topic in memory."""

    @property
    def works(self) -> bool:
        """Whether rows can be written."""
        ...

    @property
    def in_order(self) -> bool:
        """Whether readings that are on disk only must be sent before newer ones of their topics."""
        ...

    @property
    def oldest(self) -> float | None:
        """When the oldest of the readings that are on disk only was taken, epoch seconds; None if that is not known."""
        ...

    @property
    def on_disk(self) -> OnDisk:
        """What is on disk."""
        ...

    @property
    def held(self) -> Iterable[Item]:
        """Readings that wait in memory until they are written, and are not offered to the broker before."""
        ...

    @property
    def heads(self) -> Iterable[Item]:
        """The oldest of those, of each topic."""
        ...

    def holds(self, topic: str) -> bool:
        """Whether older readings of a topic are on disk only, or may be."""
        ...

    def readings(self, topic: str) -> int:
        """How many readings of a topic are held, or on disk only."""
        ...

    def follow(self, topic: str, number: int) -> bool:
        """Whether newer readings of a topic than this one, which waited in memory, are held, or on disk only."""
        ...

    def takes(self, topic: str, *, full: bool) -> bool:
        """Whether a new reading is not to be sent before it was on disk only. `full`: the memory has no room."""
        ...

    def hold(self, item: Item) -> list[Dropped]:
        """Keep a reading for which `takes` is true. Returns what was dropped for it."""
        ...

    def waits(self, item: Item) -> None:
        """A reading waits in memory, and has no row."""
        ...

    def sets_aside(self, item: Item) -> bool:
        """Let a reading that waits in memory wait on disk only, while newer ones of its topic are sent. Returns whether
        that is so now: it needs a row."""
        ...

    def waiting(self, number: int) -> bool:
        """Whether a reading that waits, with this number or a lower one, has no row."""
        ...

    def bury(self, item: Item, why: str) -> None:
        """Keep a reading that the broker does not take among the dead letters."""
        ...

    @property
    def has_rows(self) -> bool:
        """Whether readings may be on disk."""
        ...

    def arrived(self, topic: str, number: int) -> None:
        """The broker has a reading, and keeps it."""
        ...

    def settled(self, row: int) -> None:
        """A row is of no use any more: its reading arrived or was dropped."""
        ...

    def superseded(self, row: int, newer: Item) -> None:
        """The reading of a row is not sent any more, since a newer one of its topic waits. The row stays until that one
        is on disk or arrived."""
        ...


class TopicQueue:
    """The messages of a topic that wait, and what is known of those in flight."""

    __slots__ = ("ahead", "arrived", "behind", "in_flight", "kept", "newest", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Item] = deque()
        """In order, the oldest first."""
        self.behind: list[Item] = []
        """Those of them that could wait on disk only, if the oldest could."""
        self.in_flight = 0
        self.ahead: tuple[int, Message] | None = None
        """The number and the message of the newest one that went ahead of older ones that still wait."""
        self.arrived: tuple[int, Message] | None = None
        """The number and the message of the newest one that arrived while others were in flight or waited. Those in
        flight may come back, and may be older."""
        self.kept = 0
        """The number of the newest of those that the broker keeps."""
        self.newest: tuple[int, Message] | None = None
        """The same of the newest one that was handed out; None if it came back or was dropped."""

    def forget(self) -> None:
        """Nothing waits, and nothing is in flight."""
        self.ahead = self.arrived = self.newest = None
        self.kept = 0
        if self.behind:
            self.behind.clear()

    @property
    def oldest(self) -> Item | None:
        """The oldest that did not arrive before."""
        return next((item for item in self.waiting if item.row != COPY), None)

    def hand_out(self, item: Item) -> Item | None:
        """An item is handed out, and others wait or went ahead. Returns a copy that must be sent again, or None.

        If a newer message went ahead of it, the item is sent without the retain flag, since the broker keeps the newest
        reading of a topic. After the last such item the newest message is sent again, so that a subscriber receives it
        last. The copy has the number of that message: readings that come back from disk after it may be newer.
        """
        self.went_ahead(item)
        if self.ahead is None:
            return None
        number, newest = self.ahead
        if item.number < number:
            item.message = item.message._replace(retain=False)
            if not self.waiting:
                self.ahead = None
                return copy_of(number, newest)
        elif item.number > number:
            self.ahead = None
        return None

    def went_ahead(self, item: Item) -> None:
        """An item was handed out, or arrived, while older ones may still wait."""
        if self.newest is None or self.newest[0] < item.number:
            self.newest = item.number, item.message
        older = bool(self.waiting) and self.waiting[0].number < item.number
        if older and (self.ahead is None or self.ahead[0] < self.newest[0]):
            self.ahead = self.newest

    def note_arrival(self, item: Item) -> None:
        """An item arrived, and others of the topic did not."""
        if self.arrived is None or self.arrived[0] < item.number:
            self.arrived = item.number, item.message
        if item.message.retain and not item.unretained and item.number > self.kept:
            self.kept = item.number

    def fell_back(self, item: Item) -> None:
        """An item that may have gone ahead is not with the broker."""
        if self.newest is not None and self.newest[0] == item.number:
            self.newest = None
        if self.ahead is not None and self.ahead[0] == item.number:
            self.ahead = None

    def take_back(self, items: list[Item]) -> None:
        """Put items that were in flight back in their places. They are in order."""
        waiting = self.waiting
        for item in items:
            self.fell_back(item)
        if not (waiting and items) or items[-1].number <= waiting[0].number:
            waiting.extendleft(reversed(items))
        elif len(items) * SHARE < len(waiting):
            for item in items:
                waiting.insert(bisect_left(waiting, item.number, key=_number), item)
        else:
            self.waiting = deque(merge(items, waiting, key=_number))
        self.in_flight -= len(items)
        arrived = self.arrived
        older = arrived is not None and self.waiting[0].number < arrived[0]
        if arrived is not None and older and (self.ahead is None or self.ahead[0] < arrived[0]):
            self.ahead = arrived


def _number(item: Item) -> int:
    return item.number
