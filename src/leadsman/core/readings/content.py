"""A reading that is no JSON: the bytes of an image, or of another content, with what they are."""

import re
from collections.abc import Callable
from typing import NamedTuple

from leadsman.core.loop.clock import Clock
from leadsman.core.loop.durations import whole
from leadsman.core.readings.reading import JsonObject, Reading
from leadsman.core.value import Value
from leadsman.errors import InvalidType, InvalidValue, ResultError

MAX_CONTENT_BYTES = 1_000_000
"""Bytes of a content, at most: what the outbox takes of one message, without its topic."""
_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,127}/[A-Za-z0-9!#$&^_.+-]{1,127}(; *[A-Za-z0-9=_.+\"-]{1,100}){0,3}")
"""Type and subtype with their characters (RFC 6838 §4.2), and parameters such as ``charset=utf-8``."""


class Content(Value):
    """Declares beside ``bytes`` what a handler returns: ``-> Annotated[bytes, Content("image/jpeg")]``. The bytes are
    published as they are at a topic of their own, with the MQTT 5 property Content Type.

    Args:
        content_type: the media type, such as ``"image/jpeg"``.
        limit: bytes of one content, 1 to 1,000,000. A larger one fails the poll.

    Raises:
        InvalidValue, InvalidType: at construction.
    """

    __slots__ = ("content_type", "limit")
    content_type: str
    limit: int

    def __init__(self, content_type: str, *, limit: int = MAX_CONTENT_BYTES) -> None:
        if not isinstance(content_type, str):
            raise InvalidType(f"content_type is {content_type!r}; write text such as 'image/jpeg'")
        if not _TYPE.fullmatch(content_type):
            raise InvalidValue(f"content_type is {content_type!r}; write a media type such as 'image/jpeg'")
        limits = f"write 1 to {MAX_CONTENT_BYTES} bytes, since the outbox accepts no more"
        whole(limit, "limit", 1, MAX_CONTENT_BYTES, kind="write a number of bytes, such as 200_000", limits=limits)
        self._hold(content_type=content_type, limit=limit)


class ContentField(NamedTuple):
    """The content that a handler returns, and the name of its topic."""

    content: Content
    name: str

    def reading_of(
        self, entity: str, result: object, clock: Clock, validate: Callable[[object], object] | None = None
    ) -> Reading | None:
        """As `leadsman.core.readings.reading.reading_of`.

        Raises:
            ResultError: the handler returned no bytes, none at all, or more than the limit.
        """
        if result is None:
            return None
        if not isinstance(result, bytes | bytearray | memoryview):
            raise ResultError(
                f"the handler returned a {type(result).__name__}, and it is annotated to return bytes of"
                f" {self.content.content_type}; fix one of them"
            )
        data = bytes(result)
        if not data:
            raise ResultError(f"the {self.content.content_type} is empty; return None to publish nothing")
        if len(data) > self.content.limit:
            raise ResultError(
                f"the {self.content.content_type} has {len(data):,} bytes; {self.content.limit:,} are allowed: make it"
                f" smaller, or write Content(…, limit=…), at most {MAX_CONTENT_BYTES:,}"
            )
        from hashlib import sha256  # only handlers with a content need it

        digest = sha256(data).hexdigest()
        fields: JsonObject = {"content_type": self.content.content_type, "size": len(data), "sha256": digest}
        return Reading(entity, fields, (), clock.monotonic(), clock.wall(), data)
