"""The outbox: a bounded queue of messages for the broker, in order per topic.

Every topic is a queue of its own with at most one message in flight. So a topic's messages arrive in order, and a
message that the broker refuses delays no other topic. Topics take turns. When the outbox is full, the oldest messages
are dropped, in steps of a hundredth, but never the newest of a topic: a publish rule that compares a reading with the
last one relies on its arrival.

Pure: `now` is passed in, and dropped messages are returned to the caller.
"""

from collections import deque
from typing import NamedTuple

from leadsman.mqtt.message import Message

MOST_MESSAGES = 10_000
MOST_BYTES = 8 * 2**20
"""Half a week of one reading a minute from one device, or eleven hours of fifteen; whichever bound comes first."""


class Dropped(NamedTuple):
    """So many `messages` of `topic` were dropped because of `reason`."""

    topic: str
    messages: int
    reason: str


class Outbox:
    """Messages on their way: `put`, `take`, then `accept`, `pause` or `drop`; `lost` after a broken link."""

    def __init__(self, most_messages: int = MOST_MESSAGES, most_bytes: int = MOST_BYTES) -> None:
        self._most_messages = most_messages
        self._most_bytes = most_bytes
        self._queues: dict[str, list[tuple[int, Message]]] = {}
        self._ready: deque[str] = deque()
        self._flying: dict[str, None] = {}
        self._paused: dict[str, float] = {}
        self._number = 0
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
    def oldest(self) -> float | None:
        """When the oldest waiting reading was taken, seconds of `leadsman.timing.clock.Clock.uptime`, which is never
        set."""
        heads = (queue[0][1] for queue in self._queues.values())
        taken = ((head.taken_at, head.clock_offset) for head in heads)
        return min((at - offset for at, offset in taken if at is not None and offset is not None), default=None)

    def put(self, message: Message) -> list[Dropped]:
        """Keep a message until it is accepted. Returns the messages that were dropped for it, or the message itself
        if it is too large."""
        largest = self._most_bytes // 8
        if message.size > largest:
            self.dropped += 1
            return [Dropped(message.topic, 1, f"larger than {largest} bytes")]
        self._number += 1
        entry = (self._number, message)
        queue = self._queues.get(message.topic)
        if queue is None:
            self._queues[message.topic] = [entry]
            if message.topic not in self._paused:
                self._ready.append(message.topic)
        else:
            waiting = len(queue) - (message.topic in self._flying)
            if message.latest and waiting:
                self._forget(queue.pop()[1])
            queue.append(entry)
        self.messages += 1
        self.bytes += message.size
        if self.messages > self._most_messages or self.bytes > self._most_bytes:
            return self._evict()
        return []

    def take(self, now: float) -> tuple[Message | None, list[Dropped]]:
        """Hand out the next message, or None when all topics are in flight, paused or empty; and what has expired."""
        expired: list[Dropped] = []
        while self._ready:
            topic = self._ready.popleft()
            queue = self._queues[topic]
            while queue and queue[0][1].expires is not None and queue[0][1].expires <= now:
                self._forget(queue.pop(0)[1])
                self.dropped += 1
                expired.append(Dropped(topic, 1, "expired"))
            if queue:
                self._flying[topic] = None
                return queue[0][1], expired
            del self._queues[topic]
        return None, expired

    def accept(self, topic: str) -> Message:
        """The message of `topic` in flight arrived."""
        self.delivered += 1
        return self._done(topic)

    def drop(self, topic: str) -> Message:
        """The message of `topic` in flight will never arrive."""
        self.dropped += 1
        return self._done(topic)

    def pause(self, topic: str, until: float) -> None:
        """Offer nothing of `topic` before `until`, monotonic seconds; a message of it in flight is kept."""
        if topic in self._flying:
            del self._flying[topic]
        elif topic in self._queues and topic not in self._paused:
            self._ready.remove(topic)
        self._paused[topic] = until

    @property
    def only_paused(self) -> bool:
        """Whether all messages that are left belong to topics that pause."""
        return all(topic in self._paused for topic in self._queues)

    def is_paused(self, topic: str) -> bool:
        """Whether nothing of `topic` is offered now."""
        return topic in self._paused

    def resume(self, now: float) -> float | None:
        """Let topics go on whose pause is over. Returns when the next pause ends, or None."""
        for topic in [topic for topic, until in self._paused.items() if until <= now]:
            self._end_pause(topic)
        return min(self._paused.values(), default=None)

    def resume_next(self) -> None:
        """Let the topic go on whose pause ends first."""
        if self._paused:
            self._end_pause(min(self._paused, key=self._paused.__getitem__))

    def back(self, topic: str) -> None:
        """The message of `topic` that was handed out was not sent: it is the next one again."""
        del self._flying[topic]
        self._ready.appendleft(topic)

    def defer(self, topic: str) -> None:
        """Let all other topics go before `topic`."""
        if topic in self._queues and topic not in self._paused:
            self._ready.remove(topic)
            self._ready.append(topic)

    def lost(self) -> list[str]:
        """The link broke: what was in flight goes back to the front, in order. Returns those topics."""
        flying = list(self._flying)
        self._ready.extendleft(reversed(flying))
        self._flying.clear()
        return flying

    def discard(self, topic: str) -> None:
        """Drop the first message of a topic that is not in flight."""
        queue = self._queues[topic]
        self._forget(queue.pop(0)[1])
        self.dropped += 1
        if not queue:
            del self._queues[topic]
            if topic not in self._paused:
                self._ready.remove(topic)

    def _end_pause(self, topic: str) -> None:
        del self._paused[topic]
        if topic in self._queues:
            self._ready.append(topic)

    def _done(self, topic: str) -> Message:
        del self._flying[topic]
        queue = self._queues[topic]
        message = queue.pop(0)[1]
        self._forget(message)
        if queue:
            self._ready.append(topic)
        else:
            del self._queues[topic]
        return message

    def _forget(self, message: Message) -> None:
        self.messages -= 1
        self.bytes -= message.size

    def _evict(self) -> list[Dropped]:
        """Make room for a hundredth of the bounds, oldest first."""
        candidates = sorted(
            (number, topic) for topic, queue in self._queues.items() for number, _ in queue[topic in self._flying : -1]
        )
        counts: dict[str, int] = {}
        for _, topic in candidates:
            if self.messages <= self._most_messages * 0.99 and self.bytes <= self._most_bytes * 0.99:
                break
            self._forget(self._queues[topic].pop(1 if topic in self._flying else 0)[1])
            counts[topic] = counts.get(topic, 0) + 1
        self.dropped += sum(counts.values())
        return [Dropped(topic, count, "outbox full") for topic, count in counts.items()]
