"""The outbox of a node in a cluster: what is published for a device has the fencing token of this node, and is sent
only while the node may act for the device. Pure.

A process that was frozen finds out here that another node has its devices, before a byte is written.
"""

from typing import Protocol

from leadsman.mqtt.message import Message
from leadsman.mqtt.message_state import DROP, Item
from leadsman.mqtt.outbox import Dropped, Outbox

LOST = "another node may have the device by now"
"""Why a message is dropped."""


class Fences(Protocol):
    """Which topics this node may publish to now."""

    def token(self, topic: str) -> int | None:
        """The fencing token for a topic of a device; 0 if this node may not act for it now. None for a topic of no
        device, which any node may publish to."""


class FencedOutbox(Outbox):
    """An outbox that stamps each message with the token of the moment at which it is put, and drops it when its turn
    comes if the token is another one by then.

    Args:
        fences: which topics this node may publish to.
    """

    def __init__(self, fences: Fences) -> None:
        super().__init__()
        self._fences = fences

    def put(self, message: Message) -> list[Dropped]:
        """See `Outbox`."""
        return super().put(message._replace(fence=self._fences.token(message.topic)))

    def hand_over(self, message: Message) -> Item | None:
        """See `Outbox`. One that may not be sent is put, so that its loss is counted."""
        token = self._fences.token(message.topic)
        return None if token == 0 else super().hand_over(message._replace(fence=token))

    def take(self, now: float) -> tuple[Item | None, list[Dropped]]:
        """See `Outbox`. What may not be sent any more is dropped."""
        lost: list[Dropped] = []
        while True:
            item, expired = super().take(now)
            lost += expired
            if item is None or self._may_go(item.message):
                return item, lost
            lost += self._lose(item, "fenced", LOST)
            self._done(item, DROP)

    def _may_go(self, message: Message) -> bool:
        if message.fence is None:
            return True
        return message.fence != 0 and message.fence == self._fences.token(message.topic)
