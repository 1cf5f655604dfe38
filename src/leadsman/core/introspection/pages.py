"""Writes a document, as one text or split into pages that a broker takes; and puts pages together again.

A document is an object of sections. A section is an object or a list, whose members may be on several pages, or any
other value, which is on one page. Members are encoded one by one as they come, so a page needs no second look at what
is on it.
"""

from collections.abc import Iterable, Mapping

from leadsman.core.mqtt.answers import Json
from leadsman.core.mqtt.topics import encode

MAX_PAGE_BYTES = 120_000
"""Bytes of the document on a page. AWS IoT Core takes messages of 128 KiB, and other brokers take more."""
ENVELOPE = 4096
"""Bytes of a message that are left for its topic, its properties and what it contains besides the document."""
PIECE = 64 * 1024
"""Bytes after which a piece of a document without pages is complete."""
MIN_PAGE_BYTES = 1024
"""Bytes of the document on a page for a broker that takes hardly anything."""


def page_size(maximum_packet_size: int | None, besides: int = 0) -> int:
    """The bytes of a document that fit on one page.

    Args:
        maximum_packet_size: bytes of the largest packet that the broker takes; None if there is no limit.
        besides: bytes of the payload that are not of the document.
    """
    largest = MAX_PAGE_BYTES if maximum_packet_size is None else min(MAX_PAGE_BYTES, maximum_packet_size - ENVELOPE)
    return max(MIN_PAGE_BYTES, largest - besides)


class DocumentWriter:
    """Takes a document section by section, while it is made. A member that is larger than a page is a page of its own.

    Args:
        largest: bytes of a page at most. None: the document is one text, in pieces of a few dozen kilobytes.
    """

    def __init__(self, largest: int | None = None) -> None:
        self._largest = largest
        self._done: list[bytes] = []
        self._begin_page()

    def value(self, section: str, value: Json) -> None:
        """Add a section that is one value, which is on one page."""
        self._end_section()
        text = encode(section) + b":" + encode(value)
        self._make_room(text)
        self._write(text)

    def begin(self, section: str, brackets: bytes) -> None:
        """Begin a section of members; `brackets` are ``{}`` or ``[]``."""
        self._end_section()
        opening = encode(section) + b":" + brackets[:1]
        self._make_room(opening)
        self._open(opening, brackets[1:])

    def member(self, key: str | None, value: Json) -> None:
        """Add a member to the section that was begun; the key is None in a list. A value that is bytes is JSON
        already."""
        text = _text(value) if key is None else encode(key) + b":" + _text(value)
        opening, closing = self._opening, self._closing
        if self._make_room(text):
            self._open(opening, closing)
        self._write(text)

    def end(self) -> list[bytes]:
        """The pages: each one is the JSON of an object, with the sections that have something on it. Or the pieces:
        joined, they are one."""
        self._end_section()
        return [*self._done, bytes(self._page) + b"}"]

    def _begin_page(self) -> None:
        self._page = bytearray(b"{")
        self._empty = len(self._page)
        """Bytes of the page as long as it has neither a member nor a whole section."""
        self._comma = self._opening = self._closing = b""

    def _open(self, opening: bytes, closing: bytes) -> None:
        first = len(self._page) == self._empty
        self._write(opening)
        self._comma, self._opening, self._closing = b"", opening, closing
        if first:
            self._empty = len(self._page)

    def _end_section(self) -> None:
        if self._closing:
            self._page += self._closing
            self._comma, self._opening, self._closing = b",", b"", b""

    def _make_room(self, text: bytes) -> bool:
        """Begin another page if a text would make this one too large. Returns whether it did."""
        size = len(self._page) + len(text) + len(",]}")
        if self._largest is None or size <= self._largest or len(self._page) == self._empty:
            return False
        self._done = self.end()
        self._begin_page()
        return True

    def _write(self, text: bytes) -> None:
        self._page += self._comma + text
        self._comma = b","
        if self._largest is None and len(self._page) >= PIECE:
            self._done.append(bytes(self._page))
            self._page.clear()


def _text(value: Json) -> bytes:
    """A member as JSON."""
    return value if isinstance(value, bytes) else encode(value)


def around(head: Mapping[str, Json], page: bytes, number: int = 1, pages: int = 1) -> bytes:
    """The JSON of an object with the fields of `head`, which are not none, and then those of a page. It has the number
    of the page and of all pages if there are several."""
    fields, numbers = page[1:-1], {"page": number, "pages": pages} if pages > 1 else {}
    return encode({**head, **numbers})[:-1] + (b"," + fields if fields else b"") + b"}"


def merge(pages: Iterable[Mapping[str, Json]]) -> dict[str, Json]:
    """The document of these pages, in their order."""
    document: dict[str, Json] = {}
    for page in pages:
        for section, value in page.items():
            before = document.get(section)
            if isinstance(before, dict) and isinstance(value, dict):
                before.update(value)
            elif isinstance(before, list) and isinstance(value, list):
                before.extend(value)
            else:
                document[section] = value
    return document
