"""Writes a document, as one text or split into pages that a broker takes; and puts pages together again.

A document is an object of sections. A section is an object or a list, whose members may be on several pages, or any
other value, which is on one page. Members are encoded one by one as they come, so a page needs no second look at what
is on it.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from leadsman.mqtt.answers import Json
from leadsman.mqtt.topics import encode

LARGEST = 120_000
"""Bytes of the document on a page. AWS IoT Core takes messages of 128 KiB, and other brokers take more."""
ENVELOPE = 4096
"""Bytes of a message that are left for its topic, its properties and what it contains besides the document."""
PIECE = 64 * 1024
"""Bytes after which a piece of a `Whole` is complete."""
SMALLEST = 1024
"""Bytes of the document on a page for a broker that takes hardly anything."""


def page_size(maximum_packet_size: int | None, besides: int = 0) -> int:
    """The bytes of a document that fit on one page.

    Args:
        maximum_packet_size: bytes of the largest packet that the broker takes; None if there is no limit.
        besides: bytes of the payload that are not of the document.
    """
    largest = LARGEST if maximum_packet_size is None else min(LARGEST, maximum_packet_size - ENVELOPE)
    return max(SMALLEST, largest - besides)


class DocumentWriter(Protocol):
    """Takes a document section by section, while it is made."""

    def value(self, section: str, value: Json) -> None:
        """Add a section that is one value."""
        ...

    def begin(self, section: str, brackets: bytes) -> None:
        """Begin a section of members; `brackets` are ``{}`` or ``[]``."""
        ...

    def member(self, key: str | None, value: Json) -> None:
        """Add a member to the section that was begun; the key is None in a list. A value that is bytes is JSON
        already."""
        ...


class Pages:
    """Collects a document of several sections, page by page. A member that is larger than a page is a page of its own.

    Args:
        largest: bytes of a page at most.
    """

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._done: list[bytes] = []
        self._sections: list[bytes] = []
        self._members: list[bytes] = []
        self._name, self._brackets = b"", b""
        self._size = 2

    def value(self, section: str, value: Json) -> None:
        """Add a section that is on one page."""
        text = encode(section) + b":" + encode(value)
        self._end_section()
        self._make_room(len(text))
        self._sections.append(text)
        self._size += len(text) + 1

    def begin(self, section: str, brackets: bytes) -> None:
        """See `DocumentWriter`."""
        name = encode(section)
        self._end_section()
        self._make_room(len(name) + 3)
        self._open(name, brackets)

    def member(self, key: str | None, value: Json) -> None:
        """See `DocumentWriter`."""
        text = _text(value) if key is None else encode(key) + b":" + _text(value)
        if self._size + len(text) + 1 > self._largest and (self._sections or self._members):
            name, brackets = self._name, self._brackets
            self._end_page()
            self._open(name, brackets)
        self._members.append(text)
        self._size += len(text) + 1

    def end(self) -> list[bytes]:
        """The pages: each one is the JSON of an object, with the sections that have something on it."""
        self._end_page()
        return self._done

    def _open(self, name: bytes, brackets: bytes) -> None:
        self._name, self._brackets = name, brackets
        self._size += len(name) + 4

    def _make_room(self, size: int) -> None:
        if self._size + size > self._largest and self._sections:
            self._end_page()

    def _end_section(self) -> None:
        if self._name:
            first, last = self._brackets[:1], self._brackets[1:]
            self._sections.append(self._name + b":" + first + b",".join(self._members) + last)
            self._members = []
            self._name = b""

    def _end_page(self) -> None:
        self._end_section()
        self._done.append(b"{" + b",".join(self._sections) + b"}")
        self._sections, self._size = [], 2


class Whole:
    """Collects a document of several sections as one text, in pieces of a few dozen kilobytes."""

    def __init__(self) -> None:
        self._done: list[bytes] = []
        self._piece = bytearray(b"{")
        self._closing = b""
        self._first_section, self._first_member = True, True

    def value(self, section: str, value: Json) -> None:
        """See `DocumentWriter`."""
        self._begin(section)
        self._piece += encode(value)
        self._pass_on()

    def begin(self, section: str, brackets: bytes) -> None:
        """See `DocumentWriter`."""
        self._begin(section)
        self._piece += brackets[:1]
        self._closing, self._first_member = brackets[1:], True

    def member(self, key: str | None, value: Json) -> None:
        """See `DocumentWriter`."""
        if not self._first_member:
            self._piece += b","
        self._first_member = False
        if key is not None:
            self._piece += encode(key) + b":"
        self._piece += _text(value)
        self._pass_on()

    def end(self) -> list[bytes]:
        """The pieces: joined, they are the JSON of an object."""
        self._piece += self._closing + b"}"
        return [*self._done, bytes(self._piece)]

    def _begin(self, section: str) -> None:
        self._piece += self._closing
        if not self._first_section:
            self._piece += b","
        self._closing, self._first_section = b"", False
        self._piece += encode(section) + b":"

    def _pass_on(self) -> None:
        if len(self._piece) >= PIECE:
            self._done.append(bytes(self._piece))
            self._piece.clear()


def _text(value: Json) -> bytes:
    """A member as JSON."""
    return value if isinstance(value, bytes) else encode(value)


def around(head: Mapping[str, Json], page: bytes) -> bytes:
    """The JSON of an object with the fields of `head`, which are not none, and then those of a page."""
    fields = page[1:-1]
    return encode(head)[:-1] + (b"," + fields if fields else b"") + b"}"


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
