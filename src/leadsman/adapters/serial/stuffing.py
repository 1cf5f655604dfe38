"""Framers for protocols that reserve one byte as the end of a frame, and encode this byte differently inside the data.

They return the decoded content. A frame that cannot be decoded is discarded. Everything between two end bytes is one
frame, so after garbage the framer is in step again at the next end byte.
"""

from typing import ClassVar

from leadsman.adapters.serial.checksums import crc16_x25
from leadsman.adapters.serial.framing import MAX_SIZE, Found, size_of
from leadsman.core.value import Value


class _Stuffed(Value):
    """Frames that end with one byte, `_END`. Repeated ends are one."""

    __slots__ = ("max_size",)
    max_size: int
    _END: ClassVar[int]

    def __init__(self, *, max_size: int = MAX_SIZE) -> None:
        self._hold(max_size=size_of(max_size, "max_size", least=4))

    def find(self, buffer: bytearray, start: int) -> Found:
        begin, size, mark = start, len(buffer), self._END
        while begin < size and buffer[begin] == mark:
            begin += 1
        end = buffer.find(mark, begin)
        if end < 0:
            if begin - start > 1:
                return None, begin - 1  # one end is enough: it may begin a frame
            # A frame that is too long stays too long when its middle goes, so no flag remembers it.
            return None, size - self.max_size - 1 if size - begin > self.max_size + 1 else start
        whole = end + 1 - begin <= self.max_size
        return self.decoded(bytes(buffer[begin:end])) if whole else None, end + 1

    def decoded(self, raw: bytes) -> bytes | None:
        """Return the content of a frame, or None if it is broken."""
        raise NotImplementedError


class SlipFramer(_Stuffed):
    """SLIP (RFC 1055). It has no checksum: noise between two end bytes is returned as a message.

    Args:
        max_size: the longest encoded frame, including its end bytes. A longer one is discarded.
    """

    __slots__ = ()
    _END = 0xC0

    def decoded(self, raw: bytes) -> bytes | None:
        if b"\xdb" not in raw:
            return raw
        if raw.count(b"\xdb") != raw.count(b"\xdb\xdc") + raw.count(b"\xdb\xdd"):
            return None
        return raw.replace(b"\xdb\xdc", b"\xc0").replace(b"\xdb\xdd", b"\xdb")


class CobsFramer(_Stuffed):
    """Consistent overhead byte stuffing (Cheshire and Baker, 1999): frames end with a zero and contain none.

    Args:
        max_size: the longest encoded frame, including its end bytes. A longer one is discarded.
    """

    __slots__ = ()
    _END = 0x00

    def decoded(self, raw: bytes) -> bytes | None:
        found, at, size = bytearray(), 0, len(raw)
        while at < size:
            code = raw[at]
            behind = at + code
            if behind > size:
                return None
            found += raw[at + 1 : behind]
            if code < 0xFF and behind < size:
                found.append(0)
            at = behind
        return bytes(found)


class HdlcFramer(_Stuffed):
    """Asynchronous HDLC (RFC 1662, 4): flags of 0x7E, escapes of 0x7D, and a frame check sequence of 16 bits, which
    must be correct. Messages are returned without flags, escapes and check sequence.

    Args:
        max_size: the longest encoded frame, including its flags. A longer one is discarded.
    """

    __slots__ = ()
    _END = 0x7E

    def decoded(self, raw: bytes) -> bytes | None:
        first, *others = raw.split(b"\x7d")
        if not all(others):
            return None  # an escape at the end: the sender stopped there
        content = first + b"".join(bytes((part[0] ^ 0x20,)) + part[1:] for part in others)
        if len(content) < 3 or crc16_x25(content[:-2]) != int.from_bytes(content[-2:], "little"):
            return None
        return content[:-2]


def slip(data: bytes) -> bytes:
    """Encode a SLIP frame. An end byte precedes it as well, so that earlier noise becomes a frame of its own."""
    return b"\xc0" + data.replace(b"\xdb", b"\xdb\xdd").replace(b"\xc0", b"\xdb\xdc") + b"\xc0"


def cobs(data: bytes) -> bytes:
    """Encode a COBS frame, with the zero after it."""
    frame = bytearray()
    for part in data.split(b"\x00"):
        while len(part) >= 254:
            frame += b"\xff" + part[:254]
            part = part[254:]
        frame += bytes((len(part) + 1,)) + part
    return bytes(frame) + b"\x00"


def hdlc(data: bytes) -> bytes:
    """Encode an HDLC frame, with flags on both sides."""
    content = data + crc16_x25(data).to_bytes(2, "little")
    return b"\x7e" + content.replace(b"\x7d", b"\x7d\x5d").replace(b"\x7e", b"\x7d\x5e") + b"\x7e"
