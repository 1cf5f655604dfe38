"""Publishes the bytes of a reading at a topic of their own, and what they are as its JSON. Imported only for devices
with a content.

Bytes are kept in memory only, and of those that wait only the newest, so that a camera displaces no readings of others.
"""

from collections.abc import Callable

from leadsman.mqtt.message import Message, Receipt
from leadsman.readings.reading import JsonObject, Reading


class ContentTopic:
    """The topic of the content of one device; see `leadsman.runtime.publisher.OwnTopics`.

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
        """See `leadsman.runtime.publisher.OwnTopics`."""
        return (self._topic,)

    def publish(self, reading: Reading, fields: JsonObject, message: Message, comparison: Receipt | None) -> None:
        """See `leadsman.runtime.publisher.OwnTopics`. The bytes go first: who reads the JSON finds them."""
        if reading.content is not None:
            expires = message.expires if message.retain else None  # what expires and is not retained is an answer
            content = Message(self._topic, reading.content, message.qos, message.retain, None, expires, latest=True)
            self._send(content._replace(content_type=self._content_type))
        self._send(message)
