"""The outbox: a bounded queue of messages for the broker, in order per topic.

Every topic is a queue of its own, and topics take turns. Several messages of a topic may be in flight; a connection
delivers them in the order in which they are handed out. A message that the broker refuses delays no other topic. When
the outbox is full, the oldest messages are dropped, in steps of a hundredth, but never the newest of a topic: a publish
rule that compares a reading with the last one relies on its arrival.

A `Keeper` stores readings that wait, and those for which the memory has no room.

While the connection is slower than the readings come, the newest reading of each topic may go ahead of the older ones,
see `prefer_newest`.

What is done with one message takes amortised O(log n) steps, however many wait, and of whichever kind they are. Pure:
`now` is passed in, and dropped messages are returned to the caller.
"""

from collections import OrderedDict
from collections.abc import Iterable

from leadsman.mqtt.message import Message
from leadsman.mqtt.queues import RESERVE, Queues, never_arrives
from leadsman.mqtt.topic_queue import SETTLED, UNSTORED, Dropped, Item, Keeper, TopicQueue, copy_of, is_unstored


class Outbox(Queues):
    """Messages on their way: `put`, `take`, then `accept`, `refuse` or `drop`; `lost` after a broken connection."""

    def put(self, message: Message) -> list[Dropped]:
        """Keep a message until it is accepted. Returns the messages that were dropped for it, or the message itself
        if it is too large."""
        size = message.size
        if size > self._largest:
            self.drops["too_large"] += 1
            never_arrives(message)
            return [Dropped(message.topic, 1, f"larger than {self._largest} bytes")]
        if message.expires is not None and message.is_answer and self._has_answers(size):
            self.drops["full"] += 1
            never_arrives(message)
            return [Dropped(message.topic, 1, "too many answers wait")]
        self._number += 1
        item = Item(self._number, message, size)
        self.messages += 1
        self.bytes += size
        if message.expires is not None:
            self._count(message, size)
        keeper = self._keeper
        if keeper is not None and message.taken_at is not None:
            full = not (message.latest or self._newest_first) and self.is_full(RESERVE)
            if keeper.takes(message.topic, full=full):
                return keeper.hold(item)
            keeper.waits(item)
        self.admit(item)
        return self._make_room() if self.is_full(RESERVE) else []

    def repeat(self, number: int, message: Message) -> None:
        """Send a message again that arrived before and had this number, unless newer ones of its topic are on their
        way. It was counted and stored then."""
        if message.topic not in self:
            self.bring_back(copy_of(number, message))

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
            or (self._keeper is not None and self._keeper.holds(topic))
        ):
            return None
        queue = self._queue(topic) if queue is None else queue
        queue.in_flight += 1
        self._number += 1
        item = Item(self._number, message, size)
        queue.newest = item.number, message
        item.listed = False
        self._flying[item] = None
        self.messages += 1
        self.bytes += size
        if message.expires is not None:
            self._count(message, size)
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
                item = self._pop_oldest(queue) if queue.behind else queue.waiting.popleft()
            expires = item.message.expires
            if expires is not None and expires <= now:
                expired += self._lose(item, "expired", "expired")
                self._forget(item)
                self._offer(topic, queue)
                continue
            self._flying[item] = None
            queue.in_flight += 1
            item.unretained = self._is_followed(item, queue)
            if not queue.waiting and queue.ahead is None and queue.newest is None:
                queue.newest = item.number, item.message
                return item, expired
            again = queue.hand_out(item)
            if again is not None:
                self.bring_back(again)
            if queue.waiting:
                self._offer(topic, queue)
            return item, expired
        return None, expired

    def _is_followed(self, item: Item, queue: TopicQueue) -> bool:
        """Whether an item is a retained reading, and newer ones of its topic wait, or were handed out."""
        message = item.message
        if not message.retain or message.taken_at is None:
            return False
        waiting, newest = queue.waiting, queue.newest
        if (waiting and waiting[-1].number > item.number) or (newest is not None and newest[0] > item.number):
            return True
        return self._keeper is not None and self._keeper.follow(message.topic, item.number)

    def prefer_newest(self, preferred: bool) -> None:
        """Whether the newest reading of each topic goes ahead of all that wait, in the order in which they come.

        Readings are messages with `taken_at`, by which a subscriber finds their order. Messages without it are not
        overtaken by others of their topic. What was overtaken follows when no new reading waits, the oldest first.
        While readings are on disk only, all go in order, unless they are there because newer ones went ahead: where the
        memory is full meanwhile, the oldest that are on disk wait there only, and follow when there is room.
        """
        preferred = preferred and not (self._keeper is not None and self._keeper.in_order)
        if preferred is not self._newest_first:
            self._newest_first = preferred
            self._fresh = OrderedDict.fromkeys(self._ready) if preferred else OrderedDict()

    def accept(self, item: Item) -> Message:
        """A message in flight arrived."""
        self.delivered += 1
        return self._done(item, arrived=True)

    def drop(self, item: Item, why: str) -> list[Dropped]:
        """The broker does not take a message in flight, and never will. Returns it, unless it arrived before."""
        dropped = self._bury(item, why)
        self._done(item, arrived=False)
        return dropped

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

    def keep(self, keeper: Keeper) -> None:
        """Let a keeper store the readings that wait, and those to come."""
        self._keeper = keeper
        for queue in self._queues.values():
            for item in queue.waiting:
                if item.row == UNSTORED and item.message.taken_at is not None:
                    keeper.waits(item)

    @property
    def topics(self) -> list[str]:
        """The topics of which something waits or is in flight."""
        return [*self._queues]

    @property
    def flying(self) -> Iterable[Item]:
        """What is in flight."""
        return self._flying

    def unstored(self, number: int) -> bool:
        """Whether a reading with this number or a lower one has not arrived, and has no row on disk."""
        for item in self._flying:
            if item.number <= number and is_unstored(item):
                return True
        if self._keeper is not None:
            return self._keeper.waiting(number)
        heads = (head for queue in self._queues.values() if (head := queue.oldest) is not None)
        return any(head.number <= number and head.message.taken_at is not None for head in heads)

    def kept_by_broker(self, topic: str) -> int:
        """The number of the newest message of a topic that arrived, and that the broker keeps, while others of it did
        not; 0 if there is none."""
        queue = self._queues.get(topic)
        return 0 if queue is None else queue.kept

    def overtook(self, topic: str, number: int) -> None:
        """The broker has a message of a topic that is newer than those up to this number, from an earlier life."""
        if number:
            self._arrived[topic] = max(number, self._arrived.get(topic, 0))

    def sendable(self, enough: int) -> int:
        """How many messages wait that may be sent now. It is not counted beyond `enough`."""
        count = 0
        for topic in self._ready:
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
        for item in self._flying:
            item.number += by
        for queue in self._queues.values():
            for item in queue.waiting:
                item.number += by
            if queue.ahead is not None:
                queue.ahead = queue.ahead[0] + by, queue.ahead[1]
            if queue.newest is not None:
                queue.newest = queue.newest[0] + by, queue.newest[1]
            if queue.arrived is not None:
                queue.arrived = queue.arrived[0] + by, queue.arrived[1]
            queue.kept += by if queue.kept else 0

    def drop_held(self, item: Item) -> None:
        """A reading that was held will never be sent."""
        self.drops["full"] += 1
        self._forget(item)

    def bring_back(self, item: Item) -> None:
        """A reading that was on disk only, or is sent again, waits in memory."""
        self.messages += 1
        self.bytes += item.size
        self.admit(item)

    def bring_back_older(self, topic: str, items: list[Item]) -> None:
        """Readings that were set aside wait in memory again, before newer ones of their topic."""
        queue = self._queue(topic)
        queue.in_flight += len(items)  # as if they came back from a connection
        for item in items:
            item.listed = False
            self.messages += 1
            self.bytes += item.size
        self._return(topic, items)

    def let_go(self, item: Item) -> Message:
        """A reading is on disk only from now on."""
        message, item.message = item.message, SETTLED
        self.messages -= 1
        self.bytes -= item.size
        return message

    def connected_again(self) -> None:
        """There is a connection again: all that waits is late when it arrives."""
        self._late = self._number

    def lost(self) -> dict[str, int]:
        """The connection broke: what was in flight goes back to the front, in order. Returns the number of messages
        that were in flight by topic; one where only the latest counts."""
        flying: dict[str, list[Item]] = {}
        for item in self._flying:
            flying.setdefault(item.message.topic, []).append(item)
        self._flying.clear()
        counts = {topic: 1 if items[-1].message.latest else len(items) for topic, items in flying.items()}
        for topic in reversed(flying):
            self._return(topic, flying[topic])
            if topic in self._ready:
                self._ready.move_to_end(topic, last=False)
        return counts

    def discard(self, topic: str, why: str) -> list[Dropped]:
        """As `drop`, the first message of a topic of which nothing is in flight."""
        queue = self._queues[topic]
        item = self._pop_oldest(queue)
        dropped = self._bury(item, why)
        self._forget(item)
        self._offer(topic, queue)
        return dropped

    def _bury(self, item: Item, why: str) -> list[Dropped]:
        if self._keeper is not None and item.message.taken_at is not None and item.row >= UNSTORED:
            self._keeper.bury(item, why)
        return self._lose(item, "refused", why)

    def _next_fresh(self) -> tuple[str, TopicQueue, Item]:
        """Take the newest reading of the topic whose turn it is, or the oldest of messages that keep their order. The
        topic is no longer offered then."""
        topic, _ = self._fresh.popitem(last=False)
        del self._ready[topic]
        queue = self._queues[topic]
        if queue.waiting[-1].message.taken_at is not None:
            return topic, queue, queue.waiting.pop()
        item = self._pop_oldest(queue)
        if queue.waiting:
            self._fresh[topic] = None
        return topic, queue, item

    def _return(self, topic: str, items: list[Item]) -> None:
        """Put items that were in flight back in their places."""
        queue = self._queues[topic]
        if queue.waiting:
            self._list(queue.waiting[-1])
        items.sort(key=lambda item: item.number)
        queue.take_back(items)
        if items[-1].message.latest:
            self._keep_latest(topic, queue)
        for item in reversed(items):
            self._list(item)
            if self._keeper is not None and is_unstored(item):
                self._keeper.waits(item)
        self._offer(topic, queue)

    def _keep_latest(self, topic: str, queue: TopicQueue) -> None:
        """Of the messages at the end of a queue of which only the latest counts, keep that one, unless a newer one
        arrived."""
        waiting = queue.waiting
        while len(waiting) > 1 and waiting[-2].message.latest:
            self._merge(queue, waiting.pop())
        if waiting and waiting[-1].message.latest and waiting[-1].number < self._arrived.get(topic, 0):
            self._supersede(waiting.pop())
            if not waiting:
                self._ready.pop(topic, None)
                self._fresh.pop(topic, None)

    def _done(self, item: Item, *, arrived: bool) -> Message:
        del self._flying[item]
        message = item.message
        queue = self._queues[message.topic]
        queue.in_flight -= 1
        if arrived and message.latest:
            self._arrived[message.topic] = max(item.number, self._arrived.get(message.topic, 0))
            self._keep_latest(message.topic, queue)
        if not arrived:
            queue.fell_back(item)
        elif queue.in_flight or queue.waiting:
            queue.note_arrival(item)
            if queue.waiting and queue.waiting[0].number < item.number:
                queue.went_ahead(item)
        keeper = self._keeper
        if keeper is not None and keeper.has_rows and arrived and message.retain and not item.unretained:
            keeper.arrived(message.topic, item.number)
        self._forget(item, arrived=arrived)
        if not queue.in_flight:
            if queue.waiting:
                self._offer(message.topic, queue)
            else:
                self._remove_queue(message.topic)
        return message
