"""The link of a simulated app. Its broker is in memory and takes every message at once, so the outbox has nothing to
keep while there is a connection."""

from leadsman.mqtt.link import Link
from leadsman.mqtt.message import Message

SHORT = 2**16
"""Bytes. Whether a longer message is too large is left to the outbox."""


class ShortLink(Link):
    """A link through which a message arrives when it is put. Without a connection messages wait in the outbox, as they
    do in every app, and so do those that are put before it is empty again."""

    def put(self, message: Message) -> None:
        """See `Link`."""
        outbox = self.outbox
        if outbox.messages or not self.up or message.size > SHORT:
            super().put(message)
            return
        outbox.delivered += 1
        if message.receipt is not None:
            message.receipt.published += 1
