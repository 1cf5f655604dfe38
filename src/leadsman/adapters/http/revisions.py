"""Answers that are kept with their revision, so that a server need not send again what has not changed (RFC 9110 §13).
Pure."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

MOST_BYTES = 4 * 1024 * 1024
"""Of all answers that are kept, with their addresses and headers; the oldest ones go first."""
_OVERHEAD = 1000
"""Bytes that an answer takes besides."""
LONGEST_REVISION = 1024
"""Characters of an ``ETag`` or a date that is sent back. One with a control character could not be sent."""


class KeptAnswer(NamedTuple):
    """An answer, and how to ask whether it is still the latest one."""

    conditions: Mapping[str, str]
    """The headers with which only what has changed is sent."""
    headers: Mapping[str, str]
    content: bytes
    size: int
    """Bytes that it takes."""


class Revisions:
    """The latest answer for each URL, if its server named its revision."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, KeptAnswer] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, url: str) -> KeptAnswer | None:
        """What is kept for a URL. Whoever asks the server whether it has changed holds it until the server answers:
        other answers may take its place meanwhile."""
        if url in self._kept:
            self._kept.move_to_end(url)
        return self._kept.get(url)

    def keep(self, url: str, headers: Mapping[str, str], content: bytes) -> None:
        """Keep an answer, unless its server names no revision or forbids it."""
        self._forget(url)
        conditions = {
            condition: headers[name]
            for condition, name in (("If-None-Match", "etag"), ("If-Modified-Since", "last-modified"))
            if 0 < len(headers.get(name, "")) <= LONGEST_REVISION and headers[name].isprintable()
        }
        if not conditions or "no-store" in headers.get("cache-control", "").lower() or len(content) > MOST_BYTES:
            return
        size = _OVERHEAD + len(content) + len(url) + sum(len(name) + len(value) for name, value in headers.items())
        self._kept[url] = KeptAnswer(conditions, headers, content, size)
        self._size += size
        while self._size > MOST_BYTES:
            self._forget(next(iter(self._kept)))

    def clear(self) -> None:
        """Forget all answers."""
        self._kept.clear()
        self._size = 0

    def _forget(self, url: str) -> None:
        kept = self._kept.pop(url, None)
        if kept is not None:
            self._size -= kept.size
