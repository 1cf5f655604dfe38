"""Publishes readings: a device's publish rule decides, and the reading becomes an MQTT message."""

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from leadsman.events import AppFault, FieldsLeftOut
from leadsman.mqtt.message import Delivery, Message
from leadsman.mqtt.topics import Topics, encode
from leadsman.publish import LastPublished, PublishRule
from leadsman.resilience.environment import Environment
from leadsman.text import clean, counted
from leadsman.timing.clock import rfc3339

Send = Callable[[Message], None]


class PublisherContext(NamedTuple):
    """What all publishers share: the environment, the topics, and `send`, which takes a message and returns at once."""

    environment: Environment
    topics: Topics
    send: Send


logger = logging.getLogger("leadsman")


class StatePublisher:
    """Publishes to the state topic of one device."""

    __slots__ = ("_delivery", "_left_out", "_mail", "_name", "_rule", "_told", "_topic")

    def __init__(self, name: str, rule: PublishRule | None, delivery: Delivery, mail: PublisherContext) -> None:
        self._name = name
        self._rule = rule
        self._delivery = delivery
        self._mail = mail
        self._topic = mail.topics.state(name)
        self._told: LastPublished | None = None
        self._left_out: tuple[str, ...] = ()

    def tell(
        self, fields: dict[str, Any], left_out: tuple[str, ...], now: float, wall: float, *, always: bool = False
    ) -> None:
        """Publish a reading taken at `now` if the publish rule asks for it, or unconditionally with `always`."""
        if left_out != self._left_out:
            if left_out:
                self._mail.environment.events.emit(FieldsLeftOut(self._name, left_out))
            self._left_out = left_out
        if self._rule is not None:
            if not always and self._told is not None and not self._wanted(self._rule, self._told, fields, now):
                self._told = self._told._replace(since=self._told.since + 1)
                return
            self._told = LastPublished(fields, now)
        delivery = self._delivery
        if delivery.taken_at is not None:
            fields = fields | {"taken_at": rfc3339(wall)}
        expires = None if delivery.expiry is None else now + delivery.expiry
        offset = wall - self._mail.environment.clock.uptime()
        self._mail.send(
            Message(self._topic, encode(fields), delivery.qos, delivery.retain, wall, expires, clock_offset=offset)
        )

    def _wanted(self, rule: PublishRule, told: LastPublished, fields: dict[str, Any], now: float) -> bool:
        try:
            return rule.wants(told, fields, now)
        except Exception as error:  # a rule of the user's own; a reading too many is better than one too few
            self._mail.environment.events.emit(AppFault(f"publish rule of {self._name}", error))
            return True


class LoggedOutlet(StatePublisher):
    """A `StatePublisher` that also logs each reading."""

    __slots__ = ()

    def tell(
        self, fields: dict[str, Any], left_out: tuple[str, ...], now: float, wall: float, *, always: bool = False
    ) -> None:
        """See `StatePublisher`."""
        super().tell(fields, left_out, now, wall, always=always)
        published = self._rule is None or (self._told is not None and self._told.fields is fields)
        verb = "published" if published else "not published, as its publish rule says:"
        size, names = len(encode(fields)), clean(", ".join(fields))
        logger.debug(
            "%s: %s %s in %s: %s", self._name, verb, counted(len(fields), "field"), counted(size, "byte"), names
        )


def outlet_of(name: str, rule: PublishRule | None, delivery: Delivery, mail: PublisherContext) -> StatePublisher:
    """Make the publisher of a device. It logs readings only if the log level shows such lines, so that others cost
    nothing extra."""
    return (LoggedOutlet if logger.isEnabledFor(logging.DEBUG) else StatePublisher)(name, rule, delivery, mail)
