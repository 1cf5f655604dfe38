"""The outbox: a bounded queue of messages for the broker, in order per topic.

Every topic is a queue of its own, and topics take turns. What waits in a queue is in the order of its numbers, also
where it was in flight, or is read back from the disk: the first is the oldest, the last the newest. Several messages of
a topic may be in flight; a connection delivers them in the order in which they are handed out, and their
acknowledgements count in that order: one that comes before that of an older message counts when the older one has
arrived. If the broker refuses a message for now, it and all later ones of its topic in flight are sent again. A message
that the broker refuses delays no other topic. When the outbox is full, the oldest messages are dropped, in steps of a
hundredth, but never the newest of a topic: a publish rule that compares a reading with the last one relies on its
arrival.

A message leaves the memory in one of four ways: it arrives (`accept`), it will never arrive (`drop`, `drop_next`), a
newer one of its topic replaces it, or it is on disk only from now on (`leave_on_disk`).

A `Keeper` stores readings that wait, and those for which the memory has no room.

The oldest message of all is found without a search: each is listed in the order in which it came. No list is walked for
one message: one that is passed over leaves its list, until the one in its way has gone.

Any operation on one message takes amortised O(log n) steps, however many wait, and of whichever kind they are. Pure:
`now` is passed in, and dropped messages are returned to the caller.
"""

import heapq
from bisect import insort
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from itertools import chain
from operator import attrgetter
from typing import Literal, NamedTuple, Protocol, get_args

from leadsman.core.mqtt.message import MAX_PAYLOAD_BYTES, Message
from leadsman.core.mqtt.message_state import (
    ARRIVE,
    DROP,
    FREED,
    HAND_OUT,
    HAS_ROW,
    IN_FLIGHT,
    MERGE,
    NONE,
    NOT_IN_MEMORY,
    PASS_ON,
    PUT_AWAY,
    READ_BACK,
    RENEW,
    REPEATED,
    REPLACE,
    RETURN,
    STORABLE,
    UNKEPT,
    UNWRITTEN,
    WAITING,
    Item,
    PlaceEvent,
    repeat_message,
)

MAX_TOPICS_BEFORE = 100
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
    cause: Cause
    is_answer: bool = False
    """Whether they are answers to requests; see `leadsman.core.mqtt.message.Message.is_answer`."""


class Standing(NamedTuple):
    """Where the messages of one topic are in the outbox."""

    messages: int
    """Those in flight included."""
    in_flight: int
    before: int | None
    """Topics whose next message goes first. None if nothing of this topic may be sent now, or if more than
    `MAX_TOPICS_BEFORE` topics go first."""
    since: float | None
    """When its oldest reading was taken, in seconds as `Outbox.oldest`."""
    paused_until: float | None
    """Nothing of it is sent before, monotonic seconds."""


Store = Literal["opening", "ok", "full", "locked", "memory"]
"""See `OnDisk`."""


class OnDisk(NamedTuple):
    """The store of a keeper on disk."""

    store: Store
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
    the topic in memory. The spool does so, which is in a room above this one."""

    works: bool
    """Whether rows can be written."""

    @property
    def oldest(self) -> float | None:
        """When the oldest of the readings that are on disk only was taken, epoch seconds; None if that is not known."""
        ...

    @property
    def on_disk(self) -> OnDisk:
        """The store on disk."""
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
        """Keep a reading for which `takes` is true. Returns the messages dropped for it."""
        ...

    def waits(self, item: Item) -> None:
        """A reading waits in memory, and has no row."""
        ...

    def waiting(self, number: int) -> bool:
        """Whether a reading that waits, with this number or a lower one, has no row."""
        ...

    def bury(self, item: Item, why: str) -> None:
        """Keep a reading that the broker does not take among the dead letters."""
        ...

    def settled(self, row: int) -> None:
        """A row is no longer needed: its reading arrived or was dropped."""
        ...

    def superseded(self, row: int, newer: Item) -> None:
        """The reading of a row is not sent any more, since a newer one of its topic waits. The row stays until that one
        is on disk or arrived."""
        ...


MAX_MESSAGES = 10_000
MAX_BYTES = 8 * 2**20
"""Half a week of one reading a minute from one device, or eleven hours of fifteen; whichever bound comes first."""
RESERVE = 0.1
"""The part of the bounds that readings leave free where they can wait on disk: status and availability cannot."""
ANSWERS = 8
"""Answers take one part in so many of the bounds. One more is dropped, since others decide how many requests come."""
BURST = 2
"""The bounds of the memory may be exceeded so many times by readings that are about to be written."""


NUMBER = attrgetter("number")
"""The order of the messages that wait."""
SENT_AT = attrgetter("sent_at")


class TopicQueue:
    """The messages of a topic that wait, in the order of their numbers, and those in flight, in the order in which they
    were sent."""

    __slots__ = ("flying", "is_torn", "waiting")

    def __init__(self) -> None:
        self.waiting: list[Item] = []
        self.flying: list[Item] = []
        """Lists, since a deque takes 760 bytes for one, and most topics have one at a time; all have one at the start.
        To take the first of some thousand out of a list moves their addresses, a microsecond for each ten thousand."""
        self.is_torn = False
        """Whether one in flight was acknowledged before an older one: then nothing follows them, since a process that
        is killed now must not have sent what is newer than all that is on disk."""

    @property
    def oldest(self) -> Item | None:
        """The oldest that waits and did not arrive before."""
        return next((item for item in self.waiting if item.row_state is not REPEATED), None)

    def is_followed(self, item: Item) -> bool:
        """Whether newer ones than this one wait, or are in flight."""
        number, waiting = item.number, self.waiting
        return bool(waiting and waiting[-1].number > number) or any(each.number > number for each in self.flying)

    def add(self, item: Item) -> None:
        """One more waits."""
        waiting = self.waiting
        if waiting and waiting[-1].number > item.number:
            insort(waiting, item, key=NUMBER)
        else:
            waiting.append(item)

    def take_back(self, items: list[Item]) -> None:
        """Those that were in flight wait again. The list is put in order."""
        items.sort(key=NUMBER)
        waiting = self.waiting
        is_behind = bool(waiting) and waiting[0].number < items[-1].number
        waiting[:0] = items
        if is_behind:  # they were sent before these were read back
            waiting.sort(key=NUMBER)


class Outbox:
    """Messages on their way: `put`, `take`, then `accept`, `refuse` or `drop`; `lost` after a broken connection."""

    def __init__(self, most_messages: int = MAX_MESSAGES, most_bytes: int = MAX_BYTES) -> None:
        self._most_messages = most_messages
        self._most_bytes = most_bytes
        self._most_answers = most_messages / ANSWERS
        self._most_answer_bytes = most_bytes / ANSWERS
        self._largest = min(most_bytes // 8, MAX_PAYLOAD_BYTES)
        self._queues: dict[str, TopicQueue] = {}
        self.ready: OrderedDict[str, None] = OrderedDict()
        """The topics of which something may be sent now, in their turns."""
        self._flying: dict[Item, None] = {}
        self._order: deque[Item] = deque()
        """Messages in the order in which they came, to find the oldest."""
        self._number = 0
        self.renumbered = 0
        """The sum added to the numbers since the start."""
        self._late = 0
        self._keeper: Keeper | None = None
        self._arrived: dict[str, int] = {}
        """The number of the newest message that arrived, of topics of which only the latest counts."""
        self._ahead: dict[str, tuple[Item, Message]] | None = None
        """The newest retained reading of each topic that arrived while the disk cannot be used; None while it can."""
        self._one_at_a_time: set[str] = set()
        self.paused: dict[str, float] = {}
        """Topics of which nothing is offered, and until when, monotonic seconds."""
        self._ends: list[tuple[float, str]] = []
        """A heap of the ends of pauses, and of some that are over or were made longer."""
        self._unpaused = 0
        """Topics of which something is left, and that do not pause."""
        self.bytes = 0
        """Bytes held, see `Message.size`."""
        self.messages = 0
        """Messages held, those in flight included."""
        self._answers = self._answer_bytes = 0
        self.drops: dict[Cause, int] = dict.fromkeys(CAUSES, 0)
        """Messages dropped since the start, by cause."""
        self.delivered = 0
        """Messages accepted since the start."""

    def put(self, message: Message) -> list[Dropped]:
        """Keep a message until it is accepted. Returns the messages that were dropped for it, or the message itself
        if it is too large."""
        size = message.size
        if size > self._largest:
            self.drops["too_large"] += 1
            never_arrives(message)
            return [Dropped(message.topic, 1, f"larger than {self._largest} bytes", "too_large", message.is_answer)]
        if message.expires is not None and message.is_answer and self._is_full_of_answers(size):
            self.drops["full"] += 1
            never_arrives(message)
            return [Dropped(message.topic, 1, "too many answers wait", "full", is_answer=True)]
        self._number += 1
        item = Item(self._number, message, size)
        self.messages += 1
        self.bytes += size
        if message.expires is not None:
            self._count(message, size)
        keeper = self._keeper
        if keeper is not None and message.taken_at is not None:
            full = not message.latest and self.is_full(RESERVE)
            if keeper.takes(message.topic, full=full):
                return keeper.hold(item)
            keeper.waits(item)
        self.admit(item)
        return self._make_room() if self.is_full(RESERVE) else []

    def repeat(self, number: int, message: Message) -> None:
        """Send a message again that arrived before and had this number, unless newer ones of its topic are on their
        way. It was counted and stored then."""
        if message.topic not in self:
            self._count_and_admit(repeat_message(number, message))

    def hand_over(self, message: Message, size: int | None = None) -> Item | None:
        """`put` and `take` in one step, for a message that nothing waits before. None if anything waits, pauses or is
        full: then the message must be put. `size`: `Message.size`, for a caller that has it."""
        topic, size = message.topic, message.size if size is None else size
        queue = self._queues.get(topic)
        if (
            self.ready
            or self.paused
            or self._one_at_a_time
            or (queue is not None and (queue.waiting or queue.is_torn))
            or self.messages >= self._most_messages
            or self.bytes + size > self._most_bytes
            or size > self._largest
            or (self._keeper is not None and self._keeper.holds(topic))
        ):
            return None
        queue = self._begin_queue(topic) if queue is None else queue
        self._number += 1
        item = Item(self._number, message, size)
        item.listed = False
        self._fly(item, queue)
        self.messages += 1
        self.bytes += size
        if message.expires is not None:
            self._count(message, size)
        return item

    def pop(self, now: float) -> tuple[Item | None, list[Dropped]]:
        """Hand out the next message, or None when nothing is `ready`; and the expired ones."""
        expired: list[Dropped] = []
        while self.ready:
            topic, _ = self.ready.popitem(last=False)
            queue = self._queues[topic]
            item = queue.waiting.pop(0)
            expires = item.message.expires
            if expires is not None and expires <= now:
                expired += self.drop(item, "expired", "expired")
                self._offer(topic, queue)
                continue
            message = item.message
            item.followed = message.retain and message.taken_at is not None and self._is_followed(item, queue)
            self._fly(item, queue)
            self._offer(topic, queue)
            return item, expired
        return None, expired

    def _fly(self, item: Item, queue: TopicQueue) -> None:
        """Hand an item out."""
        item.move(HAND_OUT)
        self._flying[item] = None
        queue.flying.append(item)

    def _is_followed(self, item: Item, queue: TopicQueue) -> bool:
        """Whether newer readings of its topic wait, or were handed out."""
        if queue.is_followed(item):
            return True
        return self._keeper is not None and self._keeper.follow(item.message.topic, item.number)

    def accept(self, item: Item) -> list[tuple[Item, Message]]:
        """The broker acknowledged a message in flight. Returns the messages that arrived by that, in order: none if an
        older one of the topic is in flight, else this one and those after it that were acknowledged before."""
        topic = item.message.topic
        queue = self._queues[topic]
        item.acknowledged = True
        if queue.flying[0] is not item:
            queue.is_torn = True
            self.ready.pop(topic, None)
            return []
        return self._arrive(topic, queue)

    def _arrive(self, topic: str, queue: TopicQueue) -> list[tuple[Item, Message]]:
        """The oldest in flight that were acknowledged have arrived."""
        arrived = []
        while queue.flying and queue.flying[0].acknowledged:
            item = queue.flying.pop(0)
            del self._flying[item]
            message = item.message
            arrived.append((item, message))
            self.delivered += 1
            if message.latest:
                self._arrived[topic] = max(item.number, self._arrived.get(topic, 0))
                self._keep_latest(topic, queue)
            self._free(item, ARRIVE)
        queue.is_torn = queue.is_torn and any(item.acknowledged for item in queue.flying)
        if queue.flying or queue.waiting:
            self._offer(topic, queue)
        else:
            self._remove_queue(topic)
        if self._keeper is not None:
            for item, message in arrived:
                self._note_ahead(item, message)
        return arrived

    def settle(self, topic: str) -> list[tuple[Item, Message]]:
        """A message of a topic that was in flight was dropped. Returns those that arrived by that, see `accept`."""
        queue = self._queues.get(topic)
        return [] if queue is None else self._arrive(topic, queue)

    def drop(self, item: Item, why: str, cause: Cause = "refused") -> list[Dropped]:
        """A message that is in flight or held, or was taken from its queue, will never arrive. The keeper buries a
        reading that the broker does not take. Returns it, unless it arrived before."""
        if cause == "refused" and self._keeper is not None and item.row_state in STORABLE:
            self._keeper.bury(item, why)
        dropped = []
        if item.row_state is not REPEATED:
            self.drops[cause] += 1
            dropped.append(Dropped(item.message.topic, 1, why, cause, item.message.is_answer))
        if item.place is IN_FLIGHT:
            topic = item.message.topic
            queue = self._queues[topic]
            del self._flying[item]
            queue.flying.remove(item)
            self._free(item, DROP)
            self._offer(topic, queue)
        else:
            self._free(item, DROP)
        return dropped

    def gives_up(self, topic: str) -> bool:
        """Whether the next message of a topic of which nothing is in flight is sent once only; see `Message.once`."""
        queue = self._queues.get(topic)
        return queue is not None and bool(queue.waiting) and queue.waiting[0].message.once

    def drop_next(self, topic: str, why: str) -> list[Dropped]:
        """As `drop`, the message of a topic of which nothing is in flight that was sent last: older ones may have been
        read back meanwhile. If none was sent, the next one."""
        queue = self._queues[topic]
        item = max(queue.waiting, key=SENT_AT)
        queue.waiting.remove(item)
        dropped = self.drop(item, why)
        self._offer(topic, queue)
        return dropped

    def back(self, item: Item) -> None:
        """A message in flight is the next one of its topic again, before all later ones of it in flight."""
        topic = item.message.topic
        queue = self._queues[topic]
        items = [queue.flying.pop()]
        while items[-1] is not item:
            items.append(queue.flying.pop())
        self._return(topic, queue, items[::-1])
        self.prefer(topic)

    def refuse(self, item: Item) -> None:
        """The broker refused a message in flight that it may take later. It and all later ones of its topic are sent
        again, and until `trust` the topic sends one message at a time."""
        self._one_at_a_time.add(item.message.topic)
        self.back(item)

    def trust(self, topic: str) -> None:
        """Several messages of a topic may be in flight again."""
        self._one_at_a_time.discard(topic)

    def keep(self, keeper: Keeper) -> None:
        """Let a keeper store the readings that wait, and those to come."""
        self._keeper = keeper
        for queue in self._queues.values():
            for item in queue.waiting:
                if item.row_state is UNWRITTEN:
                    keeper.waits(item)

    def go_ahead(self) -> None:
        """The keeper cannot use the disk: from now on readings may arrive before older ones of their topics."""
        self._ahead = self._ahead or {}

    def fall_in(self) -> None:
        """The keeper can use the disk again, and knows which topics have rows."""
        ahead, self._ahead = self._ahead or {}, None
        for item, message in ahead.values():
            self._fall_in(item, message)

    def _note_ahead(self, item: Item, message: Message) -> None:
        """A message arrived, perhaps before older ones of its topic. One that was read back did not: rows come back in
        order."""
        topic, ahead = message.topic, self._ahead
        if message.taken_at is None:
            if ahead is not None:
                ahead.pop(topic, None)  # such as the removal of what the broker retains
        elif message.retain and not message.replayed:
            if ahead is not None and (topic not in ahead or ahead[topic][0].number < item.number):
                ahead[topic] = item, message
            self._fall_in(item, message)

    def _fall_in(self, ahead: Item, message: Message) -> None:
        """If older readings of a topic than one that arrived are left, and no newer ones, let that one wait once more,
        behind them. Else the process that follows a kill would find the older ones alone, and retain the last of
        them."""
        keeper, topic = self._keeper, message.topic
        queue = self._queues.get(topic)
        if keeper is None or (queue is None and not keeper.readings(topic)):
            return
        if keeper.follow(topic, ahead.number) or (queue is not None and queue.is_followed(ahead)):
            return
        self._number += 1
        item = Item(self._number, message._replace(receipt=None), ahead.size)
        self.messages += 1
        self.bytes += item.size
        if keeper.holds(topic):
            keeper.hold(item)
        else:
            keeper.waits(item)
            self.admit(item)

    @property
    def topics(self) -> list[str]:
        """The topics of which something waits or is in flight."""
        return [*self._queues]

    @property
    def flying(self) -> Iterable[Item]:
        """The messages in flight."""
        return self._flying

    def unstored(self, number: int) -> bool:
        """Whether a reading with this number or a lower one has not arrived, and has no row on disk."""
        for item in self._flying:
            if item.number <= number and item.is_unstored:
                return True
        if self._keeper is not None:
            return self._keeper.waiting(number)
        heads = (head for queue in self._queues.values() if (head := queue.oldest) is not None)
        return any(head.number <= number and head.message.taken_at is not None for head in heads)

    def sendable(self, enough: int) -> int:
        """How many messages wait that may be sent now. It is not counted beyond `enough`."""
        count = 0
        for topic in self.ready:
            count += len(self._queues[topic].waiting)
            if count >= enough:
                return enough
        return count

    def renumber(self, by: int) -> None:
        """Add to all numbers, so that none of them is that of a row on disk."""
        self._number += by
        self.renumbered += by
        self._late += by
        self._arrived = {topic: number + by for topic, number in self._arrived.items()}
        waiting = chain.from_iterable(queue.waiting for queue in self._queues.values())
        for item in chain(waiting, self._flying, (item for item, _ in (self._ahead or {}).values())):
            item.number += by

    def bring_back(self, item: Item) -> None:
        """A reading that was on disk only waits in memory."""
        item.move(READ_BACK)
        self._count_and_admit(item)

    def _count_and_admit(self, item: Item) -> None:
        """Let an item wait that was not counted yet."""
        self.messages += 1
        self.bytes += item.size
        self.admit(item)

    def leave_on_disk(self, item: Item) -> Message:
        """A reading that was held is on disk only from now on. Returns it."""
        item.move(PUT_AWAY)
        message, item.message = item.message, FREED
        self.messages -= 1
        self.bytes -= item.size
        return message

    def connected_again(self) -> None:
        """There is a connection again: all that waits is late when it arrives."""
        self._late = self._number

    def lost(self) -> dict[str, int]:
        """The connection broke: messages in flight go back to the front, in order. Returns the number of messages
        that were in flight by topic; one where only the latest counts."""
        counts = Counter(item.message.topic for item in self._flying)
        for topic in reversed(counts):
            queue = self._queues[topic]
            items = [*queue.flying]
            queue.flying.clear()
            if items[-1].message.latest:
                counts[topic] = 1
            self._return(topic, queue, items)
            self.prefer(topic)
        return dict(counts)

    def _return(self, topic: str, queue: TopicQueue, items: list[Item]) -> None:
        """Items that were in flight wait again."""
        for item in items:
            del self._flying[item]
            item.move(RETURN)
            item.acknowledged = False
        if queue.waiting:
            self._list(queue.waiting[-1])
        queue.take_back(items)
        queue.is_torn = queue.is_torn and any(item.acknowledged for item in queue.flying)
        if items[-1].message.latest:
            self._keep_latest(topic, queue)
        for item in reversed(items):
            self._list(item)
            if self._keeper is not None and item.is_unstored:
                self._keeper.waits(item)
        self._offer(topic, queue)

    def is_superseded(self, topic: str, number: int) -> bool:
        """Whether a newer message than this one arrived, of a topic of which only the latest counts."""
        return number < self._arrived.get(topic, 0)

    def _keep_latest(self, topic: str, queue: TopicQueue) -> None:
        """Of the messages at the end of a queue of which only the latest counts, keep that one, unless a newer one
        arrived."""
        waiting = queue.waiting
        while len(waiting) > 1 and waiting[-2].message.latest:
            self._merge(queue, waiting.pop())
        if waiting and waiting[-1].message.latest and self.is_superseded(topic, waiting[-1].number):
            self._supersede(waiting.pop())
            if not waiting:
                self.ready.pop(topic, None)

    def __contains__(self, topic: str) -> bool:
        return topic in self._queues or (self._keeper is not None and self._keeper.holds(topic))

    @property
    def dropped(self) -> int:
        """Messages dropped since the start."""
        return sum(self.drops.values())

    @property
    def on_disk(self) -> OnDisk | None:
        """The store on disk; None as long as nothing had to be written."""
        return None if self._keeper is None else self._keeper.on_disk

    @property
    def number(self) -> int:
        """The number of the message that was put last; they count upwards."""
        return self._number

    @property
    def in_flight(self) -> int:
        """Messages handed out by `take` and not settled yet."""
        return len(self._flying)

    @property
    def unkept(self) -> int:
        """Readings that did not arrive, and are not on disk as they are. All messages are looked at."""
        waiting = chain.from_iterable(queue.waiting for queue in self._queues.values())
        held = () if self._keeper is None else self._keeper.held
        items = chain(waiting, self._flying, held)
        return sum(item.row_state in UNKEPT for item in items)

    def oldest(self, offset: float) -> float | None:
        """When the oldest undelivered reading was taken, seconds of `leadsman.core.loop.clock.Clock.uptime`, which is
        never set. `offset` is `Clock.offset`, for readings on disk: they have the time of the wall clock only."""
        keeper = self._keeper
        heads = [head.message for queue in self._queues.values() if (head := queue.oldest) is not None]
        heads += [item.message for item in self._flying if item.row_state is not REPEATED]
        heads += [item.message for item in keeper.heads] if keeper is not None else []
        times = ((head.taken_at, head.clock_offset) for head in heads)
        taken = [at - offset for at, offset in times if at is not None and offset is not None]
        if keeper is not None and keeper.oldest is not None:
            taken.append(keeper.oldest - offset)
        return min(taken, default=None)

    def is_full(self, reserve: float = 0.0) -> bool:
        """Whether the bounds are reached, less this part of them."""
        part = 1 - reserve
        return self.messages > self._most_messages * part or self.bytes > self._most_bytes * part

    def stores(self, topic: str) -> bool:
        """Whether the next message of a topic has a row on disk."""
        queue = self._queues.get(topic)
        return queue is not None and bool(queue.waiting) and queue.waiting[0].row_state in HAS_ROW

    @property
    def expects_answers(self) -> bool:
        """Whether less than half of the room for answers is taken."""
        return self._answers <= self._most_answers / 2 and self._answer_bytes <= self._most_answer_bytes / 2

    def _is_full_of_answers(self, size: int) -> bool:
        """Whether there is no room for one more answer, of so many bytes."""
        return self._answers >= max(1.0, self._most_answers) or self._answer_bytes + size > self._most_answer_bytes

    def _count(self, message: Message, size: int) -> None:
        """Count a message that expires."""
        if message.is_answer:
            self._answers += 1
            self._answer_bytes += size

    def standing(self, topic: str) -> Standing:
        """Where the messages of a topic are."""
        queue, until = self._queues.get(topic), self.paused.get(topic)
        held = 0 if self._keeper is None else self._keeper.readings(topic)
        if queue is None:
            return Standing(held, 0, None, None, until)
        turns = zip(range(MAX_TOPICS_BEFORE + 1), self.ready, strict=False)
        before = next((number for number, each in turns if each == topic), None) if topic in self.ready else None
        head, since = queue.oldest, None
        if head is not None and head.message.taken_at is not None and head.message.clock_offset is not None:
            since = head.message.taken_at - head.message.clock_offset
        flying = len(queue.flying)
        return Standing(len(queue.waiting) + flying + held, flying, before, since, until)

    def admit(self, item: Item) -> None:
        """Let an item take its place among the others of its topic, or that of an older one if only the latest
        counts."""
        message = item.message
        topic = message.topic
        if message.latest and self.is_superseded(topic, item.number):
            self._supersede(item)
            return
        queue = self._queue(topic)
        if (
            message.latest
            and queue.flying
            and queue.flying[-1].message.latest
            and queue.flying[-1].number > item.number
        ):
            self._supersede(item, queue.flying[-1])  # it was on a disk that could not be read for a while
            return
        if queue.waiting:
            if message.latest and queue.waiting[-1].message.latest:
                if self._merge(queue, item):
                    self._order.append(item)
                return
            self._list(queue.waiting[-1])
        queue.add(item)
        self._order.append(item)
        if topic not in self.ready:
            self._offer(topic, queue)

    def pause(self, topic: str, until: float) -> None:
        """Offer nothing of `topic` before `until`, monotonic seconds."""
        self.ready.pop(topic, None)
        if topic not in self.paused and topic in self._queues:
            self._unpaused -= 1
        self.paused[topic] = until
        heapq.heappush(self._ends, (until, topic))
        if len(self._ends) > 2 * len(self.paused) + 64:  # as many were ended early since the last time
            self._ends = [(end, each) for each, end in self.paused.items()]
            heapq.heapify(self._ends)

    @property
    def only_paused(self) -> bool:
        """Whether all messages that are left belong to topics that pause."""
        return not self._unpaused

    def resume(self, now: float) -> float | None:
        """Let topics go on whose pause is over. Returns when the next pause ends, or None."""
        while (first := self._next_pause()) is not None and first[0] <= now:
            self.end_pause(first[1])
        return None if first is None else first[0]

    def resume_next(self) -> None:
        """Let the topic go on whose pause ends first."""
        first = self._next_pause()
        if first is not None:
            self.end_pause(first[1])

    def _next_pause(self) -> tuple[float, str] | None:
        """The end of the pause that ends first, and its topic."""
        ends = self._ends
        while ends and self.paused.get(ends[0][1]) != ends[0][0]:
            heapq.heappop(ends)
        return ends[0] if ends else None

    def end_pause(self, topic: str) -> None:
        """Let a topic go on that pauses."""
        del self.paused[topic]
        queue = self._queues.get(topic)
        if queue is not None:
            self._unpaused += 1
            self._offer(topic, queue)

    def prefer(self, topic: str) -> None:
        """Let `topic` go before all other topics."""
        if topic in self.ready:
            self.ready.move_to_end(topic, last=False)

    def defer(self, topic: str) -> None:
        """Let all other topics go before `topic`."""
        if topic in self.ready:
            self.ready.move_to_end(topic)

    def _queue(self, topic: str) -> TopicQueue:
        """The queue of a topic, which is made if there is none."""
        queue = self._queues.get(topic)
        return self._begin_queue(topic) if queue is None else queue

    def _begin_queue(self, topic: str) -> TopicQueue:
        """Make the queue of a topic, of which nothing was left."""
        queue = self._queues[topic] = TopicQueue()
        self._unpaused += topic not in self.paused
        return queue

    def _remove_queue(self, topic: str) -> None:
        """Nothing of a topic is left."""
        del self._queues[topic]
        self._unpaused -= topic not in self.paused

    def _offer(self, topic: str, queue: TopicQueue) -> None:
        """Offer a topic if something of it may be sent now, and forget it if nothing of it is left."""
        has_to_wait = queue.is_torn or (queue.flying and topic in self._one_at_a_time)
        if queue.waiting and topic not in self.paused and not has_to_wait:
            self.ready.setdefault(topic)
            return
        self.ready.pop(topic, None)
        if not queue.waiting and not queue.flying and self._queues.get(topic) is queue:
            self._remove_queue(topic)

    def _free(self, item: Item, event: PlaceEvent) -> None:
        """Free what an item takes, and let the receipt of its message learn what became of it."""
        message = item.message
        item.move(event)
        if event is DROP:
            never_arrives(message)
        elif (receipt := message.receipt) is not None:
            if event is not ARRIVE:
                receipt.replaced()
            elif item.number <= self._late:
                receipt.replayed += 1
            else:
                receipt.published += 1
        if self._keeper is not None and item.row_state in HAS_ROW:
            self._keeper.settled(item.row)
        if message.expires is not None and message.is_answer:
            self._answers -= 1
            self._answer_bytes -= item.size
        self.messages -= 1
        self.bytes -= item.size
        item.message = FREED
        if not item.listed:
            return
        order = self._order
        while order and order[0].place in NOT_IN_MEMORY:
            order.popleft()
        if len(order) > 2 * self.messages + 64:  # as many have left since the last time
            self._order = deque(each for each in order if each.place not in NOT_IN_MEMORY)

    def take_place(self, older: Item, newer: Item) -> None:
        """Put the message of `newer` in the place of that of `older`. It has the row of the older one until it is
        written, so that the one or the other is on disk at any time."""
        if older.message.receipt is not None:
            older.message.receipt.replaced()
        self.messages -= 1
        self.bytes -= older.size
        older.number, older.message, older.size, newer.message = newer.number, newer.message, newer.size, FREED
        older.change_row(RENEW)
        newer.move(MERGE)

    def _merge(self, queue: TopicQueue, item: Item) -> bool:
        """Of the item that waits last and this one, keep the newer. Only the latest counts of both. Returns whether
        this one waits now, in place of the other."""
        last = queue.waiting[-1]
        if item.number < last.number:
            self._supersede(item, last)
            return False
        is_alike = (item.row_state is NONE) is (last.row_state is NONE)
        if is_alike and (item.row_state is NONE or item.row_state is UNWRITTEN):
            self.take_place(last, item)
            if self._keeper is not None and last.is_unstored:
                self._keeper.waits(last)
            return False
        queue.waiting[-1] = item
        self._supersede(last, item)
        return True

    def _supersede(self, item: Item, newer: Item | None = None) -> None:
        """Free a message, since a newer one arrived, or `newer` waits."""
        if newer is not None and item.row_state in HAS_ROW and self._keeper is not None:
            item.change_row(PASS_ON)
            self._keeper.superseded(item.row, newer)
        self._free(item, REPLACE)

    def _list(self, item: Item) -> None:
        """Let `_drop_oldest` find an item that was passed over."""
        if not item.listed:
            item.listed = True
            self._order.appendleft(item)

    def _make_room(self) -> list[Dropped]:
        """Keep the bounds. Readings that are about to be written may exceed them."""
        keeper = self._keeper
        if keeper is None or not keeper.works:
            return self._drop_oldest(1) if self.is_full() else []
        return self._drop_oldest(BURST) if self.is_full(1 - BURST) else []

    def _drop_oldest(self, times: int) -> list[Dropped]:
        """Make room for a hundredth of the bounds, or of so many times the bounds, oldest first. Messages in flight,
        and the newest of a topic, are passed over, and listed again when they are neither."""
        found: dict[str, Dropped] = {}
        while self._order and self.is_full(1 - 0.99 * times):
            item = self._order.popleft()
            item.listed = False
            if item.place is not WAITING:
                continue
            topic = item.message.topic
            queue = self._queues[topic]
            if item is queue.waiting[-1]:
                continue
            oldest = queue.waiting.pop(0)
            if oldest is not item:
                self._list(item)
            for each in self.drop(oldest, "outbox full", "full"):
                before = found.get(topic)
                found[topic] = each if before is None else each._replace(messages=before.messages + each.messages)
        return list(found.values())


def never_arrives(message: Message) -> None:
    """A message will never arrive."""
    if message.receipt is not None and message.taken_at is not None and message.clock_offset is not None:
        message.receipt.dropped(message.taken_at - message.clock_offset)
