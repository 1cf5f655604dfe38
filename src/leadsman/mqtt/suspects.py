"""Finds the topic on whose messages the broker closes the connection.

Many brokers close the connection instead of refusing a message: mosquitto 2.0 on a topic that its access list denies,
and above its `message_size_limit`. All messages in flight are lost with the connection, and no reason code names the
one that caused it.

======================================================  ============================================
when the connection broke                               what follows
======================================================  ============================================
messages were in flight                                 all of them are sent again as before
they had been in flight as it broke the last time, too  each of them is sent alone
a message had been sent alone                           its topic is blamed
a message was refused just before                       its topic is blamed, and no other
the broker named a reason that is no message            nothing
======================================================  ============================================

A message of QoS 0 counts as in flight for a second. So does, for a moment, one that was acknowledged: some brokers
acknowledge, and then close. A topic is free again when its messages, each sent alone, are acknowledged and the
connection outlives each of them. Pure: `now` is monotonic seconds.
"""

from collections.abc import Mapping
from typing import NamedTuple

QUIET = 0.05
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
        self.alone: dict[str, Blame | None] = {}
        """Topics whose messages are sent alone, with their blame so far."""
        self.solo: str | None = None
        """The topic whose message is in flight alone, or was acknowledged less than `QUIET` seconds ago."""
        self._lost_once: dict[str, int] = {}
        """How many messages of a topic were in flight as the connection broke last, and were not settled since."""
        self._to_test: dict[str, int] = {}
        self._unsure: dict[str, float] = {}
        """When a message of QoS 0 was sent last on this connection, by topic."""
        self._acknowledged: tuple[str, float] | None = None
        self._was_lost = False
        """Whether the one that was acknowledged last had been in flight as the connection broke."""
        self._refused: tuple[str, float] | None = None

    @property
    def blamed(self) -> int:
        """The number of topics that are to blame."""
        return sum(blame is not None for blame in self.alone.values())

    def is_blamed(self, topic: str) -> bool:
        """Whether a connection broke on this topic since it last got through."""
        return self.alone.get(topic) is not None

    def sends_unsure(self, topic: str, now: float) -> None:
        """A message of QoS 0 is sent, of which nobody learns whether it arrives."""
        before = self._unsure.get(topic)
        if before is not None and now - before > AFTER_SENDING:
            self._lost_once.pop(topic, None)  # the connection outlived that one
        self._unsure[topic] = now

    def acknowledged(self, topic: str, now: float) -> None:
        """The broker accepted a message of `topic`."""
        self._acknowledged, self._was_lost = (topic, now), topic in self._lost_once
        self.gone(topic, 1)

    def refused(self, topic: str, now: float) -> None:
        """The broker refused a message of `topic`, with a reason code."""
        self._refused = topic, now
        self._lost_once.pop(topic, None)

    def gone(self, topic: str, messages: int) -> None:
        """So many messages of `topic` were settled: delivered, expired or dropped."""
        left = self._lost_once.get(topic, 0) - messages
        if left > 0:
            self._lost_once[topic] = left
        else:
            self._lost_once.pop(topic, None)

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
        culprit = refused or self.solo
        lost = self._lost(flying, now)
        before, was_lost = self._lost_once, self._was_lost
        acknowledged = _within(self._acknowledged, QUIET, now)
        self._forget_connection()
        if culprit is not None:
            blame = self.alone.get(culprit)
            breaks, since = (1, delivered) if blame is None else (blame.breaks + 1, blame.delivered)
            self.alone[culprit] = blame = Blame(culprit, breaks, since, refused is not None)
            self._to_test.setdefault(culprit, 1)
            return blame
        for topic, messages in lost.items():
            again = min(messages, before.get(topic, 0)) or (was_lost and topic == acknowledged)
            if again:
                self.alone.setdefault(topic, None)
                self._to_test[topic] = max(self._to_test.get(topic, 0), again)
        self._lost_once = lost
        return None

    def acquit(self) -> None:
        """The connection ended for a reason that is no message."""
        self._forget_connection()

    def forget(self) -> None:
        """The next connection is one to another broker, which may take what the last one did not: no topic is to blame
        there, but the messages of those that were are sent alone."""
        self.alone = dict.fromkeys(self.alone)
        self._lost_once.clear()

    def pardon(self, topic: str) -> None:
        """A message of `topic` was dropped: the next one is counted from the beginning."""
        blame = self.alone[topic]
        if blame is not None:
            self.alone[topic] = blame._replace(breaks=1)

    def _lost(self, flying: Mapping[str, int], now: float) -> dict[str, int]:
        """How many messages of each topic count as in flight."""
        lost = dict(flying)
        for topic, at in self._unsure.items():
            if now - at <= AFTER_SENDING:
                lost.setdefault(topic, 1)
        acknowledged = _within(self._acknowledged, QUIET, now)
        if acknowledged is not None:
            lost.setdefault(acknowledged, 1)
        return lost

    def _forget_connection(self) -> None:
        self.solo = self._acknowledged = self._refused = None
        self._was_lost = False
        self._unsure.clear()


def _within(latest: tuple[str, float] | None, seconds: float, now: float) -> str | None:
    """The topic of the latest acknowledgement or refusal, unless that is longer ago than `seconds`."""
    return latest[0] if latest is not None and now - latest[1] <= seconds else None
