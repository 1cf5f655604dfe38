"""Shares the failure state of devices with other nodes of the app."""

import asyncio
from collections.abc import Callable, Mapping

from leadsman.runtime.statefile import Saved

SHARED = 1.0
"""Seconds until other nodes of the app have a change. The file, which wears a card out, is written less often."""


class SharedState:
    """The failure state of devices as other nodes had it, and as they get it.

    Args:
        elsewhere: what another node published of each device, and its age in seconds. It counts instead of what the
            file has.
        publish: takes a device and its document.
        document: makes the document of a device.
        loop: the event loop.
    """

    def __init__(
        self,
        elsewhere: Mapping[str, tuple[str, float]],
        publish: Callable[[str, str], None],
        document: Callable[[str], str],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._elsewhere = elsewhere
        self._publish = publish
        self._document = document
        self._loop = loop
        self._changed: set[str] = set()

    def newest(self, found: dict[str, Saved], wall: float) -> dict[str, Saved]:
        """What the file has, or another node had after it; `wall` is now, epoch seconds."""
        newer = {
            name: Saved(wall - age, document)
            for name, (document, age) in self._elsewhere.items()
            if name not in found or found[name].document != document
        }
        return {**found, **newer}

    def change(self, name: str) -> None:
        """A device has changed: publish it within `SHARED`."""
        if not self._changed:
            self._loop.call_later(SHARED, self.flush)
        self._changed.add(name)

    def forget(self, name: str) -> None:
        """A device is gone."""
        self._changed.discard(name)

    def flush(self) -> None:
        """Publish what has changed."""
        changed, self._changed = sorted(self._changed), set()
        for name in changed:
            self._publish(name, self._document(name))
