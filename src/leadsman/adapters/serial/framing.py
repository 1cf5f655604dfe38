"""Framers: they find where one message ends and the next begins in a stream of bytes. They do no I/O.

A framer is a value: it looks at a buffer and decides what its beginning is. A `Stream` holds the buffer of one port.
Memory is limited by the framer's `max_size`, whatever arrives. Bytes that cannot be part of a message are discarded and
counted, so a framer finds the next message after garbage.

Garbage may look like the beginning of a message whose rest never comes. A framer that verifies its messages then finds
the whole one behind it: `SettlesFramer` when the line is quiet, `AnswerFramer` at once, since it knows what was asked.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from leadsman.core.value import Value
from leadsman.errors import InvalidType, InvalidValue

MAX_SIZE = 4096
"""The default limit for a message in bytes. A DSMR telegram, the largest common one, is smaller."""

Found = tuple[bytes | None, int]
"""A message, or None if bytes are to be discarded; and the index after them. An index equal to the start means:
wait for more bytes."""


class Framer(Protocol):
    """The interface of framers. You can write your own."""

    @property
    def max_size(self) -> int:
        """The longest message in bytes."""
        ...

    def find(self, buffer: bytearray, start: int) -> Found:
        """Look at ``buffer[start:]``. Return a message and the index after it, or None and the index up to which to
        discard.

        It must not change the buffer and must not raise. It must move on once `max_size` bytes are available.
        """
        ...


class Behind(NamedTuple):
    """A message behind a beginning whose rest did not come."""

    message: bytes
    begin: int
    """Where it begins in the buffer."""
    end: int
    """The index after it."""


@runtime_checkable
class SettlesFramer(Protocol):
    """A framer that verifies its messages, such as by a checksum."""

    def settle(self, buffer: bytearray) -> Behind | None:
        """The line is quiet: find a whole message behind the beginning of the buffer, which waits for its rest."""
        ...


@runtime_checkable
class AnswerFramer(Protocol):
    """A framer that tells the answer to a request from other bytes."""

    def answering(self, request: bytes) -> Framer:
        """The framer of the answer to `request`, as it was sent. It never takes the request itself for one, unless the
        protocol answers with the same bytes."""
        ...


class Stream:
    """Collects the bytes of one port into messages."""

    __slots__ = ("_answering", "_buffer", "_framer", "_usual", "discarded")

    def __init__(self, framer: Framer) -> None:
        self._framer = self._usual = framer
        self._answering = framer if isinstance(framer, AnswerFramer) else None
        self._buffer = bytearray()
        self.discarded = 0
        """Bytes since the start that were not part of any message."""

    def feed(self, data: bytes) -> list[bytes]:
        """Add received bytes and return the messages that they complete."""
        buffer, framer = self._buffer, self._framer
        buffer += data
        messages, at = [], 0
        while at < len(buffer):
            message, end = framer.find(buffer, at)
            if end <= at:
                break
            if message is None:
                self.discarded += end - at
            else:
                messages.append(message)
            at = end
        del buffer[:at]
        return messages

    def settle(self) -> list[bytes]:
        """The line is quiet, so what waits for its rest may be garbage. Return the whole messages behind it. Nothing is
        discarded if there are none, since the rest may be late."""
        messages, buffer = [], self._buffer
        while buffer and isinstance(self._framer, SettlesFramer) and (found := self._framer.settle(buffer)) is not None:
            self.discarded += found.begin
            del buffer[: found.end]
            messages += [found.message, *self.feed(b"")]
        return messages

    @property
    def waiting(self) -> int:
        """The number of bytes of an incomplete message."""
        return len(self._buffer)

    def reset(self) -> None:
        """Discard an incomplete message. The rest of it counts as discarded when it arrives."""
        self.discarded += len(self._buffer)
        self._buffer.clear()
        self._framer = self._usual

    def expect(self, request: bytes) -> None:
        """The next message answers `request`."""
        if self._answering is not None:
            self._framer = self._answering.answering(request)


def whole_behind(framer: Framer, buffer: bytearray) -> Behind | None:
    """The first whole message behind the beginning of the buffer; for `SettlesFramer.settle`."""
    at = 1
    while at < len(buffer):
        message, end = framer.find(buffer, at)
        if message is not None:
            return Behind(message, at, end)
        at = max(end, at + 1)
    return None


class LineFramer(Value):
    """Lines of text or bytes, returned without their end and without a carriage return before it.

    Args:
        end: the bytes that end a line.
        max_size: a longer line is discarded up to its end.
    """

    __slots__ = ("end", "max_size")
    end: bytes
    max_size: int

    def __init__(self, end: bytes = b"\n", *, max_size: int = MAX_SIZE) -> None:
        self._hold(end=_some_bytes(end, "end"), max_size=size_of(max_size, "max_size"))

    def find(self, buffer: bytearray, start: int) -> Found:
        end = buffer.find(self.end, start)
        if end < 0:
            # A line that is too long already stays too long when its middle goes, so no flag remembers it. All but the
            # last byte of its end may be there already.
            kept = self.max_size + len(self.end)
            return None, len(buffer) - kept if len(buffer) > start + kept else start
        behind = end + len(self.end)
        if end - start > self.max_size:
            return None, behind
        line = bytes(buffer[start:end])
        return (line[:-1] if line.endswith(b"\r") else line), behind


class DelimiterFramer(Value):
    """Messages between two delimiters, returned with both: ``/…!`` of a smart meter, STX … ETX.

    Args:
        begin: the first delimiter.
        end: the last delimiter.
        trailer: the number of bytes after the end that belong to the message, such as a checksum.
        check: returns whether a message is valid. An invalid one is discarded up to the next beginning inside it.
            Without it, a message has no second beginning inside: what precedes that is an earlier one that was cut.
        max_size: the longest message, including its delimiters.
    """

    __slots__ = ("begin", "check", "end", "max_size", "trailer")
    begin: bytes
    end: bytes
    trailer: int
    check: Callable[[bytes], bool] | None
    max_size: int

    def __init__(
        self,
        begin: bytes,
        end: bytes,
        *,
        trailer: int = 0,
        check: Callable[[bytes], bool] | None = None,
        max_size: int = MAX_SIZE,
    ) -> None:
        self._hold(
            begin=_some_bytes(begin, "begin"),
            end=_some_bytes(end, "end"),
            trailer=size_of(trailer, "trailer", least=0),
            check=check,
            max_size=size_of(max_size, "max_size", least=len(begin) + len(end) + trailer),
        )

    def find(self, buffer: bytearray, start: int) -> Found:
        begin = sync(buffer, start, self.begin)
        if begin > start:
            return None, begin
        if not buffer.startswith(self.begin, start):
            return None, start  # a part of the beginning; wait
        end = buffer.find(self.end, start + len(self.begin), start + self.max_size - self.trailer)
        if end < 0:
            return None, start + 1 if len(buffer) - start >= self.max_size else start
        if self.check is None and self.begin != self.end:
            again = buffer.rfind(self.begin, start + len(self.begin), end)
            if again >= 0:
                return None, again
        behind = end + len(self.end) + self.trailer
        if len(buffer) < behind:
            return None, start
        return _check(bytes(buffer[start:behind]), start, behind, self.check)

    def settle(self, buffer: bytearray) -> Behind | None:
        return whole_behind(self, buffer) if self.check is not None else None


class FixedFramer(Value):
    """Messages of a fixed length, returned complete.

    Args:
        length: the length of a message in bytes.
        begin: the bytes that each message begins with. Give them if there are any: without them, the framer cannot
            find the next message after a byte is lost.
        check: returns whether a message is valid. After an invalid one, the search continues one byte later.
    """

    __slots__ = ("begin", "check", "length")
    length: int
    begin: bytes
    check: Callable[[bytes], bool] | None

    def __init__(self, length: int, *, begin: bytes = b"", check: Callable[[bytes], bool] | None = None) -> None:
        begin = begin if begin == b"" else _some_bytes(begin, "begin")
        self._hold(length=size_of(length, "length", least=max(1, len(begin))), begin=begin, check=check)

    @property
    def max_size(self) -> int:
        return self.length

    def find(self, buffer: bytearray, start: int) -> Found:
        begin = sync(buffer, start, self.begin)
        if begin > start:
            return None, begin
        behind = start + self.length
        if len(buffer) < behind:
            return None, start
        return _check(bytes(buffer[start:behind]), start, behind, self.check)


class LengthPrefixedFramer(Value):
    """Messages that contain their length: beginning, length, that many bytes, trailer. Returned complete.

    Args:
        begin: the bytes that each message begins with; may be empty.
        length_size: the size of the length field in bytes: 1, 2 or 4.
        byteorder: of the length field.
        extra: the number of bytes after those that the length counts, such as a checksum; negative if the length also
            counts its own field or the beginning.
        check: returns whether a message is valid. After an invalid one, the search continues one byte later.
        max_size: the longest message. A length field that exceeds it is treated as garbage.
    """

    __slots__ = ("begin", "byteorder", "check", "extra", "length_size", "max_size")
    begin: bytes
    length_size: int
    byteorder: Literal["little", "big"]
    extra: int
    check: Callable[[bytes], bool] | None
    max_size: int

    def __init__(
        self,
        begin: bytes = b"",
        *,
        length_size: int = 1,
        byteorder: Literal["little", "big"] = "big",
        extra: int = 0,
        check: Callable[[bytes], bool] | None = None,
        max_size: int = MAX_SIZE,
    ) -> None:
        if length_size not in (1, 2, 4):
            raise InvalidValue(f"length_size is {length_size!r}; it must be 1, 2 or 4 bytes")
        if byteorder not in ("little", "big"):
            raise InvalidValue(f"byteorder is {byteorder!r}; it must be 'little' or 'big'")
        begin = begin if begin == b"" else _some_bytes(begin, "begin")
        max_size = size_of(max_size, "max_size", least=len(begin) + length_size)
        self._hold(
            begin=begin, length_size=length_size, byteorder=byteorder, extra=extra, check=check, max_size=max_size
        )

    def find(self, buffer: bytearray, start: int) -> Found:
        begin = sync(buffer, start, self.begin)
        if begin > start:
            return None, begin
        field = start + len(self.begin)
        if len(buffer) < field + self.length_size:
            return None, start
        length = int.from_bytes(buffer[field : field + self.length_size], self.byteorder)
        size = len(self.begin) + self.length_size + length + self.extra
        if not len(self.begin) + self.length_size <= size <= self.max_size:
            return None, start + 1
        if len(buffer) < start + size:
            return None, start
        return _check(bytes(buffer[start : start + size]), start, start + size, self.check)

    def settle(self, buffer: bytearray) -> Behind | None:
        return whole_behind(self, buffer) if self.check is not None else None


def sync(buffer: bytearray, start: int, begin: bytes) -> int:
    """The index of the next beginning, or where it may be once more bytes arrive; `start` if it is there, or if
    `begin` is empty."""
    if not begin:
        return start
    at = buffer.find(begin, start)
    if at >= 0:
        return at
    for kept in range(min(len(begin) - 1, len(buffer) - start), 0, -1):
        if buffer.endswith(begin[:kept]):
            return len(buffer) - kept
    return len(buffer)


def _check(message: bytes, start: int, behind: int, check: Callable[[bytes], bool] | None) -> Found:
    if check is not None and not check(message):
        return None, start + 1
    return message, behind


def _some_bytes(value: object, what: str) -> bytes:
    if not isinstance(value, bytes):
        raise InvalidType(f"{what} is {value!r}; write bytes such as b'\\n'")
    if not value:
        raise InvalidValue(f"{what} is empty; write at least one byte, such as b'\\n'")
    return value


def size_of(value: object, what: str, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidType(f"{what} is {value!r}; it must be a number of bytes")
    if value < least:
        raise InvalidValue(f"{what} is {value!r}; it must be at least {least} bytes")
    return value
