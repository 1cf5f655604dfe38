"""The messages that the broker shall keep: the newest retained one of each topic that arrived.

They are sent again on each new connection, since a restarted broker may have lost them. A reading that a newer one
followed was sent without the retain flag; if the newer one is dropped, the reading is sent again with the flag.
"""

from collections.abc import Callable

from leadsman.mqtt.message import Message
from leadsman.mqtt.message_state import Item
from leadsman.mqtt.outbox import Outbox


class RetainedMessages:
    """The retained messages of an outbox."""

    __slots__ = ("_messages", "_outbox", "_unretained")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._messages: dict[str, tuple[int, Message]] = {}
        """By topic, each with its number in the outbox less `Outbox.renumbered`."""
        self._unretained: set[str] = set()

    def arrived(self, item: Item, message: Message) -> None:
        """The broker has the message of an item. What others make again for each connection is not kept."""
        topic = message.topic
        if message.retain and not message.payload:
            self.forget(topic)  # it was removed at the broker
            return
        if not message.retain or message.remade or _is_made_again(message):
            if self._unretained:
                self.settled(topic)
            return
        known, number = self._messages.get(topic), item.number - self._outbox.renumbered
        if known is not None and number < known[0]:  # a newer one was acknowledged before it
            if self._unretained:
                self.settled(topic)
            return
        self._messages[topic] = number, message
        if item.unretained:
            self._unretained.add(topic)
            self.settled(topic)
        elif self._unretained:
            self._unretained.discard(topic)

    def settled(self, topic: str) -> None:
        """A message of a topic arrived or was dropped. Send its newest reading again if the broker does not keep that,
        and none follows."""
        if topic in self._unretained and topic not in self._outbox:
            self._unretained.discard(topic)
            self._send_again(*self._messages[topic])

    def forget(self, topic: str) -> None:
        """The broker closes the connection on messages of this topic: send none of it again."""
        self._messages.pop(topic, None)
        self._unretained.discard(topic)

    def repeat(self, is_blamed: Callable[[str], bool]) -> None:
        """Send all again, but for topics that the broker closes the connection on. Of those of which something waits,
        only if that is dropped: this may be another broker, which has nothing of them."""
        for topic, (number, message) in self._messages.items():
            if topic in self._outbox:
                self._unretained.add(topic)
            elif not is_blamed(topic):
                self._send_again(number, message)

    def _send_again(self, number: int, message: Message) -> None:
        self._outbox.repeat(number + self._outbox.renumbered, message)


def _is_made_again(message: Message) -> bool:
    """Whether it is a document, which is made again for each connection. Bytes such as an image are not."""
    return message.latest and message.taken_at is None and message.content_type is None
