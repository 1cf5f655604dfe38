"""The descriptions that an app removed in the last days.

A reader of descriptions that was away meanwhile, such as a Home Assistant that was being updated, did not see the
removal, and would keep the device for ever. So the registry lists what was removed, and the device is described once
more, and removed again, when a reader starts. Pure.
"""

from collections.abc import Iterable
from typing import NamedTuple

KEPT = 30 * 86400.0
"""Seconds from a removal until it is no longer listed."""
MOST = 64 * 1024
"""Bytes of the descriptions that are listed; of more, the newest ones. A description has 4 kB at the most."""


class RemovedDescription(NamedTuple):
    """A description that was removed."""

    topic: str
    payload: bytes
    until: float
    """Epoch seconds until which it is listed."""


class RemovedDescriptions:
    """What was removed, and no reader has seen for certain."""

    def __init__(self) -> None:
        self._found: dict[str, RemovedDescription] = {}

    def add(self, topic: str, payload: bytes, now: float) -> None:
        """List a description that is about to be removed, `now` in epoch seconds."""
        self._found.pop(topic, None)
        self._list([*self._found.values(), RemovedDescription(topic, payload, now + KEPT)])

    def take(self, found: Iterable[RemovedDescription], now: float) -> None:
        """List what an earlier run listed, unless it was removed again meanwhile."""
        earlier = [each._replace(until=min(each.until, now + KEPT)) for each in found if each.topic not in self._found]
        self._list([*earlier, *self._found.values()])

    def _list(self, found: Iterable[RemovedDescription]) -> None:
        self._found = {each.topic: each for each in sorted(found, key=lambda each: each.until)}
        while sum(len(each.payload) for each in self._found.values()) > MOST:
            del self._found[next(iter(self._found))]

    def forget(self, topic: str) -> bool:
        """List a description no more: readers have seen that it was removed, or its device is back. Returns whether it
        was listed."""
        return self._found.pop(topic, None) is not None

    def current(self, now: float) -> list[RemovedDescription]:
        """What is listed, the oldest first."""
        return [each for each in self._found.values() if each.until > now]
