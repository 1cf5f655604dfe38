"""Publishes what is in the readings of a device at topics of its own, in place of one JSON object or beside it: each
value, or bytes. Imported only for devices with such a layout, or with a content.
"""

import logging
from collections.abc import Callable, Collection

from leadsman.core.mqtt.message import Message, Receipt
from leadsman.core.mqtt.topics import Topics, is_reserved_field
from leadsman.core.readings.publish import Fields
from leadsman.core.readings.reading import JsonObject, Layout, Reading, plain_values
from leadsman.core.runtime.other_topics import MAX_TOPICS, OtherTopics
from leadsman.core.text import clean, log_fields

MAX_FIELDS = MAX_TOPICS
"""Values of one device that have topics: as many as the registry lists, so that all can be removed."""

logger = logging.getLogger("leadsman")


class ContentTopic:
    """The topic of the content of one device. What the bytes are is in the JSON of the reading.

    Bytes are kept in memory only, and of those that wait only the newest, so that a camera displaces no readings of
    others.

    Args:
        topic: where the bytes go.
        content_type: what they are.
        send: takes a message and returns at once.
    """

    __slots__ = ("_content_type", "_send", "_topic")

    def __init__(self, topic: str, content_type: str, send: Callable[[Message], None]) -> None:
        self._topic = topic
        self._content_type = content_type
        self._send = send

    @property
    def topics(self) -> tuple[str]:
        """See `FieldTopics`."""
        return (self._topic,)

    def publish(self, reading: Reading, fields: JsonObject, message: Message, comparison: Receipt | None) -> None:
        """See `FieldTopics`. The bytes go first: a reader of the JSON finds them."""
        if reading.content is not None:
            expires = message.expires if message.retain else None  # what expires and is not retained is an answer
            content = Message(self._topic, reading.content, message.qos, message.retain, None, expires, latest=True)
            self._send(content._replace(content_type=self._content_type))
        self._send(message)


class FieldTopics:
    """The topics of the values of one device: what its last reading has. A value that a reading lacks is removed, as it
    is from the JSON.

    Args:
        device: its name.
        layout: ``fields`` or ``both``.
        topics: the topics of the app.
        send: takes a message and returns at once.
        others: lists the retained ones.
        alone: whether nothing else publishes below the device, so that whatever else is listed there is a value that
            an earlier run published.
    """

    __slots__ = ("_alone", "_below", "_both", "_device", "_nested", "_others", "_send", "_sent", "_topics", "_warned")

    def __init__(
        self,
        device: str,
        layout: Layout,
        topics: Topics,
        send: Callable[[Message], None],
        others: OtherTopics,
        *,
        alone: bool,
    ) -> None:
        self._device = device
        self._both = layout == "both"
        self._topics = topics
        self._nested = device != topics.root
        self._below = topics.below(device)
        self._send = send
        self._others = others
        self._alone = alone
        self._sent: dict[str, None] = {}
        """The topics with a value of the last reading."""
        self._warned = False

    @property
    def topics(self) -> Collection[str]:
        """Those that a reading was published to."""
        return self._sent

    def publish(self, reading: Reading, fields: JsonObject, message: Message, comparison: Receipt | None) -> None:
        """Publish a reading.

        Args:
            reading: the reading.
            fields: its fields as they are published.
            message: the reading as JSON. Its receipt goes with one message, so that the reading is counted once.
            comparison: is notified when another message of it was dropped, so that the next reading is published.
        """
        messages = self._messages(fields, message)
        if self._both:
            messages.append(message)
        if not messages:  # a reading without a value has arrived
            if message.receipt is not None:
                message.receipt.published += 1
            return
        for each in messages[:-1]:
            self._send(each._replace(receipt=comparison))
        self._send(messages[-1]._replace(receipt=message.receipt))

    def _messages(self, fields: Fields, message: Message) -> list[Message]:
        found: dict[str, bytes] = {}
        unfit: list[str] = []
        for path, payload in plain_values(fields, nested=self._nested):
            topic = self._topics.field(self._device, path)
            if topic is None or len(found) >= MAX_FIELDS:
                unfit.append(".".join(path))
            else:
                found[topic] = payload
        if unfit and not self._warned:
            self._warn(unfit)
        listed = self._others if message.retain else None
        gone = [topic for topic in self._earlier(listed) if topic not in found]
        if listed is not None:
            for topic in gone:  # first, so that there is room for the others
                listed.remove(self._device, topic)
            for topic in (each for each in found if each not in self._sent):
                listed.add(self._device, topic)
        messages = [message._replace(topic=topic, payload=b"") for topic in gone]
        messages += [message._replace(topic=topic, payload=payload) for topic, payload in found.items()]
        self._sent = dict.fromkeys(found)
        return messages

    def _earlier(self, listed: OtherTopics | None) -> dict[str, None]:
        """The topics that have a value, those of an earlier run included once the registry lists them."""
        if listed is None or not self._alone:
            return self._sent
        known = listed.topics.get(self._device, {})
        if len(known) <= len(self._sent):
            return self._sent
        return self._sent | {topic: None for topic in known if self._is_of_value(topic)}

    def _is_of_value(self, topic: str) -> bool:
        """Whether a topic may be that of a value, and not another one of leadsman's that is listed, such as that of the
        failure state."""
        return topic.startswith(self._below) and not is_reserved_field(topic.removeprefix(self._below).split("/"))

    def _warn(self, unfit: list[str]) -> None:
        self._warned = True
        names = clean(", ".join(unfit[:5])) + (f" and {len(unfit) - 5} more" if len(unfit) > 5 else "")
        logger.warning(
            "%s: these fields have no topics of their own: %s. A name may have 1 to 200 bytes, and a device %d fields;"
            " give them shorter names, or write layout='json'.",
            self._device,
            names,
            MAX_FIELDS,
            extra=log_fields("fields without topics", self._device),
        )
