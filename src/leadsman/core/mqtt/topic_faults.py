"""What is wrong with single topics: the broker does not take their messages, or messages of them were lost lately.

A fault stands while messages of its topic wait because of it, and until the broker takes one. After a message was lost
it stands longer, since an app that loses one reading in five is not well after each of the four that arrive: for
`LATELY`, and, where it is the broker that does not take them, until it has taken `IN_A_ROW`, at most for
`MAX_FAULT_SECONDS`. Pure: `now` is monotonic seconds."""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, cast, get_args

FaultKind = Literal["denied", "refused", "closes", "over_limit", "too_large", "full", "expired", "damaged", "fenced"]
"""``denied``: the broker says that the client may not publish there. ``refused``: it refuses the messages for another
reason. ``closes``: it closes the connection on them. ``over_limit``: they are larger than it takes. The others are why
the outbox dropped messages; see `leadsman.core.mqtt.outbox.Cause`."""
OF_THE_BROKER: frozenset[FaultKind] = frozenset({"denied", "refused", "closes", "over_limit"})
"""The kinds of which the broker is the cause: a reading may come at any interval, and the next one may be lost, too."""
LATELY = 60.0
"""Seconds since a message was lost in which its topic has a fault."""
IN_A_ROW = 10
"""Messages that the broker must take after one that it did not take."""
MAX_FAULT_SECONDS = 86_400.0
"""Seconds without a further loss after which a fault is over, however rarely messages come."""
MAX_TOPICS = 1000
"""Topics whose faults are kept. A further one takes the place of the oldest."""

_ADVICE: Mapping[str, str] = {
    "denied": "allow {topic} in the broker's access list: topic write {topic}",
    "refused": "allow {topic} in the broker's access list (topic write {topic}); its log says more",
    "closes": "allow {topic} in the broker's access list (topic write {topic}), and check its limit on the size of a "
    "message",
    "over_limit": "raise the broker's limit on the size of a message, or return less at once",
    "too_large": "return less at once: the outbox accepts no message of this size",
    "full": "read the devices less often, use a broker that accepts more, or let more wait: outbox.max_bytes",
    "expired": "give its readings a longer expiry, if they shall outlast such an outage",
    "damaged": "see the log, and check the disk: the file in which readings wait was damaged, or replaced",
    "fenced": "wait: another node has the device, and reads it",
}


def advise(kind: str, topic: str) -> str:
    """One thing to do about a fault of a topic. `kind` is a `FaultKind`, unless an app of another version wrote it."""
    return _ADVICE.get(kind, _ADVICE["closes"]).format(topic=topic)


class TopicFault(NamedTuple):
    """What is wrong with one topic."""

    kind: FaultKind
    text: str
    """An error message that names the topic."""
    since: float
    """The first message of it that was refused or lost."""
    lasting: bool = False
    """Whether the broker has refused a message for good, and taken none since."""
    lost: int = 0
    """Messages that were lost since then."""
    lost_at: float = 0.0
    """When the last of them was lost."""
    taken: int = 0
    """Messages that the broker took after the last one that was lost."""


class TopicFaults:
    """The topics that have a fault.

    Args:
        waits: whether messages of a topic wait, or are kept back.
    """

    def __init__(self, waits: Callable[[str], bool]) -> None:
        self._waits = waits
        self.found: dict[str, TopicFault] = {}
        """Those that there may be, by topic."""

    def refused(self, topic: str, kind: FaultKind, text: str, now: float, *, for_good: bool = False) -> None:
        """The broker does not take a message of a topic. `for_good`: it is dropped."""
        before = self.found.get(topic)
        if before is None:
            self._make_room()
            before = TopicFault(kind, text, now)
        self.found[topic] = before._replace(kind=kind, text=text, lasting=before.lasting or for_good, taken=0)

    def lost(self, topic: str, cause: str, reason: str, messages: int, now: float) -> None:
        """Messages of a topic will never arrive, because of `reason`. A fault that is known already is why.

        Args:
            cause: see `leadsman.core.mqtt.outbox.Cause`.
        """
        fault = self.of(topic, now)
        if fault is None:
            kind = cast("FaultKind", cause if cause in get_args(FaultKind) else "refused")
            self.found.pop(topic, None)
            self._make_room()
            fault = TopicFault(kind, f"messages of {topic!r} were lost: {reason}", now)
        self.found[topic] = fault._replace(lost=fault.lost + messages, lost_at=now, taken=0)

    def took(self, topic: str) -> None:
        """The broker took a message of a topic."""
        fault = self.found.get(topic)
        if fault is not None and fault.lost:
            self.found[topic] = fault._replace(lasting=False, taken=fault.taken + 1)
        elif fault is not None:
            del self.found[topic]

    def forget(self) -> list[str]:
        """The next broker may take what the last one did not. What was lost lately stays lost. Returns the topics."""
        topics = list(self.found)
        self.found = {
            topic: each._replace(lasting=False, taken=IN_A_ROW) for topic, each in self.found.items() if each.lost
        }
        return topics

    def of(self, topic: str, now: float) -> TopicFault | None:
        """The fault of a topic, if it has one."""
        fault = self.found.get(topic)
        return fault if fault is not None and self._stands(topic, fault, now) else None

    def standing(self, now: float) -> Mapping[str, TopicFault]:
        """All faults, by topic, the oldest first. Losses that are over are forgotten."""
        standing = {topic: each for topic, each in self.found.items() if self._stands(topic, each, now)}
        if len(standing) < len(self.found):
            self.found = {topic: each for topic, each in self.found.items() if topic in standing or not each.lost}
        return standing

    def _stands(self, topic: str, fault: TopicFault, now: float) -> bool:
        if fault.lasting or (not fault.taken and self._waits(topic)):
            return True
        if not fault.lost:
            return False
        since = now - fault.lost_at
        return since < LATELY or (fault.kind in OF_THE_BROKER and fault.taken < IN_A_ROW and since < MAX_FAULT_SECONDS)

    def _make_room(self) -> None:
        if len(self.found) >= MAX_TOPICS:
            del self.found[next(iter(self.found))]
