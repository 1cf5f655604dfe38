"""How large a message may be at a broker that closes the connection on a larger one, and does not announce its limit.

It is learned from messages that were sent alone: a message on which the connection broke twice, larger than every
message that the broker took, is too large, if the broker took a smaller one of the same topic. Else the topic may be
denied, and nothing is learned. What the broker took is forgotten when the connection breaks twice on no more than that:
it may have restarted with a lower limit. Pure: `now` is monotonic seconds.
"""

RETRY = 86_400.0
"""Seconds after which a larger message is tried again: limits are raised."""


class SizeLimit:
    """The sizes on which one broker closes the connection."""

    __slots__ = ("_everywhere", "_largest", "_last", "_taken")

    def __init__(self) -> None:
        self._everywhere: tuple[int, float] | None = None
        self._largest = 0
        self._taken: set[str] = set()
        self._last: tuple[str, int] | None = None

    def __bool__(self) -> bool:
        """Whether anything was learned."""
        return self._everywhere is not None

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
        if size <= self._largest:
            self._largest = 0
            self._taken.clear()
            return False
        if topic not in self._taken:
            return False
        self._everywhere = size, now + RETRY
        return True

    def known(self, now: float) -> int | None:
        """Bytes from which on a message is not sent; None if none are known."""
        if self._everywhere is not None and now >= self._everywhere[1]:
            self._everywhere = None
        return None if self._everywhere is None else self._everywhere[0]

    def forget(self) -> None:
        """The next connection is one to another broker."""
        self._everywhere, self._largest = None, 0
        self._taken.clear()
