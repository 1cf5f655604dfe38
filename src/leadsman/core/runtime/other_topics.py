"""The retained topics of an app besides those that leadsman publishes to by itself: what handlers publish through their
`Context`, and what is published elsewhere for a device. The registry lists them, so that they can be removed when
their device is.
"""

import logging
from collections.abc import Callable, Iterable

from leadsman.core.events import AppFault
from leadsman.core.mqtt.topics import topic_matches
from leadsman.core.observers import Observers
from leadsman.core.text import log_fields

MAX_TOPICS = 256
"""Further retained topics of one device that the registry lists."""

logger = logging.getLogger("leadsman")


class OtherTopics:
    """Further retained topics, by device.

    Args:
        emit: takes the faults of those who follow the topics.
    """

    def __init__(self, emit: Callable[[AppFault], None]) -> None:
        self.topics: dict[str, dict[str, None]] = {}
        """The topics of each device; those of the app itself by the empty text."""
        self.changed: Observers[[]] = Observers("the list of retained topics", emit)
        """Called when a topic was added or removed."""
        self.new: Observers[[str, str]] = Observers("a new retained topic", emit)
        """Called with a device and a topic that is about to be published for the first time in this run."""
        self.described: list[str] = []
        """The topic filters of descriptions of the devices, such as that of discovery; none while it is off."""
        self.seen: set[str] | None = set()
        """The descriptions of this app that the broker has sent; None once the earlier registry was read."""
        self._full: set[str] = set()

    def is_described(self, topic: str) -> bool:
        """Whether a topic is one of descriptions, so that only what publishes them removes what is gone there."""
        return any(topic_matches(each, topic) for each in self.described)

    def keep(self, device: str, topics: Iterable[str]) -> None:
        """List topics that an earlier run listed, before the registry is published."""
        if found := dict.fromkeys(topics):
            self.topics.setdefault(device, {}).update(found)

    def remove(self, device: str, topic: str) -> None:
        """List a topic no more, since it was removed from the broker."""
        topics = self.topics.get(device, {})
        if topic in topics:
            del topics[topic]
            self.changed()

    def forget(self, device: str) -> None:
        """List no topic of a device any more, since the device is gone."""
        self._full.discard(device)
        self.topics.pop(device, None)

    def add(self, device: str, topic: str) -> None:
        """List a retained topic of a device, or of the app itself if the device is the empty text, before something is
        published there. The 257th of a device is logged, and not listed."""
        topics = self.topics.setdefault(device, {})
        if topic in topics:
            return
        if len(topics) < MAX_TOPICS:
            topics[topic] = None
            self.new(device, topic)
            self.changed()
        elif device not in self._full:
            self._full.add(device)
            logger.warning(
                "%s retains more than %d topics; the others will stay at the broker when it is removed. Publish them "
                "without retain, or to fewer topics.",
                device or "the app",
                MAX_TOPICS,
                extra=log_fields("many retained topics", device),
            )
