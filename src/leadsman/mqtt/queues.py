"""The messages of the outbox that wait: a queue for each topic, topics in turn, pauses, and the bounds. Pure.

The oldest message of all is found without a search: each is listed in the order in which it came, readings apart from
what may not wait on disk only. No list is walked for one message: what is passed over once leaves its list, until that
which stood in its way has gone.
"""

import heapq
from collections import OrderedDict, deque
from itertools import chain

from leadsman.mqtt.message import LARGEST, Message
from leadsman.mqtt.topic_queue import (
    CAUSES,
    COPY,
    MOST_BEFORE,
    NEVER,
    SETTLED,
    UNSTORED,
    Cause,
    Dropped,
    Item,
    Keeper,
    OnDisk,
    Standing,
    TopicQueue,
    is_unstored,
)

MOST_MESSAGES = 10_000
MOST_BYTES = 8 * 2**20
"""Half a week of one reading a minute from one device, or eleven hours of fifteen; whichever bound comes first."""
RESERVE = 0.1
"""The part of the bounds that readings leave free where they can wait on disk: status and availability cannot."""
ANSWERS = 8
"""Answers take one part in so many of the bounds. One more is dropped, since others decide how many requests come."""
BURST = 2
"""The bounds of the memory may be exceeded so many times by readings that are about to be written."""


class Queues:
    """What waits in the outbox, and what is in flight."""

    def __init__(self, most_messages: int = MOST_MESSAGES, most_bytes: int = MOST_BYTES) -> None:
        self._most_messages = most_messages
        self._most_bytes = most_bytes
        self._largest = min(most_bytes // 8, LARGEST)
        self._queues: dict[str, TopicQueue] = {}
        self._spare: TopicQueue | None = None
        """One that is used again: where the broker answers at once, a topic has a queue for the time of one message."""
        self._ready: OrderedDict[str, None] = OrderedDict()
        self._fresh: OrderedDict[str, None] = OrderedDict()
        self._newest_first = False
        self._flying: dict[Item, None] = {}
        self._order: deque[Item] = deque()
        """What may not be set aside, in the order in which it came."""
        self._readings: deque[Item] = deque()
        """What may be."""
        self._number = 0
        self.renumbered = 0
        """What was added to the numbers since the start."""
        self._late = 0
        self._keeper: Keeper | None = None
        self._arrived: dict[str, int] = {}
        """The number of the newest message that arrived, of topics of which only the latest counts."""
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

    def __contains__(self, topic: str) -> bool:
        return topic in self._queues or (self._keeper is not None and self._keeper.holds(topic))

    @property
    def dropped(self) -> int:
        """Messages dropped since the start."""
        return sum(self.drops.values())

    @property
    def on_disk(self) -> OnDisk | None:
        """What is on disk; None as long as nothing had to be written."""
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
        """Readings that did not arrive, and are not on disk. All messages are looked at."""
        waiting = chain.from_iterable(queue.waiting for queue in self._queues.values())
        held = () if self._keeper is None else self._keeper.held
        items = chain(waiting, self._flying, held)
        return sum(item.row not in (item.number, COPY) and item.message.taken_at is not None for item in items)

    @property
    def ready(self) -> bool:
        """Whether `take` has something to hand out, unless it has expired."""
        return bool(self._ready)

    def oldest(self, offset: float) -> float | None:
        """When the oldest undelivered reading was taken, seconds of `leadsman.timing.clock.Clock.uptime`, which is
        never set. `offset` is `Clock.offset`, for readings on disk: they have the time of the wall clock only."""
        keeper = self._keeper
        heads = [head.message for queue in self._queues.values() if (head := queue.oldest) is not None]
        heads += [item.message for item in self._flying if item.row != COPY]
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
        return queue is not None and bool(queue.waiting) and queue.waiting[0].row > UNSTORED

    @property
    def expects_answers(self) -> bool:
        """Whether less than half of the room for answers is taken."""
        most_messages, most_bytes = self._most_messages / ANSWERS, self._most_bytes / ANSWERS
        return self._answers <= most_messages / 2 and self._answer_bytes <= most_bytes / 2

    def _has_answers(self, size: int) -> bool:
        """Whether there is no room for one more answer, of so many bytes."""
        most_messages, most_bytes = self._most_messages / ANSWERS, self._most_bytes / ANSWERS
        return self._answers >= max(1.0, most_messages) or self._answer_bytes + size > most_bytes

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
        order = self._fresh if topic in self._fresh else self._ready
        turns = zip(range(MOST_BEFORE + 1), order, strict=False)
        before = next((number for number, each in turns if each == topic), None) if topic in order else None
        head, since = queue.oldest, None
        if head is not None and head.message.taken_at is not None and head.message.clock_offset is not None:
            since = head.message.taken_at - head.message.clock_offset
        return Standing(len(queue.waiting) + queue.in_flight + held, queue.in_flight, before, since, until)

    def admit(self, item: Item) -> None:
        """Let an item take its place behind the others of its topic, or that of an older one if only the latest
        counts."""
        message = item.message
        topic = message.topic
        if message.latest and item.number < self._arrived.get(topic, 0):
            self._supersede(item)
            return
        queue = self._queue(topic)
        if queue.waiting:
            if message.latest and queue.waiting[-1].message.latest:
                if self._merge(queue, item):
                    self._listed_in(item).append(item)
                return
            self._list(queue.waiting[-1])
        queue.waiting.append(item)
        self._listed_in(item).append(item)
        if topic not in self._ready:
            self._offer(topic, queue)
        if self._newest_first and topic in self._ready:
            self._fresh[topic] = None

    def pause(self, topic: str, until: float) -> None:
        """Offer nothing of `topic` before `until`, monotonic seconds."""
        self._ready.pop(topic, None)
        self._fresh.pop(topic, None)
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

    def is_paused(self, topic: str) -> bool:
        """Whether nothing of `topic` is offered now."""
        return topic in self.paused

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
            if self._newest_first and topic in self._ready:
                self._fresh[topic] = None

    def prefer(self, topic: str) -> None:
        """Let `topic` go before all other topics."""
        if topic in self._ready:
            self._ready.move_to_end(topic, last=False)

    def defer(self, topic: str) -> None:
        """Let all other topics go before `topic`."""
        if topic in self._ready:
            self._ready.move_to_end(topic)

    def _queue(self, topic: str) -> TopicQueue:
        """The queue of a topic, which is made if there is none."""
        queue = self._queues.get(topic)
        if queue is None:
            queue, self._spare = self._spare or TopicQueue(), None
            self._queues[topic] = queue
            self._unpaused += topic not in self.paused
        return queue

    def _remove_queue(self, topic: str) -> None:
        """Nothing of a topic is left."""
        self._spare = queue = self._queues.pop(topic)
        queue.forget()
        self._unpaused -= topic not in self.paused

    def _offer(self, topic: str, queue: TopicQueue) -> None:
        """Offer a topic if something of it may be sent now, and forget it if nothing of it is left."""
        if queue.waiting and topic not in self.paused and not (queue.in_flight and topic in self._one_at_a_time):
            self._ready.setdefault(topic)
            return
        self._ready.pop(topic, None)
        self._fresh.pop(topic, None)
        if not queue.waiting and not queue.in_flight:
            self._remove_queue(topic)

    def _lose(self, item: Item, cause: Cause, why: str) -> list[Dropped]:
        """Count a message that is to be forgotten, and return it, unless it arrived before."""
        if item.row == COPY:
            return []
        self.drops[cause] += 1
        return [Dropped(item.message.topic, 1, why)]

    def _forget(self, item: Item, *, arrived: bool = False) -> None:
        message = item.message
        if not arrived:
            never_arrives(message)
        elif (receipt := message.receipt) is not None:
            if item.number <= self._late:
                receipt.replayed += 1
            else:
                receipt.published += 1
        if item.row > 0 and self._keeper is not None:
            self._keeper.settled(item.row)
        if message.expires is not None and message.is_answer:
            self._answers -= 1
            self._answer_bytes -= item.size
        self.messages -= 1
        self.bytes -= item.size
        item.message = SETTLED
        if not item.listed:
            return
        order, readings = self._order, self._readings
        while order and order[0].message is SETTLED:
            order.popleft()
        while readings and readings[0].message is SETTLED:
            readings.popleft()
        if len(order) + len(readings) > 2 * self.messages + 64:  # as many were settled since the last time
            self._order = deque(each for each in order if each.message is not SETTLED)
            self._readings = deque(each for each in readings if each.message is not SETTLED)

    def take_place(self, older: Item, newer: Item) -> None:
        """Put the message of `newer` in the place of that of `older`. It has the row of the older one until it is
        written, so that the one or the other is on disk at any time."""
        _is_replaced(older.message)
        self.messages -= 1
        self.bytes -= older.size
        older.number, older.message, older.size, newer.message = newer.number, newer.message, newer.size, SETTLED
        if older.row < UNSTORED:
            older.row = UNSTORED

    def _merge(self, queue: TopicQueue, item: Item) -> bool:
        """Of the item that waits last and this one, keep the newer. Only the latest counts of both. Returns whether
        this one waits now, in place of the other."""
        last = queue.waiting[-1]
        if item.number < last.number:
            self._supersede(item, last)
            return False
        if item.row == UNSTORED:
            self.take_place(last, item)
            if self._keeper is not None and is_unstored(last):
                self._keeper.waits(last)
            return False
        queue.waiting[-1] = item
        self._supersede(last, item)
        return True

    def _supersede(self, item: Item, newer: Item | None = None) -> None:
        """Forget a message, since a newer one arrived, or `newer` waits."""
        _is_replaced(item.message)
        item.message = item.message._replace(receipt=None)
        if newer is not None and item.row > UNSTORED and self._keeper is not None:
            row, item.row = item.row, NEVER
            self._keeper.superseded(row, newer)
        self._forget(item)

    def _listed_in(self, item: Item) -> deque[Item]:
        """The list in which `_set_aside` or `_evict` finds an item."""
        return self._order if item.message.taken_at is None else self._readings

    def _list(self, item: Item) -> None:
        """Let `_set_aside` and `_evict` find an item that was passed over."""
        if not item.listed:
            item.listed = True
            self._listed_in(item).appendleft(item)

    def _pop_oldest(self, queue: TopicQueue) -> Item:
        """Take the oldest message that waits. What it stood in the way of is listed again, one at a time."""
        oldest = queue.waiting.popleft()
        if queue.behind:
            self._list_next(queue)
        return oldest

    def _list_next(self, queue: TopicQueue) -> None:
        while queue.behind:
            item = queue.behind.pop()
            if item.message is not SETTLED and item not in self._flying:
                self._list(item)
                return

    def _make_room(self) -> list[Dropped]:
        """Keep the bounds. While the newest readings go first, the oldest wait on disk only. Readings that are about to
        be written may exceed the bounds."""
        keeper = self._keeper
        if keeper is None or not keeper.works:
            return self._evict(1) if self.is_full() else []
        if self._newest_first:
            self._set_aside(keeper)
        return self._evict(BURST) if self.is_full(1 - BURST) else []

    def _set_aside(self, keeper: Keeper) -> None:
        """Let the oldest readings wait on disk only, until the reserve is free again. The newest of a topic waits
        in memory. Those after the first one without a row have none either."""
        while self._readings and self.is_full(1 - 0.99 * (1 - RESERVE)):
            item = self._readings.popleft()
            item.listed = False
            if item.message is SETTLED or item in self._flying:
                continue
            queue = self._queues[item.message.topic]
            if item is queue.waiting[-1]:
                continue
            oldest = queue.waiting[0]
            if keeper.sets_aside(oldest):
                self._pop_oldest(queue)
                if oldest is not item:
                    self._list(item)
            elif oldest.row >= UNSTORED and oldest.message.taken_at is not None and not oldest.message.latest:
                self._list(item)
                return
            elif oldest is item:  # it never may wait on disk only
                item.listed = True
                self._order.appendleft(item)
            else:
                queue.behind.append(item)

    def _evict(self, times: int) -> list[Dropped]:
        """Make room for a hundredth of the bounds, or of so many times the bounds, oldest first. What is in flight, and
        the newest of a topic, are passed over, and listed again when they are neither."""
        counts: dict[str, int] = {}
        while (self._order or self._readings) and self.is_full(1 - 0.99 * times):
            item = self._next_listed()
            item.listed = False
            if item.message is SETTLED or item in self._flying:
                continue
            topic = item.message.topic
            queue = self._queues[topic]
            if item is queue.waiting[-1]:
                continue
            oldest = self._pop_oldest(queue)
            if oldest is not item:
                self._list(item)
            for _, count, _ in self._lose(oldest, "full", "outbox full"):
                counts[topic] = counts.get(topic, 0) + count
            self._forget(oldest)
        return [Dropped(topic, count, "outbox full") for topic, count in counts.items()]

    def _next_listed(self) -> Item:
        """Take the first of both lists that came first."""
        order, readings = self._order, self._readings
        if not readings or (order and order[0].number < readings[0].number):
            return order.popleft()
        return readings.popleft()


def _is_replaced(message: Message) -> None:
    if message.receipt is not None:
        message.receipt.replaced()


def never_arrives(message: Message) -> None:
    """A message will never arrive."""
    if message.receipt is not None and message.taken_at is not None and message.clock_offset is not None:
        message.receipt.dropped(message.taken_at - message.clock_offset)
