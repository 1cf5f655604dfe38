"""The outbox: a bounded queue of messages for the broker, in order per topic.

Every topic is a queue of its own, and topics take turns. Several messages of a topic may be in flight; a connection
delivers them in the order in which they are handed out. A message that the broker refuses delays no other topic. When
the outbox is full, the oldest messages are dropped, in steps of a hundredth, but never the newest of a topic: a publish
rule that compares a reading with the last one relies on its arrival.

While the connection is slower than the readings come, the newest reading of each topic may go ahead of the older ones,
see `prefer_newest`.

Every operation takes amortised constant time, however many messages wait. Pure: `now` is passed in, and dropped
messages are returned to the caller.
"""

from collections import OrderedDict, deque

from leadsman.mqtt.message import Message
from leadsman.mqtt.topic_queue import MOST_BEFORE, SETTLED, Dropped, Item, Standing, TopicQueue

MOST_MESSAGES = 10_000
MOST_BYTES = 8 * 2**20
"""Half a week of one reading a minute from one device, or eleven hours of fifteen; whichever bound comes first."""


class Outbox:
    """Messages on their way: `put`, `take`, then `accept`, `refuse` or `drop`; `lost` after a broken connection."""

    def __init__(self, most_messages: int = MOST_MESSAGES, most_bytes: int = MOST_BYTES) -> None:
        self._most_messages = most_messages
        self._most_bytes = most_bytes
        self._largest = most_bytes // 8
        self._queues: dict[str, TopicQueue] = {}
        self._ready: OrderedDict[str, None] = OrderedDict()
        self._fresh: OrderedDict[str, None] = OrderedDict()
        self._newest_first = False
        self._flying: dict[Item, None] = {}
        self._order: deque[Item] = deque()
        self._number = self._late = 0
        self._one_at_a_time: set[str] = set()
        self.paused: dict[str, float] = {}
        """Topics of which nothing is offered, and until when, monotonic seconds."""
        self.bytes = 0
        """Bytes held, see `Message.size`."""
        self.messages = 0
        """Messages held, those in flight included."""
        self.dropped = 0
        """Messages dropped since the start."""
        self.delivered = 0
        """Messages accepted since the start."""

    def __contains__(self, topic: str) -> bool:
        return topic in self._queues

    @property
    def in_flight(self) -> int:
        """Messages handed out by `take` and not settled yet."""
        return len(self._flying)

    @property
    def ready(self) -> bool:
        """Whether `take` has something to hand out, unless it has expired."""
        return bool(self._ready)

    @property
    def oldest(self) -> float | None:
        """When the oldest undelivered reading was taken, seconds of `leadsman.timing.clock.Clock.uptime`, which is
        never set."""
        heads = [queue.waiting[0].message for queue in self._queues.values() if queue.waiting]
        heads += [item.message for item in self._flying]
        taken = ((head.taken_at, head.clock_offset) for head in heads)
        return min((at - offset for at, offset in taken if at is not None and offset is not None), default=None)

    def standing(self, topic: str) -> Standing:
        """Where the messages of a topic are."""
        queue, until = self._queues.get(topic), self.paused.get(topic)
        if queue is None:
            return Standing(0, 0, None, None, until)
        order = self._fresh if topic in self._fresh else self._ready
        turns = zip(range(MOST_BEFORE + 1), order, strict=False)
        before = next((number for number, each in turns if each == topic), None) if topic in order else None
        head = queue.waiting[0].message if queue.waiting else None
        since = None
        if head is not None and head.taken_at is not None and head.clock_offset is not None:
            since = head.taken_at - head.clock_offset
        return Standing(len(queue.waiting) + queue.in_flight, queue.in_flight, before, since, until)

    def put(self, message: Message) -> list[Dropped]:
        """Keep a message until it is accepted. Returns the messages that were dropped for it, or the message itself
        if it is too large."""
        size = message.size
        if size > self._largest:
            self.dropped += 1
            _lost(message)
            return [Dropped(message.topic, 1, f"larger than {self._largest} bytes")]
        queue = self._queues.get(message.topic)
        if queue is None:
            queue = self._queues[message.topic] = TopicQueue()
        elif queue.waiting:
            if message.latest:
                self._forget(queue.waiting.pop())
            else:
                self._list(queue.waiting[-1])
        self._append(queue, message, size)
        if self.messages > self._most_messages or self.bytes > self._most_bytes:
            return self._evict()
        return []

    def hand_over(self, message: Message) -> Item | None:
        """`put` and `take` in one step, for a message that nothing waits before. None if anything waits, pauses or is
        full: then the message must be put."""
        topic, size = message.topic, message.size
        queue = self._queues.get(topic)
        if (
            self._ready
            or self.paused
            or self._one_at_a_time
            or (queue is not None and (queue.waiting or queue.ahead is not None))
            or self.messages >= self._most_messages
            or self.bytes + size > self._most_bytes
            or size > self._largest
        ):
            return None
        if queue is None:
            queue = self._queues[topic] = TopicQueue()
        queue.in_flight += 1
        self._number += 1
        item = Item(self._number, message, size)
        item.listed = False
        self._flying[item] = None
        self.messages += 1
        self.bytes += size
        return item

    def take(self, now: float) -> tuple[Item | None, list[Dropped]]:
        """Hand out the next message, or None when nothing is `ready`; and what has expired."""
        expired: list[Dropped] = []
        while self._ready:
            if self._fresh:
                topic, queue, item = self._next_fresh()
            else:
                topic, _ = self._ready.popitem(last=False)
                queue = self._queues[topic]
                item = queue.waiting.popleft()
            expires = item.message.expires
            if expires is not None and expires <= now:
                self._forget(item)
                self.dropped += 1
                expired.append(Dropped(topic, 1, "expired"))
                self._offer(topic, queue)
                continue
            self._flying[item] = None
            queue.in_flight += 1
            if queue.waiting or queue.ahead is not None:
                again = queue.hand_out(item)
                if again is not None:
                    self._append(queue, again, again.size)
                self._offer(topic, queue)
            return item, expired
        return None, expired

    def prefer_newest(self, preferred: bool) -> None:
        """Whether the newest reading of each topic goes ahead of all that wait, in the order in which they come.

        Readings are messages with `taken_at`, by which a subscriber finds their order. Messages without it are not
        overtaken by others of their topic. What was overtaken follows when no new reading waits, the oldest first.
        """
        if preferred is not self._newest_first:
            self._newest_first = preferred
            self._fresh = OrderedDict.fromkeys(self._ready) if preferred else OrderedDict()

    def accept(self, item: Item) -> Message:
        """A message in flight arrived."""
        self.delivered += 1
        return self._done(item, arrived=True)

    def drop(self, item: Item) -> Message:
        """A message in flight will never arrive."""
        self.dropped += 1
        return self._done(item, arrived=False)

    def back(self, item: Item) -> None:
        """The message that was handed out last was not sent: it is the next one again."""
        del self._flying[item]
        topic = item.message.topic
        self._return(topic, [item])
        if topic in self._ready:
            self._ready.move_to_end(topic, last=False)

    def refuse(self, item: Item) -> None:
        """The broker refused a message in flight that it may take later. It is the next one of its topic when nothing
        else of it is in flight, and until `trust` the topic sends one message at a time."""
        self._one_at_a_time.add(item.message.topic)
        self.back(item)

    def trust(self, topic: str) -> None:
        """Several messages of a topic may be in flight again."""
        self._one_at_a_time.discard(topic)

    def pause(self, topic: str, until: float) -> None:
        """Offer nothing of `topic` before `until`, monotonic seconds."""
        self._ready.pop(topic, None)
        self._fresh.pop(topic, None)
        self.paused[topic] = until

    @property
    def only_paused(self) -> bool:
        """Whether all messages that are left belong to topics that pause."""
        return len(self._queues) <= len(self.paused) and all(topic in self.paused for topic in self._queues)

    def is_paused(self, topic: str) -> bool:
        """Whether nothing of `topic` is offered now."""
        return topic in self.paused

    def resume(self, now: float) -> float | None:
        """Let topics go on whose pause is over. Returns when the next pause ends, or None."""
        for topic in [topic for topic, until in self.paused.items() if until <= now]:
            self._end_pause(topic)
        return min(self.paused.values(), default=None)

    def resume_next(self) -> None:
        """Let the topic go on whose pause ends first."""
        if self.paused:
            self._end_pause(min(self.paused, key=self.paused.__getitem__))

    def defer(self, topic: str) -> None:
        """Let all other topics go before `topic`."""
        if topic in self._ready:
            self._ready.move_to_end(topic)

    def connected_again(self) -> None:
        """There is a connection again: all that waits is late when it arrives."""
        self._late = self._number

    def lost(self) -> dict[str, int]:
        """The connection broke: what was in flight goes back to the front, in order. Returns the number of messages
        that were in flight by topic."""
        flying: dict[str, list[Item]] = {}
        for item in self._flying:
            flying.setdefault(item.message.topic, []).append(item)
        self._flying.clear()
        for topic in reversed(flying):
            self._return(topic, flying[topic])
            if topic in self._ready:
                self._ready.move_to_end(topic, last=False)
        return {topic: len(items) for topic, items in flying.items()}

    def discard(self, topic: str) -> None:
        """Drop the first message of a topic of which nothing is in flight."""
        queue = self._queues[topic]
        self._forget(queue.waiting.popleft())
        self.dropped += 1
        self._offer(topic, queue)

    def _next_fresh(self) -> tuple[str, TopicQueue, Item]:
        """Take the newest reading of the topic whose turn it is, or the oldest of messages that keep their order. The
        topic is no longer offered then."""
        topic, _ = self._fresh.popitem(last=False)
        del self._ready[topic]
        queue = self._queues[topic]
        if queue.waiting[-1].message.taken_at is not None:
            return topic, queue, queue.waiting.pop()
        item = queue.waiting.popleft()
        if queue.waiting:
            self._fresh[topic] = None
        return topic, queue, item

    def _offer(self, topic: str, queue: TopicQueue) -> None:
        """Offer a topic if something of it may be sent now, and forget it if nothing of it is left."""
        if queue.waiting and topic not in self.paused and not (queue.in_flight and topic in self._one_at_a_time):
            self._ready.setdefault(topic)
            return
        self._ready.pop(topic, None)
        self._fresh.pop(topic, None)
        if not queue.waiting and not queue.in_flight:
            del self._queues[topic]

    def _append(self, queue: TopicQueue, message: Message, size: int) -> None:
        self._number += 1
        item = Item(self._number, message, size)
        queue.waiting.append(item)
        self._order.append(item)
        self.messages += 1
        self.bytes += size
        topic = message.topic
        if topic not in self._ready:
            self._offer(topic, queue)
        if self._newest_first and topic in self._ready:
            self._fresh[topic] = None

    def _return(self, topic: str, items: list[Item]) -> None:
        """Put items that were in flight back in their places."""
        queue = self._queues[topic]
        if queue.waiting:
            self._list(queue.waiting[-1])
        items.sort(key=lambda item: item.number)
        queue.take_back(items)
        for item in reversed(items):
            self._list(item)
        self._offer(topic, queue)

    def _end_pause(self, topic: str) -> None:
        del self.paused[topic]
        queue = self._queues.get(topic)
        if queue is not None:
            self._offer(topic, queue)
            if self._newest_first and topic in self._ready:
                self._fresh[topic] = None

    def _done(self, item: Item, *, arrived: bool) -> Message:
        del self._flying[item]
        message = item.message
        queue = self._queues[message.topic]
        queue.in_flight -= 1
        if arrived and queue.waiting:
            queue.went_ahead(item)
        self._forget(item, arrived=arrived)
        if not queue.in_flight:
            if queue.waiting:
                self._offer(message.topic, queue)
            else:
                del self._queues[message.topic]
        return message

    def _forget(self, item: Item, *, arrived: bool = False) -> None:
        if not arrived:
            _lost(item.message)
        elif (receipt := item.message.receipt) is not None:
            if item.number <= self._late:
                receipt.replayed += 1
            else:
                receipt.published += 1
        self.messages -= 1
        self.bytes -= item.size
        item.message = SETTLED
        order = self._order
        while order and order[0].message is SETTLED:
            order.popleft()
        if len(order) > 2 * self.messages + 64:  # as many were settled since the last time
            self._order = deque(item for item in order if item.message is not SETTLED)

    def _list(self, item: Item) -> None:
        """Let `_evict` find an item that it passed over."""
        if not item.listed:
            item.listed = True
            self._order.appendleft(item)

    def _evict(self) -> list[Dropped]:
        """Make room for a hundredth of the bounds, oldest first. What is in flight, and the newest of a topic, are
        passed over, and listed again when they are neither."""
        counts: dict[str, int] = {}
        while self._order and not (
            self.messages <= self._most_messages * 0.99 and self.bytes <= self._most_bytes * 0.99
        ):
            item = self._order.popleft()
            item.listed = False
            if item.message is SETTLED or item in self._flying:
                continue
            topic = item.message.topic
            waiting = self._queues[topic].waiting
            if item is waiting[-1]:
                continue
            oldest = waiting.popleft()
            if oldest is not item:
                self._list(item)
            self._forget(oldest)
            counts[topic] = counts.get(topic, 0) + 1
        self.dropped += sum(counts.values())
        return [Dropped(topic, count, "outbox full") for topic, count in counts.items()]


def _lost(message: Message) -> None:
    """A message will never arrive."""
    if message.receipt is not None and message.taken_at is not None and message.clock_offset is not None:
        message.receipt.dropped(message.taken_at - message.clock_offset)
