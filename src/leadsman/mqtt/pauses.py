"""The topics whose messages the broker does not take: what is wrong with each, and how long it pauses."""

from leadsman.mqtt.outbox import Outbox

PAUSE = (1.0, 60.0)
"""Seconds: the first and the longest pause of a topic whose message was refused."""


class Pauses:
    """The topics of an outbox that the current broker refused."""

    __slots__ = ("_faults", "_for_good", "_outbox", "_seconds")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._seconds: dict[str, float] = {}
        self._faults: dict[str, str] = {}
        self._for_good: set[str] = set()
        """Those of them whose last message was dropped, and not kept back."""

    def __bool__(self) -> bool:
        return bool(self._faults)

    @property
    def fault(self) -> str | None:
        """What is wrong with a topic of which something waits, or was dropped; None if nothing is."""
        outbox, lasting = self._outbox, self._for_good
        waiting = (topic for topic in self._faults if topic in lasting or topic in outbox or outbox.is_paused(topic))
        return next((self._faults[topic] for topic in waiting), None)

    def fault_of(self, topic: str) -> str | None:
        """What is wrong with a topic since the broker refused a message of it; None since it took one."""
        return self._faults.get(topic)

    def refused(self, topic: str, fault: str, *, for_good: bool = False) -> None:
        """The broker does not take a message of a topic. `for_good`: it is dropped, and the fault stays until the
        broker takes another one."""
        self._faults[topic] = fault
        if for_good:
            self._for_good.add(topic)

    def begin(self, topic: str, now: float, longest: float) -> float:
        """Keep a topic back, twice as long as the last time. Returns the seconds."""
        seconds = self._seconds[topic] = min(self._seconds.get(topic, PAUSE[0] / 2) * 2, longest)
        self._outbox.pause(topic, now + seconds)
        return seconds

    def forgive(self, topic: str) -> None:
        """The broker takes messages of a topic again."""
        self._seconds.pop(topic, None)
        self._faults.pop(topic, None)
        self._for_good.discard(topic)
        self._outbox.trust(topic)

    def forget(self) -> None:
        """The next broker may take what the last one refused: all of it may be sent at once."""
        for topic in list(self._faults):
            self.forgive(topic)
        for topic in list(self._outbox.paused):
            self._outbox.end_pause(topic)
