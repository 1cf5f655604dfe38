"""Publishes readings: a device's publish rule decides, and the reading becomes an MQTT message."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from leadsman.core.events import AppFault, FieldsLeftOut
from leadsman.core.loop.clock import rfc3339
from leadsman.core.mqtt.message import Delivery, Message, Receipt
from leadsman.core.mqtt.topics import Topics, encode, encode_fields
from leadsman.core.readings.publish import AnyOf, Every, Fields, LastPublished, PublishRule
from leadsman.core.readings.reading import JsonObject, Reading
from leadsman.core.resilience.environment import Environment
from leadsman.core.runtime.other_topics import OtherTopics
from leadsman.core.text import clean, count_noun, log_fields

if TYPE_CHECKING:
    from leadsman.core.runtime.own_topics import ContentTopic, FieldTopics

Send = Callable[[Message], None]

REFRESHES = 3
"""How often a retained reading with an expiry is published within it, while the device is well: two may be late or
fail, and the broker still has one."""

DOUBT = 1.0
"""Seconds. A reading that was read back from disk is known by its time to that precision, since the clock may have been
set between."""

logger = logging.getLogger("leadsman")


class ReadingReceipt(Receipt, Protocol):
    """Counts what becomes of readings."""

    sent: int
    """Readings that were handed to the outbox."""
    suppressed: int
    """Polls whose reading the publish rule kept back, or that had nothing to publish."""


class Receipts(Protocol):
    """Counts the readings of one device."""

    def receipt(self, due: float) -> ReadingReceipt:
        """The receipt of the reading whose poll came due at `due`, monotonic seconds."""
        ...


class PublisherContext(NamedTuple):
    """What all publishers share: the environment, the topics, and `send`, which takes a message and returns at once."""

    environment: Environment
    topics: Topics
    send: Send
    others: OtherTopics
    """Takes the retained topics that handlers publish to by themselves."""
    on_reading: Callable[[Reading], None] | None = None
    """Takes each reading, published or not, for watchers; None where there are none."""


class Publication(NamedTuple):
    """What a publisher did with the readings of its device."""

    at: float | None
    """When the reading that was published last was taken, epoch seconds; None if none was published."""
    suppressed: int
    """Readings since then that the publish rule did not publish."""
    last: Fields | None
    """The fields that the publish rule compares with; None without a rule."""
    refused: Fields | None
    """The fields of the last reading, if the publish rule did not publish it."""
    rule_errors: int = 0
    """How often the publish rule raised an error. Each of these readings was published."""


class AcceptedReading:
    """The last accepted reading of a device, with which its publish rule compares the next one. It is the receipt of
    readings that belong to no slot of the schedule.

    A reading counts as soon as the outbox has it. The outbox drops the newest reading of a topic only if it is too
    large, if it expires, if the broker refuses it for good, or if its row on disk is damaged. Then the reading before
    it counts again, or none. Pure.

    Args:
        rule: compares the readings.
    """

    __slots__ = ("_before", "_taken", "last", "published", "refused", "replayed", "rule", "rule_errors", "rule_failing")

    def __init__(self, rule: PublishRule) -> None:
        self.rule = rule
        self.rule_errors = 0
        """How often the rule raised an error."""
        self.rule_failing = False
        """Whether it did at the last reading."""
        self.refused: Fields | None = None
        """The fields of the last reading, if the rule did not publish it."""
        self.last: LastPublished | None = None
        """None before the first reading, and when it is not known whether the broker has one."""
        self.published = self.replayed = 0
        """See `leadsman.core.mqtt.message.Receipt`."""
        self._before: Fields | None = None
        self._taken = 0.0

    def accepted(self, fields: Fields, at: float, taken: float) -> None:
        """The outbox is given a reading of the monotonic time `at`. `taken` is the same in seconds of
        `leadsman.core.loop.clock.Clock.uptime`, as the outbox has it."""
        self._before = None if self.last is None else self.last.fields
        self.last = LastPublished(fields, at)
        self.refused = None
        self._taken = taken

    def passed_over(self, last: LastPublished, fields: Fields) -> None:
        """A reading with these fields was not published, since the rule compared it with the last one."""
        self.last, self.refused = last._replace(since=last.since + 1), fields

    def dropped(self, at: float, messages: int = 1) -> None:
        """See `leadsman.core.mqtt.message.Receipt`. How long ago the last publication was does not change: the rule
        sets the pace of what the broker refuses, too."""
        before, self._before = self._before, None
        if self.last is None or at < self._taken - DOUBT:
            return
        if at == self._taken and before is not None:
            self.last = self.last._replace(fields=before)
        else:
            self.last = None

    def replaced(self) -> None:
        """See `leadsman.core.mqtt.message.Receipt`. A newer reading counts already."""
        self._before = None


class StatePublisher:
    """Publishes the readings of one device at its state topic, and at its history topic if it has one."""

    __slots__ = (
        "_context",
        "_delivery",
        "_history",
        "_left_out",
        "_published_wall",
        "_refresh",
        "_refreshed",
        "_topic",
        "comparison",
        "own_topics",
        "published",
        "receipts",
    )

    def __init__(self, name: str, rule: PublishRule | None, delivery: Delivery, context: PublisherContext) -> None:
        self._refresh = delivery.expiry / REFRESHES if delivery.retain and delivery.expiry is not None else None
        if rule is not None and self._refresh is not None:
            rule = AnyOf(rule, Every(self._refresh))
        self._delivery = delivery
        self._context = context
        self._topic = context.topics.state(name)
        self._history = None if delivery.history is None else context.topics.history(name)
        self.comparison = None if rule is None else AcceptedReading(rule)
        """The reading that the publish rule compares with. It is notified of readings that never arrive."""
        self.own_topics: ContentTopic | FieldTopics | None = None
        """Publishes each reading otherwise than as one JSON object; None where it is one."""
        self.receipts: Receipts | None = None
        """Gives the receipts of its readings; None where nobody counts them."""
        self._published_wall: float | None = None
        self._refreshed: tuple[Reading, JsonObject, Message, float] | None = None
        """The reading that the broker forgets, as it was sent, and when that was, monotonic seconds; None if it forgets
        none."""
        self._left_out: tuple[str, ...] = ()
        self.published = 0
        """Readings that were handed to the outbox."""

    @property
    def topics(self) -> tuple[str, ...]:
        """Where its readings go: the state topic, the history topic if it has one, and those of values and bytes."""
        own = () if self.own_topics is None else self.own_topics.topics
        return (self._topic, *(() if self._history is None else (self._history,)), *own)

    def publish(self, reading: Reading, due: float | None = None, *, always: bool = False) -> None:
        """Publish a reading if the publish rule asks for it, or unconditionally with `always`. Its poll came due at
        `due`, monotonic seconds. With None it was not due, and the reading is not counted."""
        if self._context.on_reading is not None:
            self._context.on_reading(reading)
        if reading.left_out != self._left_out:
            if reading.left_out:
                self._context.environment.events.emit(FieldsLeftOut(reading.entity, reading.left_out))
            self._left_out = reading.left_out
        comparison, receipts = self.comparison, self.receipts
        receipt = None if due is None or receipts is None else receipts.receipt(due)
        if comparison is not None and not always:
            last = comparison.last
            if last is not None and not self._decides(comparison, last, reading):
                comparison.passed_over(last, reading.fields)
                if receipt is not None:
                    receipt.suppressed += 1
                return
        delivery, wall, clock = self._delivery, reading.wall, self._context.environment.clock
        expires = None if delivery.expiry is None else reading.at + delivery.expiry
        offset = wall - clock.uptime() + clock.monotonic() - reading.at  # as it was when the reading was taken
        shown = reading.fields if delivery.taken_at is None else reading.fields | {"taken_at": rfc3339(wall)}
        payload, qos, retain = encode_fields(shown), delivery.qos, delivery.retain
        about = wall, expires, delivery.newest, None, offset, receipt or comparison
        message = Message(self._topic, payload, qos, retain, *about)
        if comparison is not None:
            taken = reading.wall - (message.clock_offset or 0.0)  # as the outbox computes it
            comparison.accepted(reading.fields, reading.at, taken)
        self._published_wall = reading.wall
        if self._refresh is not None:
            self._refreshed = reading, shown, message._replace(receipt=None), reading.at
        if self._history is not None:
            self._context.send(self._to_history(self._history, reading, message))
            message = message._replace(receipt=comparison)
        self._put(reading, shown, message)
        self.published += 1
        if receipt is not None:
            receipt.sent += 1  # not before: a caller that catches an error counts the reading then

    def pass_over(self, due: float) -> None:
        """The poll that came due at `due`, monotonic seconds, has nothing to publish. A retained reading that is about
        to expire is published once more, with the time at which it was taken: the device is well."""
        if self.receipts is not None:
            self.receipts.receipt(due).suppressed += 1
        if self._refreshed is None or self._refresh is None:
            return
        reading, shown, message, sent = self._refreshed
        now = self._context.environment.clock.monotonic()
        if now - sent >= self._refresh - 0.001:  # as in `Every`
            again = message._replace(expires=now + self._refresh * REFRESHES, receipt=self.comparison)
            self._put(reading, shown, again)
            self._refreshed = reading, shown, message, now

    @property
    def publication(self) -> Publication:
        """What it did with the readings so far."""
        comparison = self.comparison
        if comparison is None:
            return Publication(self._published_wall, 0, None, None)
        last = comparison.last
        suppressed, fields = (0, None) if last is None else (last.since, last.fields)
        return Publication(self._published_wall, suppressed, fields, comparison.refused, comparison.rule_errors)

    def try_publish(self, reading: Reading, due: float | None = None) -> None:
        """Publish a reading as `publish` does. A fault of ours is reported: this reading is lost, and the others are
        not."""
        try:
            self.publish(reading, due)
        except Exception as error:
            if due is not None and self.receipts is not None:
                receipt = self.receipts.receipt(due)
                receipt.sent += 1
                receipt.dropped(self._context.environment.clock.uptime())
            self._context.environment.events.emit(AppFault(f"publishing {reading.entity}", error))

    def _put(self, reading: Reading, shown: JsonObject, message: Message) -> None:
        if self.own_topics is None:
            self._context.send(message)
        else:
            self.own_topics.publish(reading, shown, message, self.comparison)

    def _to_history(self, topic: str, reading: Reading, message: Message) -> Message:
        """The message for the history topic. It is the one that is counted, since all readings go there."""
        expires = reading.at + (self._delivery.history or 0.0)
        return message._replace(topic=topic, retain=False, expires=expires, latest=False)

    def _decides(self, comparison: AcceptedReading, last: LastPublished, reading: Reading) -> bool:
        try:
            wanted = bool(comparison.rule.decide(last, reading.fields, reading.at))
        except Exception as error:  # a rule of the user's own; a reading too many is better than one too few
            if not comparison.rule_failing:
                self._context.environment.events.emit(AppFault(f"publish rule of {reading.entity}", error))
            comparison.rule_failing = True
            comparison.rule_errors += 1
            return True
        comparison.rule_failing = False
        return wanted


class LoggedPublisher(StatePublisher):
    """A `StatePublisher` that also logs each reading."""

    __slots__ = ()

    def publish(self, reading: Reading, due: float | None = None, *, always: bool = False) -> None:
        """See `StatePublisher`."""
        super().publish(reading, due, always=always)
        fields = reading.fields
        last = None if self.comparison is None else self.comparison.last
        published = self.comparison is None or (last is not None and last.fields is fields)
        verb = "published" if published else "not published, because of its publish rule:"
        size, names = count_noun(len(encode(fields)), "byte"), clean(", ".join(fields))
        logger.debug(
            "%s: %s %s in %s: %s",
            reading.entity,
            verb,
            count_noun(len(fields), "field"),
            size,
            names,
            extra=log_fields("publish", reading.entity),
        )


def publisher_of(name: str, rule: PublishRule | None, delivery: Delivery, context: PublisherContext) -> StatePublisher:
    """Make the publisher of a device. It logs readings only if the log level shows such lines, so that others cost
    nothing extra."""
    made = LoggedPublisher if logger.isEnabledFor(logging.DEBUG) else StatePublisher
    return made(name, rule, delivery, context)


class PublishQueue:
    """Readings that are published when the event loop has called all handlers of this turn, so that publishing delays
    none of them."""

    __slots__ = ("_loop", "_waiting")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[StatePublisher, Reading, float | None]] = []

    def add(self, publisher: StatePublisher, reading: Reading, due: float | None = None) -> None:
        """Publish a reading soon; see `StatePublisher.publish`."""
        if not self._waiting:
            self._loop.call_soon(self._publish)
        self._waiting.append((publisher, reading, due))

    def _publish(self) -> None:
        waiting, self._waiting = self._waiting, []
        for publisher, reading, due in waiting:
            publisher.try_publish(reading, due)
