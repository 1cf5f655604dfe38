"""How large a message may be at a broker that closes the connection on a larger one, and does not announce its limit.

It is learned from messages that were sent alone: a message on which the connection broke twice, larger than every
message that the broker took, is too large. Before it took any, nothing is learned. Where it took a smaller one of the
same topic, the topic is allowed, and the size counts for all topics; else only for this one, which may be denied
instead. Pure: `now` is monotonic seconds.
"""

RETRY = 86_400.0
"""Seconds after which a larger message is tried again: limits are raised."""


class SizeLimit:
    """The sizes on which one broker closes the connection."""

    __slots__ = ("_everywhere", "_largest", "_last", "_of_topic", "_taken")

    def __init__(self) -> None:
        self._everywhere: tuple[int, float] | None = None
        self._of_topic: dict[str, tuple[int, float]] = {}
        self._largest = 0
        self._taken: set[str] = set()
        self._last: tuple[str, int] | None = None

    def __bool__(self) -> bool:
        """Whether anything was learned."""
        return self._everywhere is not None or bool(self._of_topic)

    def acknowledged(self, topic: str, size: int) -> None:
        """The broker acknowledged a message of so many bytes. It counts with the next one: some brokers acknowledge,
        and then close the connection."""
        if self._last is not None:
            self.accepted(*self._last)
        self._last = topic, size

    def accepted(self, topic: str, size: int) -> None:
        """The broker took a message of so many bytes, and kept the connection."""
        self._taken.add(topic)
        self._largest = max(self._largest, size)

    def ended(self) -> None:
        """The connection ended."""
        self._last = None

    def broke(self, topic: str, size: int, now: float) -> bool:
        """The connection broke twice on a message of so many bytes that was sent alone. Returns whether its size is to
        blame."""
        if not 0 < self._largest < size:
            return False
        if topic in self._taken:
            self._everywhere = size, now + RETRY
        else:
            self._of_topic[topic] = size, now + RETRY
        return True

    def of(self, topic: str, now: float) -> int | None:
        """Bytes from which on a message of a topic is not sent; None if none are known."""
        if self._everywhere is not None and now >= self._everywhere[1]:
            self._everywhere = None
        if topic in self._of_topic and now >= self._of_topic[topic][1]:
            del self._of_topic[topic]
        known = [each[0] for each in (self._everywhere, self._of_topic.get(topic)) if each is not None]
        return min(known, default=None)

    def forget(self) -> None:
        """The next connection is one to another broker."""
        self._everywhere, self._largest = None, 0
        self._of_topic.clear()
        self._taken.clear()
