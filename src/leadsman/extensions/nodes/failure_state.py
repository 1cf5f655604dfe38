"""The failure state of the devices that several nodes share: the owner of a device retains it at the broker, for the
node that takes over."""

from collections.abc import Callable

from leadsman.core.mqtt.connection import Received
from leadsman.core.mqtt.message import Message
from leadsman.core.mqtt.topics import Topics

WORD = "resilience"
"""The last level of the topics."""
MAX_DEVICE_BYTES = 16 * 1024
"""Bytes of one device; a document has some 400."""
MAX_TOTAL_BYTES = 8 * 1024 * 1024
"""Bytes that are kept of all devices: some 20,000 of them."""


def filters_of(topics: Topics) -> tuple[str, ...]:
    """The topic filters of the documents of all devices; that of the root device has a level less."""
    devices = topics.of("+", WORD)
    return (devices,) if topics.root is None else (devices, topics.of(topics.root, WORD))


def topic_of(topics: Topics, device: str) -> str:
    """The topic of the document of a device."""
    return topics.of(device, WORD)


class FailureStates:
    """Keeps the failure state of the devices, as it is heard. Nothing of it is checked: who reads it does that.

    Args:
        topics: of the app.
        now: seconds of a clock that never goes back.
    """

    def __init__(self, topics: Topics, now: Callable[[], float]) -> None:
        self.topic_filters = filters_of(topics)
        """Where they are."""
        self._topics = topics
        self._now = now
        self._heard: dict[str, tuple[float, bytes]] = {}
        self._bytes = 0

    def received(self, message: Received) -> None:
        """Take a message at one of the topics. One that is too large, or too much, removes what was there."""
        device = self._topics.device_of(message.topic)
        _, former = self._heard.pop(device, (0.0, b""))
        self._bytes -= len(former)
        size = len(message.payload)
        if 0 < size <= MAX_DEVICE_BYTES and self._bytes + size <= MAX_TOTAL_BYTES:
            self._heard[device] = self._now(), message.payload
            self._bytes += size

    def found(self) -> dict[str, tuple[str, float]]:
        """The documents by device, with their ages in seconds, as far as they are known: one that was there before this
        node came counts from then on."""
        now = self._now()
        return {device: (text.decode(errors="replace"), now - at) for device, (at, text) in self._heard.items()}

    def of(self, device: str) -> tuple[str, float] | None:
        """The document of one device, with its age as in `found`; None if there is none."""
        if device not in self._heard:
            return None
        at, text = self._heard[device]
        return text.decode(errors="replace"), self._now() - at

    def message(self, device: str, document: str) -> Message | None:
        """The message that publishes the document of a device; None if it is too large."""
        payload = document.encode()
        return (
            Message(self.topic(device), payload, 1, retain=True, latest=True)
            if len(payload) <= MAX_DEVICE_BYTES
            else None
        )

    def topic(self, device: str) -> str:
        """Where the document of a device is."""
        return self._topics.of(device, WORD)
