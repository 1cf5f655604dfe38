"""Finds the topic on whose messages the broker closes the connection, or how large a message it takes.

Many brokers close the connection instead of refusing a message: mosquitto 2.0 on a topic that its access list denies,
and above its `message_size_limit`. All messages in flight are lost with the connection, and no reason code names the
one that caused it.

===========================================  =======================================================
when the connection broke                    what follows
===========================================  =======================================================
more than `MAX_TESTED` messages were in flight      a fifth at a time, until each of them is acknowledged
up to `MAX_TESTED` were in flight                   each of them is sent alone
a message was acknowledged just before       the same for its topic: some brokers acknowledge, then close
a message had been sent alone                its topic is blamed
a message was refused just before            its topic is blamed, and no other
messages of QoS 0 had just been sent         the next message of each topic is sent with QoS 1
===========================================  =======================================================

A topic is free again when its messages, each sent alone, are acknowledged and the connection holds for `BURST_SECONDS`
seconds after each. Pure: `now` is monotonic seconds."""

from collections.abc import Mapping
from typing import NamedTuple

from leadsman.core.mqtt.message import Message

MAX_TESTED = 4
"""Messages in flight that are tested one by one after a connection broke with them."""
SHARE = 5
"""After a connection broke with more, one in so many of them is in flight at a time: five round trips test them all."""
BURST_SECONDS = 0.05
"""Seconds after an acknowledgement in which a broken connection is that message's fault: both come in one burst."""
AFTER_REFUSAL = 0.2
"""Seconds after a refusal in which a broken connection is that message's fault."""
AFTER_SENDING = 1.0
"""Seconds after sending in which a broken connection may be the fault of a message of QoS 0."""


class Broken(NamedTuple):
    """A connection that ended."""

    in_flight: bool
    """Whether messages were in flight, or one of them is to blame."""
    topic: str | None = None
    """The topic on whose messages the broker closes the connection, once that is certain."""
    fault: str | None = None
    """The fault of that topic, as an error message."""


class Blame(NamedTuple):
    """The connection broke on a message of `topic`; `breaks` times since the topic last got through.

    `delivered` is what the outbox had delivered when the topic was first blamed. `refused`: a reason code named the
    message.
    """

    topic: str
    breaks: int
    delivered: int
    refused: bool


class Suspects:
    """The topics whose messages must be sent alone, and the ones that are to blame for broken connections."""

    def __init__(self) -> None:
        self.untested: dict[str, int] = {}
        """Topics of a broken window, with the number of their messages that have not been settled since."""
        self.alone: dict[str, Blame | None] = {}
        """Topics whose messages are sent alone, with their blame so far."""
        self.solo: str | None = None
        """The topic whose message is in flight alone, or was acknowledged less than `BURST_SECONDS` seconds ago."""
        self._few = MAX_TESTED
        self._to_test: dict[str, int] = {}
        self._unsure: dict[str, float] = {}
        self._upgraded: set[str] = set()
        self._acknowledged: tuple[str, float] | None = None
        self._refused: tuple[str, float] | None = None

    @property
    def blamed(self) -> int:
        """The number of topics that are to blame."""
        return sum(blame is not None for blame in self.alone.values())

    def is_blamed(self, topic: str) -> bool:
        """Whether a connection broke on this topic since it last got through."""
        return self.alone.get(topic) is not None

    @property
    def searching(self) -> bool:
        """Whether fewer messages are in flight than could be, to find the one that breaks the connection."""
        return bool(self.untested) or self.solo is not None

    def window(self, full: int) -> int:
        """How many messages may be in flight."""
        if self.solo is not None:
            return 0
        return min(full, self._few) if self.untested else full

    def certain(self, message: Message, now: float) -> Message:
        """Return a message of QoS 0 as it is sent: with QoS 1 if the link must learn whether it arrives."""
        if message.topic in self.alone or message.topic in self._upgraded:
            return message._replace(qos=1)
        self._unsure[message.topic] = now
        return message

    def acknowledged(self, topic: str, now: float) -> None:
        """The broker accepted a message of `topic`."""
        self._acknowledged = topic, now
        if self.untested or self._upgraded:
            self.gone(topic, 1)
            self._upgraded.discard(topic)

    def refused(self, topic: str, now: float) -> None:
        """The broker refused a message of `topic`, with a reason code."""
        self._refused = topic, now
        self.untested.pop(topic, None)

    def gone(self, topic: str, messages: int) -> None:
        """So many messages of `topic` were settled: delivered, expired or dropped."""
        left = self.untested.get(topic, 0) - messages
        if left > 0:
            self.untested[topic] = left
        else:
            self.untested.pop(topic, None)

    def survived(self, topic: str) -> bool:
        """The connection outlived a message of `topic` that was sent alone. Returns whether the topic had been blamed
        before."""
        self.solo = None
        blamed = self.is_blamed(topic)
        left = self._to_test.pop(topic, 1) - 1
        if left > 0:
            self.alone[topic], self._to_test[topic] = None, left
        else:
            self.alone.pop(topic, None)
        return blamed

    def broke(self, flying: Mapping[str, int], delivered: int, now: float) -> Blame | None:
        """The connection broke with so many messages of these topics in flight. Returns the topic to blame, if it is
        known."""
        refused = _within(self._refused, AFTER_REFUSAL, now)
        acknowledged = _within(self._acknowledged, BURST_SECONDS, now)
        culprit = refused or self.solo
        self.untested.clear()
        self._upgraded = {topic for topic, at in self._unsure.items() if now - at <= AFTER_SENDING}
        self._unsure.clear()
        self.solo = self._refused = self._acknowledged = None
        if culprit is not None:
            before = self.alone.get(culprit)
            breaks, since = (1, delivered) if before is None else (before.breaks + 1, before.delivered)
            self.alone[culprit] = blame = Blame(culprit, breaks, since, refused is not None)
            self._to_test.setdefault(culprit, 1)
            return blame
        total = sum(flying.values())
        if total > MAX_TESTED:
            self.untested, self._few = dict(flying), max(MAX_TESTED, total // SHARE)
        else:
            for topic, messages in flying.items():
                self._suspect(topic, messages)
        if acknowledged is not None:
            self._suspect(acknowledged, 1)
        return None

    def acquit(self) -> None:
        """The connection ended for a reason that is no message."""
        self.solo = self._refused = self._acknowledged = None

    def forget(self) -> None:
        """The next connection is one to another broker, which may take what the last one did not: no topic is to blame
        there, but the messages of those that were are sent alone."""
        self.alone = dict.fromkeys(self.alone)

    def pardon(self, topic: str) -> None:
        """A message of `topic` was dropped: the next one is counted from the beginning."""
        blame = self.alone[topic]
        if blame is not None:
            self.alone[topic] = blame._replace(breaks=1)

    def _suspect(self, topic: str, messages: int) -> None:
        self.alone.setdefault(topic, None)
        self._to_test[topic] = max(self._to_test.get(topic, 0), messages)


def _within(latest: tuple[str, float] | None, seconds: float, now: float) -> str | None:
    """The topic of the latest acknowledgement or refusal, unless that is longer ago than `seconds`."""
    return latest[0] if latest is not None and now - latest[1] <= seconds else None


# How large a message may be at a broker that closes the connection on a larger one, and does not announce its limit.
#
# It is learned from messages that were sent alone: a message on which the connection broke twice, larger than every
# message that the broker took, is too large, if the broker took a smaller one of the same topic. Else the topic may be
# denied, and nothing is learned. What the broker took is forgotten when the connection breaks twice on no more than
# that: it may have restarted with a lower limit.

SIZE_RETRY_INTERVAL = 86_400.0
"""Seconds after which a larger message is tried again: limits are raised."""
MAX_TOPICS = 10_000
"""Topics of which it is known that the broker takes them. Requests may name a new topic for each answer, for years."""


class SizeLimit:
    """The sizes on which one broker closes the connection."""

    __slots__ = ("_largest", "_last", "_taken", "learned")

    def __init__(self) -> None:
        self.learned: tuple[int, float] | None = None
        """Bytes from which on a message is not sent, and until when, monotonic seconds; None if nothing was learned."""
        self._largest = 0
        self._taken: set[str] = set()
        self._last: tuple[str, int] | None = None

    def acknowledged(self, topic: str, size: int) -> None:
        """The broker acknowledged a message of so many bytes. It counts with the next one: some brokers acknowledge,
        and then close the connection."""
        last, self._last = self._last, (topic, size)
        if last is not None and (last[1] > self._largest or last[0] not in self._taken):
            self.accepted(*last)

    def accepted(self, topic: str, size: int) -> None:
        """The broker took a message of so many bytes, and kept the connection."""
        if len(self._taken) >= MAX_TOPICS:  # nothing is learned of a topic until the broker takes it again
            self._taken.clear()
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
        self.learned = size, now + SIZE_RETRY_INTERVAL
        return True

    def refused_size(self, now: float) -> int | None:
        """Bytes from which on a message is not sent; None if there is no such limit."""
        if self.learned is not None and now >= self.learned[1]:
            self.learned = None
        return None if self.learned is None else self.learned[0]

    def forget(self) -> None:
        """The next connection is one to another broker."""
        self.learned, self._largest = None, 0
        self._taken.clear()
